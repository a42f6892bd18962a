"""Files and directories that appear whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import orjson

from milco_pyserini.errors import MilcoError

PARTIAL = ".partial-"


@contextlib.contextmanager
def whole_file(path: Path, mode: str = "wb") -> Iterator[IO]:
    """Open a file for writing that takes its name only when the block ends without an error.

    The bytes are on disk (fsync) before the name is; text modes are UTF-8 with "\\n" line ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}{PARTIAL}")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, mode, **text) as handle:  # type: ignore[call-overload]
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        _sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def whole_directory(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield an empty directory beside path; it becomes path when the block ends without an error.

    Raises MilcoError if path is there already and overwrite is not asked for.
    """
    refuse_existing(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_partial(path)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}{PARTIAL}"))
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        _replace_directory(path, temporary)
        _sync_directory(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise MilcoError if path holds something that the caller did not say may be replaced."""
    taken = any(path.iterdir()) if path.is_dir() else path.exists()
    if taken and not overwrite:
        raise MilcoError(f"{path} exists: choose another --output, or replace it with --overwrite")


def remove_partial(path: Path) -> None:
    """Remove what an earlier run that was killed left of path: it never had its name."""
    for left in path.parent.glob(f".{path.name}{PARTIAL}*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Write value as indented JSON, whole or not at all."""
    with whole_file(path) as handle:
        handle.write(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")


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


def _replace_directory(path: Path, new: Path) -> None:
    """Give new the name path; what has it now is moved away first, and is removed only when new stands there."""
    old = new.with_name(f"{new.name}-replaced")
    if path.exists():
        path.replace(old)
    new.replace(path)
    if old.is_dir():
        shutil.rmtree(old)
    else:
        old.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
