"""What was measured, as a table on stdout and as files for programs."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini import __version__
from milco_pyserini.analysis.task import Task, TaskOptions
from milco_pyserini.eval.report import ReportTable, render
from milco_pyserini.io.files import atomic_file, write_json

if TYPE_CHECKING:
    from milco_pyserini.analysis.workbench import Point

Rows = Sequence[tuple["Point", Mapping[str, float]]]

_CPU = Path("/proc/cpuinfo")


def write_report(options: TaskOptions, task: Task, rows: Rows, name: str) -> None:
    """Write NAME.csv and NAME.json into the directory of the options, and the table to stdout."""
    table = points_table(rows, task.measures)
    with atomic_file(options.directory / f"{name}.csv", "w") as file:
        file.write(render(table, "csv"))
    points = [{**vars(point), "figures": dict(figures)} for point, figures in rows]
    about = {
        "vectors": str(task.store.path),
        "topics": options.topics,
        "qrels": options.qrels,
        "documents": len(task.store),
        "queries": len(task.ids),
        "hits": task.hits,
        "rounds": options.rounds,
        "processor": processor(),
        "milco_pyserini": __version__,
    }
    write_json(options.directory / f"{name}.json", {**about, "points": points})
    sys.stdout.write(render(table, options.format))


def points_table(rows: Rows, measures: Sequence[str]) -> ReportTable:
    """Tabulate points with the columns of the paper's latency table, and the terms per document."""
    heads = ("ms", "ms p95", "queries/s", *measures, "MB", "terms")
    lines = [
        (
            *(point.vectors, point.index, point.mean_ms, point.p95_ms, point.queries_per_second),
            *(values[measure] for measure in measures),
            *(point.size / 1e6, point.terms),
        )
        for point, values in rows
    ]
    return ReportTable(("vectors", "index"), heads, lines, (3, 3, 0, *[4] * len(measures), 2, 1))


def processor() -> str:
    """The processor's name and the number of cores, as far as the machine says."""
    lines = _CPU.read_text(encoding="utf-8").splitlines() if _CPU.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} cores"
