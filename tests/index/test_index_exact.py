"""The exact engine equals its definition in numpy."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from synthetic_stores import synthetic_batch, synthetic_queries, vocabulary, write_plain, write_store

from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, build_index, exact, exact_kernel, find_engine, inversion
from milco_pyserini.index.storage import StringTable, write_strings
from milco_pyserini.request import Balance
from milco_pyserini.sparse import open_store


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """An exact index of 400 made-up documents in Parquet, whose weights are floats."""
    root = tmp_path_factory.mktemp("exact")
    ids, batch = synthetic_batch(400)
    store = open_store(write_store(root / "vectors", ids, batch, parquet=True))
    index = build_index(store, find_engine("exact"), root / "index")
    return SimpleNamespace(root=root, ids=ids, batch=batch, index=index, searcher=index.searcher())


@pytest.mark.parametrize("k", [1, 7, 50, 1000])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_kernel_equals_the_definition(
    built: SimpleNamespace, k: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first queries are ranked by numpy, later ones by the kernel: same documents, same scores, ties by docid."""
    queries = synthetic_queries(50)
    monkeypatch.setattr(exact, "UNCOMPILED", 10**12)
    expected = built.searcher.search(queries, k, threads=threads)
    monkeypatch.setattr(exact, "UNCOMPILED", -1)
    for hits, others in zip(built.searcher.search(queries, k, threads=threads), expected, strict=True):
        assert hits.docids == others.docids
        assert np.array_equal(hits.scores, others.scores)
        assert hits.total == others.total


def test_scores_are_the_dot_products_of_the_stores_vectors(built: SimpleNamespace) -> None:
    """Every document's score is its vector's product with the query's, to float64."""
    terms = vocabulary().terms.tolist()
    query = synthetic_queries(1)[0]
    dense = np.zeros(len(terms))
    for term, weight in query.items():
        dense[terms.index(term)] = np.float32(weight)
    hits = built.searcher.search([query], 1000)[0]
    scores = {
        name: float(dense[columns] @ weights.astype(np.float64))
        for name, (columns, weights) in zip(built.ids, built.batch.rows(), strict=True)
    }
    assert dict(zip(hits.docids, hits.scores.tolist(), strict=True)) == pytest.approx(
        {name: score for name, score in scores.items() if score > 0}
    )


def test_plain_vectors_are_searched_by_their_own_terms(tmp_path: Path) -> None:
    """External vectors need no vocabulary."""
    path = write_plain(tmp_path / "v.jsonl", {"b": {"cat": 2, "dog": 1}, "a": {"cat": 2}, "c": {"dog": 3}})
    index = build_index(open_store(path, plain=True), find_engine("exact"), tmp_path / "index")
    hits = index.searcher().search([{"cat": 1.0}, {"dog": 2.0, "cat": 0.5}], 10)
    assert [one.docids for one in hits] == [["a", "b"], ["c", "b", "a"]]
    assert hits[1].scores.tolist() == [6.0, 3.0, 1.0]


@pytest.mark.parametrize("strings", [[], [""], ["", "é", "", "😀\x00\n"]])
def test_a_string_table_gives_back_every_string(tmp_path: Path, strings: list[str]) -> None:
    """Empty strings, NUL and line ends included."""
    write_strings(tmp_path, "names", strings)
    table = StringTable(tmp_path, "names")
    assert list(table) == strings
    assert len(table) == len(strings)
    assert table.take(np.arange(len(strings))[::-1]) == strings[::-1]


