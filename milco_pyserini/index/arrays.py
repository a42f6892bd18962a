"""Arrays of an index, mapped into memory from NumPy's files."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from milco_pyserini.io.manifest import intact


def map_array(directory: Path, file: str, dtype: DTypeLike, length: int | None = None) -> NDArray[Any]:
    """Return the one-dimensional array in a file of an index, mapped into memory.

    length: what it must be, where that is known. Raises Damaged for a file that holds something else.
    """
    with intact(directory, file):
        array = np.load(directory / file, mmap_mode="r")
        if array.dtype != dtype or array.ndim != 1 or (length is not None and len(array) != length):
            expected = f"{np.dtype(dtype)} of shape ({'n' if length is None else length},)"
            raise ValueError(f"{array.dtype} of shape {array.shape}, not {expected}")
        return array
