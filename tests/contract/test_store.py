"""What every vector store promises: JSONL and Parquet."""

import shutil
from pathlib import Path

import pytest
from built import DOCUMENTS, STORES, Built, encode
from synthetic_stores import synthetic_batch, vocabulary

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index
from milco_pyserini.io.manifest import MANIFEST, read_checked, write_checked
from milco_pyserini.sparse import SparseBatch, open_store
from milco_pyserini.sparse.quantization import quantize_vector


@pytest.mark.parametrize("kind", STORES)
def test_a_store_returns_the_vectors_that_were_written(built: Built, kind: str) -> None:
    """Ids and order; floats as they are in Parquet, rounded to impacts in JSONL, and the same impacts in both."""
    ids, batch = synthetic_batch(DOCUMENTS)
    store = open_store(built.path(kind))
    impacts = [quantize_vector(vector, 100.0) for vector in batch.to_dicts(vocabulary())]
    assert list(store.vectors()) == list(zip(ids, impacts, strict=True))
    read = SparseBatch.concatenate((rows for _, rows in store.batches()), batch.english_size)
    assert [docid for ids_of_part, _ in store.batches() for docid in ids_of_part] == ids
    floats = read.to_dicts(vocabulary())
    assert floats == batch.to_dicts(vocabulary()) or kind == "jsonl"
    assert [quantize_vector(vector, 100.0) for vector in floats] == impacts


@pytest.mark.parametrize("kind", STORES)
def test_the_same_vectors_give_the_same_bytes(built: Built, kind: str, tmp_path: Path) -> None:
    """Every file of a store depends only on its content."""
    encode(tmp_path / kind, kind)
    files = sorted(path.relative_to(tmp_path / kind) for path in (tmp_path / kind).rglob("*") if path.is_file())
    assert files
    for file in files:
        assert (tmp_path / kind / file).read_bytes() == (built.path(kind) / file).read_bytes(), file


@pytest.mark.parametrize("kind", STORES)
def test_an_incomplete_store_is_refused(built: Built, kind: str, tmp_path: Path) -> None:
    """Without a manifest a directory is not a store."""
    with pytest.raises(MilcoError, match=str(tmp_path)):
        open_store(tmp_path)


def test_dense_vectors_of_version_0_3_are_one_error(built: Built, tmp_path: Path) -> None:
    """For whatever reads vectors."""
    path = shutil.copytree(built.path("parquet"), tmp_path / "dense")
    write_checked(path / MANIFEST, read_checked(path / MANIFEST) | {"dense": True, "dimensions": 8})
    for read in (open_store, lambda store: Index.build(store, tmp_path / "index")):
        with pytest.raises(MilcoError, match=f"{path} holds dense vectors, which only version 0.3 reads"):
            read(path)
