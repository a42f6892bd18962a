"""Every engine accepts the same documents: Lucene's limits are checked before an engine sees a document."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from synthetic_stores import synthetic_batch, write_plain, write_store

from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import build_index
from milco_pyserini.index.baselines import BM25, Flat, TextDocuments
from milco_pyserini.index.protocol import BuildResult
from milco_pyserini.index.sparse_engine import SparseDocuments, SparseEngine
from milco_pyserini.sparse import open_store


class CountingEngine(SparseEngine):
    """Reads every document by vectors() or by batches(), and counts them."""

    name = "counting"
    exactness = "none"

    def __init__(self, method: str) -> None:
        self.method = method

    def build(self, documents: SparseDocuments, directory: Path, threads: int) -> BuildResult:
        if self.method == "vectors":
            return BuildResult(sum(1 for _ in documents.vectors()), 0)
        return BuildResult(sum(len(names) for names, _ in documents.batches()), 0)


class CountingDenseEngine(Flat):
    """Counts dense vectors."""

    def available(self) -> None:
        """Faiss is not needed."""

    def build(self, documents: Any, directory: Path, threads: int) -> BuildResult:
        return BuildResult(sum(len(names) for names, _ in documents.batches()), 0)


class CountingTextEngine(BM25):
    """Counts texts."""

    def available(self) -> None:
        """Java is not needed."""

    def build(self, documents: Any, directory: Path, threads: int) -> BuildResult:
        return BuildResult(sum(1 for _ in documents.documents()), 0)


class DenseVectors:
    """Dense vectors of two dimensions, in batches of two."""

    def __init__(self, ids: list[str]) -> None:
        self.ids, self.path, self.manifest = ids, Path("dense"), {"documents": len(ids), "dimensions": 2}

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        for start in range(0, len(self.ids), 2):
            names = self.ids[start : start + 2]
            yield names, np.ones((len(names), 2), np.float32)


def texts(ids: list[str]) -> TextDocuments:
    return TextDocuments(Path("texts"), {"language": "en"}, [Document(name, "", "words") for name in ids])


def build(path: Path, method: str) -> int:
    """Return the number of documents that an engine gets of the plain vectors at path."""
    index = build_index(open_store(path, plain=True), CountingEngine(method), path.with_suffix(f".{method}"))
    return index.manifest["documents"]


@pytest.mark.parametrize("method", ["vectors", "batches"])
def test_ids_may_be_as_long_as_lucene_allows(tmp_path: Path, method: str) -> None:
    """32,766 bytes of UTF-8. The error quotes the beginning of the id; nothing is left behind."""
    longest = "é" * (32_766 // 2)
    assert build(write_plain(tmp_path / "good.jsonl", {longest: {"a": 1}}), method) == 1
    bad = write_plain(tmp_path / "bad.jsonl", {"d": {"a": 1}, longest + "é": {"a": 1}})
    with pytest.raises(MilcoError, match="its id has 32,768 bytes, an index takes up to 32,766") as refused:
        build(bad, method)
    assert len(str(refused.value)) < 200
    assert not bad.with_suffix(f".{method}").exists()


@pytest.mark.parametrize("method", ["vectors", "batches"])
def test_impacts_may_add_up_to_what_lucene_counts(tmp_path: Path, method: str) -> None:
    """2**31 - 1 in one document, however many terms it has."""
    assert build(write_plain(tmp_path / "good.jsonl", {"d": {"a": 2**30, "b": 2**29}}), method) == 1
    bad = write_plain(tmp_path / "bad.jsonl", {"small": {"a": 1}, "huge": {"a": 2**30, "b": 2**30}})
    with pytest.raises(MilcoError, match=r"document 'huge': its impacts add up to 2,147,483,648, .*a smaller scale"):
        build(bad, method)


def test_float_weights_are_limited_at_the_scale_of_their_store(tmp_path: Path) -> None:
    """Parquet holds weights: their sum counts as an impact index would round them."""
    ids, batch = synthetic_batch(20)
    store = open_store(write_store(tmp_path / "vectors", ids, batch, parquet=True, scale=1e9))
    with pytest.raises(MilcoError, match="add up to"):
        build_index(store, CountingEngine("batches"), tmp_path / "index")


def test_a_long_duplicate_id_is_truncated_in_the_error(tmp_path: Path) -> None:
    """60 characters identify it."""
    path = tmp_path / "twice.jsonl"
    path.write_text(f'{{"id": "{"x" * 500}", "vector": {{"a": 1}}}}\n' * 2)
    with pytest.raises(MilcoError, match="two documents have the id 'xxxx") as refused:
        build(path, "vectors")
    assert str(refused.value).count("x") < 70 + str(path).count("x")


@pytest.mark.parametrize(("engine", "source"), [(CountingDenseEngine(), DenseVectors), (CountingTextEngine(), texts)])
def test_dense_vectors_and_texts_are_checked_as_sparse_vectors_are(engine: Any, source: Any, tmp_path: Path) -> None:
    """They are counted, long and duplicate ids are refused, an id with a space is noted for runs."""
    index = build_index(source(["a", "b c", "d"]), engine, tmp_path / "index")
    assert index.manifest["documents"] == 3 and index.manifest["id_with_space"] == "b c"
    assert "query_scale" not in index.manifest and "postings" not in index.manifest
    with pytest.raises(MilcoError, match="two documents have the id 'a'"):
        build_index(source(["a", "b", "c", "a"]), engine, tmp_path / "twice")
    with pytest.raises(MilcoError, match="its id has 32,768 bytes"):
        build_index(source(["a", "é" * 16_384]), engine, tmp_path / "long")
    with pytest.raises(MilcoError, match="holds no document: nothing to index"):
        build_index(source([]), engine, tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
