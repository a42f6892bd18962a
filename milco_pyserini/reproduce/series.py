"""What the picture of a table shows: its figures as series of points, published and measured. Nothing is drawn here."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from milco_pyserini.reproduce.records import CURVE, QUOTED, TableResult

# "10", "0.50", "k=10", "top-k 10", "95%": a label that is a number of something; "M3-Dense" and "Qwen3 8B" are none.
_NUMBER = re.compile(r"(?:[^\W\d][\w-]*?\s*[=:]?\s*)?(-?\d+(?:\.\d+)?)\s*%?")
_MEAN = re.compile(r"(avg|average|mean)\b", re.IGNORECASE)
# Bars of so many rows are as much as one picture can hold.
_ROWS = 24

# The figure that a table has at (row, column), if it has one.
Figures = Callable[[str, str], float | None]


@dataclass(frozen=True)
class Point:
    """label: the row or the column that it stands for. size: what its area says, where it says something."""

    x: float
    y: float
    label: str
    size: float | None = None


@dataclass(frozen=True)
class Series:
    """The points of one curve or colour, as published and as measured; either may be empty."""

    label: str
    published: tuple[Point, ...]
    measured: tuple[Point, ...]

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean of the others, as its label says."""
        return _MEAN.match(self.label) is not None


def asked_for(table: TableResult) -> TableResult:
    """The rows and the columns in which something was to be measured: what the paper's table holds besides is left out.

    The whole table where nothing was.
    """
    cells = {key for key, cell in table.cells.items() if cell.verdict != QUOTED}
    if not cells:
        return table
    rows, columns = ({key[place] for key in cells} for place in (0, 1))
    return replace(
        table,
        rows=tuple(row for row in table.rows if row in rows),
        columns=tuple(column for column in table.columns if column in columns),
        cells={key: cell for key, cell in table.cells.items() if key[0] in rows and key[1] in columns},
    )


def published_in(table: TableResult) -> Figures:
    """The published figures of a table."""
    return lambda row, column: cell.published if (cell := table.cells.get((row, column))) else None


def measured_in(table: TableResult) -> Figures:
    """The measured figures of a table."""
    return lambda row, column: cell.measured if (cell := table.cells.get((row, column))) else None


def curves(table: TableResult) -> list[Series]:
    """The curves of a table, each with its points from left to right; those without a point are left out.

    With table.x, every row is a point of each column's curve. Otherwise the rows or the columns are numbers, and the
    others are the curves. Empty if neither are.
    """
    if table.x is not None:
        return scatter(table)
    if down := _numbers(table.rows):
        found = [_curve(table, column, {(row, column): x for row, x in down.items()}) for column in _shown(table)]
    else:
        along = _numbers(table.columns)
        found = [_curve(table, row, {(row, column): x for column, x in along.items()}) for row in table.rows]
    return list(filter(_filled, found))


def numbered(table: TableResult) -> bool:
    """Whether the rows are numbers of what x_label says."""
    return table.picture == CURVE and table.x is None and bool(_numbers(table.rows))


def costs(table: TableResult) -> list[str]:
    """Columns that the curves of a table can be drawn against, too: figures of its rows, such as the terms left."""
    if not (table.y and numbered(table)):
        return []
    others = [column for column in table.columns if column not in table.y]
    return [column for column in others if len(_figures_of(table, column, measured_in(table))) >= 2]


def scatter(table: TableResult) -> list[Series]:
    """A series for each of the columns table.y, a point for each row, from left to right: x is the figure of table.x.

    Where that column was only published, it holds for what was measured, too: a share of the training data is a fact,
    not a result.
    """
    return list(filter(_filled, (_scattered(table, column) for column in _shown(table))))


def bar_rows(table: TableResult) -> list[str]:
    """The rows that bars show: those with a figure; of more than 24 those that are measured, or the first of them."""
    filled = [row for row in table.rows if any(_in_row(table, row, published_in(table), measured_in(table)))]
    if len(filled) <= _ROWS:
        return filled
    return ([row for row in filled if any(_in_row(table, row, measured_in(table)))] or filled)[:_ROWS]


def bar_columns(table: TableResult, rows: int, most: int) -> list[str]:
    """The columns that bars of so many rows show: those that the table names for it, or all.

    Of more rows than most, whose groups of bars nobody could read, the means over the others, or the first three.
    """
    columns = list(_shown(table))
    if rows <= most:
        return columns
    return ([column for column in columns if _MEAN.match(column)] or columns)[:3]


def _shown(table: TableResult) -> Sequence[str]:
    return table.y or tuple(column for column in table.columns if column not in (table.x, table.size))


def _filled(series: Series) -> bool:
    return bool(series.published or series.measured)


def _in_row(table: TableResult, row: str, *kinds: Figures) -> Iterator[bool]:
    return (kind(row, column) is not None for kind in kinds for column in _shown(table))


def _numbers(labels: Sequence[str]) -> dict[str, float]:
    """Each label that is a number, by its number; empty if they are too few to be an axis."""
    found = {label: float(match[1]) for label in labels if (match := _NUMBER.fullmatch(label.strip()))}
    # A full index or an average may stand among them.
    enough = len(found) >= 2 and 2 * len(found) > len(labels)
    return dict(sorted(found.items(), key=lambda item: item[1])) if enough else {}


def _curve(table: TableResult, label: str, places: Mapping[tuple[str, str], float]) -> Series:
    """places: the cells of a curve, and where they stand on its axis."""

    def points(figures: Figures) -> tuple[Point, ...]:
        found = ((row, column, x, figures(row, column)) for (row, column), x in places.items())
        return tuple(Point(x, y, column if row == label else row) for row, column, x, y in found if y is not None)

    return Series(label, points(published_in(table)), points(measured_in(table)))


def _scattered(table: TableResult, column: str) -> Series:
    def points(figures: Figures) -> tuple[Point, ...]:
        across, area = _figures_of(table, table.x, figures), _figures_of(table, table.size, figures)
        found = (Point(across[row], y, row, area.get(row)) for row in across if (y := figures(row, column)) is not None)
        return tuple(sorted(found, key=lambda point: point.x))

    return Series(column, points(published_in(table)), points(measured_in(table)))


def _figures_of(table: TableResult, column: str | None, figures: Figures) -> dict[str, float]:
    """A column's figures by row. What was only published holds for what was measured, but not the other way round."""
    if column is None:
        return {}
    for kind in (figures, published_in(table)):
        found = {row: value for row in table.rows if (value := kind(row, column)) is not None}
        if found:
            return found
    return {}
