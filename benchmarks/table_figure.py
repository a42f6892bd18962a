"""Draw the table of `python benchmarks`: times relative to the first system of each step, and the curve."""

from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

import repository  # noqa: F401
from table_rows import Row

from experiments.pictures import COLORS, DASHES, MARKERS
from milco_pyserini.io.files import atomic_file

_WIDTH = 10.5
_CURVE_HEIGHT = 3.4
_BAR_HEIGHT = 0.24
_DPI = 160


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Write a PNG file with bars for comparisons and panels for the curve, as far as there are rows for them."""
    # Without pyplot, which looks for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bars = [row for row in rows if "times" in row.figures]
    curve = [row for row in rows if row.documents is not None]
    heights = [_BAR_HEIGHT * len(bars) + 0.9] * bool(bars) + [_CURVE_HEIGHT] * bool(curve)
    figure = Figure((_WIDTH, sum(heights)), dpi=_DPI, layout="constrained")
    parts = list(figure.subfigures(len(heights), height_ratios=heights, squeeze=False)[:, 0])
    if bars:
        _bars(parts.pop(0).subplots(), bars)
    if curve:
        _curve(parts.pop(0), curve)
    canvas = FigureCanvasAgg(figure)
    with atomic_file(path) as file:
        canvas.print_png(file)


def _bars(panel: Any, rows: Sequence[Row]) -> None:
    positions = range(len(rows))
    times = [row.figures["times"] for row in rows]
    # Bars start at 1: systems faster than the first row of their step extend to the left.
    panel.barh(positions, [one - 1 for one in times], left=1, color=COLORS[0], height=0.7)
    for position, row in zip(positions, rows, strict=True):
        if len(row.ratios) > 1:
            panel.plot([min(row.ratios), max(row.ratios)], [position, position], color="black", linewidth=0.8)
        panel.annotate(
            f"{row.figures['times']:.2g}",
            (max(1, *row.ratios), position),
            (4, 0),
            textcoords="offset points",
            va="center",
        )
    panel.set_yticks(positions, [f"{row.step}: {row.system}" for row in rows], fontsize="small")
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.margins(x=0.12)
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_xlabel("time relative to the first row of the step (line: range of the rounds)")
    format_axis(panel, "x")


def _curve(part: Any, rows: Sequence[Row]) -> None:
    kinds = list(dict.fromkeys(_kind(row) for row in rows))
    # A color per system, a line style per step.
    steps, systems = (list(dict.fromkeys(names)) for names in zip(*kinds, strict=True))
    styles = {
        (step, system): (COLORS[systems.index(system)], MARKERS[steps.index(step)], DASHES[steps.index(step)])
        for step, system in kinds
    }
    counts = sorted({row.documents for row in rows if row.documents is not None})
    columns = (("s", "seconds"), ("ms", "ms per query"), ("MB", "peak memory (MB)"))
    panels = part.subplots(1, len(columns))
    lines = {}
    for panel, (column, label) in zip(panels, columns, strict=True):
        for kind, (color, marker, dashes) in styles.items():
            points = [(row.documents, row.figures.get(column, nan)) for row in rows if _kind(row) == kind]
            points = [point for point in points if not isnan(point[1])]
            if points:
                (lines[kind],) = panel.plot(
                    *zip(*points, strict=True), color=color, marker=marker, linestyle=dashes, markersize=4.5
                )
        panel.set_xscale("log")
        panel.set_xlabel("documents")
        panel.set_title(label, fontsize="medium")
        format_axis(panel, "x")
        # Ticks only at the measured sizes, because fives would overlap.
        panel.set_xticks(counts, [f"{count:,}" for count in counts])
    # Memory from zero, to show whether it is flat.
    panels[0].set_yscale("log")
    format_axis(panels[0], "y")
    for panel in panels[1:]:
        panel.set_ylim(bottom=0)
    names = [", ".join(kind) for kind in kinds]
    part.legend(
        [lines[kind] for kind in kinds], names, loc="outside lower center", ncols=4, frameon=False, fontsize="small"
    )


def _kind(row: Row) -> tuple[str, str]:
    return row.step.split()[0], row.system


def format_axis(panel: Any, axis: str) -> None:
    """Format a logarithmic axis with ticks at 1, 2 and 5 of each decade, as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    one = getattr(panel, f"{axis}axis")
    one.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    one.set_major_formatter(lambda number, _: f"{number:,.10g}")
    one.set_minor_formatter(NullFormatter())
    panel.grid(True, color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
