"""The lines of a file: plain or gzip, with or without a byte order mark, ended by \\n or \\r\\n."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast

from milco_pyserini.errors import MilcoError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
# Iterating over GzipFile itself takes twice as long as over a buffer of so many bytes around it.
BUFFER = 1 << 18
MAX_LINE_BYTES = 64_000_000


def numbered_lines(path: Path, bad: Callable[[int, str], None] | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) for every line that is not blank; numbers count from 1 and count blank lines.

    A line is bytes without its end. One line at a time is held. A line of more than 64 MB goes to bad(number, why), or
    raises MilcoError without it. Raises MilcoError if path is no regular file (a pipe may never end, a device never
    does), or a gzip file that is cut off or damaged; OSError if it cannot be opened.
    """
    with _open(path) as handle:
        try:
            yield from lines_of(handle, str(path), bad)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise MilcoError(f"{path} is no whole gzip file ({error}): fetch or write it again") from None


def lines_of(
    handle: IO[bytes], where: str, bad: Callable[[int, str], None] | None = None
) -> Iterator[tuple[int, bytes]]:
    """The same of an open file. where: its name in an error."""
    # Never more than the limit is read: a small gzip file may unpack to a line of gigabytes.
    bounded = iter(partial(handle.readline, MAX_LINE_BYTES + 1), b"")
    for number, line in enumerate(bounded, start=1):
        if len(line) > MAX_LINE_BYTES:
            why = f"the line is longer than {MAX_LINE_BYTES:,} bytes, the limit of a line: split the document"
            if bad is None:
                raise MilcoError(f"{where}:{number}: {why}")
            bad(number, why)
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = handle.readline(BUFFER)
            continue
        # Not only in the first line: files that were joined (cat a b) have one where each of them began.
        content = line.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n")
        if content and not content.isspace():
            yield number, content


def first_line(path: Path) -> bytes:
    """The first line that is not blank, or nothing."""
    return next((line for _, line in numbered_lines(path)), b"")


def _open(path: Path) -> BinaryIO:
    if path.exists() and not path.is_file():
        raise MilcoError(f"{path} is not a regular file: input is read from files. Save it to a file first")
    handle = path.open("rb")
    if path.suffix != ".gz" and handle.peek(2)[:2] != _GZIP_MAGIC:
        return handle
    handle.close()
    return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(path, "rb"), BUFFER))
