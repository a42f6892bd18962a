"""Manifests of vector stores and indexes: their fields, and the checksum of every file of the directory.

A manifest ends with a checksum of its own text and lists the other files with sizes and checksums. Opening a directory
compares all sizes and reads the smallest files; milco verify reads every file.
"""

import contextlib
import math
import stat
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import orjson

from milco_pyserini.console import Progress
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file, checksum, checksum_bytes, json_bytes

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
# Errors that numpy, the engines and this package raise for damaged content.
_OF_DAMAGE = (EOFError, LookupError, TypeError, ValueError, OverflowError, RuntimeError)


# Fields and their types. A name with "?" is optional; "*" stands for every key. Integers are counts and lengths, at
# least 0; floats are factors, above 0. A Path is that of a file in the directory of the manifest.
_FILE = {"file": Path, "bytes": int, "checksum": str}
FILES = [_FILE]
PARTS = [_FILE | {"documents?": int, "digests?": _FILE}]
SPARSE_VECTORS = {
    "files?": FILES,
    # Of the store; an index may be of one without checksums.
    "parts?": [dict],
    "documents?": int,
    "empty_documents?": int,
    "truncated_documents?": int,
    "texts?": int,
    "kind?": str,
    "corpus?": str,
    "corpus_hash?": str,
    "corpus_paths?": [str],
    "weight_hash?": str,
    "tokenizer_hash?": str,
    "max_length?": int,
    "lowercase?": bool,
    "split_passages?": bool,
    "plain?": bool,
    "encoder?": str | None,
    "scale": float,
    "views?": [str],
    "pruning?": str | None,
    "english_prefix?": str,
}
STORE = {"documents": int, "parts": PARTS}
VOCABULARY_FIELDS = {"english_prefix": str, "source_prefix": str, "english": [str], "source": [str]}
INDEX = {
    "engine": str,
    "exactness": str,
    "documents": int,
    "empty_documents": int,
    "id_with_space": str | None,
    "build_settings?": {"*": float},
    "search_settings?": {"*": float},
    "fields?": {"*": str},
    "stores_vectors?": bool,
    "stored_checksum?": str,
    "topics?": str,
    "shard?": {"id": int, "num": int},
    "recall?": dict,
    "corpus_paths?": [str],
    "updates?": [dict],
    "files": FILES,
}
SPARSE_INDEX = INDEX | {"postings": int, "query_scale": float, "vectors": SPARSE_VECTORS}
_NAMES = {
    int: "an integer of at least 0",
    float: "a number above 0",
    str: "a string",
    bool: "true or false",
    Path: "the relative path of a file in this directory",
    dict: "an object",
    list: "a list",
}


class DamagedError(MilcoError):
    """A file is missing, or its size or content differs from what was written."""

    def __init__(self, directory: Path, file: str, reason: object) -> None:
        super().__init__(
            f"{directory} is damaged ({file}: {reason})",
            hint=f"Run milco verify {directory} to list every damaged file, then build or encode it again",
        )
        self.file = file
        self.reason = str(reason)


def write_checked(path: Path, value: dict, indent: bool = True) -> None:
    """Write value as JSON; its last field is the checksum of its own text."""
    complete = value | {"checksum": _UNKNOWN}
    content = json_bytes(complete) if indent else orjson.dumps(complete)
    before, _, after = content.rpartition(_UNKNOWN.encode())
    with atomic_file(path) as handle:
        handle.write(before + checksum_bytes(content).encode() + after)


def read_checked(path: Path) -> dict:
    """Read a file that write_checked() wrote.

    Raises:
        DamagedError: path is missing, its content changed, or it has no checksum.
    """
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
        raise DamagedError(path.parent, path.name, "its checksum is missing, as in the files of version 0.1")
    before, _, after = content.rpartition(str(stated).encode())
    if stated != checksum_bytes(before + _UNKNOWN.encode() + after):
        raise DamagedError(path.parent, path.name, OTHER_CONTENT)
    return value


def list_files(directory: Path, without: Iterable[str] = ()) -> list[Path]:
    """Return the relative paths of all files in a directory, sorted, except its manifest, and hidden ones.

    Args:
        without: other paths to exclude.
    """
    excluded = {MANIFEST, _LOCK, *without}
    paths = (path.relative_to(directory) for path in directory.rglob("*") if not path.is_dir())
    visible = (path for path in paths if not any(part.startswith(".") for part in path.parts))
    return sorted(path for path in visible if str(path) not in excluded)


