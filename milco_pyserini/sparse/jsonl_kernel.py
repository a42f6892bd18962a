"""Term vectors to the text of JSON objects, compiled by numba. A test holds it to orjson's bytes."""

from typing import Any

import numpy as np
from numba import njit

# 2,147,483,647 and a comma.
LONGEST_IMPACT = 11
_ZERO, _COMMA = np.uint8(ord("0")), np.uint8(ord(","))
_TEN = np.uint32(10)


@njit(nogil=True, error_model="numpy")
def join_entries(indptr: Any, columns: Any, impacts: Any, keys: Any, key_ends: Any, out: Any) -> Any:
    """Write "key":impact, "key":impact of every vector, one after the other; a vector ends without a comma.

    indptr int64 [B + 1], columns int32 [n], impacts int32 [n] >= 1. keys: uint8, the bytes of every column's "term":,
    key_ends: int64 [V], where they end. out: uint8, long enough. Returns int64 [B], where each vector ends in out.
    """
    ends = np.empty(len(indptr) - 1, np.int64)
    place = 0
    for row in range(len(ends)):
        for entry in range(indptr[row], indptr[row + 1]):
            column = columns[entry]
            start = key_ends[column - 1] if column else 0
            for byte in range(start, key_ends[column]):
                out[place] = keys[byte]
                place += 1
            # Unsigned, a division by ten is a multiplication.
            impact, digits = np.uint32(impacts[entry]), 1
            while impact >= _TEN:
                impact //= _TEN
                digits += 1
            impact = np.uint32(impacts[entry])
            for digit in range(digits - 1, -1, -1):
                out[place + digit] = _ZERO + np.uint8(impact % _TEN)
                impact //= _TEN
            out[place + digits] = _COMMA
            place += digits + 1
        if indptr[row] < indptr[row + 1]:
            place -= 1
        ends[row] = place
    return ends
