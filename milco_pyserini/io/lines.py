"""Read the lines of a file: plain, gzip, or in a zip or tar archive; with or without a byte order mark, LF or CRLF."""

import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError

MAX_LINE_BYTES = 64_000_000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_UTF_16 = "UTF-16", "iconv -f utf-16 -t utf-8"
_NOT_READ = {
    **{b"\x28\xb5\x2f\xfd": ("zstd", "zstd -d"), b"BZh": ("bzip2", "bunzip2"), b"\xfd7zXZ": ("xz", "unxz")},
    **{b"\xff\xfe": _UTF_16, b"\xfe\xff": _UTF_16},
}
"""How files of other formats begin, their format, and what converts them."""
# Iterating over a GzipFile takes twice as long as over a buffer of this size around it.
_BUFFER_BYTES = 1 << 18
# Lines between two reports while they are blank: some seconds.
_REPORTED = 50_000_000
_ZIP, _TAR = (".zip",), (".tar", ".tar.gz", ".tgz")


def numbered_lines(path: str | Path, bad: Callable[[int, str], None] | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) for every line that is not blank, without its end; numbers count from 1, with blank lines.

    One line at a time is in memory. bad(number, reason) receives a line of more than 64 MB, which is skipped; without
    it, such a line is an error. Raises as open_lines() does.
    """
    with open_lines(path) as handle:
        yield from lines_of(handle, str(path), bad)


@contextlib.contextmanager
def open_lines(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for lines_of(), decompressed; its errors are raised in the block.

    Raises:
        MilcoError: path is not a regular file (a pipe may never end), is a truncated or damaged gzip file, is
            compressed in another way, or is UTF-16.
        OSError: path cannot be opened.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise MilcoError(f"{path} is not a regular file: input is read from files. Save it to a file first.")
    handle: BinaryIO = path.open("rb")
    begin: bytes = handle.peek(8)  # type: ignore[attr-defined]
    for magic, (form, program) in _NOT_READ.items():
        if begin.startswith(magic):
            handle.close()
            raise MilcoError(f"{path} is {form}: files are UTF-8, plain or gzip. Convert it first ({program} {path})")
    if is_gzip(path):
        handle.close()
        handle = cast(BinaryIO, io.BufferedReader(gzip.GzipFile(path, "rb"), _BUFFER_BYTES))
    with handle:
        try:
            yield handle
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise MilcoError(f"{path} is not a complete gzip file ({error}): fetch or write it again") from None


def is_gzip(path: Path) -> bool:
    """Return whether a file is decompressed when its lines are read. Raises OSError."""
    if path.suffix == ".gz":
        return True
    with path.open("rb") as handle:
        return handle.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


def lines_of(
    handle: IO[bytes], where: str, bad: Callable[[int, str], None] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of an open file as numbered_lines() does. where: its name in errors."""
    # Never read more than the limit: a small gzip file may decompress to a line of gigabytes.
    bounded = iter(partial(handle.readline, MAX_LINE_BYTES + 1), b"")
    for number, line in enumerate(bounded, start=1):
        if len(line) > MAX_LINE_BYTES:
            why = f"the line is longer than {MAX_LINE_BYTES:,} bytes, the limit of a line: split the document"
            if bad is None:
                raise MilcoError(f"{where}:{number}: {why}")
            bad(number, why)
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = handle.readline(_BUFFER_BYTES)
            continue
        # Not only in the first line: concatenated files (cat a b) have one where each of them began.
        content = line.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n")
        if content and not content.isspace():
            yield number, content
        elif number % _REPORTED == 0:
            # The reader, which reports progress, sees no blank lines; a small gzip file may have billions.
            log(f"{where}: read {number:,} lines, this one is blank")


def first_line(path: Path) -> bytes:
    """Return the first line that is not blank, or b""."""
    return next((line for _, line in numbered_lines(path)), b"")


def is_archive(path: Path) -> bool:
    """Return True if path is a file with the name of a zip or tar archive."""
    return path.name.endswith(_ZIP + _TAR) and path.is_file()


def archived_lines(archive: Path, member: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file in an archive as numbered_lines() does; it is gzip if its name ends in .gz.

    Raises:
        MilcoError: the archive lacks the file, is truncated, damaged or encrypted, or uses an unknown compression.
    """
    try:
        with _open_member(archive, member) as handle:
            if member.endswith(".gz"):
                handle = cast(IO[bytes], io.BufferedReader(gzip.GzipFile(fileobj=handle), _BUFFER_BYTES))
            yield from lines_of(handle, f"{member} in {archive}")
    except KeyError:
        raise MilcoError(f"{archive} holds no {member}") from None
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        kind = "zip" if archive.name.endswith(_ZIP) else "tar"
        raise MilcoError(f"{archive} is not a complete {kind} file ({error}): remove it and fetch it again") from None
    except RuntimeError as error:
        raise MilcoError(f"{archive} cannot be unpacked ({error}): pass the directory with its contents") from None


@contextlib.contextmanager
def _open_member(archive: Path, member: str) -> Iterator[IO[bytes]]:
    """Open a file in an archive. Raises KeyError if it is missing."""
    if archive.name.endswith(_ZIP):
        with zipfile.ZipFile(archive) as zipped, zipped.open(member) as handle:
            yield handle
        return
    # As a stream: listing the members first would decompress the archive twice.
    with tarfile.open(archive, "r|*") as tarred:
        info = next((entry for entry in tarred if entry.isfile() and entry.name == member), None)
        opened = tarred.extractfile(info) if info is not None else None
        if opened is None:
            raise KeyError(member)
        with opened:
            yield opened
