"""Arrays and lists of strings in files that are mapped into memory: millions of ids cost nothing to open."""

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import DamagedError, intact


def map_array(directory: Path, file: str, dtype: DTypeLike, length: int | None = None) -> NDArray[Any]:
    """Return the one-dimensional array in a .npy file of an index, mapped into memory.

    Raises DamagedError for a file with another dtype or shape, or another length if one is given.
    """
    with intact(directory, file):
        array = np.load(directory / file, mmap_mode="r")
        if array.dtype != dtype or array.ndim != 1 or (length is not None and len(array) != length):
            expected = f"{np.dtype(dtype)} of shape ({'n' if length is None else length},)"
            raise ValueError(f"{array.dtype} of shape {array.shape}, not {expected}")
        return array


class StringTable:
    """Strings by position, decoded on access: UTF-8 bytes in NAME.utf8, int64 ends in NAME.ends.npy.

    Raises DamagedError if the files do not fit together, or do not hold length strings where it is given.
    """

    def __init__(self, directory: Path, name: str, length: int | None = None) -> None:
        self._ends = map_array(directory, f"{name}.ends.npy", np.int64, length)
        self._file = directory, f"{name}.utf8"
        path = directory / f"{name}.utf8"
        size = path.stat().st_size
        if size != (self._ends[-1] if len(self) else 0):
            raise DamagedError(*self._file, f"{size:,} bytes, its strings end elsewhere")
        # An empty file cannot be mapped.
        self._bytes = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[str]:
        return iter(self.take(np.arange(len(self))))

    def __getitem__(self, position: int) -> str:
        return self.take(np.asarray([position]))[0]

    def take(self, positions: NDArray[np.int64]) -> list[str]:
        """Return the strings at these positions, each from 0 to len - 1. Raises DamagedError if they are no strings."""
        with intact(*self._file):
            stops = self._ends[positions]
            starts = np.where(positions > 0, self._ends[positions - 1], 0)
            if ((starts < 0) | (stops < starts)).any():
                raise ValueError("the strings' ends do not ascend")
            content = self._bytes.data
            spans = zip(starts.tolist(), stops.tolist(), strict=True)
            return [str(content[start:stop], "utf-8") for start, stop in spans]


def write_strings(directory: Path, name: str, strings: Iterable[str]) -> None:
    """Write the files of StringTable(directory, name)."""
    ends, end = array("q"), 0
    with atomic_file(directory / f"{name}.utf8") as handle:
        for string in strings:
            end += handle.write(string.encode())
            ends.append(end)
    with atomic_file(directory / f"{name}.ends.npy") as handle:
        np.save(handle, np.asarray(ends, np.int64))
