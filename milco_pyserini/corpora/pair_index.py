"""Random access to sentence pairs: where every 16th pair begins in files of lines.

An index is built in one pass, which also finds broken lines, and kept in the user's cache until its files change. So
a run starts at any pair, and files far larger than the memory are read in any order, a few kilobytes for a pair. Files
that cannot be read from the middle (gzip, Parquet) are unpacked next to the index.
"""

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import IO
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.defaults import data_home
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file, checksum_bytes
from milco_pyserini.io.lines import lines_of
from milco_pyserini.io.locks import locked_file

BLOCK = 16
# The version of what is written to the cache.
_FORMAT = 2

# Lines of a pair, one of each file that is indexed.
Row = tuple[bytes, ...]
# For each pair its line, and the bytes at which its lines end in the files if it is read there; None for a skipped row.
Scan = Iterator[tuple[bytes, tuple[int, ...]] | None]


@dataclass(frozen=True)
class PairIndex:
    """Pairs in one file of lines, or in two whose lines correspond.

    pairs: their number. skipped: rows without a text on both sides. digest: of the pairs. files: what is read.
    offsets: int64 [ceil(pairs / BLOCK) + 1, files], the bytes at which each block begins, and the last one ends.
    """

    pairs: int
    skipped: int
    digest: str
    files: tuple[Path, ...]
    offsets: NDArray[np.int64]

    def rows(self, block: int) -> list[Row]:
        """Return the lines of the pairs [block x BLOCK, (block + 1) x BLOCK), and of skipped rows among them."""
        ends = self.offsets[block : block + 2].T.tolist()
        texts = [mapped[slice(*between)].tobytes() for mapped, between in zip(self._mapped, ends, strict=True)]
        files = zip(self.files, texts, strict=True)
        columns = ([line for _, line in lines_of(io.BytesIO(text), str(file))] for file, text in files)
        return list(zip(*columns, strict=True))

    @cached_property
    def _mapped(self) -> "list[NDArray[np.uint8]]":
        """The files in virtual memory: on a network's file system, opening one takes longer than reading a block."""
        return [np.memmap(file, mode="r") for file in self.files]


def open_index(name: str, files: Sequence[Path], options: str, unpacks: bool, scan: Callable[[], Scan]) -> PairIndex:
    """Return the index of files, from the cache, or else by a scan, which other processes wait for.

    Args:
        name: of the pairs, for messages.
        files: on which the index depends.
        options: what else it depends on.
        unpacks: whether the lines of the scan are written next to the index and read there, in place of the files.
        scan: reads every pair.

    Raises:
        MilcoError: there is no pair, or whatever the scan raises.
        OSError: the cache cannot be written.
    """
    directory = data_home() / "bitext"
    directory.mkdir(parents=True, exist_ok=True)
    paths = [file.resolve() for file in files]
    state = [[_FORMAT, options], *([str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths)]
    stem = checksum_bytes(json.dumps([options, *map(str, paths)]).encode())
    kept, unpacked = directory / f"{stem}.npz", directory / f"{stem}.lines"
    read = (unpacked,) if unpacks else tuple(files)
    with locked_file(directory / f"{stem}.lock"):
        index = _read(kept, state, read)
        if index is None:
            with atomic_file(unpacked) if unpacks else contextlib.nullcontext() as handle:
                index = _build(scan(), read, handle)
            if not index.pairs:
                raise MilcoError(f"{name} has no pairs: remove it or download it again")
            values = {"state": state, "pairs": index.pairs, "skipped": index.skipped, "digest": index.digest}
            with atomic_file(kept) as handle:
                np.savez(handle, values=np.array(json.dumps(values)), offsets=index.offsets)
    return index


def _build(scan: Scan, files: tuple[Path, ...], unpacked: IO[bytes] | None) -> PairIndex:
    """Return the index of a scan. unpacked: where its lines are written, if they are not read in place."""
    pairs = skipped = size = 0
    ends: tuple[int, ...] = (0,) * len(files)
    offsets = [ends]
    digest = blake2b(digest_size=16)
    for pair in scan:
        if pair is None:
            skipped += 1
            continue
        line, ends = pair
        digest.update(line + b"\n")
        if unpacked is not None:
            size += unpacked.write(line + b"\n")
            ends = (size,)
        pairs += 1
        if pairs % BLOCK == 0:
            offsets.append(ends)
    if pairs % BLOCK:
        offsets.append(ends)
    return PairIndex(pairs, skipped, digest.hexdigest(), files, np.array(offsets, np.int64))


def _read(path: Path, state: list, files: tuple[Path, ...]) -> PairIndex | None:
    """Return a kept index; None if there is none, it is damaged, or its files have changed."""
    try:
        with np.load(path) as arrays:
            values = json.loads(str(arrays["values"]))
            offsets = arrays["offsets"]
    except (OSError, ValueError, LookupError, EOFError, BadZipFile):
        return None
    if values.pop("state") != state or not all(file.is_file() for file in files):
        return None
    return PairIndex(**values, files=files, offsets=offsets)
