"""The exact engine's inner loop, compiled by numba. ExactSearcher.search_by_definition() is what it must equal."""

import heapq
from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True)
def best_rows(
    indptr: Any, rows: Any, weights: Any, query_columns: Any, query_weights: Any, documents: int, k: int
) -> tuple[Any, Any]:
    """Rows (int64 [k']) and scores (float64 [k']) of the k best documents, best first, lower rows first in ties.

    indptr int64 [terms + 1], rows int32 [n], weights float32 [n]: postings by term. query_columns int64 [t],
    query_weights float32 [t]. Documents without a positive score are never among them. Raises IndexError for a row that
    no document has: opening an index does not read them all, and to compare them here takes no measurable time.
    """
    scores = np.zeros(documents, np.float64)
    for term in range(len(query_columns)):
        weight = np.float64(query_weights[term])
        for posting in range(indptr[query_columns[term]], indptr[query_columns[term] + 1]):
            row = rows[posting]
            if row < 0 or row >= documents:
                raise IndexError("a row is not that of a document")
            scores[row] += weight * np.float64(weights[posting])
    # The worst of the best stands first. Rows ascend, so an equal score later on never displaces it.
    best = [(0.0, 0) for _ in range(0)]
    for row in range(documents):
        if scores[row] > 0:
            if len(best) < k:
                heapq.heappush(best, (scores[row], -row))
            elif scores[row] > best[0][0]:
                heapq.heapreplace(best, (scores[row], -row))
    found = np.empty(len(best), np.int64)
    for place in range(len(best) - 1, -1, -1):
        found[place] = -heapq.heappop(best)[1]
    return found, scores[found]
