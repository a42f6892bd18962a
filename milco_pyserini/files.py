"""Files and directories that appear whole or not at all."""

import contextlib
import errno
import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import orjson

from milco_pyserini import locks
from milco_pyserini.errors import MilcoError

PARTIAL = ".partial-"
# Not a partial name: what stands under it is whole, and comes back if a run is killed before the new one is there.
_REPLACED = ".before-overwrite"
_CHECKSUM_BYTES = 16
_BLOCK = 2**20


@contextlib.contextmanager
def whole_file(path: Path, mode: str = "wb") -> Iterator[IO]:
    """Open a file for writing that takes its name only when the block ends without an error.

    The bytes are on disk (fsync) before the name is; text modes are UTF-8 with "\\n" line ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    descriptor, temporary = _partial_file(path)
    try:
        # Locked until it has its name, so that no other run takes it for what a dead one left.
        with os.fdopen(descriptor, mode, **text) as handle:  # type: ignore[call-overload]
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def whole_directory(path: Path, overwrite: bool, ours: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield an empty directory beside path; it becomes path when the block ends without an error.

    ours: as for refuse_existing_directory, which is asked before the block and after it.
    """
    place = path.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with locks.alone_in(place.parent):
        _restore(place)
        refuse_existing_directory(path, overwrite, ours)
        remove_partial(place)
    descriptor, temporary = _partial_directory(place)
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        sync_tree(temporary)
        with locks.alone_in(place.parent):
            refuse_existing_directory(path, overwrite, ours)
            _replace_directory(place, temporary)
        sync_directory(place.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        with locks.alone_in(place.parent):
            _restore(place)
        raise
    finally:
        os.close(descriptor)


def refuse_output(path: Path, overwrite: bool, option: str = "--output") -> None:
    """Raise MilcoError, before any work, if option can name no file at path, or if one is there that must stay."""
    if path.is_dir():
        raise MilcoError(f"{path} is a directory: {option} names a file here")
    if path.exists() and not overwrite:
        raise MilcoError(f"{path} exists: choose another {option}, or replace it with --overwrite")
    if path.exists() and not path.is_file():
        raise MilcoError(f"{path} is no regular file: choose another {option}")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise MilcoError(f"{option} {path}: {above} is a file, nothing can be written below it")
    try:
        # Permissions do not tell it all: /proc, or a file system that is full of names or read-only.
        tempfile.TemporaryFile(dir=above).close()
    except OSError as error:
        raise MilcoError(f"{option} {path} cannot be written: no new file in {above} ({error.strerror})") from None


def refuse_existing_directory(path: Path, overwrite: bool, ours: Callable[[Path], bool]) -> None:
    """Raise MilcoError if path holds something that may not be replaced; an empty directory is nothing.

    ours: whether a directory is one that this command has written. What is not is never replaced, whatever the
    caller says: it may be somebody's home.
    """
    if not _taken(path):
        return
    if not (path.is_dir() and ours(path)):
        raise MilcoError(f"{path} was not written by this command, so it is never replaced: choose another --output")
    if not overwrite:
        raise MilcoError(f"{path} exists: choose another --output, or replace it with --overwrite")


def remove_directory(path: Path) -> None:
    """Remove a directory so that a run that is killed meanwhile leaves all of it or nothing under its name."""
    place = path.resolve()
    descriptor, temporary = _partial_directory(place)
    try:
        place.replace(temporary)
        shutil.rmtree(temporary)
    finally:
        os.close(descriptor)


def remove_partial(path: Path) -> None:
    """Remove what earlier runs that were killed left of path: it never had its name. What lives is left alone."""
    _sweep(path.parent.glob(f".{glob.escape(path.name)}{PARTIAL}*"))


def remove_partial_in(directory: Path) -> None:
    """The same for every name in a directory."""
    _sweep(directory.glob(f".*{PARTIAL}*"))


def _sweep(found: Iterable[Path]) -> None:
    for left in found:
        with contextlib.suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY if left.is_dir() else os.O_RDWR)
            try:
                if not locks.take(descriptor):
                    continue
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Flush every file and directory below directory, and itself, to disk: before a rename gives it its name."""
    for parent, _, names in os.walk(directory, topdown=False):
        for name in names:
            descriptor = os.open(Path(parent, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(Path(parent))


def sync_directory(directory: Path) -> None:
    """Flush the names in a directory to disk, where its file system can (some FUSE and SMB mounts cannot)."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def write_json(path: Path, value: object) -> None:
    """Write value as indented JSON, whole or not at all."""
    with whole_file(path) as handle:
        handle.write(json_bytes(value))


def json_bytes(value: object) -> bytes:
    """Return value as indented JSON."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"


def read_json(path: Path) -> dict:
    """Read a JSON object. Raises MilcoError if the file is not there or holds something else."""
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise MilcoError(f"{path} is not there") from None
    except orjson.JSONDecodeError as error:
        raise MilcoError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise MilcoError(f"{path} holds {type(value).__name__}, not a JSON object")
    return value


def checksum(path: Path, add: Callable[[int], None] = lambda size: None) -> str:
    """Return the BLAKE2b checksum of a file, 32 hexadecimal digits, reading it in blocks.

    add: called with the size of each block in bytes, to show progress.
    """
    digest = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    with path.open("rb") as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
            add(len(block))
    return digest.hexdigest()


def checksum_of(content: bytes) -> str:
    """Return what checksum() returns of a file with this content."""
    return hashlib.blake2b(content, digest_size=_CHECKSUM_BYTES).hexdigest()


def is_json_with(path: Path, *keys: str) -> bool:
    """Whether path is a file with a JSON object that has these keys: how a directory of ours is known as ours."""
    try:
        return set(keys) <= read_json(path).keys()
    except (MilcoError, OSError):
        return False


def _partial_file(path: Path) -> tuple[int, Path]:
    """A new file beside path, open and locked."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}{PARTIAL}")
        locks.hold(descriptor)
        if _is_at(descriptor, Path(name)):
            return descriptor, Path(name)
        # Another run swept it away between its making and its locking.
        os.close(descriptor)


def _partial_directory(path: Path) -> tuple[int, Path]:
    """A new directory beside path, open and locked."""
    while True:
        name = tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}{PARTIAL}")
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(name, os.O_RDONLY)
            locks.hold(descriptor)
            if _is_at(descriptor, Path(name)):
                return descriptor, Path(name)
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _taken(path: Path) -> bool:
    """Whether path holds something; an empty directory, which somebody made beforehand, does not."""
    return any(path.iterdir()) if path.is_dir() else path.exists()


def _replace_directory(path: Path, new: Path) -> None:
    """Give new the name path; what has it now is moved away first, and is removed only when new stands there."""
    old = path.with_name(f".{path.name}{_REPLACED}")
    if path.exists():
        path.replace(old)
    new.replace(path)
    shutil.rmtree(old, ignore_errors=True)


def _restore(path: Path) -> None:
    """Mend what a run left that was killed while it replaced path: the old directory comes back, or goes for good."""
    old = path.with_name(f".{path.name}{_REPLACED}")
    if not old.exists():
        return
    if _taken(path):
        shutil.rmtree(old)
    else:
        old.replace(path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
