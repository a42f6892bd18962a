"""Write sparse vectors as JSON text, compiled by numba; a test compares the bytes with orjson's."""

from typing import Any

import numpy as np
from numba import njit

# 2,147,483,647 and a comma.
LONGEST_IMPACT = 11
_ZERO, _COMMA = np.uint8(ord("0")), np.uint8(ord(","))
_TEN = np.uint32(10)


@njit(nogil=True, error_model="numpy")
def join_entries(indptr: Any, columns: Any, impacts: Any, keys: Any, key_ends: Any, out: Any) -> Any:
    """Write the members "term":impact,"term":impact of every vector to out; return where each vector ends, int64 [B].

    Args:
        indptr, columns, impacts: int64 [B + 1], int32 [n], int32 [n] >= 1.
        keys: uint8, the bytes "term": of every column, one after the other.
        key_ends: int64 [V], the end of each column's key in keys.
        out: uint8, long enough.
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
            # For unsigned integers the compiler turns the division by ten into a multiplication.
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
