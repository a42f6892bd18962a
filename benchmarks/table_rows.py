"""A row of the table of `python benchmarks`: what was done, by whom, and what it cost."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini import __version__
from milco_pyserini.eval import ReportTable, render

# Column -> digits behind the point.
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
    """figures: column -> value, those of COLUMNS that were measured. ratios: times, round by round.

    documents: size of the collection, for the rows of the curve.
    """

    step: str
    system: str
    figures: Mapping[str, float] = field(default_factory=dict)
    ratios: Sequence[float] = ()
    documents: int | None = None


def interleaved(actions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every action in every round; in a round all of them run, one after the other."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def compared(step: str, seconds: Mapping[str, Sequence[float]], figures: Callable[[str, float], dict]) -> list[Row]:
    """A row for each system; its times are its seconds over those of the first system, round by round.

    figures: what a system's median seconds show, given its name and them.
    """
    first = next(iter(seconds))
    rows = []
    for name, taken in seconds.items():
        ratios = () if name == first else tuple(one / own for one, own in zip(taken, seconds[first], strict=True))
        times = {"times": statistics.median(ratios)} if ratios else {}
        rows.append(Row(step, name, figures(name, statistics.median(taken)) | times, ratios))
    return rows


def written(rows: Sequence[Row], form: str, about: Mapping[str, Any]) -> str:
    """The rows in one of eval.report, or as JSON with every digit and every round."""
    if form == JSON:
        value = {"milco_pyserini": __version__, **about, "rows": [vars(row) for row in rows]}
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode() + "\n"
    return render(_table(rows, about), form)


def _table(rows: Sequence[Row], about: Mapping[str, Any]) -> ReportTable:
    columns = [name for name in COLUMNS if any(not isnan(row.figures.get(name, nan)) for row in rows)]
    lines = [[row.step, row.system, *(row.figures.get(name) for name in columns)] for row in rows]
    meaning = "times: how many times as long as the first row of the step, median of the rounds"
    circumstances = ", ".join(f"{name} {value}" for name, value in about.items())
    digits = [COLUMNS[name] for name in columns]
    return ReportTable(("step", "system"), columns, lines, digits, (meaning, circumstances))


def with_peak(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What work(*arguments) returns, and the peak of resident memory so far in MB (10**6 bytes): this process's, or
    that of a process which it started and which has ended, if that is higher. NaN where Linux does not tell.
    """
    result = work(*arguments)
    if not _STATUS.is_file():
        return result, nan
    import resource

    own = next(int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return result, max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * 1024 / 1e6


def processor() -> str:
    """The processor's name and the number of cores, as far as the machine says."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} cores"
