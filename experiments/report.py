"""Tables as Markdown: measured next to published, for the terminal and for tables.md."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tabulate import tabulate

from experiments.cells import ANOTHER_MODEL, Cell, Key
from experiments.tables import Table, model_sizes, paper
from milco_pyserini import __version__
from milco_pyserini.io.files import atomic_file

HEADS = ("row", "column", "measure", "published", "measured", "difference", "note")
ALIGN = ("left", "left", "left", "right", "right", "right", "left")


@dataclass(frozen=True)
class Result:
    """The result of a cell. reason: why there is no figure."""

    cell: Cell
    figure: float | None
    reason: str = ""


# A table and the results of its cells.
Results = tuple[Table, Mapping[Key, Result]]


def table_text(table: Table, results: Mapping[Key, Result]) -> str:
    """Return a table as Markdown: a line for each cell, then the reasons why some are missing."""
    rows = []
    for result in results.values():
        cell, figure = result.cell, result.figure
        difference = "" if figure is None or cell.published is None else f"{figure - cell.published:+.2f}"
        note = "not measured" if result.reason else cell.note
        measure = "" if cell.measure == cell.column else cell.measure
        rows.append((cell.row, cell.column, measure, number(cell.published), number(figure), difference, note))
    reasons = Counter(result.reason for result in results.values() if result.reason)
    source = f" Published: experiments/paper/{table.source}.tsv." if table.source else ""
    parts = [
        f"## {table.title} ({table.name})",
        f"{table.caption}{source}",
        tabulate(rows, HEADS, tablefmt="pipe", colalign=ALIGN, disable_numparse=True),
        "\n".join(f"- Not measured ({count}): {reason}" for reason, count in reasons.items()),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def page_text(tables: Iterable[Results], encoder: str) -> str:
    """Return all tables as Markdown, each with the commands that made its figures."""
    from experiments.timing import processor

    parts = [
        "# The MILCO paper, reproduced",
        f"MILCO is {encoder}. milco_pyserini {__version__}, {processor()}, {date.today().isoformat()}.",
    ]
    for table, results in tables:
        steps = (step for result in results.values() for step in result.cell.pipeline())
        commands = "\n".join(dict.fromkeys(step.line for step in steps))
        parts += [table_text(table, results).rstrip(), f"```sh\n{commands}\n```"]
    return "\n\n".join(parts) + "\n"


def draw_sizes(path: Path, tables: Iterable[Results]) -> None:
    """Draw the paper's figure of model size against effectiveness on MIRACL, if a mean over MIRACL was measured."""
    published = model_sizes()
    labels = {system.title: system.published_as.get("miracl", "") for system in paper().systems.values()}
    means = (result for table, shown in tables if table.name == "miracl" for result in shown.values())
    measured = {
        result.cell.row: (published[labels[result.cell.row]][0], result.figure)
        for result in means
        if result.cell.column == "avg" and result.figure and labels.get(result.cell.row) in published
        # Its size is not known.
        if result.cell.note != ANOTHER_MODEL
    }
    if not measured:
        return
    from matplotlib.figure import Figure

    figure = Figure((7, 5), dpi=160, layout="constrained")
    panel = figure.subplots()
    for points, label, marker in ((published, "published", "o"), (measured, "measured", "D")):
        panel.scatter(*zip(*points.values(), strict=True), marker=marker, label=label)
        for name, place in points.items():
            panel.annotate(name, place, (4, 4), textcoords="offset points", fontsize=6)
    panel.set_xscale("log")
    panel.set_xlabel("parameters (billions)")
    panel.set_ylabel("nDCG@10, MIRACL, mean over 18 languages")
    panel.legend()
    with atomic_file(path) as file:
        figure.savefig(file, format="png")


def number(value: float | None) -> str:
    """Return points with two decimals, large counts with none, small figures with four."""
    if value is None:
        return "-"
    digits = 2 if value == 0 else 4 if abs(value) < 1 else 2 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}"
