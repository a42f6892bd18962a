"""Results of a reproduction, cell by cell: what is kept as JSON and shown on the page.

Figures are in the units of the published table: points of 100 for effectiveness, milliseconds for latency, terms.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from milco_pyserini.errors import MilcoError

DONE, UNREACHABLE, FAILED, OPEN = STATUSES = ("done", "unreachable", "failed", "open")
BARS, CURVE, SCATTER = PICTURES = ("bars", "curve", "scatter")

# Points of 100 between measured and published up to which a cell counts as reproduced, or as near.
REPRODUCED_WITHIN = 0.5
NEAR_WITHIN = 2.0
REPRODUCED, NEAR, DIFFERS, UNPUBLISHED, QUOTED = "reproduced", "near", "differs", "measured", "quoted"
# Why a figure need not agree with the published one, besides the caveats of conditions.yaml.
ANOTHER_MODEL = "another model"


@dataclass(frozen=True)
class CellResult:
    """A figure of a table, measured and published, in the table's units (None if there is none).

    Args:
        status: "done", "unreachable" (its data cannot be fetched), "failed" (a step raised an error), or "open" (not
            tried yet). reason has the error.
        commands: The command lines that measure it, in order.
        run: The TREC run, relative to the output directory.
        seconds: Time of the steps of this cell, without outputs that existed before.
        caveat: Why the figure need not agree with the published one, such as "another model"; "" for no reason.
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
    caveat: str = ""

    @property
    def difference(self) -> float | None:
        """Measured minus published."""
        if self.measured is None or self.published is None:
            return None
        return self.measured - self.published

    @property
    def verdict(self) -> str:
        """The status of a cell that is not done; else what its difference amounts to.

        "reproduced" up to 0.5 points, "near" up to 2, "differs" beyond; the caveat if there is one. "measured" if
        nothing is published, "quoted" if a published figure is not measured.
        """
        if self.status != DONE:
            return self.status
        if self.difference is None:
            return QUOTED if self.measured is None else UNPUBLISHED
        if self.caveat:
            return self.caveat
        # A published figure has one or two decimals: 0.5 must not become 0.50000001 in binary.
        apart = round(abs(self.difference), 6)
        return REPRODUCED if apart <= REPRODUCED_WITHIN else NEAR if apart <= NEAR_WITHIN else DIFFERS


@dataclass(frozen=True)
class Picture:
    """How a table is drawn.

    Args:
        kind: "bars", "curve" (the rows are numbers of what x_label names) or "scatter" (the rows are points).
        x: Scatter: the column on the x axis.
        y: Columns that are drawn; all but x and size if empty.
        size: Scatter: the column that gives the area of a point.
        cost: Curve: a column to draw the curves against in a second panel, such as "terms".
    """

    kind: str
    x_label: str = ""
    y_label: str = ""
    x: str | None = None
    y: tuple[str, ...] = ()
    size: str | None = None
    cost: str | None = None


@dataclass(frozen=True)
class TableResult:
    """A table of results. cells: (row, column) -> cell; pairs that the published table leaves empty are missing."""

    name: str
    title: str
    caption: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], CellResult]
    picture: Picture | None = None

    @classmethod
    def of(
        cls, cells: Iterable[CellResult], name: str, title: str, caption: str, picture: Picture | None = None
    ) -> "TableResult":
        """Return the table of cells, its rows and columns in the order of their first cell."""
        found = {(cell.row, cell.column): cell for cell in cells}
        rows, columns = (tuple(dict.fromkeys(key[axis] for key in found)) for axis in (0, 1))
        return cls(name, title, caption, rows, columns, found, picture)


@dataclass(frozen=True)
class Reproduction:
    """All tables of an output directory. made: ISO date. version: of milco_pyserini."""

    title: str
    encoder: str
    processor: str
    version: str
    made: str
    tables: tuple[TableResult, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object; the cells of a table are a list."""
        tables = [vars(table) | {"cells": tuple(table.cells.values())} for table in self.tables]
        return vars(self) | {"tables": tables}


def cell_from_json(record: Mapping[str, Any]) -> CellResult:
    """Return the cell of a record that asdict() made. Raises MilcoError if it is not one."""
    values = dict(record)
    if "unlike" in values:
        # Version 0.1.
        values["caveat"] = values.pop("unlike")
    wanted = {field.name for field in fields(CellResult)}
    if values.keys() != wanted:
        raise MilcoError(f"record of a cell: unexpected or missing fields {', '.join(sorted(wanted ^ values.keys()))}")
    if values["status"] not in STATUSES:
        raise MilcoError(f"record of a cell: status {values['status']!r} is not one of {', '.join(STATUSES)}")
    return CellResult(**{**values, "commands": tuple(values["commands"])})
