"""Every engine accepts the same documents: Lucene's limits are checked before an engine sees a document."""

from pathlib import Path

import pytest
from synthetic_stores import synthetic_batch, write_plain, write_store

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import build_index
from milco_pyserini.index.documents import CheckedDocuments
from milco_pyserini.index.protocol import BuildResult, Engine
from milco_pyserini.sparse import open_store


class CountingEngine(Engine):
    """Reads every document by vectors() or by batches(), and counts them."""

    name = "counting"
    exactness = "none"

    def __init__(self, method: str) -> None:
        self.method = method

    def build(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        if self.method == "vectors":
            return BuildResult(sum(1 for _ in documents.vectors()), 0)
        return BuildResult(sum(len(names) for names, _ in documents.batches()), 0)


def build(path: Path, method: str) -> int:
    """Return the number of documents that an engine gets of the plain vectors at path."""
    index = build_index(open_store(path, plain=True), CountingEngine(method), path.with_suffix(f".{method}"))
    return index.manifest.documents


@pytest.mark.parametrize("method", ["vectors", "batches"])
def test_ids_may_be_as_long_as_lucene_allows(tmp_path: Path, method: str) -> None:
    """32,766 bytes of UTF-8. The error quotes the beginning of the id; nothing is left behind."""
    longest = "é" * (32_766 // 2)
    assert build(write_plain(tmp_path / "good.jsonl", {longest: {"a": 1}}), method) == 1
    bad = write_plain(tmp_path / "bad.jsonl", {"d": {"a": 1}, longest + "é": {"a": 1}})
    with pytest.raises(MilcoError, match="32,768 bytes") as refused:
        build(bad, method)
    assert len(str(refused.value)) < 200
    assert not bad.with_suffix(f".{method}").exists()


@pytest.mark.parametrize("method", ["vectors", "batches"])
def test_impacts_may_add_up_to_what_lucene_counts(tmp_path: Path, method: str) -> None:
    """2**31 - 1 in one document, however many terms it has."""
    assert build(write_plain(tmp_path / "good.jsonl", {"d": {"a": 2**30, "b": 2**29}}), method) == 1
    bad = write_plain(tmp_path / "bad.jsonl", {"small": {"a": 1}, "huge": {"a": 2**30, "b": 2**30}})
    with pytest.raises(MilcoError, match=r"document 'huge': .*2,147,483,648"):
        build(bad, method)


def test_float_weights_are_limited_at_the_scale_of_their_store(tmp_path: Path) -> None:
    """Parquet holds weights: their sum counts as an impact index would round them."""
    ids, batch = synthetic_batch(20)
    store = open_store(write_store(tmp_path / "vectors", ids, batch, parquet=True, scale=1e9))
    with pytest.raises(MilcoError, match="add up to"):
        build_index(store, CountingEngine("batches"), tmp_path / "index")
