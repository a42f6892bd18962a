"""The picture of a sweep: effectiveness against terms per document, index size and latency.

A curve is a kind of rule with an engine. Its colour is the rule, one of Okabe and Ito's palette, which those who do not
tell red from green tell apart; its marker and dashes are the engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.io.files import atomic_file

if TYPE_CHECKING:
    from milco_pyserini.analysis.measured import Rows
    from milco_pyserini.analysis.systems import System
    from milco_pyserini.analysis.workbench import Point

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "^", "s", "D", "v", "P")
DASHES = ("-", "--", ":", "-.")
_GREY = "#555555"
_PANEL = 3.4
_DPI = 160

_AXES: tuple[tuple[str, "Callable[[Point], float]"], ...] = (
    ("terms per document", lambda point: point.terms or 0),
    ("index size (MB)", lambda point: point.size / 1e6),
    ("latency (ms per query, one core)", lambda point: point.mean_ms),
)


@dataclass(frozen=True)
class Curve:
    """One kind of rule with one engine. points: with their figures, the most terms first, the unpruned among them."""

    method: str
    engine: str
    points: "Rows"


def curves(systems: "Sequence[System]", rows: "Rows") -> list[Curve]:
    """Rows, in the order of systems, as curves; the unpruned vectors begin the curves of their engine."""
    from milco_pyserini.analysis.systems import UNPRUNED

    grouped: dict[tuple[str, str], list] = {}
    for system, row in zip(systems, rows, strict=True):
        grouped.setdefault((system.cut.method, str(system.choice)), []).append(row)
    whole = {engine: group for (method, engine), group in grouped.items() if method == UNPRUNED}
    pruned = {key: group for key, group in grouped.items() if key[0] != UNPRUNED} or grouped
    return [
        Curve(method, engine, sorted(_joined(group, whole.get(engine, [])), key=lambda row: -(row[0].terms or 0)))
        for (method, engine), group in pruned.items()
    ]


def _joined(group: list, whole: list) -> list:
    return group if group is whole else [*whole, *group]


def draw(path: Path, systems: "Sequence[System]", rows: "Rows") -> None:
    """Write the picture as PNG. systems: what each row was measured of."""
    # Not through pyplot, which would look for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = curves(systems, rows)
    measures = list(rows[0][1])
    figure = Figure((_PANEL * len(_AXES), _PANEL * len(measures) + 0.6), dpi=_DPI, layout="constrained")
    panels = figure.subplots(len(measures), len(_AXES), squeeze=False, sharey="row")
    for measure, line in zip(measures, panels, strict=True):
        for (label, value), panel in zip(_AXES, line, strict=True):
            _panel(panel, found, measure, value)
            panel.set_xlabel(label)
        line[0].set_ylabel(measure)
    figure.legend(handles=_legend(found), loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    canvas = FigureCanvasAgg(figure)
    with atomic_file(path) as file:
        canvas.print_png(file)


def _panel(panel: Any, found: Sequence[Curve], measure: str, value: "Callable[[Point], float]") -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    styles = _styles(found)
    for curve in found:
        across = [value(point) for point, _ in curve.points]
        up = [figures[measure] for _, figures in curve.points]
        colour, marker, dashes = styles[curve.method, curve.engine]
        panel.plot(across, up, color=colour, marker=marker, linestyle=dashes, markersize=4.5, linewidth=1.3)
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(lambda number, _: f"{number:g}")
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(True, color="#dddddd", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _styles(found: Sequence[Curve]) -> dict[tuple[str, str], tuple[str, str, Any]]:
    """Colour, marker and dashes of each method and engine; beyond the palette they come again."""
    methods = list(dict.fromkeys(curve.method for curve in found))
    engines = list(dict.fromkeys(curve.engine for curve in found))
    return {
        (method, engine): (COLOURS[i % len(COLOURS)], MARKERS[j % len(MARKERS)], DASHES[j % len(DASHES)])
        for i, method in enumerate(methods)
        for j, engine in enumerate(engines)
    }


def _legend(found: Sequence[Curve]) -> list[Any]:
    from matplotlib.lines import Line2D

    styles = _styles(found)
    colours = {method: colour for (method, _), (colour, _, _) in styles.items()}
    shapes = {engine: (marker, dashes) for (_, engine), (_, marker, dashes) in styles.items()}
    return [
        *(Line2D([], [], color=colour, linewidth=3, label=method) for method, colour in colours.items()),
        *(
            Line2D([], [], color=_GREY, marker=marker, linestyle=dashes, markersize=4.5, label=engine)
            for engine, (marker, dashes) in shapes.items()
        ),
    ]
