"""The exact engine: float scores of every document, from an inverted matrix. The ground truth of all other engines.

Postings are stored term by term (compressed sparse columns), documents in ascending order of id, so that a tie goes
to the lower row. A search adds up the postings of the query's terms, one query per thread, and keeps the best k.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import CheckedDocuments
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.inversion import PostingRuns
from milco_pyserini.index.protocol import EXACT_FLOAT, BuildResult, Engine, EngineSearcher, GroupHits, Groups, Hits
from milco_pyserini.index.storage import StoredFiles, StoredFilesWriter, StringTable, map_array, write_strings
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import DamagedError, intact
from milco_pyserini.io.records import IndexManifest
from milco_pyserini.request import SearchRequest

if TYPE_CHECKING:
    from scipy.sparse import csc_array

T = TypeVar("T")

_INDPTR, _ROWS, _WEIGHTS = "indptr.npy", "rows.npy", "weights.npy"
# Postings, and calls of numpy in units of them, that numpy adds up in less time than numba takes to load and compile.
UNCOMPILED = 10**8
_CALLS = 1000


class Exact(Engine):
    """Exact float scores; ties by docid. An index takes 8 bytes per posting; building needs as much more, on disk."""

    name = "exact"
    exactness = EXACT_FLOAT
    capabilities = frozenset({Capability.BUILD, Capability.STORE, Capability.BALANCE, Capability.READ})

    def build(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Write ids, terms, indptr int64 [terms + 1], rows int32 [n] and weights float32 [n]; and the documents."""
        ids: list[str] = []
        empty = 0
        corpus = documents.corpus
        stored = None if corpus is None else StoredFilesWriter(directory, list(corpus.fields))
        with (
            engine_errors(self.name, "build", directory),
            tempfile.TemporaryFile(dir=directory) as rows,
            tempfile.TemporaryFile(dir=directory) as weights,
        ):
            runs = PostingRuns(rows, weights)
            for names, batch in documents.batches():
                runs.add(batch)
                filled = [names[row] for row in np.flatnonzero(batch.lengths())]
                ids += filled
                empty += len(names) - len(filled)
                if corpus is not None and stored is not None:
                    for name in filled:
                        stored.add(corpus.entry(name, {}))
            order = np.asarray(sorted(range(len(ids)), key=ids.__getitem__), np.int32)
            counts = runs.merge(np.argsort(order).astype(np.int32), directory / _ROWS, directory / _WEIGHTS)
        # Terms that no document has would only make the index slower to open.
        used, terms = np.flatnonzero(counts), documents.terms
        with atomic_file(directory / _INDPTR) as handle:
            np.save(handle, np.concatenate([[0], np.cumsum(counts[used])]).astype(np.int64))
        write_strings(directory, "terms", (terms[column] for column in used))
        write_strings(directory, "ids", (ids[row] for row in order))
        if stored is not None:
            stored.close(order.astype(np.int64))
        return BuildResult(len(ids), empty)

    def open(self, directory: Path, manifest: IndexManifest) -> "ExactSearcher":
        """Map the files into memory. Rows are compared with the number of documents when they are read."""
        ids, terms = StringTable(directory, "ids", manifest.documents), StringTable(directory, "terms")
        indptr = map_array(directory, _INDPTR, np.int64, len(terms) + 1)
        rows = map_array(directory, _ROWS, np.int32)
        weights = map_array(directory, _WEIGHTS, np.float32, len(rows))
        if indptr[0] != 0 or indptr[-1] != len(rows) or (np.diff(indptr) < 0).any():
            raise DamagedError(directory, _INDPTR, f"does not ascend from 0 to {len(rows):,}")
        stored = StoredFiles(directory, len(ids)) if manifest.fields is not None else None
        return ExactSearcher(directory, ids, terms, indptr, rows, weights, stored)


