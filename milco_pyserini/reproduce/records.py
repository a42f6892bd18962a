"""What a reproduction found, cell by cell, as it is kept in JSON and drawn on the page.

Figures are in the units of the published table: points of 100 for effectiveness, milliseconds for latency, terms.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from milco_pyserini.errors import MilcoError

DONE, UNREACHABLE, FAILED, OPEN = STATUSES = ("done", "unreachable", "failed", "open")
BARS, CURVE, SCATTER = PICTURES = ("bars", "curve", "scatter")

# Points of 100 between measured and published, up to which a cell counts as reproduced, or as near to it.
REPRODUCED_WITHIN = 0.5
NEAR_WITHIN = 2.0
REPRODUCED, NEAR, DIFFERS, UNPUBLISHED, QUOTED = "reproduced", "near", "differs", "measured", "quoted"
# Why a figure need not be the published one; a cell's unlike is one of these, or "". Of another collection there is no
# published figure: what was measured on one is not compared with it.
ANOTHER_MODEL, ANOTHER_MACHINE, ANOTHER_TOKENIZER = "another model", "another machine", "another tokenizer"


@dataclass(frozen=True)
class CellResult:
    """One figure of a table. published, measured: in the table's units; None where there is none.

    status: "done", "unreachable" (its data cannot be had: reason says why), "failed" (a step ended in an error) or
    "open" (not tried yet). commands: as a person types them, in their order. run: the TREC run, a path from the output
    directory. seconds: what the commands of this cell took when they ran, without what stood there before.
    unlike: what differs by design from how the published figure was measured, such as "another model"; "" for nothing.
    """

    table: str
    row: str
    column: str
    measure: str
    published: float | None
    measured: float | None
    status: str = OPEN
    reason: str = ""
    commands: tuple[str, ...] = ()
    run: str | None = None
    seconds: float | None = None
    unlike: str = ""

    @property
    def difference(self) -> float | None:
        """Measured minus published; None where one of them is missing."""
        if self.measured is None or self.published is None:
            return None
        return self.measured - self.published

    @property
    def verdict(self) -> str:
        """In a word or two: by the difference of a cell that is done, its status otherwise.

        Up to 0.5 points: "reproduced"; up to 2: "near"; else "differs". Where something differs by design, that:
        "another model". "measured" where nothing is published, "quoted" where a published fact is nothing to measure.
        """
        if self.status != DONE:
            return self.status
        if self.difference is None:
            return QUOTED if self.measured is None else UNPUBLISHED
        if self.unlike:
            return self.unlike
        # A published figure has one or two decimals: 0.5 apart must not fail by what binary fractions cannot hold.
        apart = round(abs(self.difference), 6)
        return REPRODUCED if apart <= REPRODUCED_WITHIN else NEAR if apart <= NEAR_WITHIN else DIFFERS


@dataclass(frozen=True)
class TableResult:
    """One table. cells: (row, column) -> cell; a pair that the published table leaves empty may be missing.

    picture: "bars", "curve" (columns that are numbers, or rows: x_label says which quantity), "scatter" or None.
    x, y: of a picture of cells of one row: the columns on its axes; size: the column whose figure is a point's area.
    """

    name: str
    title: str
    caption: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], CellResult]
    picture: str | None = None
    x_label: str = ""
    y_label: str = ""
    x: str | None = None
    y: tuple[str, ...] = ()
    size: str | None = None

    def counts(self) -> dict[str, int]:
        """How many cells have each verdict, in the order of their first."""
        found: dict[str, int] = {}
        for cell in self.cells.values():
            found[cell.verdict] = found.get(cell.verdict, 0) + 1
        return found


@dataclass(frozen=True)
class Reproduction:
    """All tables of an output directory. made: ISO date of the page. version: of milco_pyserini."""

    title: str
    encoder: str
    processor: str
    version: str
    made: str
    tables: tuple[TableResult, ...]


def cell_to_json(cell: CellResult) -> dict[str, Any]:
    """A cell as JSON takes it; cell_from_json gives it back."""
    return {field.name: getattr(cell, field.name) for field in fields(cell)} | {"commands": list(cell.commands)}


def cell_from_json(record: Mapping[str, Any]) -> CellResult:
    """A cell from cell_to_json. Raises MilcoError for a record that is none."""
    _check(CellResult, record)
    if record["status"] not in STATUSES:
        raise MilcoError(f"cell record: status {record['status']!r} is none of {', '.join(STATUSES)}")
    return CellResult(**{**record, "commands": tuple(record["commands"])})


def to_json(reproduction: Reproduction) -> dict[str, Any]:
    """A reproduction as JSON takes it; from_json gives it back."""
    return {**_plain(reproduction), "tables": [_table_to_json(table) for table in reproduction.tables]}


def from_json(record: Mapping[str, Any]) -> Reproduction:
    """A reproduction from to_json. Raises MilcoError for a record that is none."""
    _check(Reproduction, record)
    return Reproduction(**{**record, "tables": tuple(map(_table_from_json, record["tables"]))})


def table_of(
    cells: Iterable[CellResult], name: str, title: str, caption: str, picture: str | None = None, **labels: Any
) -> TableResult:
    """A table of cells, its rows and columns in the order of their first cell. labels: TableResult's other fields."""
    found = {(cell.row, cell.column): cell for cell in cells}
    rows = tuple(dict.fromkeys(row for row, _ in found))
    columns = tuple(dict.fromkeys(column for _, column in found))
    return TableResult(name, title, caption, rows, columns, MappingProxyType(found), picture, **labels)


def _plain(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _table_to_json(table: TableResult) -> dict[str, Any]:
    lists = {"rows": list(table.rows), "columns": list(table.columns), "y": list(table.y)}
    return {**_plain(table), **lists, "cells": [cell_to_json(cell) for cell in table.cells.values()]}


def _table_from_json(record: Mapping[str, Any]) -> TableResult:
    _check(TableResult, record)
    cells = {(cell.row, cell.column): cell for cell in map(cell_from_json, record["cells"])}
    tuples = {name: tuple(record[name]) for name in ("rows", "columns", "y")}
    return TableResult(**{**record, **tuples, "cells": MappingProxyType(cells)})


def _check(kind: type, record: Mapping[str, Any]) -> None:
    wanted = {field.name for field in fields(kind)}
    if record.keys() != wanted:
        odd = ", ".join(sorted(wanted ^ record.keys()))
        raise MilcoError(f"{kind.__name__} record: {odd} missing or too many; was another version at work?")
