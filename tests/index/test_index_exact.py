"""The exact engine equals its definition in numpy."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from synthetic_stores import renew_checksums, synthetic_batch, synthetic_queries, vocabulary, write_plain, write_store

from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, build_index, exact, exact_kernel, find_engine, inversion, open_index
from milco_pyserini.index.postings import CHUNK, Lists, PostingLists
from milco_pyserini.index.storage import StringTable, write_strings
from milco_pyserini.request import Balance
from milco_pyserini.sparse import SparseBatch, open_store


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


def posting_lists(path: Path, matrix: csr_array, layout: str) -> tuple[PostingLists, NDArray[np.int64]]:
    """Write documents as posting lists in a directory; return them, and the columns that are their terms."""
    path.mkdir()
    with tempfile.TemporaryFile() as rows, tempfile.TemporaryFile() as weights:
        runs = inversion.PostingRuns(rows, weights, 100)
        runs.add(SparseBatch(matrix.indptr.astype(np.int64), matrix.indices, matrix.data, matrix.shape[1]))
        used = runs.merge(np.arange(matrix.shape[0], dtype=np.int32), path)
    assert (path / "table.npy").exists() == (layout != "floats")
    if layout == "0.3":
        write_version_0_3(path, matrix[:, used])
    return PostingLists(path, "", matrix.shape[0], len(used)), used


def write_version_0_3(path: Path, matrix: csr_array) -> None:
    """Replace posting lists by those of version 0.3: 8 bytes a posting."""
    postings = matrix.tocsc()
    for file in ("chunks.npy", "chunks.indptr.npy", "table.npy"):
        (path / file).unlink(missing_ok=True)
    np.save(path / "rows.npy", postings.indices.astype(np.int32))
    np.save(path / "weights.npy", postings.data)


@pytest.mark.parametrize("best_rows", [exact.best_rows, exact_kernel.best_rows])
@pytest.mark.parametrize("layout", ["codes", "floats", "0.3"])
@pytest.mark.parametrize("documents", [1, 65_536, 140_000])
def test_documents_of_all_blocks_are_ranked(documents: int, layout: str, best_rows: Callable, tmp_path: Path) -> None:
    """The kernel adds up a block of documents at a time; all scores at once are its definition."""
    random = np.random.default_rng(documents)
    matrix = np.zeros((documents, 5), np.float32)
    for column, share in enumerate((1, 0.5, 0, 0.01, 0.001)):
        # More impacts than codes of a byte.
        impacts = np.where(
            random.random(documents) < 0.9, random.integers(1, 4, documents), random.integers(1, 600, documents)
        )
        matrix[:, column] = (impacts / np.float32(100)) * (random.random(documents) < share)
    if layout == "floats":
        matrix[0, 0] = 0.123456
    postings, used = posting_lists(tmp_path / "index", csr_array(matrix), layout)
    query, allowed = random.random(len(used)).astype(np.float32), random.random(documents) < 0.9
    allowed[0] = True
    scores = np.zeros(documents)
    for column, weight in zip(used, query.astype(np.float64), strict=True):
        scores += weight * matrix[:, column]
    lists = postings.take(np.arange(len(used)))
    assert np.array_equal(exact_kernel.all_scores(lists, query, documents), scores)
    row = documents - 1
    assert dict(lists.find(row)) == {
        term: matrix[row, column] for term, column in enumerate(used) if matrix[row, column]
    }
    scores[~allowed] = 0
    order = np.lexsort((np.arange(documents), -scores))
    for k in (1, 100, documents):
        found, best, total = best_rows(lists, query, documents, k, allowed)
        wanted = order[: min(k, total)]
        assert total == np.count_nonzero(scores)
        assert found.tolist() == wanted.tolist() and best.tolist() == scores[wanted].tolist()


@pytest.mark.parametrize(
    "damage",
    [{"rows": [0, 400]}, {"last": [2]}, {"page": [1]}, {"block": [1]}, {"block": [1, 0], "last": [0, 0]}],
    ids=str,
)
def test_damaged_postings_are_an_error(damage: dict[str, list[int]]) -> None:
    """They would be read beyond the scores or the postings, or counted for another document."""
    chunks = np.zeros(len(damage.get("last", [1])), CHUNK)
    chunks["last"] = 1
    for field in {"block", "page", "last"} & damage.keys():
        chunks[field] = damage[field]
    rows = np.asarray(damage.get("rows", [1, 2]), np.uint16)
    table = np.ones(256, np.float32)
    one = np.zeros(1, np.int64)
    lists = Lists(one, one + len(chunks), one, chunks, rows, np.zeros(2, np.uint8), table)
    query, every = np.ones(1, np.float32), np.empty(0, np.bool_)
    with pytest.raises(IndexError, match=r"a (row|chunk) "):
        exact_kernel.best_rows(lists, query, 400, 10, every)
    if len(chunks) == 1:
        # All at once, the order of chunks does not matter.
        with pytest.raises((IndexError, ValueError)):
            exact.best_rows(lists, query, 400, 10, every)


def test_an_index_of_version_0_3_is_searched_and_updated(built: SimpleNamespace, tmp_path: Path) -> None:
    """Its postings have 8 bytes; segments that are added have fewer."""
    indexes = [shutil.copytree(built.index.path, tmp_path / name) for name in ("old", "new")]
    write_version_0_3(indexes[0], csr_array(built.searcher.matrix()))
    renew_checksums(indexes[0])
    ids, batch = synthetic_batch(600, seed=1)
    added = open_store(write_store(tmp_path / "added", ids[400:], batch.take(np.arange(400, 600)), parquet=True))
    before = [open_index(path) for path in indexes]
    gone = sorted(set(built.ids) - set(ids[400:]))
    after = [index.update(added, delete=gone[:9]) for index in before]
    merged = [index.update(added, delete=gone[9:250]) for index in after]
    for old, new in (before, after, merged):
        for k in (10, 1000):
            for hits, expected in zip(
                *(index.searcher().search(synthetic_queries(20), k) for index in (old, new)), strict=True
            ):
                assert hits.docids == expected.docids and np.array_equal(hits.scores, expected.scores)
    assert all(np.load(file).dtype == np.uint16 for file in before[0].path.glob("segment-*/rows.npy"))


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
        kept = [documents[rows[docid]] for docid in docids]
        vectors = batch.take([rows[docid] for docid in docids])
        return {"source": write_store(path, docids, vectors, documents=kept)}

    how: dict[str, Any] = {"engine": "exact"}
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


def test_strings_are_read_as_often_as_a_search_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a range each value of the field a few times, by a document or a value as many as a binary search takes."""
    ids = [f"d{number:04d}" for number in range(3000)]
    corpus = [Document(docid, "", "text", {"stamp": 1000 + number}) for number, docid in enumerate(ids)]
    vectors = write_plain(tmp_path / "v.jsonl", {docid: {"x": 1} for docid in ids}, corpus)
    index = Index.build(vectors, tmp_path / "index", "exact", store_documents=True, plain=True)
    take, get, read = StringTable.take, StringTable.__getitem__, 0

    def counted_take(table: StringTable, positions: NDArray[np.int64]) -> list[str]:
        nonlocal read
        read += len(positions)
        return take(table, positions)

    def counted_get(table: StringTable, position: int) -> str:
        nonlocal read
        read += 1
        return get(table, position)

    with index.searcher() as searcher:
        monkeypatch.setattr(StringTable, "take", counted_take)
        monkeypatch.setattr(StringTable, "__getitem__", counted_get)
        for options, total, most in (
            ({"filters": "stamp>=2000"}, 2000, 3 * len(ids)),
            ({"filters": ["stamp=2000", "stamp=3999"]}, 2, 40),
        ):
            read = 0
            (hits,) = searcher.search([{"x": 1.0}], 5, **options)
            assert hits.total == total and read <= most
        read = 0
        assert len(searcher.documents(hits.docids)) == len(hits) and read <= 20 * len(hits)
