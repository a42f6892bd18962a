"""Pictures of a table as the paper draws them: what is measured solid, what is published dashed and hollow.

An image of ours is light. On a page its colours are the page's own (inline_svg), so that it is dark where that is.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from milco_pyserini.analysis.sweep_figure import COLOURS
from milco_pyserini.reproduce.point_names import area, name_points
from milco_pyserini.reproduce.records import BARS, CURVE, SCATTER, TableResult
from milco_pyserini.reproduce.series import (
    Figures,
    Point,
    Series,
    asked_for,
    bar_columns,
    bar_rows,
    costs,
    curves,
    measured_in,
    published_in,
    scatter,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, LINE, GROUND = "#1b1b1b", "#5c5c5c", "#d9d9d9", "#ffffff"
_ON_THE_PAGE = {INK: "--ink", SOFT: "--soft", LINE: "--line", GROUND: "--ground"} | {
    colour.lower(): f"--series-{number}" for number, colour in enumerate(COLOURS)
}
_DASHES = (0, (3.5, 2))
_DPI = 180
_WIDE, _HIGH = 7.2, 4.2
# Of a page, for a point of a picture: its texts are then as large as the page's small ones.
_PIXELS = 1.42
# Any: matplotlib has a type of its own for the names of its settings.
_RC: Any = {
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.facecolor": GROUND,
    "figure.facecolor": GROUND,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "text.parse_math": False,
    # Text stays text: found by a search, shown in the page's font.
    "svg.fonttype": "none",
}
# So many curves have a colour each; of more, the mean's stands out and the others are its background.
_COLOURED = len(COLOURS)
# Points of more rows than these are not named.
_NAMED = 40
# A logarithmic axis shows what lies so far apart.
_FAR_APART = 20


def draw(table: TableResult) -> "Figure | None":
    """The picture of a table; None if it has none, or no figure to show in it."""
    kinds: dict[str, Callable[[TableResult], Figure | None]] = {BARS: _bars, CURVE: _curves, SCATTER: _scatter}
    if table.picture is None:
        return None
    from matplotlib import rc_context

    with rc_context(_RC):
        # Points of the paper's other rows stand among ours; its other bars and curves would hide them.
        return kinds[table.picture](table if table.picture == SCATTER else asked_for(table))


def png(figure: "Figure") -> bytes:
    """The picture as PNG, the same bytes for the same figures."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    return file.getvalue()


def svg(figure: "Figure", name: str) -> str:
    """The picture as an SVG document, the same for the same figures. name: goes into the ids of its parts."""
    from matplotlib import rc_context

    file = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({**_RC, "svg.hashsalt": name}):
        figure.savefig(file, format="svg", metadata=nothing)
    return file.getvalue()


def inline_svg(document: str, name: str, label: str) -> str:
    """An SVG document of ours as an element of an HTML page: the page's colours and font, ids that begin with name.

    label: what the picture shows, for those who do not see it.
    """
    element = document[document.index("<svg") :]
    head, rest = element.split(">", 1)
    box = head.split('viewBox="')[1].split('"')[0]
    widest = f"{float(box.split()[2]) * _PIXELS:.0f}px"
    rest = re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda match: _page_colour(match[0]), rest)
    rest = re.sub(r" font-family: [^;\"]*;", "", rest)
    # A style within a page holds for all of it.
    rest = re.sub(r"<style.*?</style>", "", rest, flags=re.DOTALL)
    rest = re.sub(r'\bid="', f'id="{escape(name)}-', rest)
    rest = re.sub(r"(url\(|href=\")#", rf"\g<1>#{escape(name)}-", rest)
    return f'<svg viewBox="{box}" style="max-width:{widest}" role="img" aria-label="{escape(label)}">{rest.strip()}'


def _page_colour(colour: str) -> str:
    return f"var({_ON_THE_PAGE[colour]})" if colour in _ON_THE_PAGE else colour


def _figure(width: float, height: float, columns: int = 1) -> tuple["Figure", list[Any]]:
    # Not through pyplot, which would look for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(1, columns, squeeze=False, sharey=True)[0])
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_axisbelow(True)
    return figure, panels


