"""A reproduction for a terminal: measured beside published, a line for each figure."""

import math
from collections.abc import Sequence

from milco_pyserini.reproduce.reasons import reasons
from milco_pyserini.reproduce.records import DONE, QUOTED, CellResult, Reproduction, TableResult

_HEADS = ("", "", "", "published", "measured", "", "")
_NOTHING = "-"
_REASONS = 5


def reproduction_text(reproduction: Reproduction, names: Sequence[str]) -> str:
    """The tables of these names, in their order; under each why what is not there could not be had."""
    tables = [table for table in reproduction.tables if table.name in names]
    return "\n".join(map(_table, tables))


def _table(table: TableResult) -> str:
    cells = [cell for cell in table.cells.values() if cell.verdict != QUOTED]
    lines = [_HEADS, *map(_line, cells)]
    if all(cell.published is None for cell in cells):
        lines = [(*line[:3], "", *line[4:]) for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [f"{table.title} ({table.name})"]
    for line in lines:
        words = [word.ljust(width) for word, width in zip(line[:3], widths[:3], strict=True)]
        figures = [word.rjust(width) for word, width in zip(line[3:6], widths[3:6], strict=True) if width]
        text.append(f"  {'  '.join([*words, *figures, line[6]])}".rstrip())
    return "\n".join([*text, *_reasons(cells), ""])


def _line(cell: CellResult) -> tuple[str, ...]:
    difference = cell.difference if cell.status == DONE else None
    sign = "" if difference is None else f"{difference:+.2f}"
    return (
        cell.row,
        cell.column,
        "" if cell.measure == cell.column else cell.measure,
        _figure(cell.published),
        _figure(cell.measured),
        sign,
        cell.verdict,
    )


def _figure(value: float | None) -> str:
    if value is None:
        return _NOTHING
    # Points have two digits behind the point, whole counts none, latencies under a millisecond four.
    if value == 0:
        return "0.00"
    digits = 4 if abs(value) < 1 else 2 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}" if math.isfinite(value) else _NOTHING


def _reasons(cells: Sequence[CellResult]) -> list[str]:
    """Each reason once, with how many cells have it; the first of many."""
    lines = [f"  {reason.verdict} ({len(reason.cells)}): {reason.text}" for reason in reasons(cells)]
    more = len(lines) - _REASONS
    return lines if more <= 0 else [*lines[:_REASONS], f"  and {more} more such reasons, in the cells' records"]
