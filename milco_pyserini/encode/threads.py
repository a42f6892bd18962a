"""What comes before and after a long computation, done in threads while it goes on: one step ahead, one step behind.

Worth it where the step lets other threads run, as tokenizers, torch and files do. Errors of a step are raised where
its result would be; after an error no other step begins.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
_END: Any = object()


@contextlib.contextmanager
def pool(patient: bool) -> Iterator[ThreadPoolExecutor]:
    """Threads for one ahead() and one behind().

    patient: whether an error waits for the steps that have begun. One that listens to another process may wait forever.
    """
    threads = ThreadPoolExecutor(2)
    try:
        yield threads
    except BaseException:
        threads.shutdown(wait=patient, cancel_futures=True)
        raise
    threads.shutdown()


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
