"""Dense vector stores: Parquet parts and a manifest, the dense counterpart of sparse.store."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse.store import PartedStore, open_manifest, parquet_groups


@dataclass(frozen=True)
class DenseStore(PartedStore):
    """A finished store of L2-normalized dense vectors; a blank text's is zero."""

    @property
    def dimensions(self) -> int:
        """Embedding dimension."""
        return self.manifest["dimensions"]

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Yield document ids and their vectors, float32 [ids, d], part by part."""
        for path, content in self.read_parts():
            yield from read_dense(path, content, self.dimensions)


def open_dense_store(path: str | os.PathLike) -> DenseStore:
    """Open the dense vectors at path. Raises MilcoError if they do not exist, are not finished, or are sparse."""
    manifest = open_manifest(path)
    if not manifest.get("dense"):
        raise MilcoError(
            f"{path} holds sparse vectors, dense ones are needed here: milco encode --dense makes them "
            "(`engine=lucene`, exact, qdrant and seismic index sparse vectors)"
        )
    return DenseStore(Path(path), manifest)


def read_dense(path: Path, content: bytes, dimensions: int) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Yield ids and vectors, float32 [ids, d], of a part, many at a time. Raises MilcoError if they cannot be read."""
    for group in parquet_groups(path, content):
        vectors = group.column("vector")
        if vectors.type.list_size != dimensions:
            raise MilcoError(
                f"{path} holds vectors of {vectors.type.list_size} dimensions, its manifest states {dimensions}: "
                "encode the store again"
            )
        yield group.column("id").to_pylist(), vectors.flatten().to_numpy().reshape(-1, dimensions)


def write_dense(handle: IO[bytes], ids: Sequence[str], vectors: NDArray[np.float32]) -> None:
    """Write one part as Parquet: id string, vector fixed_size_list<float32>[d]. vectors: float32 [ids, d]."""
    import pyarrow as pa
    from pyarrow import parquet

    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    table = pa.table({"id": pa.array(ids, pa.string()), "vector": column})
    # Compression does not make such floats smaller.
    parquet.write_table(table, handle, compression="none", use_dictionary=False, write_page_checksum=True)
