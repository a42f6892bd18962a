"""The Qdrant engine: what tests/contract and test_index_sparse.py do not cover."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from synthetic_stores import synthetic_batch, synthetic_queries, write_plain, write_store

from milco_pyserini.cli.verify import main as verify
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, build_index, find_engine
from milco_pyserini.io.files import size_on_disk
from milco_pyserini.sparse import open_store

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py is not installed")
DOCUMENTS = 400


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index of documents with many ties."""
    root = tmp_path_factory.mktemp("qdrant")
    store = write_store(root / "store", *synthetic_batch(DOCUMENTS))
    return build_index(open_store(store), find_engine("qdrant"), root / "index")


def test_all_documents_may_tie(tmp_path: Path) -> None:
    """The first docids are found however many there are."""
    vectors = {f"d{number}": {"a": 2.0} for number in np.random.default_rng(0).permutation(3000).tolist()}
    index = Index.build(write_plain(tmp_path / "plain.jsonl", vectors), tmp_path / "index", "qdrant", plain=True)
    (hits,) = index.searcher().search([{"a": 1.0}], 5)
    assert hits.docids == sorted(vectors)[:5]


def test_impacts_above_a_byte_are_exact(tmp_path: Path) -> None:
    """Sums up to 2**24, which 32-bit floats represent."""
    vectors = {"d1": {"a": 16_000_000.0, "b": 777_215.0}, "d2": {"a": 16_000_001.0, "b": 777_213.0}}
    index = Index.build(write_plain(tmp_path / "plain.jsonl", vectors), tmp_path / "index", "qdrant", plain=True)
    (hits,) = index.searcher().search([{"a": 0.01, "b": 0.01}], 2)
    assert list(zip(hits.docids, hits.scores.tolist(), strict=True)) == [("d1", 16_777_215.0), ("d2", 16_777_214.0)]


def test_a_searcher_outlives_the_replacement_of_its_index(index: Index, tmp_path: Path) -> None:
    """It continues with the old documents, and closing it writes nothing into the new index."""
    path = tmp_path / "index"
    store = open_store(index.path.parent / "store")
    searcher = build_index(store, find_engine("qdrant"), path).searcher()
    queries = synthetic_queries(3)
    before = [(hits.docids, hits.scores.tolist()) for hits in searcher.search(queries, 20)]
    plain = write_plain(tmp_path / "plain.jsonl", {"d1": {"a": 1.0}})
    Index.build(plain, path, "qdrant", plain=True, overwrite=True)
    assert [(hits.docids, hits.scores.tolist()) for hits in searcher.search(queries, 20)] == before
    del searcher
    assert verify([str(path)]) == 0


def test_the_holes_of_files_take_no_disk_space(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    """Files have more than 100 MB, for 400 documents."""
    assert sum(file.stat().st_size for file in index.path.rglob("*") if file.is_file()) > 100e6
    assert size_on_disk(index.path) < 5e6


def test_another_version_of_the_library_is_refused(index: Index) -> None:
    """It may change the files of an index when it opens them."""
    with pytest.raises(MilcoError, match=r"qdrant-edge-py 0\.1\.0"):
        find_engine("qdrant").open(index.path, structs.replace(index.manifest, qdrant_edge="0.1.0"))


def test_a_build_ends_before_the_disk_is_full(monkeypatch: pytest.MonkeyPatch, index: Index, tmp_path: Path) -> None:
    """Qdrant writes to mapped files: the process would be killed."""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    with pytest.raises(OSError, match="No space left on device"):
        build_index(open_store(index.path.parent / "store"), find_engine("qdrant"), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []
