"""Posting lists of the exact engine, mapped into memory: 2 bytes for a document, and 1 for a weight that is an impact.

indptr.npy: int64 [terms + 1], where the postings of each term begin.
chunks.indptr.npy: int64 [terms + 1], where the chunks of each term begin.
chunks.npy: CHUNK [chunks]. A chunk holds postings of a term, in a block of 65,536 documents, whose codes are of the
same page of 256 weights. Chunks of a term are in the order of block and page.
rows.npy: uint16 [n], the document of each posting, counted from the beginning of its block; it ascends in a chunk.
weights.npy: uint8 [n], codes, of which table.npy has the weights, float32 [256 x pages], the most frequent first: a
weight is table[256 x page + code]. Without table.npy, float32 [n].

An index of version 0.3 has no chunks: its rows.npy is int32, the documents of a term in ascending order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.index.storage import map_array
from milco_pyserini.io.manifest import DamagedError

INDPTR, CHUNK_INDPTR, CHUNKS = "indptr.npy", "chunks.indptr.npy", "chunks.npy"
ROWS, WEIGHTS, TABLE = "rows.npy", "weights.npy", "table.npy"
BLOCK, PAGE = 1 << 16, 1 << 8
# last: the number of postings - 1.
CHUNK = np.dtype([("block", "<u2"), ("page", "<u2"), ("last", "<u2")])


class Lists(NamedTuple):
    """Posting lists of some terms.

    firsts, ends, postings: int64 [terms], first chunk, end of the chunks, and first posting of each.
    table: None if weights are float32.
    """

    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]
    postings: NDArray[np.int64]
    chunks: NDArray[Any]
    rows: NDArray[Any]
    weights: NDArray[Any]
    table: NDArray[np.float32] | None

    def decode(self, term: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the documents, uint32, and weights, float32, of a term.

        Raises IndexError if a document does not ascend in its chunk.
        """
        chunks = self.chunks[self.firsts[term] : self.ends[term]]
        sizes = chunks["last"] + np.int64(1)
        span = slice(self.postings[term], self.postings[term] + sizes.sum())
        rows = self.rows[span].astype(np.uint16, copy=False) + np.repeat(chunks["block"] * np.uint32(BLOCK), sizes)
        falls = np.flatnonzero(rows[1:] <= rows[:-1]) + 1
        if not np.isin(falls, np.cumsum(sizes)).all():
            raise IndexError("a row does not ascend")
        if self.table is None:
            return rows, self.weights[span]
        return rows, self.table[self.weights[span] + np.repeat(chunks["page"] * np.uint32(PAGE), sizes)]

    def find(self, row: int) -> Iterator[tuple[int, float]]:
        """Yield the number and the weight of each of the terms that a document has."""
        counts = self.ends - self.firsts
        offsets = np.cumsum(counts) - counts
        terms = np.repeat(np.arange(len(counts)), counts)
        chunks = self.chunks[np.arange(len(terms)) + (self.firsts - offsets)[terms]]
        sizes = chunks["last"] + np.int64(1)
        starts = np.cumsum(sizes) - sizes
        starts += self.postings[terms] - starts[offsets[terms]]
        place, table = np.uint16(row % BLOCK), self.table
        for chunk in np.flatnonzero(chunks["block"] == row // BLOCK):
            start, stop = starts[chunk], starts[chunk] + sizes[chunk]
            rows = self.rows[start:stop].astype(np.uint16, copy=False)
            found = rows.searchsorted(place)
            if found < len(rows) and rows[found] == place:
                weight = self.weights[start + found]
                weight = weight if table is None else table[int(chunks["page"][chunk]) * PAGE + int(weight)]
                yield int(terms[chunk]), float(weight)


class PostingLists:
    """The files of a segment. Raises DamagedError if they do not fit together; a search checks what it reads.

    prefix: of the names of the files. documents, terms: how many there are.
    """

    def __init__(self, directory: Path, prefix: str, documents: int, terms: int) -> None:
        self._files, self._documents = (directory, prefix), documents
        has_chunks, has_table = ((directory / f"{prefix}{file}").exists() for file in (CHUNKS, TABLE))
        self._rows = self._map(ROWS, np.uint16 if has_chunks else np.int32)
        self._weights = self._map(WEIGHTS, np.uint8 if has_table else np.float32, len(self._rows))
        self._table = self._map(TABLE, np.float32) if has_table else None
        self._indptr = self._map_indptr(INDPTR, terms, len(self._rows))
        self._chunks = self._map(CHUNKS, CHUNK) if has_chunks else None
        if self._chunks is not None:
            self._chunk_indptr = self._map_indptr(CHUNK_INDPTR, terms, len(self._chunks))

    def _map(self, file: str, dtype: Any, length: int | None = None) -> NDArray[Any]:
        directory, prefix = self._files
        return map_array(directory, f"{prefix}{file}", dtype, length)

    def _map_indptr(self, file: str, terms: int, end: int) -> NDArray[np.int64]:
        directory, prefix = self._files
        indptr = self._map(file, np.int64, terms + 1)
        if indptr[0] != 0 or indptr[-1] != end or (np.diff(indptr) < 0).any():
            raise DamagedError(directory, f"{prefix}{file}", f"does not ascend from 0 to {end:,}")
        return indptr

    def count(self, columns: NDArray[np.int64]) -> int:
        """Return the number of postings of some terms."""
        return int((self._indptr[columns + 1] - self._indptr[columns]).sum())

    def take(self, columns: NDArray[np.int64]) -> Lists:
        """Return the posting lists of some terms. Raises IndexError for a row that no document has."""
        files = self._rows, self._weights, self._table
        starts = self._indptr[columns]
        if self._chunks is not None:
            return Lists(self._chunk_indptr[columns], self._chunk_indptr[columns + 1], starts, self._chunks, *files)
        found = [np.empty(0, CHUNK), *map(self._find_chunks, columns)]
        ends = np.cumsum([len(chunks) for chunks in found])
        return Lists(ends[:-1], ends[1:], starts, np.concatenate(found), *files)

    def decode(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Return where the postings of each term begin, int64 [terms + 1], and all documents and weights."""
        if self._chunks is None:
            return self._indptr, self._rows, self._weights
        first, end = np.zeros(1, np.int64), np.asarray([len(self._chunks)])
        rows, weights = Lists(first, end, first, self._chunks, self._rows, self._weights, self._table).decode(0)
        return self._indptr, rows.view(np.int32), weights

    def _find_chunks(self, column: int) -> NDArray[Any]:
        """Return the chunks of a term in an index without them."""
        rows = self._rows[self._indptr[column] : self._indptr[column + 1]]
        if len(rows) and not 0 <= rows[0] <= rows[-1] < self._documents:
            raise IndexError("a row is not that of a document")
        begins = np.arange(0, self._documents + BLOCK, BLOCK, dtype=np.int32)
        sizes = np.diff(np.searchsorted(rows, begins).astype(np.int64))
        blocks = np.flatnonzero(sizes)
        chunks = np.zeros(len(blocks), CHUNK)
        chunks["block"], chunks["last"] = blocks, sizes[blocks] - 1
        return chunks