def _curves(table: TableResult) -> "Figure | None":
    """A panel against what the curves' numbers are, and one against each column that says what they cost."""
    tables = [table, *(replace(table, x=column, x_label=column) for column in costs(table))]
    drawn = [(one, found) for one in tables if (found := curves(one))]
    if not drawn:
        return None
    figure, panels = _figure(_WIDE if len(drawn) == 1 else 1.4 * _WIDE, _HIGH, len(drawn))
    for panel, (one, found) in zip(panels, drawn, strict=True):
        _panel_of_curves(panel, one, found)
        panel.set(ylabel=table.y_label if panel is panels[0] else "")
    first = drawn[0][1]
    coloured, faint = _split(first)
    _legend(figure, _colours(coloured) if len(first) > 1 else {}, [series.label for series in faint], first)
    # Names come last: everything else has its place then.
    for panel, (one, found) in zip(panels, drawn, strict=True):
        if one.x is not None:
            name_points(figure, panel, _split(found)[0], 0.0, SOFT)
    return figure


def _panel_of_curves(panel: Any, table: TableResult, found: Sequence[Series]) -> None:
    coloured, faint = _split(found)
    for series in faint:
        _faint(panel, series)
    for label, colour in _colours(coloured).items():
        _line(panel, next(series for series in coloured if series.label == label), colour)
    _axes(panel, table, [point for series in found for point in (*series.published, *series.measured)])


def _split(found: Sequence[Series]) -> tuple[list[Series], list[Series]]:
    """The series that have a colour, and those that are drawn faintly behind them."""
    if len(found) <= _COLOURED:
        return list(found), []
    coloured = [series for series in found if series.is_mean] or [found[0]]
    return coloured, [series for series in found if series not in coloured]


def _colours(found: Sequence[Series]) -> dict[str, str]:
    return {series.label: COLOURS[number % len(COLOURS)] for number, series in enumerate(found)}


def _line(panel: Any, series: Series, colour: str) -> None:
    for points, dashes, face in ((series.published, _DASHES, GROUND), (series.measured, "-", colour)):
        panel.plot(
            [point.x for point in points],
            [point.y for point in points],
            color=colour,
            linestyle=dashes,
            linewidth=1.7,
            marker="o",
            markersize=5,
            markerfacecolor=face,
        )


def _faint(panel: Any, series: Series) -> None:
    for points, dashes in ((series.published, _DASHES), (series.measured, "-")):
        panel.plot(
            [point.x for point in points],
            [point.y for point in points],
            color=SOFT,
            linestyle=dashes,
            lw=0.7,
            alpha=0.5,
        )


def _scatter(table: TableResult) -> "Figure | None":
    found = scatter(table)
    if not found:
        return None
    figure, (panel,) = _figure(_WIDE, _HIGH)
    colours = _colours(found)
    points = [point for series in found for point in (*series.published, *series.measured)]
    most = max((point.size or 0.0 for point in points), default=0.0)
    for series in found:
        _cloud(panel, series, colours[series.label], most)
    _axes(panel, table, points)
    panel.margins(0.08)
    _legend(figure, colours if len(found) > 1 else {}, [], found, str(table.size) if most else "")
    if len({point.label for point in points}) <= _NAMED:
        name_points(figure, panel, found, most, SOFT)
    return figure


def _cloud(panel: Any, series: Series, colour: str, most: float) -> None:
    published = {point.label: point for point in series.published}
    for point in series.measured:
        if point.label in published:
            other = published[point.label]
            panel.plot([other.x, point.x], [other.y, point.y], color=colour, linewidth=0.7, alpha=0.5, zorder=1)
    for points, dashes, face in ((series.published, _DASHES, "none"), (series.measured, "-", colour)):
        panel.scatter(
            [point.x for point in points],
            [point.y for point in points],
            s=[area(point, most) for point in points],
            facecolors=face,
            edgecolors=colour,
            # A ring so small would be two strokes if it were dashed.
            linestyles=[dashes if most else "-"],
            alpha=0.75 if face == colour else 1,
            zorder=2,
        )


