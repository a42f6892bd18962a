"""Everything that is known in a directory, as tables: what was asked for now, what was measured before, and the rest of
the paper's tables beside it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import date

from milco_pyserini import __version__
from milco_pyserini.analysis.measured import processor
from milco_pyserini.reproduce.cells import Key, Table
from milco_pyserini.reproduce.groups import GROUPS, chosen_tables
from milco_pyserini.reproduce.records import CellResult, Reproduction, TableResult, table_of
from milco_pyserini.reproduce.roads import Roads
from milco_pyserini.reproduce.runner import CELLS, Runner, combined, quoted, untried
from milco_pyserini.reproduce.systems import SYSTEMS

TITLE = "MILCO's figures, measured again"
NOT_ASKED_FOR = "not asked for"
_BY_TITLE = {system.title: name for name, system in SYSTEMS.items()}


def assemble(roads: Roads, runner: Runner, chosen: Iterable[Table], encoder: str) -> Reproduction:
    """All tables with a cell that is chosen or recorded, in their order and that of the published ones.

    Each is whole: what else the paper's table holds is quoted in it. encoder: MILCO's checkpoint, as a person reads it.
    """
    asked = {cell.key: cell for table in chosen for cell in table.cells if not cell.is_fact}
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
    found = tuple(_shown(table, results) for table in tables if _among(table, results))
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


def _shown(table: Table, results: Mapping[Key, CellResult]) -> TableResult:
    """The rows with a result first, then those that are only quoted; the columns in the table's order."""
    rows = {cell.row for cell in table.cells if cell.key in results}
    twins = _twins(table, rows)
    # A mean lacks what its cells lack.
    lacking = {cell.row: cell.missing for cell in table.cells if cell.missing}
    cells = [
        results.get(cell.key) or quoted(cell, cell.quoted or lacking.get(cell.row) or _how_measured(cell.row, rows))
        for cell in table.cells
        if cell.key in results or (cell.published is not None and cell.row not in twins)
    ]
    cells.sort(key=lambda cell: cell.row not in rows)
    labels = {"x_label": table.x_label, "y_label": table.y_label, "x": table.x, "y": table.y, "size": table.size}
    made = table_of(cells, table.name, table.title, table.caption, table.picture, **labels)
    order = dict.fromkeys(cell.column for cell in table.cells)
    return replace(made, columns=tuple(column for column in order if column in made.columns))


def _twins(table: Table, rows: Collection[str]) -> set[str]:
    """Rows without a result whose published figures stand in another: one row of the paper, two systems of ours."""
    figures: dict[str, list[tuple[str, float]]] = {}
    for cell in table.cells:
        if cell.published is not None and not cell.is_fact:
            figures.setdefault(cell.row, []).append((cell.column, cell.published))
    there: list[list[tuple[str, float]]] = []
    twins = set()
    for row in sorted(figures, key=lambda row: row not in rows):
        if row not in rows and figures[row] in there:
            twins.add(row)
        there.append(figures[row])
    return twins


def _how_measured(row: str, rows: Collection[str]) -> str:
    system = _BY_TITLE.get(row)
    return NOT_ASKED_FOR if system is None or row in rows else f"{NOT_ASKED_FOR}: --systems {system} measures it"
