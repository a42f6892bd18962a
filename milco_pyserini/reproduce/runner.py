"""Runs the steps of cells, passes over what stands there, and keeps a record of every cell that was tried."""

import contextlib
import io
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from milco_pyserini.cli.program import INTERRUPTED
from milco_pyserini.console import say
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file, read_json, write_json
from milco_pyserini.reproduce.cells import DIFFERENCE, Cell, Key
from milco_pyserini.reproduce.reach import Reach
from milco_pyserini.reproduce.records import DONE, FAILED, OPEN, UNREACHABLE, CellResult, cell_from_json, cell_to_json
from milco_pyserini.reproduce.roads import Step

CELLS = "cells"
_ERROR = ": error: "


class Runner:
    """Measures cells within one directory. What a step could not do, or reach, is not tried again by this runner."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._reach = Reach()
        self._failed: dict[Step, str] = {}
        self._said: set[str] = set()

    def measure(self, cell: Cell, place: str = "") -> CellResult:
        """The figure of a cell that has steps: recorded before, or made now and recorded.

        place: what is said of it before its steps, if there is something to do, such as "[3/40]".
        """
        known = self.recorded(cell)
        if known is not None and known.status == DONE:
            return known
        result = self._tried(cell, place)
        write_json(self._record(cell), cell_to_json(result))
        if result.status != DONE and result.reason not in self._said:
            # Many cells want the same data: once is enough.
            self._said.add(result.reason)
            # In full below the table.
            say(f"{place} {_named(cell)}: {result.status}: {result.reason.split('. ')[0]}".lstrip())
        return result

    def recorded(self, cell: Cell) -> CellResult | None:
        """What is known of a cell; None if it was not tried, or its run is no longer there."""
        path = self._record(cell)
        if not path.is_file():
            return None
        known = cell_from_json(read_json(path))
        gone = known.run is not None and known.status == DONE and not (self.directory / known.run).is_file()
        # What is compared follows from the tables of today, not from those of the day of the record.
        return None if gone else replace(known, published=cell.published)

    def _record(self, cell: Cell) -> Path:
        return self.directory / CELLS / cell.table / f"{directory_name(f'{cell.row}.{cell.column}')}.json"

    def _tried(self, cell: Cell, place: str) -> CellResult:
        result = untried(cell)
        if cell.missing:
            return replace(result, status=UNREACHABLE, reason=cell.missing)
        steps = [step for step in cell.steps if not step.done.exists()]
        for need in dict.fromkeys(need for step in steps for need in step.needs):
            if reason := self._reach.why_not(need):
                return replace(result, status=UNREACHABLE, reason=reason)
        if steps:
            say(f"{place} {_named(cell)}".lstrip())
        started = time.monotonic()
        try:
            for step in steps:
                self._run(step)
            measured = cell.read() if cell.read is not None else None
        except MilcoError as error:
            return replace(result, status=FAILED, reason=str(error))
        seconds = time.monotonic() - started if steps else None
        run = None if cell.run is None else str(cell.run.relative_to(self.directory))
        return replace(result, status=DONE, measured=measured, run=run, seconds=seconds)

    def _run(self, step: Step) -> None:
        """Raises MilcoError if the step fails, or failed before."""
        if step in self._failed:
            raise MilcoError(self._failed[step])
        try:
            run_step(step)
        except MilcoError as error:
            self._failed[step] = str(error)
            raise


def _named(cell: Cell) -> str:
    return f"{cell.table}: {cell.row}, {cell.column}"


def untried(cell: Cell) -> CellResult:
    """A cell of which nothing is known, or which is a quoted fact."""
    status = DONE if cell.is_fact else OPEN
    return CellResult(
        cell.table,
        cell.row,
        cell.column,
        cell.measure,
        cell.published,
        None,
        status,
        cell.quoted,
        cell.commands,
        unlike=cell.unlike,
    )


def quoted(cell: Cell, reason: str) -> CellResult:
    """The published figure of a cell that is not measured, and why not."""
    return CellResult(cell.table, cell.row, cell.column, cell.measure, cell.published, None, DONE, reason)


def combined(cell: Cell, known: Mapping[Key, CellResult]) -> CellResult:
    """The mean, or the difference, of the cells that are a cell's parts; it is done when they are."""
    parts = [known[key] for key in cell.parts if key in known]
    figures = [part.measured for part in parts if part.status == DONE and part.measured is not None]
    result, number = untried(cell), len(cell.parts)
    if len(figures) < number:
        lacking = [part for part in parts if part.status in (UNREACHABLE, FAILED)]
        status = lacking[0].status if lacking else OPEN
        return replace(result, status=status, reason=_unmeasured(cell, number - len(figures)))
    unlike = cell.unlike or next((part.unlike for part in parts if part.unlike), "")
    if cell.combine == DIFFERENCE:
        minuend, subtrahend = figures
        reason = f"{parts[0].row} minus {parts[1].row}, {parts[0].column} of {parts[0].table}"
        return replace(result, status=DONE, measured=minuend - subtrahend, reason=reason, unlike=unlike)
    reason = f"mean of {number} cells" if number > 1 else f"{parts[0].row}, {parts[0].column} of {parts[0].table}"
    return replace(result, status=DONE, measured=sum(figures) / number, reason=reason, unlike=unlike)


def _unmeasured(cell: Cell, missing: int) -> str:
    """Where to look for the reason: it stands with the cells that are missing."""
    table, row, column = cell.parts[0]
    place = "" if table == cell.table else f" of {table}"
    if len(cell.parts) == 1:
        return f"{row}, {column}{place} is not measured"
    return f"{missing} of {len(cell.parts)} cells{place} {'is' if missing == 1 else 'are'} not measured"


def run_step(step: Step) -> None:
    """Run one of our commands in this process, shown as a person would type it.

    Raises MilcoError with its error if it fails, KeyboardInterrupt if it was interrupted.
    """
    from milco_pyserini.cli.main import main as milco

    say(f"$ {step.command}")
    printed = io.StringIO()
    heard = _Heard(sys.stderr)
    with contextlib.redirect_stderr(heard), contextlib.redirect_stdout(printed if step.printed else heard):
        code = milco(step.argv)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise MilcoError(heard.error or f"{step.command} ended with exit code {code}")
    if step.printed:
        with atomic_file(step.output, "w") as file:
            file.write(printed.getvalue())


class _Heard(io.TextIOBase):
    """Writes on to a stream, and keeps the error that a command ends with."""

    def __init__(self, stream: TextIO) -> None:
        self.error = ""
        self._stream = stream

    def write(self, text: str) -> int:
        if _ERROR in text:
            self.error = text.partition(_ERROR)[2].strip()
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
