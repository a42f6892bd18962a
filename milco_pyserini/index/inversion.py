"""Invert sparse vectors on disk: postings by term, in memory that hardly grows with the collection.

Documents are inverted in runs that fit into memory and are written to temporary files; then the runs are merged, some
terms at a time (single-pass indexing, Heinz and Zobel, 2003). All files are written and read from start to end.
"""

from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from milco_pyserini.index.postings import BLOCK, CHUNK, CHUNK_INDPTR, CHUNKS, INDPTR, PAGE, ROWS, TABLE, WEIGHTS
from milco_pyserini.io.files import atomic_file
from milco_pyserini.sparse import SparseBatch

# Postings of a run, and of the terms that are merged at a time.
RUN = 2**22
# Weights are codes if they are impacts below this limit and this share of them is on the first page: those of other
# pages are in chunks of their own.
_MAX_CODED, _MIN_SHARE = 2**20, 0.75


class PostingRuns:
    """Postings of documents that come one after the other.

    rows, weights: empty temporary files, open for reading and writing, for 8 bytes per posting.
    scale: weights that are an impact / scale in float32 are stored as codes.
    """

    def __init__(self, rows: IO[bytes], weights: IO[bytes], scale: float) -> None:
        self._rows, self._weights = rows, weights
        self._scale = np.float32(scale)
        # How many postings have each impact; None once a weight is not an impact.
        self._impacts: NDArray[np.int64] | None = np.zeros(0, np.int64)
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

    def merge(self, ranks: NDArray[np.int32], directory: Path) -> NDArray[np.int64]:
        """Write the files of PostingLists; return the columns that have postings, which are its terms.

        ranks: the row of each document.
        """
        from scipy.sparse import csr_array

        self._write_run()
        width = max((len(starts) - 1 for _, starts in self._runs), default=0)
        counts = np.zeros(width, np.int64)
        for _, starts in self._runs:
            counts[: len(starts) - 1] += np.diff(starts)
        ends = np.concatenate([[0], np.cumsum(counts)])
        is_sorted = bool((np.diff(ranks) > 0).all())
        codes, table = self._codes()
        # Chunks have a few bytes per hundred of the postings, which are not kept in memory.
        chunks, chunk_counts = [np.empty(0, CHUNK)], [np.empty(0, np.int64)]
        first = 0
        with atomic_file(directory / ROWS) as row_file, atomic_file(directory / WEIGHTS) as weight_file:
            for file, dtype in ((row_file, "<u2"), (weight_file, "<f4" if codes is None else "|u1")):
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
                columns = np.repeat(np.arange(last - first), np.diff(indptr))
                keys = columns << 32 | (documents // BLOCK).astype(np.int64) << 16
                if codes is not None:
                    found = codes[self._as_impacts(values)]
                    values = found.astype(np.uint8)
                    if len(table) > PAGE:
                        keys |= found // PAGE
                        order = np.argsort(keys, kind="stable")
                        keys, documents, values = keys[order], documents[order], values[order]
                begins = np.append(0, np.flatnonzero(keys[1:] != keys[:-1]) + 1)[: len(keys)]
                chunks.append(np.empty(len(begins), CHUNK))
                chunks[-1]["block"], chunks[-1]["page"] = keys[begins] >> 16 & 0xFFFF, keys[begins] & 0xFFFF
                chunks[-1]["last"] = np.diff(begins, append=len(keys)) - 1
                chunk_counts.append(np.bincount(keys[begins] >> 32, minlength=last - first))
                row_file.write(documents.astype(np.uint16))
                weight_file.write(values)
                first = last
        # Terms that no document has would only make the index slower to open.
        used = np.flatnonzero(counts)
        files: dict[str, NDArray[Any]] = {CHUNKS: np.concatenate(chunks)} | ({} if codes is None else {TABLE: table})
        for name, numbers in ((INDPTR, counts), (CHUNK_INDPTR, np.concatenate(chunk_counts))):
            files[name] = np.concatenate([[0], np.cumsum(numbers[used])]).astype(np.int64)
        for name, content in files.items():
            with atomic_file(directory / name) as handle:
                np.save(handle, content)
        return used

    def _codes(self) -> tuple[NDArray[np.int32] | None, NDArray[np.float32]]:
        """Return the code of each impact and the weight of each code; None if the weights are not to be coded."""
        impacts = np.zeros(0, np.int64) if self._impacts is None else self._impacts
        order = np.argsort(-impacts, kind="stable")[: np.count_nonzero(impacts)]
        codes, table = np.zeros(len(impacts), np.int32), np.zeros(-(-len(order) // PAGE) * PAGE, np.float32)
        codes[order] = np.arange(len(order))
        table[: len(order)] = order.astype(np.float32) / self._scale
        return (codes if impacts[order[:PAGE]].sum() >= _MIN_SHARE * self._postings else None), table

    def _as_impacts(self, weights: NDArray[np.float32]) -> NDArray[np.int32]:
        return np.rint(weights * self._scale).astype(np.int32)

    def _count_impacts(self, weights: NDArray[np.float32]) -> None:
        known, self._impacts = self._impacts, None
        if known is not None and weights.min() >= 0 and weights.max() * self._scale < _MAX_CODED:
            impacts = self._as_impacts(weights)
            if (impacts.astype(np.float32) / self._scale == weights).all():
                self._impacts = np.bincount(impacts, minlength=len(known))
                self._impacts[: len(known)] += known

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
        self._count_impacts(columns.data)
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
