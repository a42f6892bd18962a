"""Files of an index that are mapped into memory: arrays, lists of strings, and stored documents without a database.

Stored documents: documents.* are the JSON of documents, in the order in which they were read; documents.rows.npy is the
position of each row. values.* are FIELD LF VALUE, sorted, with the rows that have the value: int64 values.indptr.npy
[values + 1], int32 values.rows.npy.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from milco_pyserini.index.documents import Filters, StoredDocument
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import DamagedError, intact

_VALUE_ROWS = "values.rows.npy"
# The header that numpy writes. In Python 3.11 threads disturb each other in ast.literal_eval, by which numpy reads it.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': (.+), 'fortran_order': False, 'shape': \(([0-9]+),\), \} *\n", re.DOTALL
)
_HEADER_BYTES = 256
# Strings that are read one after the other in the time of a binary search.
_SEARCH_COST = 64


def map_array(directory: Path, file: str, dtype: DTypeLike, length: int | None = None) -> NDArray[Any]:
    """Return the one-dimensional array in a .npy file of an index, mapped into memory.

    Raises DamagedError for a file with another dtype or shape, or another length if one is given.
    """
    with intact(directory, file):
        with (directory / file).open("rb") as handle:
            header = _HEADER.match(handle.read(_HEADER_BYTES))
        descr = repr(np.lib.format.dtype_to_descr(np.dtype(dtype)))
        if header is None or header[1].decode() != descr or length not in (None, int(header[2])):
            raise ValueError(f"its header is not that of {descr} of shape ({'n' if length is None else length},)")
        # Views of a plain array are made in less time than those of a memmap.
        return np.asarray(np.memmap(directory / file, dtype, "r", header.end(), int(header[2])))


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
        # A tenth of take()'s time, of which a binary search needs many.
        with intact(*self._file):
            start, stop = self._ends[position - 1 : position + 1].tolist() if position else (0, int(self._ends[0]))
            if not 0 <= start <= stop:
                raise ValueError("the strings' ends do not ascend")
            return str(self._bytes.data[start:stop], "utf-8")

    def find(self, strings: Collection[str]) -> dict[str, int]:
        """Return the positions of those of the strings that the table has, which is sorted."""
        if len(strings) * _SEARCH_COST > len(self):
            wanted = set(strings)
            return {string: place for place, string in enumerate(self) if string in wanted}
        found = {}
        for string in strings:
            place = bisect_left(self, string)
            if place < len(self) and self[place] == string:
                found[string] = place
        return found

    def take(self, positions: NDArray[np.int64]) -> list[str]:
        """Return the strings at positions from 0 to len - 1. Raises DamagedError if they are not strings."""
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


class StoredFilesWriter:
    """Writes documents as they come, so that only the values of their fields, which have numbers, are in memory."""

    def __init__(self, directory: Path, fields: Sequence[str]) -> None:
        self._directory = directory
        self._fields = fields
        self._texts = (directory / "documents.utf8").open("wb")
        self._ends = array("q")
        self._columns: dict[str, int] = {}
        # Column and position of every value of a document.
        self._pairs = array("q"), array("q")

    def add(self, entry: StoredDocument) -> None:
        """Write one document."""
        for number, value in entry.values:
            key = f"{self._fields[number]}\n{value}"
            self._pairs[0].append(self._columns.setdefault(key, len(self._columns)))
            self._pairs[1].append(len(self._ends))
        self._texts.write(entry.raw.encode())
        self._ends.append(self._texts.tell())

    def close(self, positions: NDArray[np.int64]) -> None:
        """Complete the files. positions: of the documents in the order of their rows."""
        self._texts.close()
        keys = sorted(self._columns)
        columns, documents = (
            np.frombuffer(numbers, np.int64) if len(numbers) else np.empty(0, np.int64) for numbers in self._pairs
        )
        ranks = np.empty(len(keys), np.int64)
        ranks[[self._columns[key] for key in keys]] = np.arange(len(keys))
        rows = np.empty(len(positions), np.int64)
        rows[positions] = np.arange(len(positions))
        order = np.lexsort((rows[documents], ranks[columns]))
        counts = np.bincount(ranks[columns], minlength=len(keys))
        arrays: dict[str, NDArray[Any]] = {
            "documents.ends.npy": np.asarray(self._ends, np.int64),
            "documents.rows.npy": positions.astype(np.int32),
            "values.indptr.npy": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            _VALUE_ROWS: rows[documents][order].astype(np.int32),
        }
        for file, content in arrays.items():
            with atomic_file(self._directory / file) as handle:
                np.save(handle, content)
        write_strings(self._directory, "values", keys)


class StoredFiles:
    """Documents that StoredFilesWriter wrote, mapped into memory.

    documents: how many there are. prefix: of the names of the files.
    """

    def __init__(self, directory: Path, documents: int, prefix: str = "") -> None:
        self._file = directory, f"{prefix}{_VALUE_ROWS}"
        self._documents = documents
        self._texts = StringTable(directory, f"{prefix}documents", documents)
        self._positions = map_array(directory, f"{prefix}documents.rows.npy", np.int32, documents)
        self._values = StringTable(directory, f"{prefix}values")
        self._indptr = map_array(directory, f"{prefix}values.indptr.npy", np.int64, len(self._values) + 1)
        self._rows = map_array(*self._file, np.int32)

    @property
    def fields(self) -> set[str]:
        """The names of the fields that have a value."""
        return {key.partition("\n")[0] for key in self._values}

    def entries(self, rows: NDArray[np.int64], fields: Sequence[str]) -> Iterator[StoredDocument]:
        """Yield the documents of these rows, for StoredFilesWriter(fields=fields)."""
        numbers = {field: number for number, field in enumerate(fields)}
        values: dict[int, list[tuple[int, str]]] = {row: [] for row in rows.tolist()}
        for place, key in enumerate(self._values):
            field, _, text = key.partition("\n")
            for row in self._rows[self._indptr[place] : self._indptr[place + 1]].tolist():
                if row in values:
                    values[row].append((numbers[field], text))
        return map(StoredDocument, self.take(rows), values.values())

    def take(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the JSON of the documents of these rows."""
        return self._texts.take(self._positions[rows].astype(np.int64))

    def allowed(self, filters: Filters) -> NDArray[np.bool_]:
        """Return bool [documents]: the rows that have one of the values in each field."""
        allowed = np.ones(self._documents, np.bool_)
        for field, values in filters.items():
            matching = np.zeros(self._documents, np.bool_)
            for place in self._values.find([f"{field}\n{value}" for value in values]).values():
                with intact(*self._file):
                    matching[self._rows[self._indptr[place] : self._indptr[place + 1]]] = True
            allowed &= matching
        return allowed

    def count_values(self, field: str, limit: int, live: NDArray[np.bool_]) -> dict[str, int]:
        """Return how many live documents have each of the first values that they have. live: bool; bool [0] for all."""
        places, rows, numbers = self._column(field)
        with intact(*self._file):
            counts = np.bincount(numbers[live[rows]] if len(live) else numbers, minlength=len(places))
        found = np.flatnonzero(counts)[:limit]
        keys = self._values.take(places[found])
        return {key[len(field) + 1 :]: count for key, count in zip(keys, counts[found].tolist(), strict=True)}

    def values(self, field: str, rows: NDArray[np.int64]) -> dict[int, tuple[str, ...]]:
        """Return the values of a field of those of the rows that have one, in ascending order."""
        places, having, numbers = self._column(field)
        with intact(*self._file):
            wanted = np.zeros(self._documents, np.bool_)
            wanted[rows] = True
            kept = wanted[having]
            used, texts = np.unique(numbers[kept], return_inverse=True)
            keys = [key[len(field) + 1 :] for key in self._values.take(places[used])]
            found: dict[int, tuple[str, ...]] = {}
            for row, text in zip(having[kept].tolist(), texts.tolist(), strict=True):
                found[row] = (*found.get(row, ()), keys[text])
        return found

    def groups(self, field: str) -> tuple[NDArray[np.int32], dict[str, NDArray[np.int64]]]:
        """Return the number of the value of each row, int32 [documents], and the rows of each value, ascending.

        The first value is "", that of documents that have none.
        """
        places, rows, numbers = self._column(field)
        values = dict.fromkeys(["", *(key[len(field) + 1 :] for key in self._values.take(places))])
        groups = np.zeros(self._documents, np.int32)
        with intact(*self._file):
            groups[rows] = numbers + len(values) - len(places)
        ends = np.cumsum(np.bincount(groups, minlength=len(values)))
        members = np.split(np.argsort(groups, kind="stable"), ends[:-1])
        return groups, dict(zip(values, members, strict=True))

    def _column(self, field: str) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
        """Return the places of the values of a field, and each row that has one with the number of the value."""
        # A vertical tab, which no field has, comes after a line feed.
        start, stop = (bisect_left(self._values, f"{field}{end}") for end in "\n\v")
        with intact(*self._file):
            numbers = np.repeat(np.arange(stop - start), np.diff(self._indptr[start : stop + 1]))
        return np.arange(start, stop), self._rows[self._indptr[start] : self._indptr[stop]], numbers
