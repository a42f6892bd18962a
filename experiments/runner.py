"""Measure cells: run the steps whose output does not exist yet, keep a record of each cell, assemble the tables."""

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from experiments.conditions import MILCO, paper
from experiments.records import (
    DONE,
    FAILED,
    OPEN,
    UNREACHABLE,
    CellResult,
    Reproduction,
    TableResult,
    cell_from_json,
)
from experiments.steps import ANSWERS, CORPUS, ENCODER, QRELS, TOPICS, Pipeline, Requirement, Step
from experiments.tables import (
    Cell,
    Combination,
    Key,
    MeasuredFigure,
    Quotation,
    TablePlan,
    Unavailable,
    plan_tables,
)
from milco_pyserini import __version__
from milco_pyserini.analysis.workbench import processor
from milco_pyserini.console import log
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import DISK_FULL, MilcoError, Unreachable
from milco_pyserini.io.files import fingerprint, is_json_with, read_json, validate_output_directory, write_json
from milco_pyserini.io.hub import only_cached

TITLE = "The MILCO paper, reproduced"
# Of tables for which nothing is published.
OWN_TITLE = "MILCO, measured"
CELLS = "cells"
CLAIM = "reproduction.json"
FORMAT_VERSION = 1
# The hub's library retries for half a minute. After a failure it is asked again only after this time, in seconds: a
# long run should not give up everything that follows because the network was down for a moment.
RETRY_AFTER = 600.0

# A step's command -> the library call that does the same with the same arguments.
Actions = Mapping[str, Callable[..., Any]]


class Availability:
    """Asks, before the work begins, whether what a step requires can be had, and remembers the answers."""

    def __init__(self) -> None:
        self._known: dict[Requirement, MilcoError | None] = {}
        self._offline_until = 0.0

    def find_error(self, requirement: Requirement) -> MilcoError | None:
        """Return why something cannot be had, None if it can. This may download it."""
        if requirement not in self._known:
            try:
                with only_cached(time.monotonic() < self._offline_until):
                    open_requirement(requirement)
                self._known[requirement] = None
            except MilcoError as error:
                self._known[requirement] = error
                if isinstance(error, Unreachable):
                    self._offline_until = time.monotonic() + RETRY_AFTER
            except OSError as error:
                self._known[requirement] = MilcoError(str(error))
        return self._known[requirement]


def open_requirement(requirement: Requirement) -> None:
    """Read just enough to know that something is available. Raises MilcoError or OSError if it is not."""
    from milco_pyserini import corpora
    from milco_pyserini.model.finding import find_checkpoint

    opened: dict[str, Callable[[str], Any]] = {
        CORPUS: lambda name: next(iter(corpora.open_corpus(name)), None),
        TOPICS: lambda name: next(iter(corpora.open_topics(name)), None),
        QRELS: corpora.open_qrels,
        ANSWERS: corpora.open_answers,
        ENCODER: find_checkpoint,
    }
    opened[requirement.kind](requirement.name)


