"""Dense vectors in Faiss: flat compares all of them, hnsw walks a graph of neighbours (Malkov and Yashunin, 2020).

Scores are inner products; of vectors of length 1, cosines. An index is a Faiss file and the ids of its rows, under the
names that Pyserini's FaissSearcher reads, too.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.errors import MilcoError
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.protocol import DENSE, Built, DenseStore, Hits, Searcher
from milco_pyserini.index.settings import BUILD, SEARCH, setting
from milco_pyserini.index.strings import StringTable, write_strings
from milco_pyserini.io.files import atomic_file

_INDEX = "index"
_DOCIDS = "docid"
_IDS = "ids"


class _FaissEngine:
    """What both engines have in common: everything but the kind of index."""

    name: str
    queries = DENSE
    _spare = 0

    def available(self) -> None:
        """Raise MilcoError if Faiss is not installed."""
        if importlib.util.find_spec("faiss") is None:
            raise MilcoError("dense vectors need Faiss: pip install 'milco-pyserini[dense]'")

    def build(self, store: DenseStore, directory: Path, threads: int) -> Built:
        """Write index, docid and ids. All the vectors are in memory while it is built; zero vectors are left out."""
        import faiss

        faiss.omp_set_num_threads(threads)
        index: Any = None
        ids: list[str] = []
        empty = 0
        for names, vectors in store.batches():
            rows = np.flatnonzero(vectors.any(axis=1))
            empty += len(names) - len(rows)
            with engine_errors(self.name, "build", directory):
                index = self._empty(vectors.shape[1]) if index is None else index
                index.add(np.ascontiguousarray(vectors[rows]))
            ids += [names[row] for row in rows]
        if ids:
            # Faiss' own files lose their last bytes without an error if the disk is full when they are closed.
            with atomic_file(directory / _INDEX) as handle, engine_errors(self.name, "build", directory):
                faiss.write_index(index, faiss.PyCallbackIOWriter(handle.write))  # type: ignore[attr-defined]
            write_strings(directory, _IDS, ids)
            with atomic_file(directory / _DOCIDS, "w") as lines:
                lines.writelines(f"{name}\n" for name in ids)
        return Built(len(ids), empty)

    def open(self, directory: Path, manifest: dict) -> "FaissSearcher":
        """Read the index into memory."""
        import faiss

        # Faiss does not tell a file that may not be read from a damaged one.
        (directory / _INDEX).open("rb").close()
        index, ids = faiss.read_index(str(directory / _INDEX)), StringTable(directory, _IDS)
        self._prepare(index)
        return FaissSearcher(self.name, directory, index, ids, self._spare)

    def _empty(self, dimensions: int) -> Any:
        """A Faiss index without a vector."""
        raise NotImplementedError

    def _prepare(self, index: Any) -> None:
        """Set an index that is read to the settings of a search."""


class FlatEngine(_FaissEngine):
    """Every document's inner product: the ground truth of dense vectors."""

    name = "flat"
    exactness = "exact float"
    # What is fetched beyond what is wanted, so that a tie at the last place is seen to its end.
    _spare = 16

    def _empty(self, dimensions: int) -> Any:
        import faiss

        return faiss.IndexFlatIP(dimensions)


@dataclass(frozen=True)
class HnswEngine(_FaissEngine):
    """A graph of neighbours, with the settings of the paper's latency table unless they are given."""

    name = "hnsw"
    exactness = "approximate"

    links: int = setting(32, BUILD, 2, 1024, "neighbours of a vector in the graph, M")
    ef_search: int = setting(64, SEARCH, 1, 10**6, "vectors that a search keeps in view")

    def _empty(self, dimensions: int) -> Any:
        import faiss

        return faiss.IndexHNSWFlat(dimensions, self.links, faiss.METRIC_INNER_PRODUCT)

    def _prepare(self, index: Any) -> None:
        index.hnsw.efSearch = self.ef_search


class FaissSearcher(Searcher):
    """A Faiss index that is open. spare: how much more to fetch than is wanted, for ties; 0 where they may be cut."""

    def __init__(self, engine: str, path: Path, index: Any, ids: StringTable, spare: int) -> None:
        super().__init__(engine, path, len(ids))
        self.ids = ids
        self._index = index
        self._spare = spare

    def find(self, queries: Sequence[NDArray[np.float32]], k: int, threads: int) -> list[Hits]:
        """A query is float32 [d]. Scores are float32; a query of zeros has no hits.

        Raises MilcoError for queries of another length than the documents' vectors.
        """
        import faiss

        faiss.omp_set_num_threads(threads)
        matrix = np.asarray(queries, np.float32).reshape(len(queries), -1 if len(queries) else self._index.d)
        if matrix.shape[1] != self._index.d:
            raise MilcoError(f"queries have {matrix.shape[1]} dimensions, the documents' vectors {self._index.d}")
        found: list[Hits] = [Hits([], np.empty(0, np.float32))] * len(matrix)
        asked = np.flatnonzero(matrix.any(axis=1))
        fetched = min(k + self._spare, len(self.ids))
        scores, rows = self._index.search(matrix[asked], fetched)
        for place, number in enumerate(asked.tolist()):
            if self._spare and fetched < len(self.ids) and scores[place, -1] == scores[place, k - 1]:
                found[number] = self._all_ties(matrix[number : number + 1], k, fetched)
            else:
                found[number] = self._ranked(scores[place], rows[place], k)
        return found

    def _all_ties(self, query: NDArray[np.float32], k: int, fetched: int) -> Hits:
        """Of a query whose place k has a tie with all that was fetched behind it: fetch until the tie ends."""
        while True:
            fetched = min(2 * fetched, len(self.ids))
            scores, rows = self._index.search(query, fetched)
            if fetched == len(self.ids) or scores[0, -1] != scores[0, k - 1]:
                return self._ranked(scores[0], rows[0], k)

    def _ranked(self, scores: NDArray[np.float32], rows: NDArray[np.int64], k: int) -> Hits:
        # Where the graph leads to fewer, Faiss fills up with -1.
        rows, scores = rows[rows >= 0], scores[rows >= 0]
        docids = self.ids.take(rows)
        order = sorted(range(len(docids)), key=lambda place: (-scores[place], docids[place]))[:k]
        return Hits([docids[place] for place in order], scores[order])
