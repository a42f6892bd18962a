"""A list of strings in two files that are mapped into memory: millions of ids cost nothing to open."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.index.arrays import map_array
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import DamagedError, intact


class StringTable:
    """Strings by number, read when asked for: UTF-8 bytes in NAME.utf8, int64 ends in NAME.ends.npy.

    length: how many there must be, where that is known. Raises DamagedError if the files do not fit together.
    """

    def __init__(self, directory: Path, name: str, length: int | None = None) -> None:
        self._ends = map_array(directory, f"{name}.ends.npy", np.int64, length)
        self._place = directory, f"{name}.utf8"
        path = directory / f"{name}.utf8"
        size = path.stat().st_size
        if size != (self._ends[-1] if len(self) else 0):
            raise DamagedError(*self._place, f"{size:,} bytes, its strings end elsewhere")
        # An empty file cannot be mapped.
        self._bytes = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[str]:
        return iter(self.take(np.arange(len(self))))

    def take(self, numbers: NDArray[np.int64]) -> list[str]:
        """The strings of the given numbers, each from 0 to len - 1. Raises DamagedError if they are no strings."""
        with intact(*self._place):
            stops = self._ends[numbers]
            starts = np.where(numbers > 0, self._ends[numbers - 1], 0)
            if ((starts < 0) | (stops < starts)).any():
                raise ValueError("the strings' ends do not ascend")
            everything = self._bytes.data
            spans = zip(starts.tolist(), stops.tolist(), strict=True)
            return [str(everything[start:stop], "utf-8") for start, stop in spans]


def write_strings(directory: Path, name: str, strings: Sequence[str]) -> None:
    """Write what StringTable(directory, name) reads."""
    encoded = [string.encode() for string in strings]
    with atomic_file(directory / f"{name}.utf8") as handle:
        handle.writelines(encoded)
    with atomic_file(directory / f"{name}.ends.npy") as handle:
        np.save(handle, np.cumsum([len(string) for string in encoded], dtype=np.int64))
