"""How long a query takes on one core: systems asked in turn, many rounds, the median of each query."""

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Progress, counted
from milco_pyserini.index.protocol import Hits

# Answers one query, known by its number.
Ask = Callable[[int], Hits]

WARM_UP_SECONDS = 1.0
_THREADS = Path("/proc/self/task")


@dataclass(frozen=True)
class Timed:
    """One system's answers and times. hits: for each query. seconds: float64 [rounds, queries]."""

    hits: list[Hits]
    seconds: NDArray[np.float64]

    @property
    def _milliseconds(self) -> NDArray[np.float64]:
        # The median over the rounds: what else the machine did in one of them does not count.
        return 1000 * np.median(self.seconds, axis=0)

    @property
    def mean_ms(self) -> float:
        """Milliseconds of a query, on average over the queries."""
        return float(self._milliseconds.mean())

    @property
    def p95_ms(self) -> float:
        """Milliseconds that 95 % of the queries stay below."""
        return float(np.percentile(self._milliseconds, 95))

    @property
    def queries_per_second(self) -> float:
        """Queries that one core answers in a second, one after the other."""
        return 1000 / self.mean_ms

    @property
    def rounds_ms(self) -> list[float]:
        """Mean milliseconds of each round: how far they lie apart says how quiet the machine was."""
        return (1000 * self.seconds.mean(axis=1)).tolist()


def ask_in_turn(systems: Mapping[str, Ask], queries: int, rounds: int) -> dict[str, Timed]:
    """Ask every system every query, once to warm up and then rounds times, on one core.

    In a round each system answers all queries, one after the other, and the next round begins with another system:
    what slows the machine down for a while slows all of them. A system warms up for at least a second of work.
    """
    # Not on one core: Java translates its hot code in threads of its own, which would have to wait for their turn.
    hits = {name: _warm_up(ask, queries) for name, ask in systems.items()}
    progress = Progress("timed queries", len(systems) * queries * rounds)
    with one_core(), _no_collection():
        seconds = {name: np.empty((rounds, queries)) for name in systems}
        names = list(systems)
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                _time(systems[name], seconds[name][number])
                progress.add(queries)
    progress.close(f"{counted(len(systems), 'system')} in turn on one core")
    return {name: Timed(hits[name], seconds[name]) for name in systems}


def _warm_up(ask: Ask, queries: int) -> list[Hits]:
    """The answers. Kernels are compiled, caches filled and Java's hot code translated on the way."""
    started = time.thread_time()
    hits = [ask(number) for number in range(queries)]
    while time.thread_time() - started < WARM_UP_SECONDS:
        for number in range(queries):
            ask(number)
    return hits


def _time(ask: Ask, seconds: NDArray[np.float64]) -> None:
    for number in range(len(seconds)):
        started = time.perf_counter()
        ask(number)
        seconds[number] = time.perf_counter() - started


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Python's garbage collector would stop some query for what another left."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keep every thread of this process, Java's and OpenMP's too, on one core; where Linux runs, elsewhere nothing."""
    if not _THREADS.is_dir():
        yield
        return
    core = max(os.sched_getaffinity(0))
    before = _place({int(thread.name): {core} for thread in _THREADS.iterdir()})
    try:
        yield
    finally:
        free = before[os.getpid()]
        # A thread that was born meanwhile has inherited the one core.
        _place({int(thread.name): before.get(int(thread.name), free) for thread in _THREADS.iterdir()})


def _place(threads: Mapping[int, set[int]]) -> dict[int, set[int]]:
    """Let threads run on these cores alone; returns where they could run before."""
    before = {}
    for thread, cores in threads.items():
        # One may end at any moment.
        with contextlib.suppress(ProcessLookupError):
            before[thread] = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, cores)
    return before
