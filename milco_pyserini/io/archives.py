"""A file in a zip or tar archive, read without unpacking the others."""

import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.lines import BUFFER, lines_of

_ZIP, _TAR = (".zip",), (".tar", ".tar.gz", ".tgz")


def is_archive(path: Path) -> bool:
    """Whether a path is a file with the name of an archive."""
    return path.name.endswith(_ZIP + _TAR) and path.is_file()


def archived_lines(archive: Path, member: str) -> Iterator[tuple[int, bytes]]:
    """The numbered lines (lines.numbered_lines) of a member, which is gzip if its name says so.

    Raises MilcoError if the archive lacks it, is cut off or damaged, or is encrypted or compressed in a way that Python
    does not know.
    """
    try:
        with _member(archive, member) as handle:
            if member.endswith(".gz"):
                handle = cast(IO[bytes], io.BufferedReader(gzip.GzipFile(fileobj=handle), BUFFER))
            yield from lines_of(handle, f"{member} in {archive}")
    except KeyError:
        raise MilcoError(f"{archive} holds no {member}") from None
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        kind = "zip" if archive.name.endswith(_ZIP) else "tar"
        raise MilcoError(f"{archive} is no whole {kind} file ({error}): remove it and fetch it again") from None
    except RuntimeError as error:
        raise MilcoError(f"{archive} cannot be unpacked ({error}): give the directory of what is in it") from None


@contextlib.contextmanager
def _member(archive: Path, member: str) -> Iterator[IO[bytes]]:
    """Raises KeyError if it is not there."""
    if archive.name.endswith(_ZIP):
        with zipfile.ZipFile(archive) as zipped, zipped.open(member) as handle:
            yield handle
        return
    # As a stream: to list its members first would decompress all of it, and then again up to the one that is read.
    with tarfile.open(archive, "r|*") as tarred:
        found = next((entry for entry in tarred if entry.isfile() and entry.name == member), None)
        opened = tarred.extractfile(found) if found is not None else None
        if opened is None:
            raise KeyError(member)
        with opened:
            yield opened
