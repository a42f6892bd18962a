"""Locks of files and directories, which end with the process that holds them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from milco_pyserini.console import duration, log
from milco_pyserini.errors import Message, MilcoError

# Seconds before a wait is reported.
PATIENCE = 5.0
_LIMIT = 600.0
_INTERVAL = 0.02


def file_lock(path: Path) -> Any:
    """Return a FileLock, which any thread may release. Its file is created when it is acquired."""
    from filelock import FileLock

    return FileLock(path, thread_local=False)


def locked_directory(directory: Path, limit: float | None = _LIMIT) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of a directory, that of a file in it, while its entries are inspected and renamed."""
    return locked_file(directory / ".milco.lock", limit)


@contextlib.contextmanager
def locked_file(path: Path, limit: float | None = None) -> Iterator[None]:
    """Hold the lock of a file, which is created, and removed at the end. Waits of over 5 s are reported.

    File systems without locks and directories without write permission are ignored. limit: seconds after which
    MilcoError is raised; None waits without a limit.
    """
    lock = file_lock(path)
    with contextlib.suppress(OSError):
        _wait(lock, path, limit)
    try:
        yield
    finally:
        if lock.is_locked:
            # Programs that wait for the lock notice it. Windows removes a file only after the release.
            with contextlib.suppress(OSError):
                path.unlink()
            lock.release()


def _wait(lock: Any, path: Path, limit: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        lock.acquire(PATIENCE if limit is None else min(PATIENCE, limit), _INTERVAL)
        return
    if limit is None or limit > PATIENCE:
        log(f"Waiting for another program that has locked {path} (lslocks lists it)")
    try:
        lock.acquire(-1 if limit is None else max(0, limit - PATIENCE), _INTERVAL)
    except TimeoutError:
        message = f"{path} has been locked by another program for {duration(limit or 0)}: writing to it needs the lock"
        fix = Message("End that program (lslocks lists it), or choose an {output} in another directory.")
        raise MilcoError(message, fix) from None
