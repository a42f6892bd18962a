"""Atomic files and directories: complete under their name, or absent."""

import contextlib
import ctypes
import errno
import gzip
import hashlib
import io
import os
import re
import secrets
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

import orjson

from milco_pyserini.console import log, printable
from milco_pyserini.errors import DISK_FULL, Message, MilcoError, ParameterError
from milco_pyserini.errors import parameter as mention
from milco_pyserini.io import locks

PARTIAL = ".partial-"
# Level of gzip; its default takes several times longer for a run.
_COMPRESSION = 3
# The name of stdout for text_output().
STDOUT = Path("-")
# NumPy's error for a file that could not be written to its end has no errno.
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")
# In a partial directory: its lock, and the file or directory that is being written.
_LOCK, _CONTENT = "lock", "files"
# Bytes of a name. Partial names are longer, and must stay below the limits of file systems (143 to 255).
_LONGEST = 100
# Suffix of a directory that is being replaced. It is complete, and is restored if the replacement is interrupted.
_REPLACED = ".before-overwrite"
# Arguments of renameat2().
_AT_CWD, _RENAME_EXCHANGE = -100, 2
_CHECKSUM_BYTES = 16
_BLOCK = 2**20
# Bytes that become a hole if they are zeros.
_SPARSE_BLOCK = 2**16


@contextlib.contextmanager
def atomic_file(path: Path, mode: str = "wb") -> Iterator[IO]:
    """Open a file for writing; it is renamed to path when the block ends without an error.

    The content is flushed to disk (fsync) before the rename. Text modes write UTF-8 with "\\n" line ends. Partial files
    of killed runs are removed. A full disk raises OSError with path as its filename.
    """
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with full_disk_errors(path):
        _make_directory(path.parent)
        remove_partial(path)
        with _partial(path) as temporary:
            with temporary.open(mode, **text) as handle:  # type: ignore[call-overload]
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            temporary.replace(path)
            sync_path(path.parent)


@contextlib.contextmanager
def text_output(path: Path, overwrite: bool = True) -> Iterator[IO[str]]:
    """Open a text file for writing, as atomic_file() does: compressed if its name ends in .gz; STDOUT is stdout.

    Without overwrite, an existing file is kept. MilcoError is raised as soon as another text is written than the file
    has: a command that was killed after it had succeeded can be rerun.
    """
    if path == STDOUT:
        yield cast(IO[str], _Terminal()) if sys.stdout.isatty() else sys.stdout
    elif path.exists() and not overwrite:
        remove_partial(path)
        with _SameText(path) as handle:
            yield cast(IO[str], handle)
        log(f"{path} is up to date")
    elif path.suffix == ".gz":
        # No time stamp: the same text gives the same bytes.
        with (
            atomic_file(path) as file,
            gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as packed,
            io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as handle,
        ):
            yield handle
    else:
        with atomic_file(path, "w") as handle:
            yield handle


class _Terminal(io.TextIOBase):
    """A terminal that shows control characters in place of obeying them: ids, such as a server's, may have some."""

    def write(self, text: str) -> int:
        """Write a text with what would act on a terminal as escapes."""
        return sys.stdout.write(re.sub(r"[^\t\n]+", lambda part: printable(part[0]), text))


class _SameText(io.TextIOBase):
    """Takes the text that a file has; any other is an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="")

    def write(self, text: str, size: int | None = None) -> int:
        """Compare a text with the next characters of the file: as many as it has, or size."""
        with contextlib.suppress(ValueError, EOFError, zlib.error, gzip.BadGzipFile):
            if self._file.read(len(text) if size is None else size) == text:
                return len(text)
        raise _exists(self._path)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self.write("", size=1)


def _exists(path: Path, parameter: str = "output") -> MilcoError:
    fix = "Choose another " + mention(parameter) + ", or replace it with " + mention("overwrite", True) + "."
    return MilcoError(f"{path} exists", fix)


@contextlib.contextmanager
def atomic_directory(path: Path, overwrite: bool, is_owned: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield an empty directory next to path; it is renamed to path when the block ends without an error.

    Its tree is flushed to disk (fsync) before the rename. A full disk raises OSError with path as its filename,
    whatever error a library raised.

    Args:
        overwrite, is_owned: as for validate_output_directory(), which runs before and after the block.

    Raises:
        MilcoError: before the block, if path is a mount point, which cannot be replaced.
    """
    place = path.resolve()
    _refuse_mount_point(place)
    with full_disk_errors(path):
        validate_writable(place)
        _make_directory(place.parent)
        recover_directory(place)
        validate_replaceable(path, overwrite, is_owned)
        with _partial(place) as temporary:
            temporary.mkdir()
            yield temporary
            sync_tree(temporary)
            # Wait without a limit: finished work is not lost because another program holds the lock.
            with locks.locked_directory(place.parent, limit=None):
                validate_replaceable(path, overwrite, is_owned)
                _replace_directory(place, temporary)