def _axes(panel: Any, table: TableResult, points: Sequence[Point]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    across = [point.x for point in points]
    if min(across) > 0 and max(across) >= _FAR_APART * min(across):
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(lambda number, _: f"{number:,.10g}")
    panel.grid(True, color=LINE, linewidth=0.6)
    panel.set(xlabel=table.x_label, ylabel=table.y_label)


def _bars(table: TableResult) -> "Figure | None":
    rows = bar_rows(table)
    if not rows:
        return None
    columns = bar_columns(table, len(rows), _COLOURED)
    if len(columns) > 3:
        return _bars_of_columns(table, rows, columns)
    return _bars_of_rows(table, rows, columns)


def _bars_of_rows(table: TableResult, rows: Sequence[str], columns: Sequence[str]) -> "Figure":
    """A panel for each column, a bar for each row."""
    figure, panels = _figure(_WIDE, 1.1 + 0.26 * len(rows), len(columns))
    for panel, column in zip(panels, columns, strict=True):
        for place, row in enumerate(rows):
            _bar(panel.barh, place, 0.7, published_in(table)(row, column), measured_in(table)(row, column), COLOURS[0])
        panel.set(xlabel=table.y_label if len(columns) == 1 and table.y_label else column, ylim=(len(rows) - 0.4, -0.6))
        panel.set_yticks(range(len(rows)), rows, color=INK)
        panel.tick_params("y", length=0)
        panel.grid(True, axis="x", color=LINE, linewidth=0.6)
    _legend_of_bars(figure, table, {}, rows, columns)
    return figure


def _bars_of_columns(table: TableResult, rows: Sequence[str], columns: Sequence[str]) -> "Figure":
    """A group for each column, a colour for each row."""
    colours = dict(zip(rows, COLOURS, strict=False))
    figure, (panel,) = _figure(max(_WIDE, 1 + 0.45 * len(columns)), 3.4)
    width = 0.84 / len(colours)
    for number, (row, colour) in enumerate(colours.items()):
        for place, column in enumerate(columns):
            at = place + (number - (len(colours) - 1) / 2) * width
            _bar(panel.bar, at, 0.86 * width, published_in(table)(row, column), measured_in(table)(row, column), colour)
    panel.set_xticks(range(len(columns)), columns, color=INK, rotation=90 if max(map(len, columns)) > 6 else 0)
    panel.tick_params("x", length=0)
    panel.set(xlabel=table.x_label, ylabel=table.y_label, xlim=(-0.7, len(columns) - 0.3))
    panel.grid(True, axis="y", color=LINE, linewidth=0.6)
    _legend_of_bars(figure, table, colours, rows, columns)
    return figure


def _bar(
    bar: Callable[..., Any], at: float, width: float, published: float | None, measured: float | None, colour: str
) -> None:
    if measured is not None:
        bar(at, measured, width, color=colour, linewidth=0)
    if published is not None:
        # In ink over a bar, which would swallow an outline of its own colour.
        edge = INK if measured is not None else colour
        bar(at, published, width, facecolor="none", edgecolor=edge, linestyle=_DASHES, linewidth=0.9)


def _legend_of_bars(
    figure: "Figure", table: TableResult, colours: dict[str, str], rows: Sequence[str], columns: Sequence[str]
) -> None:
    def holds(figures: Figures) -> bool:
        return any(figures(row, column) is not None for row in rows for column in columns)

    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=row) for row, colour in colours.items()] if len(colours) > 1 else []
    # What is all measured needs no word for it.
    if holds(published_in(table)):
        if holds(measured_in(table)):
            handles.append(Patch(facecolor=SOFT if len(colours) > 1 else COLOURS[0], label="measured"))
        handles.append(Patch(facecolor="none", edgecolor=INK, linestyle=_DASHES, label="published"))
    _place_legend(figure, handles)


def _legend(
    figure: "Figure", colours: dict[str, str], faint: Sequence[str], found: Sequence[Series], area_of: str = ""
) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, linewidth=3, label=label) for label, colour in colours.items()]
    if faint:
        others = faint[0] if len(faint) == 1 else f"{faint[0]} … {faint[-1]}, {len(faint)} in all"
        handles.append(Line2D([], [], color=SOFT, linewidth=0.7, label=others))
    colour = SOFT if len(colours) > 1 else COLOURS[0]
    if any(series.published for series in found):
        if any(series.measured for series in found):
            handles.append(Line2D([], [], color=colour, marker="o", markersize=5, label="measured"))
        handles.append(
            Line2D([], [], color=colour, linestyle=_DASHES, marker="o", mfc=GROUND, markersize=5, label="published")
        )
    if area_of:
        handles.append(
            Line2D([], [], color=SOFT, linestyle="none", marker="o", mfc="none", markersize=9, label=f"area: {area_of}")
        )
    _place_legend(figure, handles)


def _place_legend(figure: "Figure", handles: Sequence[Any]) -> None:
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
