"""A list of strings in two files that are mapped into memory: millions of ids cost nothing to open."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from milco_pyserini.files import whole_file


class StringTable(Sequence[str]):
    """Strings by number, read when asked for: UTF-8 bytes in NAME.utf8, int64 ends in NAME.ends.npy."""

    def __init__(self, directory: Path, name: str) -> None:
        self._ends = np.load(directory / f"{name}.ends.npy", mmap_mode="r")
        path = directory / f"{name}.utf8"
        # An empty file cannot be mapped.
        self._bytes = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number):  # type: ignore[no-untyped-def, override]
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        start = self._ends[number - 1] if number else 0
        return self._bytes[start : self._ends[number]].tobytes().decode()


def write_strings(directory: Path, name: str, strings: Sequence[str]) -> None:
    """Write what StringTable(directory, name) reads."""
    encoded = [string.encode() for string in strings]
    with whole_file(directory / f"{name}.utf8") as handle:
        handle.writelines(encoded)
    with whole_file(directory / f"{name}.ends.npy") as handle:
        np.save(handle, np.cumsum([len(string) for string in encoded], dtype=np.int64))
