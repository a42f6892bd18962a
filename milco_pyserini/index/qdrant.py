"""The Qdrant engine: the core of Qdrant in this process, without a server and without Java (qdrant-edge-py).

A document is a point whose sparse vector has impacts as values. Qdrant adds up 32-bit floats, which is exact for
integers up to 2**24: scores are those of Lucene. The id of a point is the number of its docid in ids, and a dimension
that of its term in terms, because Qdrant knows only integers. Ties are in no order there, so as many further hits are
fetched as have the score of the last one.

Qdrant maps its files for reading and writing, and writes two small ones again, with the same content, when a shard is
opened and closed. By the path of the index it would write them into an index that replaced it meanwhile, so a shard is
opened by a descriptor of its directory. Files have 32 MB or more, most of it holes that take no disk space.
"""

import contextlib
import errno
import importlib.metadata
import importlib.util
import os
import shutil
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from milco_pyserini.errors import MilcoError
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.protocol import BuildResult, EngineSearcher, Hits
from milco_pyserini.index.sparse_engine import SparseDocuments, SparseEngine
from milco_pyserini.index.storage import StringTable, write_strings
from milco_pyserini.io.files import read_json, size_on_disk, write_json
from milco_pyserini.io.manifest import DamagedError
from milco_pyserini.sparse.quantization import quantize_vector

PACKAGE = "qdrant-edge-py"
# Name of the vector of a point.
VECTOR = "terms"
_SHARD = "shard"
_ABOUT = "qdrant.json"
_BATCH = 1000
# Kilobytes of vectors from which a segment gets an index on disk; below it, one is made in memory at every opening.
_SMALLEST_INDEX = 1
# Bytes of free disk space that a batch may need.
_ROOM = 2**27


class QdrantEngine(SparseEngine):
    """Exact sums of integers. Building holds the vectors in memory once; the index is on disk."""

    name = "qdrant"
    exactness = "exact integer"

    def available(self) -> None:
        """Raise MilcoError if qdrant-edge-py is not installed."""
        if importlib.util.find_spec("qdrant_edge") is None:
            raise MilcoError(f"--engine qdrant needs {PACKAGE}: pip install 'milco-pyserini[qdrant]'")

    def build(self, documents: SparseDocuments, directory: Path, threads: int) -> BuildResult:
        """Write ids, terms, and Qdrant's own files. Qdrant decides how many threads it uses."""
        from qdrant_edge import EdgeConfig, EdgeOptimizersConfig, EdgeShard, EdgeSparseVectorParams, Memory

        config = EdgeConfig(
            sparse_vectors={VECTOR: EdgeSparseVectorParams(memory=Memory.Cold)},
            optimizers=EdgeOptimizersConfig(indexing_threshold=_SMALLEST_INDEX, default_segment_number=1),
            wal_enabled=False,
        )
        shard_path = directory / _SHARD
        with engine_errors(self.name, "build", directory):
            with contextlib.closing(EdgeShard.create(str(shard_path), config)) as shard:
                ids, columns, empty = _insert(shard, documents, shard_path)
                shard.optimize()
                shard.flush()
            # The first opening adds default values to the configuration on disk.
            EdgeShard.load(str(shard_path)).close()
        write_strings(directory, "terms", list(columns))
        write_strings(directory, "ids", ids)
        write_json(directory / _ABOUT, {"version": importlib.metadata.version(PACKAGE)})
        return BuildResult(len(ids), empty)

    def open(self, directory: Path, manifest: dict) -> "QdrantSearcher":
        """Map the files into memory; queries are quantized at the scale that the manifest states."""
        written, version = read_json(directory / _ABOUT)["version"], importlib.metadata.version(PACKAGE)
        if written != version:
            # Another version may change the files as it opens them.
            raise MilcoError(
                f"{directory} was built by {PACKAGE} {written}, {version} is installed: build it again, or "
                f"pip install {PACKAGE}=={written}"
            )
        if not os.access(directory / _SHARD, os.W_OK):
            raise MilcoError(
                f"{directory} may not be written: Qdrant opens an index for reading and writing, even to search it. "
                "Let your user write it (chmod, chown), or copy it"
            )
        return QdrantSearcher(directory, manifest["query_scale"], manifest["documents"])