class Runner:
    """Measures cells within one directory. A step that failed, or lacks something, is not tried again.

    Args:
        directory: Of the records; the pipeline's.
        actions: What runs the steps.
    """

    def __init__(self, directory: Path, actions: Actions) -> None:
        self.directory = directory
        self._actions = actions
        self._availability = Availability()
        self._failed: dict[Step, MilcoError] = {}
        self._reported: set[str] = set()

    def measure(self, cell: Cell, place: str = "") -> CellResult:
        """Return the result of a cell, recorded before or measured and recorded now.

        Args:
            place: Shown before the cell's name if there is something to do, such as "[3/40]".
        """
        known = self.recorded(cell)
        if known is not None and known.status == DONE:
            return known
        name = f"{place} {cell.table}: {cell.row}, {cell.column}".lstrip()
        result, error = self._try(cell, name)
        write_json(self._record(cell), result)
        # Many cells lack the same data: once is enough. The table has the reason in full.
        if error is not None and error.message not in self._reported:
            self._reported.add(error.message)
            log(f"{name}: {result.status}: {' '.join(error.message.split())}")
        return result

    def recorded(self, cell: Cell) -> CellResult | None:
        """Return the recorded result of a cell; None if it was never tried, or if its run was removed."""
        path = self._record(cell)
        if not path.is_file():
            return None
        known = cell_from_json(read_json(path))
        if known.run is not None and known.status == DONE and not (self.directory / known.run).is_file():
            return None
        # The tables of today decide what it is compared with.
        return replace(known, published=cell.published)

    def _record(self, cell: Cell) -> Path:
        return self.directory / CELLS / cell.table / f"{directory_name(f'{cell.row}.{cell.column}')}.json"

    def _try(self, cell: Cell, name: str) -> tuple[CellResult, MilcoError | None]:
        result, source = untried(cell), cell.source
        if isinstance(source, Unavailable):
            return replace(result, status=UNREACHABLE, reason=source.reason), MilcoError(source.reason)
        if not isinstance(source, MeasuredFigure):
            raise TypeError(f"nothing to run for {cell.key}: {source}")
        steps = list(dict.fromkeys(each for step in source.steps for each in step.missing()))
        for requirement in dict.fromkeys(each for step in steps for each in step.requires):
            if error := self._availability.find_error(requirement):
                return replace(result, status=UNREACHABLE, reason=" ".join(str(error).split())), error
        if steps:
            log(name)
        started = time.monotonic()
        try:
            for step in steps:
                self._run(step)
            measured = source.read()
        except MilcoError as error:
            return replace(result, status=FAILED, reason=" ".join(str(error).split())), error
        seconds = time.monotonic() - started if steps else None
        run = None if source.run is None else str(source.run.relative_to(self.directory))
        return replace(result, status=DONE, measured=measured, run=run, seconds=seconds), None

    def _run(self, step: Step) -> None:
        if step in self._failed:
            raise self._failed[step]
        log(f"$ {step.command_line}")
        try:
            # stdout is for the tables.
            with contextlib.redirect_stdout(sys.stderr):
                self._actions[step.command](**dict(step.arguments) | ({"output": step.output} if step.stdout else {}))
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                # All other cells would fail, too.
                raise
            if not isinstance(error, MilcoError | OSError):
                # Of a library: one cell must not end the run of all.
                traceback.print_exc()
                error = MilcoError(f"{type(error).__name__}: {error}")
            self._failed[step] = error if isinstance(error, MilcoError) else MilcoError(str(error))
            raise self._failed[step] from error


def untried(cell: Cell) -> CellResult:
    """Return the result of a cell of which nothing is known."""
    commands = tuple(step.command_line for step in cell.steps)
    return CellResult(
        cell.table, cell.row, cell.column, cell.measure, cell.published, None, commands=commands, caveat=cell.caveat
    )


def combine(cell: Cell, combination: Combination, known: Mapping[Key, CellResult]) -> CellResult:
    """Return the mean, or the difference, of the cells that a cell combines; it is done when they are."""
    keys = combination.parts
    parts = [known[key] for key in keys if key in known]
    figures = [part.measured for part in parts if part.status == DONE and part.measured is not None]
    result, (table, row, column) = untried(cell), keys[0]
    missing = len(keys) - len(figures)
    if missing:
        status = next((part.status for part in parts if part.status in (UNREACHABLE, FAILED)), OPEN)
        place = "" if table == cell.table else f" of {table}"
        if len(keys) == 1:
            return replace(result, status=status, reason=f"{row}, {column}{place} is not measured")
        verb = "is" if missing == 1 else "are"
        return replace(result, status=status, reason=f"{missing} of {len(keys)} cells{place} {verb} not measured")
    caveat = cell.caveat or next((part.caveat for part in parts if part.caveat), "")
    if combination.is_difference:
        measured, reason = figures[0] - figures[1], f"{row} minus {keys[1][1]}, {column} of {table}"
    else:
        measured = sum(figures) / len(keys)
        reason = f"mean of {len(keys)} cells" if len(keys) > 1 else f"{row}, {column} of {table}"
    return replace(result, status=DONE, measured=measured, reason=reason, caveat=caveat)


