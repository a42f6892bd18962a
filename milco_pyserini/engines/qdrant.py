"""The Qdrant engine: the core of Qdrant in this process, without a server and without Java (qdrant-edge-py).

A document is a point whose sparse vector has impacts as values. Qdrant adds up 32-bit floats, which is exact for
integers up to 2**24: scores are those of Lucene. The id of a point is the number of its docid in ids, and a dimension
that of its term in terms, because Qdrant knows only integers. Qdrant does not order ties, so all further
hits with the score of the last one are fetched, at a kilobyte of memory each.

Qdrant maps its files for reading and writing, and writes two small ones again, with the same content, when a shard is
opened and closed. By the path of the index it would write them into an index that replaced it meanwhile, so a shard is
opened by a descriptor of its directory. Files have 32 MB or more, most of it holes that take no disk space.
"""

import contextlib
import errno
import heapq
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from milco_pyserini.errors import MilcoError, require_package
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import CheckedDocuments, StoredDocuments
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.hits import Hits
from milco_pyserini.index.protocol import EXACT_INTEGER, BuildResult, Engine, EngineSearcher
from milco_pyserini.index.storage import StringTable, write_strings
from milco_pyserini.io.files import size_on_disk
from milco_pyserini.io.manifest import DamagedError
from milco_pyserini.io.records import IndexManifest
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse.quantization import quantize_vector

__all__ = ["Qdrant"]

PACKAGE = "qdrant-edge-py"
# Name of the vector of a point.
_VECTOR = "terms"
_SHARD = "shard"
# Payload of stored documents.
_RAW = "raw"
_VALUES = "values"
_BATCH = 1000
# Kilobytes of vectors from which a segment gets an index on disk; below it, one is made in memory at every opening.
# Documents of updates are merged into such a segment when there are 5,000 of them: that rewrites the index.
_SMALLEST_INDEX, _SMALLEST_NEW_INDEX = 1, 5000
# Bytes of free disk space that a batch may need.
_ROOM = 2**27


