"""Pictures of the tables, as the paper draws them: measured solid, published dashed and hollow."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.records import BARS, CURVE, QUOTED, SCATTER, Picture, TableResult
from milco_pyserini.analysis.pictures import COLORS, GREY, GROUND, INK, STYLE, scale_axis

# The fields of a cell that are drawn.
MEASURED, PUBLISHED = KINDS = ("measured", "published")
DASHES = (0, (3.5, 2))
WIDTH, HEIGHT = 7.2, 4.2
# More rows of bars, or names of points, cannot be read.
MOST_BARS, MOST_NAMES = 24, 40


@dataclass(frozen=True)
class PlotPoint:
    """A point of a series. row: whose figures it shows. size: the figure that its area shows, if any."""

    x: float
    y: float
    row: str
    size: float | None = None


@dataclass(frozen=True)
class Series:
    """The points of a column from left to right, as measured and as published."""

    label: str
    measured: tuple[PlotPoint, ...]
    published: tuple[PlotPoint, ...]

    @property
    def points(self) -> tuple[PlotPoint, ...]:
        """All points, the measured ones last."""
        return self.published + self.measured


@rc_context(STYLE)
def draw(table: TableResult) -> Figure | None:
    """Return the picture of a table; None if it has none, or no figure to show in it."""
    if table.picture is None:
        return None
    kinds = {BARS: _draw_bars, CURVE: _draw_curves, SCATTER: _draw_scatter}
    return kinds[table.picture.kind](table, table.picture)


def to_png(figure: Figure) -> bytes:
    """Return the picture as PNG: the same bytes for the same figures."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=180, metadata={"Software": None})
    return file.getvalue()


@rc_context(STYLE)
def to_svg(figure: Figure) -> str:
    """Return the picture as an SVG document: the same text for the same figures."""
    file = io.StringIO()
    metadata: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=metadata)
    return file.getvalue()


def series_of(table: TableResult, x: str | None = None) -> list[Series]:
    """Return a series for each column that the picture shows, a point for each row.

    Args:
        x: Column of the x values (default: the rows are numbers). Published values serve for measured points too if
            none is measured: a share of the training data is a fact.
    """
    size = table.picture.size if table.picture else None

    def points(column: str, kind: str) -> tuple[PlotPoint, ...]:
        across = {row: float(row) for row in table.rows} if x is None else _values(table, x, kind)
        areas = {} if size is None else _values(table, size, kind)
        found = [
            PlotPoint(across[row], y, row, areas.get(row))
            for row in table.rows
            if row in across and (y := _value(table, row, column, kind)) is not None
        ]
        return tuple(sorted(found, key=lambda point: point.x))

    series = [Series(column, *(points(column, kind) for kind in KINDS)) for column in _shown(table)]
    return [one for one in series if one.points]


def without_quotes(table: TableResult) -> TableResult:
    """Return the table without rows and columns that are only quoted; all of it if everything is quoted."""
    keys = [key for key, cell in table.cells.items() if cell.verdict != QUOTED]
    if not keys:
        return table
    rows, columns = ({key[axis] for key in keys} for axis in (0, 1))
    return replace(
        table,
        rows=tuple(row for row in table.rows if row in rows),
        columns=tuple(column for column in table.columns if column in columns),
        cells={key: cell for key, cell in table.cells.items() if key[0] in rows and key[1] in columns},
    )


def _value(table: TableResult, row: str, column: str, kind: str) -> float | None:
    return getattr(table.cells.get((row, column)), kind, None)


def _values(table: TableResult, column: str, kind: str) -> dict[str, float]:
    for source in (kind, PUBLISHED):
        values = {row: value for row in table.rows if (value := _value(table, row, column, source)) is not None}
        if values:
            return values
    return {}


def _shown(table: TableResult) -> Sequence[str]:
    picture = table.picture or Picture(BARS)
    return picture.y or [column for column in table.columns if column not in (picture.x, picture.size, picture.cost)]


