"""Rows of the table of `python benchmarks`: a step, the system that ran it, and its measurements."""

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isnan, nan
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini import __version__
from milco_pyserini.eval import ReportTable, render

# Decimal places of each column.
COLUMNS = {
    "documents/s": 1,
    "tokens/s": 0,
    "padding %": 1,
    "limit %": 1,
    "s": 2,
    "ms": 2,
    "p95 ms": 2,
    "MB": 0,
    "disk MB": 1,
    "recall@10": 3,
    "times": 2,
}
JSON = "json"
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Row:
    """Measurements of a system in a step.

    Attributes:
        figures: values of the measured COLUMNS.
        ratios: `times` of each round.
        documents: size of the collection, for rows of the curve.
    """

    step: str
    system: str
    figures: Mapping[str, float] = field(default_factory=dict)
    ratios: Sequence[float] = ()
    documents: int | None = None


def interleaved(actions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every action in every round; all actions run in turn within a round."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def compared(step: str, seconds: Mapping[str, Sequence[float]], figures: Callable[[str, float], dict]) -> list[Row]:
    """Return a row for each system, with `times` relative to the first system in the same round.

    Args:
        figures: returns a system's figures, given its name and its median seconds.
    """
    first = next(iter(seconds))
    rows = []
    for name, taken in seconds.items():
        ratios = () if name == first else tuple(a / b for a, b in zip(taken, seconds[first], strict=True))
        times = {"times": statistics.median(ratios)} if ratios else {}
        rows.append(Row(step, name, figures(name, statistics.median(taken)) | times, ratios))
    return rows


def format_rows(rows: Sequence[Row], format: str, conditions: Mapping[str, Any]) -> str:
    """Return the rows as a table in a format of render(), or as JSON with all digits and rounds."""
    if format == JSON:
        value = {"milco_pyserini": __version__, **conditions, "rows": [vars(row) for row in rows]}
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode() + "\n"
    columns = [name for name in COLUMNS if any(not isnan(row.figures.get(name, nan)) for row in rows)]
    lines = [[row.step, row.system, *(row.figures.get(name) for name in columns)] for row in rows]
    digits = [COLUMNS[name] for name in columns]
    notes = (
        "times: time relative to the first row of the step, median of the rounds",
        ", ".join(f"{name} {value}" for name, value in conditions.items()),
    )
    return render(ReportTable(("step", "system"), columns, lines, digits, notes), format)


def with_own_peak(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """Return what with_peak() returns, and the peak of resident memory without mapped files, in MB.

    The system takes back the memory of mapped files when it is needed. Sampled every 20 ms, in this process only.
    """
    if not _STATUS.is_file():
        return *with_peak(work, *arguments), nan
    (result, peak), highest = with_highest(partial(_status, "RssAnon"), 0.02, with_peak, work, *arguments)
    return result, peak, highest * 1024 / 1e6


def with_highest(read: Callable[[], int], seconds: float, work: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Return what work(*arguments) returns and the highest value that was read meanwhile, every so many seconds."""
    highest, finished = read(), threading.Event()

    def watch() -> None:
        nonlocal highest
        while not finished.wait(seconds):
            highest = max(highest, read())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = work(*arguments)
    finally:
        finished.set()
        watcher.join()
    return result, highest


def with_peak(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return what work(*arguments) returns and the peak of resident memory so far in MB (10**6 bytes).

    The peak is the higher one of this process and of its completed child processes; NaN without /proc.
    """
    result = work(*arguments)
    if not _STATUS.is_file():
        return result, nan
    import resource

    return result, max(_status("VmHWM"), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * 1024 / 1e6


def _status(field: str) -> int:
    """Return a field of this process's status, in kB."""
    return next(int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith(field))
