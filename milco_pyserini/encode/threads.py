"""What comes before and after a long computation, done in threads while it goes on: one step ahead, one step behind.

Worth it where the step lets other threads run, as tokenizers, torch and files do. Errors of a step are raised where
its result would be; leaving the pool waits for the steps that have begun, and begins no other.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
_END: Any = object()


@contextlib.contextmanager
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for one ahead() and one behind()."""
    threads = ThreadPoolExecutor(2)
    try:
        yield threads
    finally:
        threads.shutdown(wait=True, cancel_futures=True)


def ahead(items: Iterable[A], threads: ThreadPoolExecutor) -> Iterator[A]:
    """The same items; while one is used, the next is made."""
    stream = iter(items)
    coming = threads.submit(next, stream, _END)
    while (item := coming.result()) is not _END:
        coming = threads.submit(next, stream, _END)
        yield item


def behind(items: Iterable[A], step: Callable[[A], B], threads: ThreadPoolExecutor) -> Iterator[B]:
    """step(item) for every item in order; while a step is done, the next item is made."""
    waiting: Future[B] | None = None
    for item in items:
        begun = threads.submit(step, item)
        if waiting is not None:
            yield waiting.result()
        waiting = begun
    if waiting is not None:
        yield waiting.result()