@contextlib.contextmanager
def scratch_directory(path: Path) -> Iterator[Path]:
    """Yield an empty directory next to path, for files that are needed to write it; it is removed in the end.

    The next run for path removes that of a killed one.
    """
    # Messages have the path as the user wrote it, unless it is a link.
    place = path.resolve() if path.is_symlink() or path.name in ("", "..") else path
    _make_directory(place.parent)
    remove_partial(place)
    with _partial(place) as scratch:
        scratch.mkdir()
        yield scratch


def visible(path: Path) -> Path:
    """Return a path for messages: in place of one in a scratch directory, the path that it is for."""
    hidden = next((place for place in (path, *path.parents) if PARTIAL in place.name), None)
    return path if hidden is None else hidden.with_name(hidden.name[1:].partition(PARTIAL)[0])


@contextlib.contextmanager
def full_disk_errors(path: Path) -> Iterator[None]:
    """Convert any error that reports a full disk, whatever its type, to an OSError with path as its filename.

    An OSError that has a filename keeps it.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        for code in DISK_FULL:
            if os.strerror(code) in str(error):
                raise OSError(code, os.strerror(code), str(path)) from error
        if _SHORT_WRITE.search(str(error)):
            raise OSError(errno.ENOSPC, f"disk full, or above a limit of file sizes ({error})", str(path)) from error
        raise


def validate_output_file(path: Path, overwrite: bool, parameter: str = "output") -> None:
    """Raise MilcoError if a file cannot be written at path, or if one exists and overwrite is False."""
    if path.is_dir():
        raise ParameterError(parameter, path, "it is a directory, and must be a file")
    if path.exists() and not overwrite:
        raise _exists(path, parameter)
    if path.exists() and not path.is_file():
        raise ParameterError(parameter, path, "it is not a regular file", "Choose another.")
    validate_writable(path, parameter)


def validate_writable(path: Path, parameter: str = "output", inside: bool = False) -> None:
    """Raise MilcoError if no new file or directory can be made at path, or inside of it if it exists."""
    place = path.resolve()
    above = next(parent for parent in (place / "*" if inside else place).parents if parent.exists())
    if not above.is_dir():
        raise ParameterError(parameter, path, f"{above} is a file, nothing can be written below it")
    try:
        # Permissions do not reveal /proc, a read-only file system or one without free inodes.
        tempfile.TemporaryFile(dir=above).close()
    except OSError as error:
        if error.errno in DISK_FULL:
            raise OSError(error.errno, error.strerror, str(path)) from None
        rule = f"cannot be written, no new file in {above} ({error.strerror})"
        raise ParameterError(parameter, path, rule) from None


def validate_output_directory(path: Path, overwrite: bool, is_owned: Callable[[Path], bool]) -> None:
    """Raise MilcoError if path cannot be written, or validate_replaceable() does."""
    validate_replaceable(path, overwrite, is_owned)
    validate_writable(path)


def validate_replaceable(path: Path, overwrite: bool, is_owned: Callable[[Path], bool]) -> None:
    """Raise MilcoError if path exists, unless it is an empty directory or may be overwritten.

    Args:
        is_owned: returns whether a directory was written by this command. Any other is never replaced, with or without
            overwrite: it may be a home directory.
    """
    if not is_taken(path):
        return
    if not (path.is_dir() and is_owned(path)):
        fix = Message("Choose another {output}.")
        raise MilcoError(f"{path} was not written by this command, so it is never replaced", fix)
    if not overwrite:
        raise _exists(path)


def remove_directory(path: Path) -> None:
    """Remove a directory atomically: complete or absent. Raises MilcoError for a mount point, which stays in place."""
    place = path.resolve()
    _refuse_mount_point(place)
    with _partial(place) as temporary:
        place.replace(temporary)
        shutil.rmtree(temporary)


def recover_directory(path: Path) -> None:
    """Remove what killed runs left for a directory, and restore it if its replacement was interrupted."""
    place = path.resolve()
    with locks.locked_directory(place.parent):
        _restore(place)
        remove_partial(place)


def remove_partial(path: Path) -> None:
    """Remove the partial files and directories that killed runs left for path. Partial files of live runs are kept."""
    _sweep(path.parent, f".{_short(path.name)}{PARTIAL}")


def remove_partial_in(directory: Path) -> None:
    """Remove the partial files and directories that killed runs left in a directory."""
    _sweep(directory, ".")


def _sweep(directory: Path, start: str) -> None:
    try:
        with os.scandir(directory) as entries:
            partial = [entry.path for entry in entries if entry.name.startswith(start) and PARTIAL in entry.name]
    except OSError:
        return
    for path in partial:
        with contextlib.suppress(OSError):
            _remove_dead(Path(path))


def _remove_dead(left: Path) -> None:
    if not left.is_dir():
        # Version 0.3 wrote files without a directory.
        left.unlink(missing_ok=True)
        return
    with locks.file_lock(left / _LOCK).acquire(timeout=0):
        shutil.rmtree(left, ignore_errors=True)
    # Where an open file cannot be removed, the lock went with its release.
    left.rmdir()


def publish(temporary: Path, path: Path) -> None:
    """Flush a complete file or directory to disk, rename it to path, and flush the new name."""
    sync_tree(temporary)
    temporary.replace(path)
    sync_path(path.parent)


def sync_tree(path: Path) -> None:
    """Flush a file, or every file and directory of a tree, to disk."""
    if not path.is_dir():
        sync_path(path)
    for parent, _, names in os.walk(path, topdown=False):
        for name in (*names, "."):
            sync_path(Path(parent, name))


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a directory, to disk. Windows, some FUSE and SMB mounts flush no directory."""
    try:
        # Windows flushes only files that are open for writing.
        descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if path.is_file() or error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise


def visible_files(directory: Path) -> list[Path]:
    """Return the files in a directory at any depth, sorted, without those that are hidden or in a hidden directory.

    Links to directories are followed.
    """
    visible: list[Path] = []
    seen: set[str] = set()
    for place, directories, files in os.walk(directory, followlinks=True):
        # A link may lead to a directory above it.
        real = os.path.realpath(place)
        directories[:] = [] if real in seen else [name for name in directories if not name.startswith(".")]
        if real not in seen:
            visible += [Path(place, name) for name in files if not name.startswith(".")]
        seen.add(real)
    return sorted(file for file in visible if file.is_file())


def size_on_disk(directory: Path, without: str = "") -> int:
    """Return the bytes of all files in a directory, without the holes of sparse files, and without files of a name."""
    files = (path.stat() for path in directory.rglob("*") if path.is_file() and path.name != without)
    return sum(min(file.st_size, 512 * getattr(file, "st_blocks", file.st_size)) for file in files)


def copy_file(source: Path, target: Path) -> str:
    """Copy a file, with holes where it has only zeros; return the checksum of what was read."""
    digest = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    with source.open("rb") as read, target.open("wb") as write:
        while block := read.read(_SPARSE_BLOCK):
            digest.update(block)
            if block.count(0) == len(block):
                write.seek(len(block), os.SEEK_CUR)
            else:
                write.write(block)
        write.truncate(read.tell())
    return digest.hexdigest()


def write_json(path: Path, value: object) -> None:
    """Write value as indented JSON, atomically."""
    with atomic_file(path) as handle:
        handle.write(json_bytes(value))