class Qdrant(Engine):
    """Exact sums of integers. Building holds the vectors in memory once; the index is on disk."""

    name = "qdrant"
    exactness = EXACT_INTEGER
    capabilities = frozenset({Capability.BUILD, Capability.STORE, Capability.UPDATE, Capability.READ})
    changes_files = True
    scanned = f"{_SHARD}/*"

    def available(self) -> None:
        """Raise MilcoError if qdrant-edge-py is not installed, or this is not Linux."""
        if sys.platform != "linux":
            raise MilcoError("engine qdrant needs Linux: use lucene, with the same scores")
        require_package("qdrant_edge", "qdrant", "engine qdrant")

    def build(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Write ids, terms, and Qdrant's own files. Qdrant decides how many threads it uses."""
        from qdrant_edge import EdgeShard, PayloadSchemaType, UpdateOperation

        numbers, columns = _numbered(), _numbered()
        with engine_errors(self.name, "build", directory):
            with contextlib.closing(EdgeShard.create(str(directory / _SHARD), _config(_SMALLEST_INDEX))) as shard:
                if documents.corpus is not None:
                    shard.update(UpdateOperation.create_field_index(_VALUES, PayloadSchemaType.Keyword))
            return _write(directory, documents, numbers, columns, _SMALLEST_INDEX)

    def update(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Write into the files, which Qdrant changes in place."""
        numbers, columns = (_numbered(StringTable(directory, name)) for name in ("ids", "terms"))
        with engine_errors(self.name, "build", directory):
            return _write(directory, documents, numbers, columns, _SMALLEST_NEW_INDEX)

    def versions(self) -> dict[str, str]:
        """Return the version of qdrant-edge-py; another one may change the files of an index as it opens them."""
        return {"qdrant_edge": importlib.metadata.version(PACKAGE)}

    def open(self, directory: Path, manifest: IndexManifest) -> "QdrantSearcher":
        """Map the files into memory; queries are quantized at the scale that the manifest states."""
        version = self.versions()["qdrant_edge"]
        if (written := manifest.qdrant_edge or version) != version:
            raise MilcoError(
                f"{directory} was built by {PACKAGE} {written}, {version} is installed: build it again, or "
                f"pip install {PACKAGE}=={written}"
            )
        if (directory / _SHARD).exists() and not os.access(directory / _SHARD, os.W_OK):
            raise MilcoError(
                f"{directory} is not writable: Qdrant opens an index for reading and writing, even to search it. "
                "Make it writable (chmod, chown), or copy it"
            )
        return QdrantSearcher(directory, manifest.query_scale, manifest.documents)


class QdrantSearcher(EngineSearcher):
    """An open Qdrant index. Scores are sums of products of integers, exact up to 2**24. scale: of queries."""

    def __init__(self, directory: Path, scale: float, documents: int) -> None:
        from qdrant_edge import EdgeShard

        super().__init__(Qdrant.name, directory, documents)
        self.scale = scale
        descriptor = os.open(directory, os.O_RDONLY)
        place = Path(f"/proc/self/fd/{descriptor}")
        try:
            self.ids = StringTable(place, "ids")
            self.terms = list(StringTable(place, "terms"))
            self._shard = EdgeShard.load(str(place / _SHARD))
        except Exception as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise
            file = error.file if isinstance(error, DamagedError) else _SHARD
            reason = error.reason if isinstance(error, DamagedError) else str(error).replace(f"{place}/", "")
            raise DamagedError(directory, file, reason) from error
        self._close = weakref.finalize(self, _close, self._shard, descriptor)
        self.columns = {term: column for column, term in enumerate(self.terms)}
        if (points := self._shard.info().points_count) != documents:
            raise DamagedError(directory, _SHARD, f"{points:,} documents, not {documents:,}")

    def release(self) -> None:
        """Close the shard."""
        self._close()

    def find(self, queries: Sequence[dict[str, float]], request: SearchRequest) -> list[Hits]:
        """Return hits with float32 scores. Qdrant works outside of Python's lock."""
        from qdrant_edge import FieldCondition, Filter, MatchAny

        conditions: list[Any] = [
            FieldCondition(_VALUES, MatchAny([_value(field, value) for value in values]))
            for field, values in request.filters.items()
        ]
        wanted, k = Filter(must=conditions) if conditions else None, request.k
        if request.threads == 1:
            return [self._search(query, k, wanted) for query in queries]
        with ThreadPoolExecutor(request.threads) as pool:
            return list(pool.map(lambda query: self._search(query, k, wanted), queries))

    def count_values(self, field: str, limit: int) -> dict[str, int] | None:
        """Return how many documents have each value of a field; None if all fields have more values than the limit."""
        from qdrant_edge import FacetRequest

        hits = self._shard.facet(FacetRequest(_VALUES, limit, exact=True)).hits
        prefix = _value(field, "")
        counts = {str(hit.value).removeprefix(prefix): hit.count for hit in hits if str(hit.value).startswith(prefix)}
        return None if len(hits) == limit else counts

    def stored(self, docids: Sequence[str]) -> dict[str, str]:
        """Return the stored JSON of the documents; missing ones are left out."""
        known = {self.numbers[docid]: docid for docid in docids if docid in self.numbers}
        records = self._shard.retrieve(list(known), with_payload=True, with_vector=False)
        return {known[cast(int, record.id)]: cast(dict, record.payload)[_RAW] for record in records}

    def weights(self, docid: str, terms: Sequence[str]) -> dict[str, int] | None:
        """Return the impacts in the document's vector."""
        number = self.numbers.get(docid)
        points = [] if number is None else self._shard.retrieve([number], with_payload=False, with_vector=True)
        if not points:
            return None
        vector = cast(Any, points[0].vector)[_VECTOR]
        impacts = dict(zip(vector.indices, vector.values, strict=True))
        columns = ((term, self.columns.get(term)) for term in terms)
        return {term: int(impacts[column]) for term, column in columns if column in impacts}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of every docid, in 100 bytes of memory each; that of a deleted document has no point."""
        return {docid: number for number, docid in enumerate(self.ids)}

    def _search(self, query: dict[str, float], k: int, wanted: Any = None) -> Hits:
        """wanted: Qdrant's Filter of points."""
        from qdrant_edge import Query, QueryRequest, SparseVector

        impacts = quantize_vector(query, self.scale)
        # In the order of columns, so that a sum above 2**24 does not depend on the order of the dict.
        known = sorted((self.columns[term], float(impact)) for term, impact in impacts.items() if term in self.columns)
        if not known:
            return Hits([], np.empty(0, np.float32))
        nearest = Query.Nearest(SparseVector(*map(list, zip(*known, strict=True))), _VECTOR)
        limit = k + 1
        while True:
            points = self._shard.query(QueryRequest(limit, query=nearest, filter=wanted))
            if len(points) < limit or points[-1].score < points[k - 1].score:
                break
            # Each query begins anew, so few of them: all ties of 200,000 equal documents take half a second.
            limit *= 4
        last = min((point.score for point in points[:k]), default=0)
        points = [point for point in points if point.score >= last]
        docids = self.ids.take(np.asarray([point.id for point in points], np.int64))
        best = heapq.nsmallest(k, ((-point.score, docid) for point, docid in zip(points, docids, strict=True)))
        return Hits([docid for _, docid in best], np.asarray([-score for score, _ in best], np.float32))


def _numbered(known: Iterable[str] = ()) -> dict[str, int]:
    """Return numbers of docids or terms, in the order of their first use: an unknown name gets the next one."""
    numbers: defaultdict[str, int] = defaultdict(None, {name: number for number, name in enumerate(known)})
    numbers.default_factory = numbers.__len__
    return numbers


def _config(smallest_index: int) -> Any:
    """Return the configuration of a shard. smallest_index: as the constants of this module."""
    from qdrant_edge import EdgeConfig, EdgeOptimizersConfig, EdgeSparseVectorParams, Memory

    return EdgeConfig(
        sparse_vectors={_VECTOR: EdgeSparseVectorParams(memory=Memory.Cold)},
        optimizers=EdgeOptimizersConfig(indexing_threshold=smallest_index, default_segment_number=1),
        wal_enabled=False,
    )


def _write(
    directory: Path, documents: CheckedDocuments, numbers: dict[str, int], columns: dict[str, int], smallest_index: int
) -> BuildResult:
    """Write documents into a shard, and the numbers of docids and terms next to it."""
    from qdrant_edge import EdgeShard, Point, SparseVector, UpdateOperation

    path, empty = directory / _SHARD, []
    vectors = documents.vectors()
    with contextlib.closing(EdgeShard.load(str(path), _config(smallest_index))) as shard:
        while batch := list(islice(vectors, _BATCH)):
            _require_room(path)
            points = [
                Point(
                    numbers[docid],
                    {_VECTOR: SparseVector([columns[term] for term in vector], list(map(float, vector.values())))},
                    _payload(documents.corpus, docid),
                )
                for docid, vector in batch
                if vector
            ]
            shard.update(UpdateOperation.upsert_points(points))
            empty += [docid for docid, vector in batch if not vector]
        deleted = [*empty, *documents.deleted]
        shard.update(UpdateOperation.delete_points([numbers[docid] for docid in deleted if docid in numbers]))
        shard.optimize()
        shard.flush()
        count = shard.info().points_count
    # The first opening adds default values to the configuration on disk.
    EdgeShard.load(str(path)).close()
    write_strings(directory, "ids", list(numbers))
    write_strings(directory, "terms", list(columns))
    return BuildResult(count, len(empty))


def _payload(corpus: StoredDocuments | None, docid: str) -> dict[str, Any] | None:
    """Return what a point has of a stored document: its JSON, and the values of its fields."""
    if corpus is None:
        return None
    entry, fields = corpus.entry(docid, {}), list(corpus.fields)
    return {_RAW: entry.raw, _VALUES: [_value(fields[number], value) for number, value in entry.values]}


def _value(field: str, value: str) -> str:
    return f"{field}\n{value}"


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