def unlisted_files(directory: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Return the files of an index's directory that its manifest does not list."""
    listed = [file["file"] for file in manifest["files"]]
    return [file.as_posix() for file in list_files(directory, [*listed, RECALL])]


def named_files(files: Sequence[str]) -> str:
    """Return the first names of a list of files, and how many more there are, for messages."""
    more = len(files) - _MOST_NAMED
    return ", ".join(files[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def describe_files(directory: Path, paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return path, size and checksum of files of a directory, with progress on stderr."""
    sizes = {path: (directory / path).stat().st_size for path in paths}
    progress = Progress("MB", sum(size // _MEGABYTE for size in sizes.values()))
    files = [
        {
            "file": path.as_posix(),
            "bytes": size,
            "checksum": checksum(directory / path, lambda size: progress.add(size // _MEGABYTE)),
        }
        for path, size in sizes.items()
    ]
    progress.close(None)
    return files


def validate_files(directory: Path, files: Iterable[dict], content: int = _SMALL) -> None:
    """Compare the sizes of a directory's files, and the checksums of the smallest, with its manifest.

    Args:
        content: maximum bytes to read, of all files together.

    Raises:
        DamagedError: for the first file that differs.
    """
    left = content
    for listed in sorted(files, key=lambda file: file["bytes"]):
        validate_size(directory, listed)
        left -= listed["bytes"]
        if left >= 0 and checksum(directory / listed["file"]) != listed["checksum"]:
            raise DamagedError(directory, listed["file"], OTHER_CONTENT)


def validate_size(directory: Path, listed: dict) -> None:
    """Raise DamagedError if a listed file is missing, is no regular file or differs in size."""
    try:
        status = (directory / listed["file"]).stat()
    except FileNotFoundError:
        raise DamagedError(directory, listed["file"], "it is missing") from None
    if not stat.S_ISREG(status.st_mode):
        raise DamagedError(directory, listed["file"], "it is not a regular file")
    if status.st_size != listed["bytes"]:
        raise DamagedError(directory, listed["file"], f"{status.st_size:,} bytes, not {listed['bytes']:,}")


def validate_documents(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raise DamagedError if the parts of a store do not have as many documents as its manifest states."""
    counts = [part["documents"] for part in manifest["parts"] if "documents" in part]
    if len(counts) == len(manifest["parts"]) and sum(counts) != manifest["documents"]:
        raise DamagedError(
            directory, MANIFEST, f"{manifest['documents']:,} documents, the parts that it lists have {sum(counts):,}"
        )


@contextlib.contextmanager
def intact(directory: Path, file: str) -> Iterator[None]:
    """Convert errors that libraries raise for a damaged file to DamagedError."""
    try:
        yield
    except _OF_DAMAGE as error:
        raise DamagedError(directory, file, f"{type(error).__name__}: {error}") from error


def validate_fields(value: Any, fields: dict, directory: Path, file: str) -> None:
    """Raise DamagedError if a JSON value lacks fields of a table of this module, or has them with other types."""
    try:
        _validate(value, fields, "")
    except TypeError as error:
        raise DamagedError(directory, file, error) from None


def _validate(value: Any, kind: Any, name: str) -> None:
    """Raise TypeError if a JSON value is not of a type or a table of types. name: of the field, for the message."""
    if isinstance(kind, types.UnionType):
        if value is not None:
            _validate(value, get_args(kind)[0], name)
    elif isinstance(kind, list):
        _validate(value, list, name)
        for number, item in enumerate(value):
            _validate(item, kind[0], f"{name}[{number}]")
    elif isinstance(kind, dict):
        _validate(value, dict, name)
        for key, of in kind.items():
            field = key.removesuffix("?")
            for item in value if key == "*" else [field]:
                if item in value:
                    _validate(value[item], of, f"{name}.{item}".removeprefix("."))
                elif field == key:
                    raise TypeError(f"{name}.{item} is missing".removeprefix("."))
    elif kind is Path:
        path = PurePosixPath(value) if isinstance(value, str) else PurePosixPath()
        if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in value:
            raise TypeError(f"{name} is {str(value)[:60]!r}: expected {_NAMES[kind]}")
    else:
        # type() and not isinstance(), for which True is an int.
        fits = type(value) in (int, kind) if kind is float else type(value) is kind
        if not fits or (kind is int and value < 0) or (kind is float and not 0 < value < math.inf):
            raise TypeError(f"{name or 'the content'} is {str(value)[:60]!r}: expected {_NAMES[kind]}")