@pytest.mark.parametrize("is_sorted", [True, False])
def test_the_size_of_runs_changes_nothing(
    built: SimpleNamespace, is_sorted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of a few documents, merged a few terms at a time, give the same files."""
    order = np.argsort(built.ids) if is_sorted else np.arange(len(built.ids))
    names = [built.ids[row] for row in order]
    store = open_store(write_store(tmp_path / "v", names, built.batch.take(order), part=3, parquet=True))
    monkeypatch.setattr(inversion, "RUN", 40)
    index = build_index(store, find_engine("exact"), tmp_path / "index")
    for path in built.index.path.iterdir():
        if path.name != "manifest.json":
            assert (index.path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("best_rows", [exact.best_rows, exact_kernel.best_rows])
@pytest.mark.parametrize("documents", [1, 32_768, 32_769, 100_000])
def test_documents_of_all_windows_are_ranked(documents: int, best_rows: Callable) -> None:
    """The kernel adds up some documents at a time; all scores at once are its definition."""
    random = np.random.default_rng(documents)
    postings = [np.flatnonzero(random.random(documents) < share).astype(np.int32) for share in (0.5, 0.01, 1, 0)]
    indptr = np.cumsum([0, *map(len, postings)]).astype(np.int64)
    rows = np.concatenate(postings)
    weights = random.integers(1, 4, len(rows)).astype(np.float32)
    query, allowed = random.random(4).astype(np.float32), random.random(documents) < 0.9
    scores = np.zeros(documents)
    for term in range(4):
        span = slice(indptr[term], indptr[term + 1])
        scores[rows[span]] += np.float64(query[term]) * weights[span]
    scores[~allowed] = 0
    order = np.lexsort((np.arange(documents), -scores))
    for k in (1, 100, documents):
        found, best, total = best_rows(indptr, rows, weights, np.arange(4), query, documents, k, allowed)
        wanted = order[: min(k, total)]
        assert total == np.count_nonzero(scores)
        assert found.tolist() == wanted.tolist() and best.tolist() == scores[wanted].tolist()


@pytest.mark.parametrize("rows", [[0, 40_000], [2, 1, 35_000, 3], [-1, 3], [5, 2**31 - 1]])
@pytest.mark.parametrize("best_rows", [exact.best_rows, exact_kernel.best_rows])
def test_rows_that_no_document_has_or_that_do_not_ascend_are_an_error(rows: list[int], best_rows: Callable) -> None:
    """They would be read beyond the scores, or counted for another document."""
    arrays = np.asarray([0, len(rows)]), np.asarray(rows, np.int32), np.ones(len(rows), np.float32)
    with pytest.raises(IndexError, match="a row "):
        best_rows(*arrays, np.zeros(1, np.int64), np.ones(1, np.float32), 36_000, 10, np.empty(0, np.bool_))


@pytest.mark.parametrize("weight", [1e300, 3e38])
def test_scores_beyond_float32_are_refused(built: SimpleNamespace, weight: float) -> None:
    """No run could hold them."""
    with pytest.raises(MilcoError, match=r"the score (inf|\d)"):
        built.searcher.search([{"w1": weight, "w2": weight}], 10)


def test_small_updates_do_not_rewrite_a_large_index(tmp_path: Path) -> None:
    """They add segments, of which few remain; hits, balances, filters and values are those of an index built anew."""
    ids, batch = synthetic_batch(1500)
    languages = {docid: ("de", "sw", "ja")[number % 3] for number, docid in enumerate(ids)}
    documents = [Document(docid, "", "text", {"lang": languages[docid]}) for docid in ids]
    # An update replaces some documents, adds others and deletes some more.
    first, added, gone = ids[:1200], ids[1150:], ids[:40]
    rows = {docid: row for row, docid in enumerate(ids)}

    def stored(path: Path, docids: list[str]) -> dict[str, Any]:
        vectors = write_store(path, docids, batch.take([rows[docid] for docid in docids]))
        return {"source": vectors, "corpus": [documents[rows[docid]] for docid in docids]}

    how: dict[str, Any] = {"engine": "exact", "store_documents": True}
    index = Index.build(**stored(tmp_path / "old", first), path=tmp_path / "index", **how)
    large = (index.path / "rows.npy").stat().st_ino
    for number, start in enumerate(range(0, len(added), 25)):
        index = index.update(**stored(tmp_path / f"new{number}", added[start : start + 25]), delete=gone[number::14])
    assert (index.path / "rows.npy").stat().st_ino == large
    assert len(list(index.path.glob("segment-*/"))) == 1
    remaining = [docid for docid in ids if docid not in gone]
    anew = Index.build(**stored(tmp_path / "all", remaining), path=tmp_path / "anew", **how)
    assert index.manifest.documents == anew.manifest.documents
    searchers, queries = (index.searcher(), anew.searcher()), synthetic_queries(8)
    assert searchers[0].values("lang") == searchers[1].values("lang")
    assert sorted(searchers[0].matching({"lang": ["sw"]})) == sorted(searchers[1].matching({"lang": ["sw"]}))
    options: dict[str, Any]
    for options in ({}, {"filters": {"lang": ["de", "ja"]}}, {"balance": Balance("lang")}):
        updated, built = (searcher.search(queries, 30, **options) for searcher in searchers)
        for hits, expected in zip(updated, built, strict=True):
            assert hits.total == expected.total
            np.testing.assert_allclose(hits.scores, expected.scores, rtol=1e-12, atol=1e-9)
            if "balance" not in options:
                # Means are added up in another order.
                assert hits.docids == expected.docids and np.array_equal(hits.scores, expected.scores)
    index = index.delete(index.searcher().matching({"lang": ["de", "ja"]}))
    assert not (index.path / "rows.npy").exists() and set(index.searcher().values("lang") or ()) == {"sw"}