class QdrantSearcher(EngineSearcher):
    """An open Qdrant index. Scores are sums of products of integers, exact up to 2**24.

    Args:
        scale: impact of a query's term = round(weight x scale), as in the documents.
    """

    def __init__(self, directory: Path, scale: float, documents: int) -> None:
        from qdrant_edge import EdgeShard

        super().__init__(QdrantEngine.name, directory, documents)
        self.scale = scale
        self.ids = StringTable(directory, "ids")
        self.terms = list(StringTable(directory, "terms"))
        self.columns = {term: column for column, term in enumerate(self.terms)}
        descriptor = os.open(directory / _SHARD, os.O_RDONLY)
        place = f"/proc/self/fd/{descriptor}"
        try:
            self._shard = EdgeShard.load(place)
        except Exception as error:
            os.close(descriptor)
            raise DamagedError(directory, _SHARD, str(error).replace(f"{place}/", "")) from error
        weakref.finalize(self, _close, self._shard, descriptor)
        if (points := self._shard.info().points_count) != documents:
            raise DamagedError(directory, _SHARD, f"{points:,} documents, not {documents:,}")

    def find(self, queries: Sequence[dict[str, float]], k: int, threads: int) -> list[Hits]:
        """Return hits with float32 scores. Qdrant works outside of Python's lock."""
        if threads == 1:
            return [self._search(query, k) for query in queries]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda query: self._search(query, k), queries))

    def vector(self, docid: str) -> dict[str, int] | None:
        """Return the {term: impact} of a document; None if the index lacks it."""
        number = self.numbers.get(docid)
        found = [] if number is None else self._shard.retrieve([number], with_payload=False, with_vector=True)
        if not found:
            return None
        vector = cast(Any, found[0].vector)[VECTOR]
        return {self.terms[column]: int(impact) for column, impact in zip(vector.indices, vector.values, strict=True)}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of every docid, in 100 bytes of memory each; that of a deleted document has no point."""
        return {docid: number for number, docid in enumerate(self.ids)}

    def _search(self, query: dict[str, float], k: int) -> Hits:
        from qdrant_edge import Query, QueryRequest, SparseVector

        impacts = quantize_vector(query, self.scale)
        # In the order of columns, so that a sum above 2**24 does not depend on the order of the dict.
        known = sorted((self.columns[term], float(impact)) for term, impact in impacts.items() if term in self.columns)
        if not known:
            return Hits([], np.empty(0, np.float32))
        nearest = Query.Nearest(SparseVector(*map(list, zip(*known, strict=True))), VECTOR)
        limit = k + 1
        while True:
            found = self._shard.query(QueryRequest(limit, query=nearest))
            if len(found) < limit or found[-1].score < found[k - 1].score:
                break
            limit *= 2
        docids = self.ids.take(np.asarray([point.id for point in found], np.int64))
        best = sorted((-point.score, docid) for point, docid in zip(found, docids, strict=True))[:k]
        return Hits([docid for _, docid in best], np.asarray([-score for score, _ in best], np.float32))


class _Columns(dict[str, int]):
    """Numbers of terms in the order of their first use."""

    def __missing__(self, term: str) -> int:
        self[term] = len(self)
        return self[term]


def _insert(shard: Any, documents: SparseDocuments, path: Path) -> tuple[list[str], _Columns, int]:
    """Add all documents; return their ids, the columns of their terms, and the number of those without terms."""
    from qdrant_edge import Point, SparseVector, UpdateOperation

    ids: list[str] = []
    columns, empty = _Columns(), 0
    vectors = documents.vectors()
    while batch := list(islice(vectors, _BATCH)):
        _require_room(path)
        full = [(docid, vector) for docid, vector in batch if vector]
        points = [
            Point(number, {VECTOR: SparseVector([columns[term] for term in vector], list(map(float, vector.values())))})
            for number, (_, vector) in enumerate(full, len(ids))
        ]
        shard.update(UpdateOperation.upsert_points(points))
        ids += [docid for docid, _ in full]
        empty += len(batch) - len(full)
    return ids, columns, empty


def _require_room(path: Path) -> None:
    """Raise OSError unless the disk has room for a batch and for the copy that optimize() makes.

    Qdrant writes to mapped files, and a full disk would end the process without a message.
    """
    if shutil.disk_usage(path).free < size_on_disk(path) + _ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _close(shard: Any, descriptor: int) -> None:
    """Close a shard before the descriptor that it still writes by."""
    # The index may have been removed, or the disk may be full: nothing is lost.
    with contextlib.suppress(Exception):
        shard.close()
    os.close(descriptor)