def json_bytes(value: object) -> bytes:
    """Return value as indented JSON. Raises MilcoError for a string with a lone surrogate (not valid UTF-8)."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"
    except TypeError as error:
        if "surrogates" not in str(error):
            raise
        raise MilcoError(
            "a string contains a lone surrogate: JSON is UTF-8. Remove or replace that character"
        ) from None


def read_json(path: Path) -> dict:
    """Read a JSON object. Raises MilcoError if the file is missing or contains anything else."""
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise MilcoError(f"{path} does not exist") from None
    except orjson.JSONDecodeError as error:
        raise MilcoError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise MilcoError(f"{path} contains {type(value).__name__}, not a JSON object")
    return value


def checksum(path: Path, add: Callable[[int], None] = lambda size: None) -> str:
    """Return the BLAKE2b checksum of a file, as 32 hexadecimal digits. add() is called with the size of each block."""
    digest = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    with path.open("rb") as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
            add(len(block))
    return digest.hexdigest()


def checksum_bytes(content: bytes) -> str:
    """Return the checksum() of a file with this content."""
    return hashlib.blake2b(content, digest_size=_CHECKSUM_BYTES).hexdigest()


def is_json_with(path: Path, *keys: str) -> bool:
    """Return whether path is a file with a JSON object that has these keys, as manifests of this package do."""
    try:
        return set(keys) <= read_json(path).keys()
    except (MilcoError, OSError):
        return False


def _short(name: str) -> str:
    """Return a name, or the start and a hash of one that is too long for a suffix."""
    encoded = os.fsencode(name)
    if len(encoded) <= _LONGEST:
        return name
    return f"{encoded[: _LONGEST // 2].decode(errors='ignore')}~{hashlib.blake2b(encoded, digest_size=8).hexdigest()}"


@contextlib.contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """Yield a free path in a directory next to path, which is locked, and removed in the end."""
    while True:
        directory = path.with_name(f".{_short(path.name)}{PARTIAL}{secrets.token_hex(4)}")
        lock = locks.file_lock(directory / _LOCK)
        try:
            directory.mkdir()
            # File systems without locks are ignored.
            with contextlib.suppress(OSError):
                lock.acquire()
            if directory.exists():
                yield directory / _CONTENT
                return
            # Another run removed it before it was locked.
        except OSError as error:
            if str(error.filename).startswith(str(directory)):
                # Users do not know the partial name, which no longer exists.
                inside = str(error.filename).removeprefix(str(directory)).removeprefix(os.sep + _CONTENT)
                error.filename = str(path) + inside
            raise
        finally:
            lock.release()
            shutil.rmtree(directory, ignore_errors=True)


def _make_directory(path: Path) -> None:
    """Create a directory and its parents, and flush their names to disk."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for directory in missing:
        sync_path(directory.parent)


def _refuse_mount_point(path: Path) -> None:
    if os.path.ismount(path):
        raise MilcoError(
            f"{path} is a mount point, which cannot be replaced by a complete directory. Choose a directory inside it, "
            f"such as {path / 'NAME'}"
        )


def is_taken(path: Path, but_partial: bool = False) -> bool:
    """Return whether path exists and is not an empty directory. but_partial: of killed runs, which do not count."""
    if not path.is_dir():
        return path.exists()
    return any(not (but_partial and PARTIAL in entry.name) for entry in path.iterdir())


def _replaced(path: Path) -> Path:
    return path.with_name(f".{_short(path.name)}{_REPLACED}")


def _replace_directory(path: Path, new: Path) -> None:
    """Give a new directory the name path, and remove the directory that it replaces.

    Both are exchanged in one step where the system can. Otherwise there are two renames; if the second fails or is
    interrupted, the old directory is restored.
    """
    old = _replaced(path)
    if path.is_dir() and _exchange(new, path):
        sync_path(path.parent)
        shutil.rmtree(new, ignore_errors=True)
        return
    try:
        if path.exists():
            path.replace(old)
        new.replace(path)
    except BaseException:
        _restore(path)
        raise
    sync_path(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(path: Path, other: Path) -> bool:
    """Exchange two names in one step (renameat2); return False if C library, kernel or file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, TypeError):
        return False
    return renameat2(_AT_CWD, os.fsencode(path), _AT_CWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


def _restore(path: Path) -> None:
    """Recover from a replacement that was interrupted: restore the old directory, or delete it."""
    old = _replaced(path)
    if not old.exists():
        return
    if is_taken(path):
        shutil.rmtree(old)
    else:
        old.replace(path)
