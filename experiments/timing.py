"""Time searches on one core: indexes in turn, several rounds, the median of each query."""

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from milco_pyserini.console import Progress, counted
from milco_pyserini.index.hits import Hits

# Searches the query with a number.
SearchQuery = Callable[[int], Hits]

WARM_UP_SECONDS = 1.0
_CPU = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Timed:
    """Hits of each query, and seconds: float64 [rounds, queries]."""

    hits: list[Hits]
    seconds: NDArray[np.float64]

    @property
    def _milliseconds(self) -> NDArray[np.float64]:
        # The median over the rounds ignores what else the machine did in one of them.
        return 1000 * np.median(self.seconds, axis=0)

    @property
    def mean_ms(self) -> float:
        """Mean milliseconds per query."""
        return float(self._milliseconds.mean())

    @property
    def p95_ms(self) -> float:
        """95th percentile of the milliseconds per query."""
        return float(np.percentile(self._milliseconds, 95))

    @property
    def queries_per_second(self) -> float:
        """Queries per second on one core, one after the other."""
        return 1000 / self.mean_ms

    @property
    def rounds_ms(self) -> list[float]:
        """Mean milliseconds per query of each round; they differ if the machine was busy."""
        return (1000 * self.seconds.mean(axis=1)).tolist()


def time_searches(searches: Mapping[str, SearchQuery], queries: int, rounds: int) -> dict[str, Timed]:
    """Run every search for every query on one core: to warm up, for at least a second, then rounds times.

    In a round each search takes all queries, and the next round begins with another search: what slows the machine
    down for a while slows all of them.

    Args:
        searches: Name -> search of a query by its number, from 0.
        queries: Number of queries.
        rounds: Number of timed rounds.
    """
    # Not on one core: Java compiles its hot code in threads of its own, which would have to wait.
    hits = {}
    for name, search in searches.items():
        started = time.thread_time()
        hits[name] = [search(number) for number in range(queries)]
        while time.thread_time() - started < WARM_UP_SECONDS:
            for number in range(queries):
                search(number)
    progress = Progress("timed queries", len(searches) * queries * rounds)
    seconds = {name: np.empty((rounds, queries)) for name in searches}
    names = list(searches)
    gc.collect()
    # The garbage collector would stop one query for what another left.
    gc.disable()
    try:
        with one_core():
            for number in range(rounds):
                first = number % len(names)
                for name in names[first:] + names[:first]:
                    _time_round(searches[name], seconds[name][number])
                    progress.add(queries)
    finally:
        gc.enable()
    progress.close(f"{counted(len(searches), 'index', 'indexes')} in turn on one core")
    return {name: Timed(hits[name], seconds[name]) for name in searches}


def _time_round(search: SearchQuery, seconds: NDArray[np.float64]) -> None:
    for number in range(len(seconds)):
        started = time.perf_counter()
        search(number)
        seconds[number] = time.perf_counter() - started


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Run all threads of this process, Java's and OpenMP's too, on one core. Linux only; does nothing elsewhere."""
    if not psutil.LINUX:
        yield
        return
    cores = psutil.Process().cpu_affinity()
    before = _place({}, [max(cores)])
    try:
        yield
    finally:
        # A thread that was started meanwhile has inherited the one core.
        _place(before, cores)


def _place(cores: Mapping[int, list[int]], others: list[int]) -> dict[int, list[int]]:
    """Restrict each thread to its cores, or else to others; return the cores that they could run on before."""
    before = {}
    for thread in psutil.Process().threads():
        # A thread may end at any moment.
        with contextlib.suppress(psutil.NoSuchProcess):
            bound = psutil.Process(thread.id)
            before[thread.id] = bound.cpu_affinity()
            bound.cpu_affinity(cores.get(thread.id, others))
    return before


def processor() -> str:
    """Return the processor's name, if Linux reports it, and the number of cores."""
    lines = _CPU.read_text(encoding="utf-8").splitlines() if _CPU.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} cores"
