"""Run training commands in sequence for test_train_torchrun.py, with a report each: torchrun_program.py PLAN REPORTS.

PLAN is a JSON file of [name, arguments, rank whose loss breaks or null]. A Report is written to NAME.RANK.json in the
directory REPORTS for each command.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from milco_pyserini.train import losses
from milco_pyserini.train.batches import TextCollator
from milco_pyserini.train.cli import main

BROKEN_STEP = 3
_WRITING = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


class Report(TypedDict):
    """The texts that a process read, a list per call, and the files it wrote, as pairs of operation and path."""

    seen: list[list[str]]
    written: list[list[str]]


def record_texts(report: Report) -> Callable[[], None]:
    """Record the texts that are tokenized; return a function that stops recording."""
    original = TextCollator.__call__

    def call(self: TextCollator, texts: list[str], max_length: int) -> dict[str, Tensor]:
        report["seen"].append(list(texts))
        return original(self, texts, max_length)

    def stop() -> None:
        TextCollator.__call__ = original  # type: ignore[method-assign]

    TextCollator.__call__ = call  # type: ignore[method-assign, assignment]
    return stop


def break_loss() -> None:
    """Make SAP's loss NaN from the broken step on."""
    original, calls = losses.sparse_mean_squared_error, []

    def broken(student: Tensor, *more: object) -> Tensor:
        calls.append(1)
        # Two calls per step: text and English.
        bad = torch.nan if len(calls) > 2 * (BROKEN_STEP - 1) else 1.0
        return original(student, *more) * bad  # type: ignore[arg-type]

    losses.sparse_mean_squared_error = broken  # type: ignore[assignment]


def _program(plan: Path, reports: Path) -> int:
    rank = os.environ["RANK"]
    report = Report(seen=[], written=[])

    def written(event: str, arguments: tuple) -> None:
        opened = event == "open" and isinstance(arguments[1], str) and arguments[1][0] in "wax"
        if opened or event in _WRITING:
            report["written"].append([event, str(arguments[0])])

    sys.addaudithook(written)
    record_texts(report)
    for name, arguments, broken in json.loads(plan.read_text(encoding="utf-8")):
        report["seen"].clear()
        report["written"].clear()
        if rank == broken:
            break_loss()
        code = main(arguments)
        if code:
            return code
        (reports / f"{name}.{rank}.json").write_text(json.dumps(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(_program(Path(sys.argv[1]), Path(sys.argv[2])))
