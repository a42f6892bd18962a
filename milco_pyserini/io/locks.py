"""Advisory locks (flock) on files and directories. The kernel releases those of a dead process."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from milco_pyserini.console import duration, log
from milco_pyserini.errors import MilcoError

# Seconds before a wait is reported.
PATIENCE = 5.0
_LIMIT = 600.0
_INTERVAL = 0.02


def try_lock(descriptor: int, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False if another process holds the lock.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(descriptor: int) -> None:
    """Wait for the lock of an open file. A file system without locks is ignored."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextlib.contextmanager
def locked_directory(directory: Path, limit: float | None = _LIMIT) -> Iterator[None]:
    """Hold the lock of a directory while its entries are inspected and renamed. Waits of over 5 s are reported.

    Args:
        limit: seconds after which MilcoError is raised; None waits without a limit.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            _wait(descriptor, directory, limit)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_file(path: Path, limit: float | None = None) -> Iterator[None]:
    """Hold the lock of a file while it is written; it is created empty if it is missing. Long waits are reported.

    A wait ends when the other process ends, or renames or removes the file.

    Args:
        limit: seconds after which MilcoError is raised; None waits without a limit.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with contextlib.suppress(OSError):
                _wait(descriptor, path, limit)
            if is_at(descriptor, path):
                yield
                return
        finally:
            os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _wait(descriptor: int, path: Path, limit: float | None) -> None:
    started = time.monotonic()
    silent = True
    while not try_lock(descriptor):
        waited = time.monotonic() - started
        if limit is not None and waited > limit:
            raise MilcoError(
                f"{path} has been locked by another program for {duration(waited)}: writing to it needs the lock. "
                "End that program (lslocks lists it), or choose an `output` in another directory"
            )
        if silent and waited > PATIENCE:
            silent = False
            log(f"Waiting for another program that has locked {path} (lslocks lists it)")
        time.sleep(_INTERVAL)