def _is_mean(column: str) -> bool:
    return column.lower().startswith("avg")


def _panels(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Any]]:
    figure = Figure((width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False, sharey=True)[0])


def _draw_curves(table: TableResult, picture: Picture) -> Figure | None:
    """A panel against the rows' numbers; one against their cost, if at least two were measured."""
    # Quoted curves would hide the others.
    table = without_quotes(table)
    panels_of = [(picture.x_label, series_of(table))]
    if picture.cost and sum(_value(table, row, picture.cost, MEASURED) is not None for row in table.rows) > 1:
        panels_of.append((picture.cost, series_of(table, picture.cost)))
    panels_of = [(label, series) for label, series in panels_of if series]
    if not panels_of:
        return None
    figure, panels = _panels(WIDTH * (1 if len(panels_of) == 1 else 1.4), HEIGHT, len(panels_of))
    columns = [one.label for one in panels_of[0][1]]
    # Of many curves the mean has a color, and the others are its background.
    colored = columns if len(columns) <= len(COLORS) else list(filter(_is_mean, columns)) or columns[:1]
    colors = dict(zip(colored, COLORS, strict=False))
    for panel, (label, series) in zip(panels, panels_of, strict=True):
        for one in sorted(series, key=lambda one: one.label in colors):
            color = colors.get(one.label)
            for points, dashes, face in ((one.published, DASHES, GROUND), (one.measured, "-", color)):
                strong = {"linewidth": 1.7, "marker": "o", "markersize": 5, "markerfacecolor": face, "color": color}
                style = strong if color else {"linewidth": 0.7, "alpha": 0.5, "color": GREY}
                panel.plot([point.x for point in points], [point.y for point in points], linestyle=dashes, **style)
        _label_axes(panel, label, picture.y_label if panel is panels[0] else "", series)
    others = [column for column in columns if column not in colors]
    _add_legend(figure, colors if len(columns) > 1 else {}, _kinds(panels_of[0][1]), others)
    return figure


def _draw_scatter(table: TableResult, picture: Picture) -> Figure | None:
    series = series_of(table, picture.x)
    if not series:
        return None
    figure, (panel,) = _panels(WIDTH, HEIGHT)
    colors = dict(zip((one.label for one in series), COLORS, strict=False))
    points_of = [point for one in series for point in one.points]
    largest = max(point.size or 0.0 for point in points_of)
    for one in series:
        color = colors[one.label]
        published = {point.row: point for point in one.published}
        for point in one.measured:
            if other := published.get(point.row):
                panel.plot([other.x, point.x], [other.y, point.y], color=color, linewidth=0.7, alpha=0.5, zorder=1)
        for points, is_measured in ((one.published, False), (one.measured, True)):
            panel.scatter(
                [point.x for point in points],
                [point.y for point in points],
                s=[34 if point.size is None or not largest else 30 + 670 * point.size / largest for point in points],
                facecolors=color if is_measured else "none",
                edgecolors=color,
                # A small ring of dashes would be two strokes.
                linestyles=[DASHES if largest and not is_measured else "-"],
                alpha=0.75 if is_measured else 1,
            )
        if one is series[0] and len({point.row for point in points_of}) <= MOST_NAMES:
            for point in {point.row: point for point in one.points}.values():
                panel.annotate(point.row, (point.x, point.y), (5, 4), textcoords="offset points", size=7, color=GREY)
    _label_axes(panel, picture.x_label, picture.y_label, series)
    panel.margins(0.08)
    _add_legend(figure, colors if len(series) > 1 else {}, _kinds(series), area=picture.size if largest else None)
    return figure


