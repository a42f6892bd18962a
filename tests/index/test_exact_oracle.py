"""The exact engine equals sums in numpy for documents of several blocks, and more impacts than 16 bits can number."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from synthetic_stores import vocabulary, write_store

from milco_pyserini.corpora import Document
from milco_pyserini.index import Index, exact
from milco_pyserini.index.postings import BLOCK, PAGE
from milco_pyserini.request import Balance
from milco_pyserini.sparse import SparseBatch

DOCUMENTS, RARE = 70_000, 68_000
TERMS = [f"w{number}" for number in range(10)]
LANGUAGES = ("de", "fr", "sw")
RANDOM_QUERIES = 3


def random_impacts(random: np.random.Generator, documents: int) -> NDArray[np.int64]:
    """Return small impacts [documents, terms], half of which are 0."""
    return random.integers(1, 200, (documents, len(TERMS))) * (random.random((documents, len(TERMS))) < 0.5)


def stored(path: Path, ids: list[str], impacts: NDArray[np.int64]) -> dict[str, Any]:
    """Write vectors; return them and their documents as an index takes them."""
    rows, columns = np.nonzero(impacts)
    indptr = np.searchsorted(rows, np.arange(len(ids) + 1))
    weights = (impacts[rows, columns] / np.float32(100)).astype(np.float32)
    batch = SparseBatch(indptr, columns.astype(np.int32), weights, len(vocabulary().english))
    corpus = [Document(docid, "", "", fields(docid)) for docid in ids]
    return {"source": write_store(path, ids, batch, part=len(ids), parquet=True, documents=corpus)}


def fields(docid: str) -> dict[str, Any]:
    """Return the fields of a document; one in four has no language."""
    number = int(docid)
    return {"year": number % 50} | ({"lang": LANGUAGES[number % 4]} if number % 4 < 3 else {})


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """An index that was updated: impacts of the documents that it holds, in the order of their ids."""
    root, random = tmp_path_factory.mktemp("large"), np.random.default_rng(0)
    ids = [f"{number:06d}" for number in range(DOCUMENTS + 1000)]
    impacts = random_impacts(random, len(ids))
    places = random.choice(np.flatnonzero(impacts[:DOCUMENTS]), RARE, replace=False)
    impacts.flat[places] = 1000 + np.arange(RARE)
    index = Index.build(
        **stored(root / "all", ids[:DOCUMENTS], impacts[:DOCUMENTS]),
        path=root / "index",
        engine="exact",
    )
    assert len(np.load(index.path / "table.npy")) > BLOCK
    # An update replaces some documents, adds others and deletes some more.
    new = np.arange(DOCUMENTS - 1000, len(ids))
    impacts[new] = random_impacts(random, len(new))
    gone = random.choice(DOCUMENTS - 1000, 5000, replace=False)
    index = index.update(
        **stored(root / "new", [ids[row] for row in new], impacts[new]), delete=[ids[row] for row in gone]
    )
    kept = np.setdiff1d(np.arange(len(ids)), gone)
    kept = kept[impacts[kept].any(axis=1)]
    names = [ids[row] for row in kept]
    weights = (impacts[kept] / np.float32(100)).astype(np.float32)
    with index.searcher() as searcher:
        yield SimpleNamespace(searcher=searcher, ids=names, weights=weights, fields=[fields(docid) for docid in names])


@pytest.mark.parametrize("uncompiled", [10**12, -1], ids=["numpy", "numba"])
@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({}, lambda held: True),
        ({"filters": {"lang": ["de", "sw"]}}, lambda held: held.get("lang") in ("de", "sw")),
        ({"filters": "year>=30"}, lambda held: held["year"] >= 30),
        ({"balance": Balance("lang", 0.5), "filters": "lang=fr"}, lambda held: held.get("lang") == "fr"),
        ({"balance": Balance("lang")}, lambda held: True),
    ],
    ids=["all", "values", "range", "balance of one value", "balance"],
)
def test_rankings_of_a_large_index_equal_the_sums(
    large: SimpleNamespace,
    options: dict[str, Any],
    passes: Callable[[dict[str, Any]], bool],
    uncompiled: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Documents, scores and totals, for few and for all hits."""
    monkeypatch.setattr(exact, "UNCOMPILED", uncompiled)
    random, balance = np.random.default_rng(1), options.get("balance")
    allowed = np.asarray([passes(held) for held in large.fields])
    languages = np.asarray([held.get("lang", "") for held in large.fields])
    for _ in range(RANDOM_QUERIES):
        query = random.random(len(TERMS)).astype(np.float32) * (random.random(len(TERMS)) < 0.7)
        sums = np.zeros(len(large.ids))
        for column in np.flatnonzero(query):
            sums += np.float64(query[column]) * large.weights[:, column].astype(np.float64)
        matching = np.flatnonzero((sums > 0) & allowed)
        scores = sums.copy()
        for language in {*languages} if balance else ():
            scores[languages == language] -= balance.strength * sums[languages == language].mean()
        ranked = matching[np.argsort(-scores[matching], kind="stable")]
        terms = {TERMS[column]: float(query[column]) for column in np.flatnonzero(query)}
        for k in (10, len(large.ids)):
            (hits,) = large.searcher.search([terms], k, **options)
            assert hits.total == len(ranked)
            np.testing.assert_allclose(hits.scores, scores[ranked[:k]], rtol=0 if balance is None else 1e-9, atol=1e-9)
            if balance is None:
                # Means are added up in another order.
                assert hits.docids == [large.ids[row] for row in ranked[:k]]


def test_weights_of_a_large_index_are_those_of_the_vectors(large: SimpleNamespace) -> None:
    """The largest ones too, whose numbers in the table of weights have more than 16 bits."""
    largest = np.argsort(-large.weights.max(axis=1))[: 2 * PAGE]
    for row in [*largest, *range(0, len(large.ids), 500)]:
        weights = large.weights[row]
        expected = {TERMS[column]: weights[column] for column in np.flatnonzero(weights)}
        assert large.searcher.weights(large.ids[row], TERMS) == expected


def test_values_of_a_large_index_are_those_of_its_documents(large: SimpleNamespace) -> None:
    """Without those that were deleted; the documents that pass a filter are found by it."""
    for field in ("lang", "year"):
        counts = Counter(str(held[field]) for held in large.fields if field in held)
        assert large.searcher.values(field) == counts
    wanted = [docid for docid, held in zip(large.ids, large.fields, strict=True) if held["year"] >= 45]
    assert sorted(large.searcher.matching({"year": {">=": 45}})) == wanted