def assemble(pipeline: Pipeline, runner: Runner, plans: Iterable[TablePlan], encoder: str) -> Reproduction:
    """Return all tables that are asked for (plans) or recorded, each with the rest of the paper's table quoted.

    Args:
        encoder: MILCO's checkpoint, for the page.
    """
    plans = list(plans)
    asked = {cell.key: cell for plan in plans for cell in plan.cells if not cell.is_quoted}
    recorded = {path.name for path in (runner.directory / CELLS).glob("*")}
    names = recorded | {plan.name for plan in plans}
    everything: dict[str, TablePlan] = {}
    for spec in paper().tables.values():
        # The tables that come with a table begin with its name.
        if any(name.startswith(spec.name) for name in names):
            for plan in plan_tables(spec, pipeline, tuple(paper().conditions)):
                everything.setdefault(plan.name, plan)
    known: dict[Key, CellResult] = {}
    for plan in everything.values():
        for cell in plan.cells if plan.name in recorded or any(cell.key in asked for cell in plan.cells) else ():
            if isinstance(cell.source, (MeasuredFigure, Unavailable)):
                result = runner.recorded(cell)
                if result is not None or cell.key in asked:
                    known[cell.key] = result or untried(asked[cell.key])
    for plan in everything.values():
        for cell in plan.cells:
            # The mean of languages that were measured one by one is there although nobody asked for it.
            source = cell.source
            if isinstance(source, Combination) and (cell.key in asked or known.keys() >= set(source.parts)):
                known[cell.key] = combine(cell, source, known)
    tables = [_table(plan, known) for plan in everything.values() if any(cell.key in known for cell in plan.cells)]
    made = date.today().isoformat()
    is_compared = any(cell.published is not None for table in tables for cell in table.cells.values())
    return Reproduction(TITLE if is_compared else OWN_TITLE, encoder, processor(), __version__, made, tuple(tables))


def _table(plan: TablePlan, known: Mapping[Key, CellResult]) -> TableResult:
    """Return the rows with a result, then the quoted ones; the columns in the plan's order."""
    rows = {cell.row for cell in plan.cells if cell.key in known}
    by_title = {condition.title: name for name, condition in paper().conditions.items()}
    # A published row that two systems measure is quoted for one of them.
    quoted_as = {cell.label: cell.row for cell in reversed(plan.cells) if cell.label}
    quoted_as |= {cell.label: cell.row for cell in plan.cells if cell.label and cell.row in rows}
    unavailable = {cell.row: cell.source.reason for cell in plan.cells if isinstance(cell.source, Unavailable)}
    cells = []
    for cell in sorted(plan.cells, key=lambda cell: cell.row not in rows):
        if cell.key in known:
            cells.append(known[cell.key])
        elif cell.published is not None and (cell.row in rows or quoted_as.get(cell.label, cell.row) == cell.row):
            # A mean lacks what its cells lack.
            reason = unavailable.get(cell.row, "not asked for")
            if isinstance(cell.source, Quotation):
                reason = cell.source.reason
            elif cell.row in by_title and cell.row not in rows and cell.row not in unavailable:
                reason = f"not asked for: --systems {by_title[cell.row]} measures it"
            cells.append(replace(untried(cell), status=DONE, reason=reason, commands=(), caveat=""))
    table = TableResult.of(cells, plan.name, plan.spec.title, plan.spec.caption, plan.spec.picture)
    order = dict.fromkeys(cell.column for cell in plan.cells)
    return replace(table, columns=tuple(column for column in order if column in table.columns))


def claim_directory(pipeline: Pipeline, plans: Iterable[TablePlan]) -> str:
    """Record in the directory which checkpoints and local copies these tables need; return the name of MILCO's there.

    Records and vectors carry the short name of a condition and of a dataset: figures of two checkpoints, or of two
    copies, must not meet under it. Raises MilcoError if they would, or if the directory is not a reproduction's.
    """
    directory, path = pipeline.directory, pipeline.directory / CLAIM
    validate_output_directory(
        directory, True, lambda place: is_json_with(place / CLAIM, "format_version", "checkpoints")
    )
    recorded = read_json(path) if path.is_file() else {"checkpoints": {}}
    before = recorded["checkpoints"]
    requirements = {each for plan in plans for cell in plan.cells for step in cell.steps for each in step.requires}
    used = {each.name for each in requirements if each.kind == ENCODER}
    now = {
        key: {"name": name, "files": fingerprint(Path(name))}
        for key, name in pipeline.checkpoints.items()
        if name in used
    }
    copies = {key: {"name": name, "files": fingerprint(Path(name))} for key, name in pipeline.local.items()}
    copies_before = recorded.get("local", {})
    for then, new in ((before, now), (copies_before, copies)):
        for key in then.keys() & new.keys():
            if then[key] != new[key]:
                name = then[key]["name"]
                other = f"another version of {name}" if name == new[key]["name"] else f"{name}, not {new[key]['name']}"
                raise MilcoError(f"{directory} has figures of {key} with {other}", hint="Choose another --output.")
    claim = {"format_version": FORMAT_VERSION, "checkpoints": before | now, "local": copies_before | copies}
    write_json(path, claim)
    return (before | now).get(MILCO, {"name": pipeline.checkpoints[MILCO]})["name"]