def _draw_bars(table: TableResult, picture: Picture) -> Figure | None:
    table = without_quotes(table)
    columns = list(_shown(table))

    def has(row: str, kinds: Sequence[str] = KINDS) -> bool:
        return any(_value(table, row, column, kind) is not None for column in columns for kind in kinds)

    rows = [row for row in table.rows if has(row)]
    if len(rows) > MOST_BARS:
        rows = ([row for row in rows if has(row, [MEASURED])] or rows)[:MOST_BARS]
    if not rows:
        return None
    if len(rows) > len(COLORS):
        columns = ([column for column in columns if _is_mean(column)] or columns)[:3]
    kinds = [kind for kind in KINDS if any(has(row, [kind]) for row in rows)]
    colors = dict(zip(rows, COLORS, strict=False))
    if len(columns) > 3:
        # A group for each column, a color for each row.
        figure, (panel,) = _panels(max(WIDTH, 1 + 0.45 * len(columns)), 3.4)
        width = 0.84 / len(rows)
        for number, row in enumerate(rows):
            for place, column in enumerate(columns):
                at = place + (number - (len(rows) - 1) / 2) * width
                _draw_bar(panel.bar, at, 0.86 * width, table, row, column, colors[row])
        panel.set_xticks(range(len(columns)), columns, color=INK, rotation=90 if max(map(len, columns)) > 6 else 0)
        panel.set(ylabel=picture.y_label, xlim=(-0.7, len(columns) - 0.3))
        panel.tick_params("x", length=0)
        panel.grid(axis="y")
        _add_legend(figure, colors if len(rows) > 1 else {}, kinds)
        return figure
    # A panel for each column, a bar for each row.
    figure, panels = _panels(WIDTH, 1.1 + 0.26 * len(rows), len(columns))
    for panel, column in zip(panels, columns, strict=True):
        for place, row in enumerate(rows):
            _draw_bar(panel.barh, place, 0.7, table, row, column, COLORS[0])
        label = picture.y_label if len(columns) == 1 and picture.y_label else column
        panel.set(xlabel=label, ylim=(len(rows) - 0.4, -0.6))
        panel.set_yticks(range(len(rows)), rows, color=INK)
        panel.tick_params("y", length=0)
        panel.grid(axis="x")
    _add_legend(figure, {}, kinds)
    return figure


def _draw_bar(
    bar: Callable[..., Any], at: float, width: float, table: TableResult, row: str, column: str, color: str
) -> None:
    measured, published = (_value(table, row, column, kind) for kind in KINDS)
    if measured is not None:
        bar(at, measured, width, color=color, linewidth=0)
    if published is not None:
        # An outline in the bar's own color would not be seen on it.
        edge = color if measured is None else INK
        bar(at, published, width, facecolor="none", edgecolor=edge, linestyle=DASHES, linewidth=0.9)


def _label_axes(panel: Any, x_label: str, y_label: str, series: Sequence[Series]) -> None:
    scale_axis(panel, [point.x for one in series for point in one.points])
    panel.grid()
    panel.set(xlabel=x_label, ylabel=y_label)


def _kinds(series: Sequence[Series]) -> list[str]:
    return [kind for kind in KINDS if any(getattr(one, kind) for one in series)]


def _add_legend(
    figure: Figure, colors: dict[str, str], kinds: Sequence[str], others: Sequence[str] = (), area: str | None = None
) -> None:
    """Name the colors; measured and published, if anything is published; and what the area of a point shows."""
    handles = [Line2D([], [], color=color, linewidth=3, label=label) for label, color in colors.items()]
    if others:
        label = others[0] if len(others) == 1 else f"{others[0]} … {others[-1]} ({len(others)})"
        handles.append(Line2D([], [], color=GREY, linewidth=0.7, label=label))
    color = GREY if colors else COLORS[0]
    for kind in kinds if PUBLISHED in kinds else ():
        style: dict[str, Any] = {"linestyle": DASHES, "markerfacecolor": GROUND} if kind == PUBLISHED else {}
        handles.append(Line2D([], [], color=color, marker="o", markersize=5, label=kind, **style))
    if area:
        hollow: dict[str, Any] = {"linestyle": "none", "marker": "o", "markerfacecolor": "none", "markersize": 9}
        handles.append(Line2D([], [], color=GREY, label=f"area: {area}", **hollow))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=5)
