"""Pruning a store while it is read; what each rule keeps is in test_sparse_batch.py."""

from pathlib import Path

import numpy as np
import pytest
from synthetic_stores import synthetic_batch, vocabulary, write_plain, write_store

from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import open_store
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule
from milco_pyserini.sparse.store import VectorStore


def rules(*texts: str) -> list[PruningRule]:
    return [PruningRule.parse(text) for text in texts]


@pytest.fixture(params=[False, True], ids=["jsonl", "parquet"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> VectorStore:
    """A finished store of 150 documents in two parts."""
    opened = open_store(write_store(tmp_path / "v", *synthetic_batch(150), parquet=request.param))
    assert isinstance(opened, VectorStore)
    return opened


def test_rules_prune_every_batch_in_their_order(store: VectorStore) -> None:
    """The batches are those of the store with each rule applied in turn."""
    chosen = rules("pivot:top-k:5", "source:threshold:1", "mass:30")
    for (names, pruned), (expected_names, batch) in zip(
        PrunedStore(store, chosen).batches(), store.batches(), strict=True
    ):
        for rule in chosen:
            batch = rule(batch)
        assert names == expected_names
        assert np.array_equal(pruned.indptr, batch.indptr)
        assert np.array_equal(pruned.columns, batch.columns)
        assert np.array_equal(pruned.weights, batch.weights)


def test_kept_impacts_equal_the_stores(store: VectorStore) -> None:
    """Both ways of reading agree, and no impact changes by its way through floats."""
    pruned = PrunedStore(store, rules("top-k:6"))
    kept = [vector for _, batch in pruned.batches() for vector in batch.to_dicts(store.vocabulary)]
    for (name, vector), (same, complete), floats in zip(pruned.vectors(), store.vectors(), kept, strict=True):
        assert name == same
        assert vector.keys() == floats.keys()
        assert vector.items() <= complete.items()
        assert len(vector) == min(6, len(complete))


def test_one_view_can_be_kept(store: VectorStore) -> None:
    """Columns of the other view are dropped, and the manifest names the view that is kept."""
    pruned = PrunedStore(store, views=["pivot"])
    assert all((batch.columns < batch.english_size).all() for _, batch in pruned.batches())
    assert pruned.manifest.views == ["pivot"]
    assert pruned.terms == vocabulary().terms.tolist()


def test_emptied_documents_are_counted_in_each_pass(store: VectorStore) -> None:
    """Documents without terms in the store are not counted, and each pass counts anew."""
    pruned = PrunedStore(store, rules("threshold:2"))
    lengths = np.concatenate([batch.lengths() for _, batch in store.batches()])
    left = np.concatenate([batch.lengths() for _, batch in pruned.batches()])
    assert pruned.emptied == ((lengths > 0) & (left == 0)).sum() > 0
    list(pruned.batches())
    assert pruned.emptied == ((lengths > 0) & (left == 0)).sum()


def test_the_manifest_names_earlier_rules_first(tmp_path: Path) -> None:
    """The rule of encoding precedes the rules of reading."""
    opened = open_store(write_store(tmp_path / "v", *synthetic_batch(20), pruning="top-k:30"))
    assert PrunedStore(opened, rules("mass:10", "top-k:5")).manifest.pruning == "top-k:30 mass:10 top-k:5"
    assert opened.manifest.pruning == "top-k:30"


def test_external_vectors_are_pruned_too(tmp_path: Path) -> None:
    """External vectors have no views; all other rules apply."""
    opened = open_store(write_plain(tmp_path / "v.jsonl", {"b": {"x": 5, "y": 1}, "a": {"z": 2, "y": 3}}), plain=True)
    pruned = PrunedStore(opened, rules("top-k:1"))
    assert list(pruned.vectors()) == [("b", {"x": 5}), ("a", {"y": 3})]
    with pytest.raises(MilcoError, match="view 'pivot'"):
        PrunedStore(opened, rules("pivot:top-k:1"))


def test_a_missing_view_is_refused(tmp_path: Path) -> None:
    """By a rule or by name, before anything is read."""
    opened = open_store(write_store(tmp_path / "v", *synthetic_batch(20), views=["pivot"]))
    with pytest.raises(MilcoError, match="view 'source'"):
        PrunedStore(opened, rules("source:mass:5"))
    with pytest.raises(MilcoError, match="view 'source'"):
        PrunedStore(opened, views=["source"])
    with pytest.raises(MilcoError, match="did you mean 'source'"):
        PrunedStore(opened, views=["sources"])
