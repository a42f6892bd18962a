"""Read and write manifests, and the checksum of every file of their directory.

A manifest ends with a checksum of its own text and lists the other files with sizes and checksums. Opening a directory
compares all sizes and reads the smallest files; milco verify reads every file.
"""

import contextlib
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import orjson

from milco_pyserini.console import Progress
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file, checksum, checksum_bytes, json_bytes
from milco_pyserini.io.records import FileRecord, FilesRecord, Record, StoreManifest

R = TypeVar("R", bound=Record)

MANIFEST = "manifest.json"
# The recall sample. It has a checksum of its own, because tuning replaces it.
RECALL = "recall.json"
# Lucene leaves this empty file behind.
_LOCK = "write.lock"
# Bytes of the smallest files that are read when a directory is opened: less than a millisecond.
_SMALL = 2**18
OTHER_CONTENT = "checksum mismatch: the content changed after it was written"
_UNKNOWN = "0" * 32
_MEGABYTE = 10**6
_MOST_NAMED = 5
# Names of types for people, and characters of a field's name in a message.
_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "array": "list"}
_SHOWN = 60
# Errors that numpy, the engines and this package raise for damaged content.
_OF_DAMAGE = (EOFError, LookupError, TypeError, ValueError, OverflowError, RuntimeError)


class DamagedError(MilcoError):
    """A file is missing, or its size or content differs from what was written."""

    def __init__(self, directory: Path, file: str, reason: object) -> None:
        super().__init__(
            f"{directory} is damaged ({file}: {reason})",
            hint=f"Run milco verify {directory} to list every damaged file, then build or encode it again",
        )
        self.file = file
        self.reason = str(reason)


def write_checked(path: Path, value: dict | Record, indent: bool = True) -> None:
    """Write value as JSON; its last field is the checksum of its own text."""
    complete = (value.to_json() if isinstance(value, Record) else value) | {"checksum": _UNKNOWN}
    content = json_bytes(complete) if indent else orjson.dumps(complete)
    before, _, after = content.rpartition(_UNKNOWN.encode())
    with atomic_file(path) as handle:
        handle.write(before + checksum_bytes(content).encode() + after)


def read_checked(path: Path) -> dict:
    """Read what write_checked() wrote. Raises DamagedError if it is missing, has changed, or has no checksum."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DamagedError(path.parent, path.name, "it is missing") from None
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise DamagedError(path.parent, path.name, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise DamagedError(path.parent, path.name, f"contains {type(value).__name__}, not a JSON object")
    stated = value.pop("checksum", None)
    if stated is None:
        raise DamagedError(path.parent, path.name, "its checksum is missing")
    before, _, after = content.rpartition(str(stated).encode())
    if stated != checksum_bytes(before + _UNKNOWN.encode() + after):
        raise DamagedError(path.parent, path.name, OTHER_CONTENT)
    return value


def list_files(directory: Path, without: Iterable[str] = ()) -> list[Path]:
    """Return the relative paths of the files in a directory, sorted, except its manifest, hidden ones and without."""
    excluded = {MANIFEST, _LOCK, *without}
    paths = (path.relative_to(directory) for path in directory.rglob("*") if not path.is_dir())
    visible = (path for path in paths if not any(part.startswith(".") for part in path.parts))
    return sorted(path for path in visible if str(path) not in excluded)


def unlisted_files(directory: Path, manifest: FilesRecord) -> list[str]:
    """Return the files of an index's directory that its manifest does not list."""
    return [file.as_posix() for file in list_files(directory, [RECALL, *(file.file for file in manifest.files)])]


def named_files(files: Sequence[str]) -> str:
    """Return the first names of a list of files, and how many more there are, for messages."""
    more = len(files) - _MOST_NAMED
    return ", ".join(files[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def describe_files(directory: Path, paths: Collection[Path], known: Iterable[FileRecord] = ()) -> list[FileRecord]:
    """Return path, size and checksum of files of a directory, with progress on stderr; known ones are not read."""
    records = {file.file: file for file in known}
    sizes = {path: (directory / path).stat().st_size for path in paths if path.as_posix() not in records}
    progress = Progress("MB", sum(size // _MEGABYTE for size in sizes.values()))
    for path, size in sizes.items():
        digest = checksum(directory / path, lambda size: progress.add(size // _MEGABYTE))
        records[path.as_posix()] = FileRecord(file=path.as_posix(), bytes=size, checksum=digest)
    progress.close(None)
    return [records[path.as_posix()] for path in paths]


def validate_files(directory: Path, files: Iterable[FileRecord], content: int = _SMALL) -> None:
    """Raise DamagedError for the first file with another size, or, among the smallest, with another checksum.

    content: maximum bytes to read, of all files together.
    """
    left = content
    for listed in sorted(files, key=lambda file: file.bytes):
        validate_size(directory, listed)
        left -= listed.bytes
        if left >= 0 and checksum(directory / listed.file) != listed.checksum:
            raise DamagedError(directory, listed.file, OTHER_CONTENT)


def validate_size(directory: Path, listed: FileRecord) -> None:
    """Raise DamagedError if a listed file is missing, not a regular file, or differs in size."""
    try:
        status = (directory / listed.file).stat()
    except FileNotFoundError:
        raise DamagedError(directory, listed.file, "it is missing") from None
    if not stat.S_ISREG(status.st_mode):
        raise DamagedError(directory, listed.file, "it is not a regular file")
    if status.st_size != listed.bytes:
        raise DamagedError(directory, listed.file, f"{status.st_size:,} bytes, not {listed.bytes:,}")


def validate_documents(directory: Path, manifest: StoreManifest) -> None:
    """Raise DamagedError if the parts of a store do not have as many documents as its manifest states."""
    if (count := sum(part.documents for part in manifest.parts)) != manifest.documents:
        reason = f"{manifest.documents:,} documents, the parts that it lists have {count:,}"
        raise DamagedError(directory, MANIFEST, reason)


@contextlib.contextmanager
def intact(directory: Path, file: str) -> Iterator[None]:
    """Convert errors that libraries raise for a damaged file to DamagedError."""
    try:
        yield
    except _OF_DAMAGE as error:
        raise DamagedError(directory, file, f"{type(error).__name__}: {error}") from error


def read_record(value: dict, kind: type[R], directory: Path, file: str = MANIFEST) -> R:
    """Return the content of a file as a record. Raises DamagedError if a field is missing or of another type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
    text = re.sub(r"`str` matching regex .*", "the relative path of a file in this directory", text).replace("`", "")
    text = re.sub(r"\w+", lambda word: _TYPES.get(word[0], word[0]), text)
    reason = f"{place[:-1][:_SHOWN]}: {text[0].lower()}{text[1:]}".removeprefix(": ")
    raise DamagedError(directory, file, reason)


def read_manifest(directory: Path, kind: type[R]) -> R:
    """Return the manifest of a directory. Raises DamagedError as read_checked() and read_record() do."""
    return read_record(read_checked(directory / MANIFEST), kind, directory)
