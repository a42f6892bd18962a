"""Everything that is known in a directory, as tables: what was asked for now, and what was measured before."""

from collections.abc import Collection, Iterable
from datetime import date

from milco_pyserini import __version__
from milco_pyserini.eval.measured import processor
from milco_pyserini.eval.reproduction.cells import Cell, Key, Table
from milco_pyserini.eval.reproduction.groups import GROUPS, chosen_tables
from milco_pyserini.eval.reproduction.records import CellResult, Reproduction, TableResult, table_of
from milco_pyserini.eval.reproduction.roads import Roads
from milco_pyserini.eval.reproduction.runner import CELLS, Runner, combined, untried
from milco_pyserini.eval.reproduction.systems import SYSTEMS

TITLE = "MILCO's figures, measured again"


def assemble(roads: Roads, runner: Runner, chosen: Iterable[Table], encoder: str) -> Reproduction:
    """All tables with a cell that is chosen or recorded, in their order and that of the published ones.

    encoder: MILCO's checkpoint, as a person reads it.
    """
    asked = {cell.key: cell for table in chosen for cell in table.cells}
    tables = [table for table in _all_tables(roads) if _has_cells(runner, table) or _among(table, asked)]
    results: dict[Key, CellResult] = {}
    for table in tables:
        for cell in table.cells:
            known = runner.recorded(cell) if cell.steps or cell.missing else None
            if known is not None or (cell.key in asked and not cell.parts):
                results[cell.key] = known or untried(asked[cell.key])
    for table in tables:
        for cell in table.cells:
            # The mean over languages that were measured one by one is there although nobody asked for it.
            if cell.parts and (cell.key in asked or results.keys() >= set(cell.parts)):
                results[cell.key] = combined(cell, results)
    shown = [_shown(table, results) for table in tables]
    found = tuple(table for table in shown if table.cells)
    made = date.today().isoformat()
    return Reproduction(TITLE, encoder, processor(), __version__, made, found)


def _all_tables(roads: Roads) -> list[Table]:
    """Every table of every group, with all systems and columns; one that several groups have, once."""
    tables: dict[str, Table] = {}
    for group in GROUPS.values():
        for table in chosen_tables(group, roads, tuple(SYSTEMS), ()):
            tables.setdefault(table.name, table)
    return list(tables.values())


def _has_cells(runner: Runner, table: Table) -> bool:
    return (runner.directory / CELLS / table.name).is_dir()


def _among(table: Table, asked: Collection[Key]) -> bool:
    return any(cell.key in asked for cell in table.cells)


def _shown(table: Table, results: dict[Key, CellResult]) -> TableResult:
    rows = {cell.row for cell in table.cells if cell.key in results}
    cells = [results.get(cell.key) or untried(cell) for cell in table.cells if cell.key in results or _fact(cell, rows)]
    labels = {"x_label": table.x_label, "y_label": table.y_label, "x": table.x, "y": table.y, "size": table.size}
    return table_of(cells, table.name, table.title, table.caption, table.picture, **labels)


def _fact(cell: Cell, rows: Collection[str]) -> bool:
    """Whether a cell is a quoted fact of a row that has something else to show."""
    return cell.row in rows and not (cell.steps or cell.parts or cell.missing)
