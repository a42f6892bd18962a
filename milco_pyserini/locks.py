"""Advisory locks on open files and directories: the kernel lets go of a dead process's, so who holds one is alive."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def take(descriptor: int, shared: bool = False) -> bool:
    """Lock what is open until it is closed; False if another process is in the way.

    Raises OSError where the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def hold(descriptor: int) -> None:
    """Lock what is open, as soon as nobody else does; where the file system has no locks, go on without."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """One process at a time: for the moments in which names in directory are moved and looked at."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        hold(descriptor)
        yield
    finally:
        os.close(descriptor)
