"""The exact engine: every document's float score, from an inverted matrix. Ground truth; quick on small collections.

Postings lie term after term (compressed sparse columns), documents in ascending order of id, so that a tie goes
to the lower row. A search adds up its terms' postings, one query a thread, and keeps the best k.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.index.arrays import map_array
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.protocol import TERMS, Built, Hits, Searcher, Store
from milco_pyserini.index.strings import StringTable, write_strings
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import DamagedError, intact

if TYPE_CHECKING:
    from scipy.sparse import csc_array

_ROWS = "rows.npy"


class ExactEngine:
    """Exact float scores; ties by docid. The whole matrix is in memory while it is built (8 bytes a posting, twice)."""

    name = "exact"
    exactness = "exact float"
    queries = TERMS

    def available(self) -> None:
        """numpy, scipy and numba come with the package."""

    def build(self, store: Store, directory: Path, threads: int) -> Built:
        """Write ids, terms, and indptr int64 [terms + 1], rows int32 [n], weights float32 [n]."""
        with engine_errors(self.name, "build", directory):
            ids, matrix, empty = _invert(store)
        # Terms that no document has would only make the index longer to open.
        used = np.flatnonzero(np.diff(matrix.indptr))
        terms = store.terms
        indptr = np.concatenate([[0], matrix.indptr[used + 1]]).astype(np.int64)
        arrays = {"indptr.npy": indptr, _ROWS: matrix.indices.astype(np.int32), "weights.npy": matrix.data}
        for file, array in arrays.items():
            with atomic_file(directory / file) as handle:
                np.save(handle, array)
        write_strings(directory, "terms", [terms[column] for column in used])
        write_strings(directory, "ids", ids)
        return Built(len(ids), empty)

    def open(self, directory: Path, manifest: dict) -> "ExactSearcher":
        """Map the files into memory. Rows are compared with the number of documents as they are read."""
        ids, terms = StringTable(directory, "ids", manifest["documents"]), StringTable(directory, "terms")
        indptr = map_array(directory, "indptr.npy", np.int64, len(terms) + 1)
        rows = map_array(directory, _ROWS, np.int32)
        weights = map_array(directory, "weights.npy", np.float32, len(rows))
        if indptr[0] != 0 or indptr[-1] != len(rows) or (np.diff(indptr) < 0).any():
            raise DamagedError(directory, "indptr.npy", f"does not ascend from 0 to {len(rows):,}")
        return ExactSearcher(directory, ids, terms, indptr, rows, weights)


class ExactSearcher(Searcher):
    """An exact index that is open; arrays as ExactEngine.build() wrote them."""

    def __init__(
        self,
        directory: Path,
        ids: StringTable,
        terms: Iterable[str],
        indptr: NDArray[np.int64],
        rows: NDArray[np.int32],
        weights: NDArray[np.float32],
    ) -> None:
        super().__init__(ExactEngine.name, directory, len(ids))
        self.ids = ids
        self.columns = {term: column for column, term in enumerate(terms)}
        self._postings = indptr, rows, weights

    def find(self, queries: Sequence[dict[str, float]], k: int, threads: int) -> list[Hits]:
        """Scores are float64 sums of float32 products' exact values."""
        if threads == 1:
            return [self._search(query, k) for query in queries]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda query: self._search(query, k), queries))

    def _search(self, query: dict[str, float], k: int) -> Hits:
        # Imported when it is needed: numba takes half a second to load, and more to compile it.
        from milco_pyserini.index.exact_kernel import best_rows

        columns, weights = self._vector(query)
        with intact(self.path, _ROWS):
            rows, scores = best_rows(*self._postings, columns, weights, len(self.ids), k)
        return Hits(self.ids.take(rows), scores)

    def _vector(self, query: dict[str, float]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The query's known terms, in the order of columns: the sum does not depend on the order of the dict."""
        known = sorted((self.columns[term], weight) for term, weight in query.items() if term in self.columns)
        columns = np.asarray([column for column, _ in known], np.int64)
        return columns, np.asarray([weight for _, weight in known], np.float32)

    def matrix(self) -> "csc_array":
        """The index as a float32 matrix [documents, terms], for the reference and for whoever wants to look."""
        from scipy.sparse import csc_array

        indptr, rows, weights = self._postings
        matrix = csc_array((weights, rows, indptr), shape=(len(self.ids), len(self.columns)))
        with intact(self.path, _ROWS):
            # SciPy's products do not compare rows with the shape.
            matrix.check_format()
        return matrix

    def search_by_definition(self, query: dict[str, float], k: int) -> Hits:
        """What search() promises, as one would define it: all scores, sorted by score and docid."""
        vector = np.zeros(len(self.columns), np.float64)
        columns, weights = self._vector(query)
        vector[columns] = weights
        scores = self.matrix().astype(np.float64) @ vector
        order = np.lexsort((np.arange(len(scores)), -scores))[:k]
        found = order[scores[order] > 0]
        return Hits(self.ids.take(found), scores[found])


def _invert(store: Store) -> tuple[list[str], "csc_array", int]:
    """Ids in ascending order, their float32 matrix [documents, terms] by column, and how many had no terms."""
    from scipy.sparse import csr_array

    ids: list[str] = []
    batches = []
    for names, batch in store.batches():
        ids += names
        batches.append(batch)
    lengths = np.concatenate([np.zeros(0, np.int64), *(batch.lengths() for batch in batches)])
    columns = np.concatenate([np.empty(0, np.int32), *(batch.columns for batch in batches)])
    weights = np.concatenate([np.empty(0, np.float32), *(batch.weights for batch in batches)])
    batches.clear()
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    matrix = csr_array((weights, columns, indptr), shape=(len(ids), len(store.terms)))
    order = [row for row in sorted(range(len(ids)), key=ids.__getitem__) if lengths[row]]
    return [ids[row] for row in order], matrix[order].tocsc(), len(ids) - len(order)
