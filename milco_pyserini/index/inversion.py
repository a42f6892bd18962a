"""Invert sparse vectors on disk: postings by term, in memory that hardly grows with the collection.

Documents are inverted in runs that fit into memory and are written to temporary files; then the runs are merged, some
terms at a time (single-pass indexing, Heinz and Zobel, 2003). All files are written and read from start to end.
"""

from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from milco_pyserini.io.files import atomic_file
from milco_pyserini.sparse import SparseBatch

# Postings of a run, and of the terms that are merged at a time.
RUN = 2**22


class PostingRuns:
    """Postings of documents that come one after the other.

    rows, weights: empty temporary files, open for reading and writing; together they take as much as the index.
    """

    def __init__(self, rows: IO[bytes], weights: IO[bytes]) -> None:
        self._rows, self._weights = rows, weights
        # For each run: its first posting in the files, and int32 [columns + 1], where the postings of a column begin.
        self._runs: list[tuple[int, NDArray[np.int32]]] = []
        self._batches: list[SparseBatch] = []
        self._pending = self._documents = self._postings = 0

    def add(self, batch: SparseBatch) -> None:
        """Add documents; those without terms are left out, and the others numbered."""
        self._batches.append(batch)
        self._pending += len(batch.columns)
        if self._pending >= RUN:
            self._write_run()

    def merge(self, ranks: NDArray[np.int32], rows: Path, weights: Path) -> NDArray[np.int64]:
        """Write rows int32 [n] and weights float32 [n], by column and then row, as .npy files.

        Returns the number of postings of each column, int64 [columns]. ranks: the row of each document, int32.
        """
        from scipy.sparse import csr_array

        self._write_run()
        width = max((len(starts) - 1 for _, starts in self._runs), default=0)
        counts = np.zeros(width, np.int64)
        for _, starts in self._runs:
            counts[: len(starts) - 1] += np.diff(starts)
        ends = np.concatenate([[0], np.cumsum(counts)])
        is_sorted = bool((np.diff(ranks) > 0).all())
        first = 0
        with atomic_file(rows) as row_file, atomic_file(weights) as weight_file:
            for file, dtype in ((row_file, "<i4"), (weight_file, "<f4")):
                header = {"descr": dtype, "fortran_order": False, "shape": (self._postings,)}
                npy.write_array_header_1_0(file, header)
            while first < width:
                last = max(first + 1, int(np.searchsorted(ends, ends[first] + RUN, "right")) - 1)
                indptr = ends[first : last + 1] - ends[first]
                documents, values = self._merge_columns(first, last, indptr)
                if not is_sorted:
                    block = csr_array((values, ranks[documents], indptr), shape=(last - first, len(ranks)))
                    block.sort_indices()
                    documents, values = block.indices.astype(np.int32, copy=False), block.data
                row_file.write(documents)
                weight_file.write(values)
                first = last
        return counts

    def _write_run(self) -> None:
        from scipy.sparse import csr_array

        if not self._pending:
            return
        batch = SparseBatch.concatenate(self._batches, 0)
        self._batches, self._pending = [], 0
        filled = batch.indptr[np.flatnonzero(batch.lengths())]
        shape = len(filled), int(batch.columns.max()) + 1
        columns = csr_array((batch.weights, batch.columns, np.append(filled, len(batch.columns))), shape=shape).tocsc()
        self._rows.write(columns.indices.astype(np.int32) + np.int32(self._documents))
        self._weights.write(columns.data)
        self._runs.append((self._postings, columns.indptr.astype(np.int32)))
        self._documents += len(filled)
        self._postings += len(columns.data)

    def _merge_columns(
        self, first: int, last: int, indptr: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return documents and weights of the postings of some columns, by column, in the order of the documents."""
        documents, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        following = indptr[:-1].copy()
        for offset, run in self._runs:
            starts = run[np.minimum(np.arange(first, last + 1), len(run) - 1)].astype(np.int64)
            lengths = np.diff(starts)
            places = np.repeat(following - starts[:-1], lengths) + np.arange(starts[0], starts[-1])
            for file, merged in ((self._rows, documents), (self._weights, weights)):
                file.seek(merged.itemsize * (offset + int(starts[0])))
                merged[places] = np.frombuffer(file.read(merged.itemsize * len(places)), merged.dtype)
            following += lengths
        return documents, weights
