"""Advisory locks on open files and directories: the kernel releases those of a dead process, so a holder is alive."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from milco_pyserini.console import duration, say
from milco_pyserini.errors import MilcoError

# Seconds before a wait is reported.
PATIENCE = 5.0
_LIMIT = 600.0
_INTERVAL = 0.02


def try_lock(descriptor: int, shared: bool = False) -> bool:
    """Lock what is open until it is closed; False if another process is in the way.

    Raises OSError where the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(descriptor: int) -> None:
    """Lock what is open, as soon as nobody else does; where the file system has no locks, go on without."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextlib.contextmanager
def locked_directory(directory: Path, limit: float | None = _LIMIT) -> Iterator[None]:
    """One process at a time: for the moments in which names in directory are moved and looked at.

    A wait of more than some seconds is reported. limit: raise MilcoError after so many; None: wait without end.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        # Where the file system has no locks, go on without.
        with contextlib.suppress(OSError):
            _wait(descriptor, directory, limit)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """One process at a time, for as long as it makes the file path, which is created empty if it is not there.

    A wait of more than some seconds is reported; it ends when the other process ends, or renames path.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with contextlib.suppress(OSError):
                _wait(descriptor, path, None)
            if is_at(descriptor, path):
                yield
                return
        finally:
            os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether what is open still has this name."""
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
                f"{path} has been locked by another program for {duration(waited)}: a new name in it needs the "
                "lock. End that program (lslocks lists it), or choose an --output in another directory"
            )
        if silent and waited > PATIENCE:
            silent = False
            say(f"waiting for another program that has locked {path} (lslocks lists it)")
        time.sleep(_INTERVAL)
