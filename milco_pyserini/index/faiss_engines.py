"""Dense vectors in Faiss: flat compares all of them, hnsw searches a graph of neighbors (Malkov and Yashunin, 2020).

Scores are inner products, cosines for L2-normalized vectors. An index is a Faiss file and the ids of its rows, under
the names that Pyserini's FaissSearcher reads, too.
"""

import contextlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import counted
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.documents import CheckedDocuments, DocumentSource
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.protocol import (
    APPROXIMATE,
    BUILD,
    DEFAULT_QUERIES,
    EXACT_FLOAT,
    SEARCH,
    BuildResult,
    Engine,
    EngineSearcher,
    GroundTruth,
    Hits,
    QueryOptions,
)
from milco_pyserini.index.recall import best_documents, sample_rows, sample_topics
from milco_pyserini.index.sparse_engine import validate_same_encoder
from milco_pyserini.index.storage import StringTable, write_strings
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import DENSE_INDEX
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.encode.dense import DenseQueryEncoder
    from milco_pyserini.encode.dense_store import DenseStore

_INDEX = "index"
_DOCIDS = "docid"
_IDS = "ids"
# Sums of the same products may differ in the last digits: scores that are equal but for them are ties.
_DECIMALS = 5


class DenseDocuments(DocumentSource, Protocol):
    """Documents as dense vectors, such as a DenseStore. The manifest has their dimensions."""

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Yield ids and float32 [ids, d]."""


class CheckedDenseVectors(CheckedDocuments):
    """DenseDocuments, validated and counted."""

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Yield ids and float32 [ids, d]."""
        for names, vectors in self.source.batches():
            self.count(names)
            yield names, vectors

    def describe(self) -> dict[str, Any]:
        """Return the manifest of the vectors."""
        return {"vectors": self.manifest}

    def ids(self) -> Iterator[str]:
        """Yield every id."""
        return (docid for names, _ in self.source.batches() for docid in names)


class FaissEngine(Engine):
    """Base of both engines: everything but the type of index."""

    query_type = "dense vectors"
    manifest_fields = DENSE_INDEX
    checked = CheckedDenseVectors
    # Additional hits that are fetched to see whether there is a tie at the last position.
    spare = 0

    def available(self) -> None:
        """Raise MilcoError if Faiss is not installed."""
        if importlib.util.find_spec("faiss") is None:
            raise MilcoError("dense vectors need Faiss: pip install '.[dense]'")

    def open_source(self, source: Any, *, shard_num: int = 1, shard_id: int = 0) -> DenseDocuments:
        """Return a store of dense vectors, at a path or open."""
        store = self.open_topics(Path(source)) if isinstance(source, str | Path) else source
        return store.take_shard(shard_id, shard_num) if shard_num > 1 else store

    def open_topics(self, path: Path) -> "DenseStore":
        """Return the store of dense vectors at path."""
        from milco_pyserini.encode.dense_store import open_dense_store

        return open_dense_store(path)

    def ground_truth(self, documents: DenseDocuments, topics: DenseDocuments | None, count: int) -> GroundTruth:
        """Search for the vectors of topics (a sample of very many), or for those of sampled documents.

        Raises MilcoError if there are none, or if they have another dimension than the documents.
        """
        if topics is not None:
            queries = np.concatenate([vectors for _, vectors in topics.batches()])
            queries = queries[queries.any(axis=1)]
            queries = queries[sample_topics(len(queries))]
            what = f"{counted(len(queries), 'topic')} of {topics.path}"
        else:
            sampled = sample_rows(documents, count, lambda vectors: vectors.any(axis=1))
            queries = np.concatenate([vectors[rows] for vectors, rows in sampled])
            what = f"the vectors of {counted(len(queries), 'sampled document')}"
        dimensions = documents.manifest["dimensions"]
        if not len(queries) or queries.shape[1] != dimensions:
            raise MilcoError(f"{what}: recall is measured with vectors of {dimensions} dimensions that are not zero")
        scored = (
            (names, np.where(vectors.any(axis=1), (queries @ vectors.T).round(_DECIMALS), np.float32(-np.inf)))
            for names, vectors in documents.batches()
        )
        return GroundTruth(queries.tolist(), best_documents(documents, len(queries), scored, above=-np.inf), what)

    def open_query_encoder(self, index: Path, manifest: dict, options: QueryOptions) -> "DenseQueryEncoder":
        """Return the encoder of the index."""
        from milco_pyserini.encode.dense import open_dense_query_encoder

        if options.alpha is not None:
            raise MilcoError(f"`alpha={options.alpha}`: {index} has dense vectors, which have no views")
        encoder = None if options.encoder is None else str(options.encoder)
        return open_dense_query_encoder(manifest["vectors"], encoder, options.device, options.dtype)

    def read_queries(
        self, path: Path, index: Path, manifest: dict, options: QueryOptions = DEFAULT_QUERIES
    ) -> tuple[list[str], list[NDArray[np.float32]]]:
        """Read a store of dense vectors of topics."""
        if not path.is_dir():
            raise MilcoError(
                f"{path} holds sparse vectors, and {index} is of engine {self.name}: give it texts, or "
                "dense vectors that milco encode --topics --dense wrote"
            )
        store = self.open_topics(path)
        validate_same_encoder(path, store.manifest, index, manifest["vectors"])
        ids: list[str] = []
        queries: list[NDArray[np.float32]] = []
        for names, vectors in store.batches():
            ids += names
            queries += list(vectors)
        return ids, queries

    def build(self, documents: DenseDocuments, directory: Path, threads: int) -> BuildResult:
        """Write index, docid and ids. Holds all vectors in memory; zero vectors are left out."""
        import faiss

        index: Any = None
        ids: list[str] = []
        empty = 0
        for names, vectors in documents.batches():
            rows = np.flatnonzero(vectors.any(axis=1))
            empty += len(names) - len(rows)
            with engine_errors(self.name, "build", directory), _openmp_threads(threads):
                index = self.new_index(vectors.shape[1]) if index is None else index
                index.add(np.ascontiguousarray(vectors[rows]))
            ids += [names[row] for row in rows]
        if ids:
            # Faiss' own files lose their last bytes without an error if the disk is full when they are closed.
            with atomic_file(directory / _INDEX) as handle, engine_errors(self.name, "build", directory):
                faiss.write_index(index, faiss.PyCallbackIOWriter(handle.write))  # type: ignore[attr-defined]
            write_strings(directory, _IDS, ids)
            with atomic_file(directory / _DOCIDS, "w") as lines:
                lines.writelines(f"{docid}\n" for docid in ids)
        return BuildResult(len(ids), empty)

    def open(self, directory: Path, manifest: dict) -> "FaissSearcher":
        """Read the index into memory."""
        import faiss

        # Faiss does not distinguish a file that may not be read from a damaged one.
        (directory / _INDEX).open("rb").close()
        index, ids = faiss.read_index(str(directory / _INDEX)), StringTable(directory, _IDS)
        self.prepare(index)
        return FaissSearcher(self.name, directory, index, ids, self.spare)

    def new_index(self, dimensions: int) -> Any:
        """Return an empty Faiss index."""
        raise NotImplementedError

    def prepare(self, index: Any) -> None:
        """Apply the settings of a search to an index that was read."""


