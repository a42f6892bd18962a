"""The inner loop of the exact engine, compiled by numba. exact.best_rows() is its reference."""

import heapq
from typing import Any

import numpy as np
from numba import njit

# Documents whose scores are added up at a time: 256 KB, which stay in a processor's cache.
_WINDOW = 1 << 15


@njit(nogil=True)
def all_scores(indptr: Any, rows: Any, weights: Any, query_columns: Any, query_weights: Any, documents: int) -> Any:
    """Return the scores of all documents, float64 [documents]. Arguments and errors as for best_rows()."""
    scores = np.zeros(documents, np.float64)
    for term in range(len(query_columns)):
        weight, column, last = np.float64(query_weights[term]), query_columns[term], -1
        for posting in range(indptr[column], indptr[column + 1]):
            row = rows[posting]
            if row <= last or row >= documents:
                raise IndexError("a row does not ascend, or is not that of a document")
            scores[row] += weight * np.float64(weights[posting])
            last = row
    return scores


@njit(nogil=True)
def best_rows(
    indptr: Any, rows: Any, weights: Any, query_columns: Any, query_weights: Any, documents: int, k: int, allowed: Any
) -> tuple[Any, Any, int]:
    """Return rows (int64 [k']) and scores (float64 [k']) of the k best documents, best first, ties by row.

    The third value is the number of all documents that match.

    Documents without a positive score are not returned. Raises IndexError for a row that no document has, or that does
    not ascend: opening an index does not read all rows, and comparing them here takes no measurable time.

    Args:
        indptr, rows, weights: int64 [terms + 1], int32 [n] and float32 [n], the postings by term and then row.
        query_columns, query_weights: int64 [t] and float32 [t].
        allowed: bool [documents], the documents that pass the filters; bool [0] for all.
    """
    following, ends = indptr[query_columns], indptr[query_columns + 1]
    scores = np.zeros(min(_WINDOW, documents), np.float64)
    # A heap with the lowest score first. Rows ascend, so a later row with an equal score never displaces an earlier.
    best = [(0.0, 0) for _ in range(0)]
    total = 0
    for start in range(0, documents, _WINDOW):
        size = min(_WINDOW, documents - start)
        for term in range(len(query_columns)):
            weight, posting, end = np.float64(query_weights[term]), following[term], ends[term]
            while posting < end:
                place = rows[posting] - start
                if place >= size:
                    break
                if place < 0:
                    raise IndexError("a row does not ascend, or is not that of a document")
                scores[place] += weight * np.float64(weights[posting])
                posting += 1
            following[term] = posting
        for place in range(size):
            score, row = scores[place], start + place
            if score > 0 and (len(allowed) == 0 or allowed[row]):
                total += 1
                if len(best) < k:
                    heapq.heappush(best, (score, -row))
                elif score > best[0][0]:
                    heapq.heapreplace(best, (score, -row))
        scores[:] = 0
    if (following < ends).any():
        raise IndexError("a row is not that of a document")
    found, best_scores = np.empty(len(best), np.int64), np.empty(len(best), np.float64)
    for rank in range(len(best) - 1, -1, -1):
        best_scores[rank], place = heapq.heappop(best)
        found[rank] = -place
    return found, best_scores, total