class ExactSearcher(EngineSearcher):
    """An open exact index; arrays as Exact.build() wrote them."""

    def __init__(
        self,
        directory: Path,
        ids: StringTable,
        terms: Iterable[str],
        indptr: NDArray[np.int64],
        rows: NDArray[np.int32],
        weights: NDArray[np.float32],
        stored: StoredFiles | None = None,
    ) -> None:
        super().__init__(Exact.name, directory, len(ids))
        self._stored = stored
        self._groups = lru_cache(lambda field: cast(StoredFiles, stored).groups(field))
        self.ids = ids
        self.columns = {term: column for column, term in enumerate(terms)}
        self._postings = indptr, rows, weights
        self._uncompiled = 0

    def find(self, queries: Sequence[dict[str, float]], request: SearchRequest) -> list[Hits]:
        """Return hits whose scores are float64 sums of the exact products of float32 weights."""
        allowed = np.empty(0, np.bool_)
        if request.filters:
            allowed = cast(StoredFiles, self._stored).allowed(request.filters)

        def search(query: dict[str, float]) -> Hits:
            columns, weights = self._vector(query)
            with intact(self.path, _ROWS):
                best = self._best_rows(columns)
                rows, scores, total = best(*self._postings, columns, weights, len(self.ids), request.k, allowed)
            return Hits(self.ids.take(rows), scores, total=total)

        return _in_threads(search, queries, request.threads)

    def count_values(self, field: str, limit: int) -> dict[str, int]:
        """Return how many documents have each value of a field."""
        return cast(StoredFiles, self._stored).count_values(field, limit)

    def find_groups(self, queries: Sequence[dict[str, float]], request: SearchRequest, field: str) -> list[Groups]:
        """Return hits as find() does, the best for each value of a field."""
        from milco_pyserini.index.exact_kernel import all_scores

        values, groups = self._groups(field)
        sizes = np.bincount(groups, minlength=len(values))
        allowed, k = cast(StoredFiles, self._stored).allowed(request.filters), request.k

        def search(query: dict[str, float]) -> Groups:
            with intact(self.path, _ROWS):
                scores = all_scores(*self._postings, *self._vector(query), len(self.ids))
            sums = np.bincount(groups, scores, len(values))
            matching = np.flatnonzero((scores > 0) & allowed)
            found = {}
            for number, value in enumerate(values):
                rows = matching[groups[matching] == number]
                best = _best(scores, rows, k)
                hits = Hits(self.ids.take(best), scores[best], total=len(rows))
                found[value] = GroupHits(hits, float(sums[number]), int(sizes[number]))
            return found

        return _in_threads(search, queries, request.threads)

    def stored(self, docids: Sequence[str]) -> dict[str, str]:
        """Return the stored JSON of the documents; missing ones are left out."""
        known = {docid: row for docid in docids if (row := self._row(docid)) is not None}
        texts = cast(StoredFiles, self._stored).take(np.asarray(list(known.values()), np.int64))
        return dict(zip(known, texts, strict=True))

    def weights(self, docid: str, terms: Sequence[str]) -> dict[str, float] | None:
        """Return the float32 weights in the postings, in the order of the index's columns."""
        row = self._row(docid)
        if row is None:
            return None
        indptr, rows, postings = self._postings
        weights = {}
        for column, term in sorted((self.columns[term], term) for term in terms if term in self.columns):
            start, end = indptr[column], indptr[column + 1]
            place = start + np.searchsorted(rows[start:end], row)
            if place < end and rows[place] == row:
                weights[term] = float(postings[place])
        return weights

    def matrix(self) -> "csc_array":
        """Return the index as a float32 matrix [documents, terms]."""
        from scipy.sparse import csc_array

        indptr, rows, weights = self._postings
        matrix = csc_array((weights, rows, indptr), shape=(len(self.ids), len(self.columns)))
        with intact(self.path, _ROWS):
            # SciPy's products do not compare rows with the shape.
            matrix.check_format()
        if not ((weights >= 0) & (weights < np.inf)).all():
            raise DamagedError(self.path, _WEIGHTS, "a weight is negative or not finite")
        return matrix

    def _best_rows(self, columns: NDArray[np.int64]) -> Callable[..., tuple[Any, Any, int]]:
        """Return the function that ranks documents for a query of these columns: numpy's for the first queries."""
        if self._uncompiled <= UNCOMPILED:
            indptr = self._postings[0]
            postings = int((indptr[columns + 1] - indptr[columns]).sum())
            self._uncompiled += postings + len(self.ids) + _CALLS * len(columns)
            return best_rows
        from milco_pyserini.index import exact_kernel

        return exact_kernel.best_rows

    def _row(self, docid: str) -> int | None:
        row = bisect_left(self.ids, docid)
        return row if row < len(self.ids) and self.ids[row] == docid else None

    def _vector(self, query: dict[str, float]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the known terms in the order of columns, so that the sum does not depend on the order of the dict."""
        known = sorted((self.columns[term], weight) for term, weight in query.items() if term in self.columns)
        columns = np.asarray([column for column, _ in known], np.int64)
        # A sum with infinity is refused by search().
        with np.errstate(over="ignore"):
            return columns, np.asarray([weight for _, weight in known], np.float32)


def best_rows(
    indptr: NDArray[np.int64],
    rows: NDArray[np.int32],
    weights: NDArray[np.float32],
    query_columns: NDArray[np.int64],
    query_weights: NDArray[np.float32],
    documents: int,
    k: int,
    allowed: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    """Rank documents as exact_kernel.best_rows() does, whose reference it is: the same sums, all at once."""
    scores = np.zeros(documents, np.float64)
    for column, weight in zip(query_columns, query_weights.astype(np.float64), strict=True):
        span = slice(indptr[column], indptr[column + 1])
        own = rows[span]
        if len(own) and (own[0] < 0 or own[-1] >= documents or (np.diff(own) <= 0).any()):
            raise IndexError("a row does not ascend, or is not that of a document")
        scores[own] += weight * weights[span].astype(np.float64)
    matching = np.flatnonzero((scores > 0) & allowed if len(allowed) else scores > 0)
    best = _best(scores, matching, k)
    return best, scores[best], len(matching)


def _best(scores: NDArray[np.float64], rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the k of these ascending rows with the highest scores, best first, ties by row."""
    if len(rows) > k:
        rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
    return rows[np.argsort(-scores[rows], kind="stable")[:k]]


def _in_threads(search: Callable[[dict[str, float]], T], queries: Sequence[dict[str, float]], threads: int) -> list[T]:
    if threads == 1:
        return [search(query) for query in queries]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(search, queries))
