"""Errors of Java and Rust as one MilcoError that names the engine, the file and the fix."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.manifest import DamagedError
from milco_pyserini.jvm import OPTIONS_VARIABLE

_MEMORY = ("MemoryError", "OutOfMemoryError")
_MISSING = ("FileNotFoundError", "NoSuchFileException")
_FORBIDDEN = ("PermissionError", "AccessDeniedException")
# Caused by the machine and not by the index: too many open files, no address space.
_SYSTEM = ("FileSystemException", "Map failed")


@contextlib.contextmanager
def engine_errors(engine: str, action: str, path: Path) -> Iterator[None]:
    """Turn the errors of an engine's library within the block into MilcoError.

    A library that fails to open a file was given a damaged one, unless the machine is the reason. Errors of our own
    code in a build or a search are raised unchanged, and so is an OSError, whose filename every command prints. action:
    what the engine does to the index at path, "build", "open" or "search".
    """
    try:
        yield
    except BaseException as error:
        if (replacement := _as_milco_error(error, engine, action, path)) is None:
            raise
        raise replacement from error


def reason_of(error: Any) -> str:
    """Return the first sentence of an error's message, without stacks, source lines and advice."""
    message = getattr(error, "innermessage", str(error)) or ""
    sentence = re.split(r"(?<=[.!?])\s|\n", message.strip(), maxsplit=1)[0]
    return sentence or getattr(error, "classname", type(error).__name__)


def _as_milco_error(error: BaseException, engine: str, action: str, path: Path) -> MilcoError | None:
    """Return the error to raise instead; None for an error that is not a library's."""
    java = getattr(error, "classname", "")
    name = java.rpartition(".")[2] or type(error).__name__
    # Qdrant's errors have no type of their own.
    native = java or name in ("PanicException", "Exception") or isinstance(error, RuntimeError | MemoryError)
    # A SystemError is Python's own, of an intact file.
    is_known = isinstance(error, MilcoError | SystemError)
    if is_known or not (native or (action == "open" and isinstance(error, Exception))):
        return None
    reason = reason_of(error)
    if name in _MEMORY:
        more = f'give Java more: put {OPTIONS_VARIABLE}="-Xmx8g" before the command' if java else "free some memory"
        return MilcoError(f"engine {engine} has too little memory to {action} {path}: {reason}; {more}")
    if action != "open" or any(cause in f"{name} {reason}" for cause in _SYSTEM):
        return MilcoError(f"engine {engine} cannot {action} {path}: {reason}")
    file = getattr(error, "filename", None) or reason
    if name in _FORBIDDEN:
        return MilcoError(f"{file} cannot be read: permission denied. Make it readable (chmod, chown)")
    if name in _MISSING:
        return DamagedError(path, Path(file).name, "it is missing")
    if isinstance(error, OSError) and error.errno is not None:
        return None
    return DamagedError(path, f"files of {engine}", reason)
