"""The inner loop of the exact engine, compiled by numba. exact.best_rows() is its reference."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from milco_pyserini.index.postings import BLOCK, PAGE, Lists


@njit(nogil=True)
def all_scores(lists: Any, query_weights: Any, documents: int) -> Any:
    """Return the scores of all documents, float64 [documents]. Arguments and errors as for best_rows()."""
    firsts, postings, scores = lists.firsts.copy(), lists.postings.copy(), np.zeros(documents, np.float64)
    for start in range(0, documents, BLOCK):
        block = scores[start : start + BLOCK]
        _add_block(block, start // BLOCK, firsts, postings, lists, lists.weights, lists.table, query_weights)
    if (firsts < lists.ends).any():
        raise IndexError("a chunk is not in the order of the documents")
    return scores


def best_rows(
    lists: Lists, query_weights: NDArray[np.float32], documents: int, k: int, allowed: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    """Return rows (int64 [k']) and scores (float64 [k']) of the k best documents, best first, ties by row.

    The third value is the number of all documents that match.

    Documents without a positive score are not returned. Raises IndexError for a row that no document has, and for
    chunks that do not ascend: opening an index does not read the postings, and comparing takes no measurable time.

    Args:
        lists: the posting lists of t terms.
        query_weights: float32 [t].
        allowed: bool [documents], the documents that pass the filters; bool [0] for all.
    """
    rows, scores = np.zeros(min(k, documents), np.int64), np.zeros(min(k, documents), np.float64)
    total = _fill_heap(lists, query_weights, documents, allowed, rows, scores)
    order = np.lexsort((rows, -scores))[:total]
    return rows[order], scores[order], total


@njit(nogil=True)
def _fill_heap(lists: Any, query_weights: Any, documents: int, allowed: Any, rows: Any, scores: Any) -> int:
    """Fill a heap, whose scores are 0, with the best documents, the worst first; return how many match."""
    firsts, postings, total = lists.firsts.copy(), lists.postings.copy(), 0
    # The scores of a block, 512 KB, stay in a processor's cache.
    block = np.zeros(min(BLOCK, documents), np.float64)
    for start in range(0, documents, BLOCK):
        size = min(BLOCK, documents - start)
        _add_block(block[:size], start // BLOCK, firsts, postings, lists, lists.weights, lists.table, query_weights)
        if len(allowed):
            for place in range(size):
                if not allowed[start + place]:
                    block[place] = 0
        for place in range(size):
            score = block[place]
            total += score > 0
            # Rows ascend, so a later row with an equal score never displaces an earlier one.
            if score > scores[0]:
                _replace_worst(rows, scores, start + place, score)
        block[:] = 0
    if (firsts < lists.ends).any():
        raise IndexError("a chunk is not in the order of the documents")
    return total


@njit(nogil=True)
def _replace_worst(rows: Any, scores: Any, row: int, score: float) -> None:
    """Replace the worst document of a heap: the lowest score, and among equal ones the last row."""
    place, child = 0, 1
    while child < len(scores):
        other = min(child + 1, len(scores) - 1)
        if (scores[other], -rows[other]) < (scores[child], -rows[child]):
            child = other
        # A new row is behind all others.
        if score <= scores[child]:
            break
        rows[place], scores[place] = rows[child], scores[child]
        place, child = child, 2 * child + 1
    rows[place], scores[place] = row, score


@njit(nogil=True)
def _add_block(
    scores: Any, block: int, firsts: Any, postings: Any, lists: Any, weights: Any, table: Any, query_weights: Any
) -> None:
    """Add the postings of a block to its scores; move firsts and postings behind them.

    weights, table: those of the lists. Numba compiles only the branch for a table that is None, if it is an argument.
    """
    ends, chunks, rows = lists.ends, lists.chunks, lists.rows
    for term in range(len(query_weights)):
        query_weight, first, posting = np.float64(query_weights[term]), firsts[term], postings[term]
        while first < ends[term] and chunks[first].block == block:
            page, end = PAGE * np.int64(chunks[first].page), posting + np.int64(chunks[first].last) + 1
            if end > len(rows) or (table is not None and page + PAGE > len(table)):
                raise IndexError("a chunk exceeds the postings or the weights")
            for number in range(posting, end):
                # Numba does not count unsigned numbers from the end.
                place = np.uint64(np.uint16(rows[number]))
                if place >= np.uint64(len(scores)):
                    raise IndexError("a row is not that of a document")
                if table is None:
                    weight = weights[number]
                else:
                    weight = table[np.uint64(page + weights[number])]
                scores[place] += query_weight * np.float64(weight)
            first, posting = first + 1, end
        firsts[term], postings[term] = first, posting