class Flat(FaissEngine):
    """The inner product with every document: the ground truth of dense vectors."""

    name = "flat"
    exactness = EXACT_FLOAT
    spare = 16

    def new_index(self, dimensions: int) -> Any:
        """Return an empty flat index."""
        import faiss

        return faiss.IndexFlatIP(dimensions)


@dataclass(frozen=True)
class HNSW(FaissEngine):
    """A graph of neighbors; the default settings are those of the paper's latency table."""

    name = "hnsw"
    exactness = APPROXIMATE

    links: int = option(
        32, group=BUILD, minimum=2, maximum=1024, help="neighbors of a vector in the graph, M; more find more, slower"
    )
    ef_search: int = option(
        64, group=SEARCH, minimum=1, maximum=10**6, help="candidate vectors of a search; more find more, slower"
    )

    def new_index(self, dimensions: int) -> Any:
        """Return an empty graph."""
        import faiss

        return faiss.IndexHNSWFlat(dimensions, self.links, faiss.METRIC_INNER_PRODUCT)

    def prepare(self, index: Any) -> None:
        """Set efSearch."""
        index.hnsw.efSearch = self.ef_search


class FaissSearcher(EngineSearcher):
    """An open Faiss index.

    Args:
        spare: how many more hits to fetch than are wanted, to find all of a tie; 0 if ties may be cut.
    """

    def __init__(self, engine: str, path: Path, index: Any, ids: StringTable, spare: int) -> None:
        super().__init__(engine, path, len(ids))
        self.ids = ids
        self._index = index
        self._spare = spare

    def find(self, queries: Sequence[NDArray[np.float32]], k: int, threads: int) -> list[Hits]:
        """Return hits with float32 scores for queries float32 [d]; a query of zeros has no hits.

        Raises MilcoError for queries of another dimension than the documents' vectors.
        """
        matrix = np.asarray(queries, np.float32).reshape(len(queries), -1 if len(queries) else self._index.d)
        if matrix.shape[1] != self._index.d:
            raise MilcoError(f"queries have {matrix.shape[1]} dimensions, the documents' vectors {self._index.d}")
        found: list[Hits] = [Hits([], np.empty(0, np.float32))] * len(matrix)
        filled = np.flatnonzero(matrix.any(axis=1))
        fetched = min(k + self._spare, len(self.ids))
        with _openmp_threads(threads):
            scores, rows = self._index.search(matrix[filled], fetched)
            for place, number in enumerate(filled.tolist()):
                best, best_rows, depth = scores[place], rows[place], fetched
                # A tie at position k that reaches the end of what was fetched: fetch more until it ends.
                while self._spare and depth < len(self.ids) and best[-1] == best[k - 1]:
                    depth = min(2 * depth, len(self.ids))
                    more, more_rows = self._index.search(matrix[number : number + 1], depth)
                    best, best_rows = more[0], more_rows[0]
                # Where the graph leads to fewer documents, Faiss fills up with -1.
                best, docids = best[best_rows >= 0], self.ids.take(best_rows[best_rows >= 0])
                order = sorted(range(len(docids)), key=lambda at: (-best[at], docids[at]))[:k]
                found[number] = Hits([docids[at] for at in order], best[order])
        return found


@contextlib.contextmanager
def _openmp_threads(number: int) -> Iterator[None]:
    """Let Faiss use so many threads within the block, and as many as before afterwards."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
