"""The inner loop of the exact engine, compiled by numba. ExactSearcher.search_by_definition() is its reference."""

import heapq
from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True)
def best_rows(
    indptr: Any, rows: Any, weights: Any, query_columns: Any, query_weights: Any, documents: int, k: int, allowed: Any
) -> tuple[Any, Any, int]:
    """Return rows (int64 [k']) and scores (float64 [k']) of the k best documents, best first, ties by row.

    The third value is the number of all documents that match.

    Documents without a positive score are not returned. Raises IndexError for a row that no document has: opening an
    index does not read all rows, and comparing them here takes no measurable time.

    Args:
        indptr, rows, weights: int64 [terms + 1], int32 [n] and float32 [n], the postings by term.
        query_columns, query_weights: int64 [t] and float32 [t].
        allowed: bool [documents], the documents that pass the filters; bool [0] for all.
    """
    scores = np.zeros(documents, np.float64)
    for term in range(len(query_columns)):
        weight = np.float64(query_weights[term])
        for posting in range(indptr[query_columns[term]], indptr[query_columns[term] + 1]):
            row = rows[posting]
            if row < 0 or row >= documents:
                raise IndexError("a row is not that of a document")
            scores[row] += weight * np.float64(weights[posting])
    # A heap with the lowest score first. Rows ascend, so a later row with an equal score never displaces an earlier.
    best = [(0.0, 0) for _ in range(0)]
    total = 0
    for row in range(documents):
        if scores[row] > 0 and (len(allowed) == 0 or allowed[row]):
            total += 1
            if len(best) < k:
                heapq.heappush(best, (scores[row], -row))
            elif scores[row] > best[0][0]:
                heapq.heapreplace(best, (scores[row], -row))
    found = np.empty(len(best), np.int64)
    for rank in range(len(best) - 1, -1, -1):
        found[rank] = -heapq.heappop(best)[1]
    return found, scores[found], total
