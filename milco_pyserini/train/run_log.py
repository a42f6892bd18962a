"""The log of a training run: progress and losses on stderr, log.jsonl, TensorBoard."""

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
from torch.utils.tensorboard import SummaryWriter

from milco_pyserini.console import Progress, log, warn
from milco_pyserini.io.files import atomic_file
from milco_pyserini.train.checkpoints import reporting_write_errors

LOG = "log.jsonl"
_TENSORBOARD = "tensorboard"


class RunLog:
    """Reports the steps of a run. A resumed run drops later entries and logs them again.

    Args:
        run: the run directory.
        done: steps before this process began.
        steps: of the run.
        batch: examples per step, over all processes.
    """

    def __init__(self, run: Path, done: int, steps: int, batch: int) -> None:
        self._run, self._path, self._steps, self._batch = run, run / LOG, steps, batch
        # A killed run may have written half of the last line.
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        complete = [line for line in lines if line.endswith(b"\n")]
        with reporting_write_errors(str(self._path), run), atomic_file(self._path) as handle:
            handle.writelines(line for line in complete if _logged_step(line) <= done)
        _silence_tensorboard_thread()
        with reporting_write_errors(str(run / _TENSORBOARD), run):
            self._tensorboard = SummaryWriter(str(run / _TENSORBOARD), purge_step=done + 1 if done else None)
        self._progress = Progress("examples", steps * batch, done * batch)

    def count_step(self) -> None:
        """Count a step that is done."""
        self._progress.add(self._batch)

    def write(self, step: int, figures: Mapping[str, float], warnings: Sequence[str] = ()) -> None:
        """Write an entry to log.jsonl and TensorBoard; report its loss, if it has one, and the warnings."""
        with reporting_write_errors(f"{self._path} or {_TENSORBOARD}/", self._run):
            with self._path.open("ab") as handle:
                handle.write(orjson.dumps({"step": step, **figures}) + b"\n")
            for name, value in figures.items():
                self._tensorboard.add_scalar(f"train/{name}", value, step)
            self._tensorboard.flush()
        if "loss" in figures:
            log(f"Step {step:,} of {self._steps:,}: loss {figures['loss']:.4f}")
        for warning in warnings:
            warn(warning)

    def close(self) -> None:
        """Report the end of the run."""
        self._tensorboard.close()
        self._progress.close()


def _logged_step(line: bytes) -> float:
    """Return the step of a line of the log; infinity for one that a power failure has damaged."""
    try:
        return orjson.loads(line)["step"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return math.inf


def _silence_tensorboard_thread() -> None:
    """Print no traceback if TensorBoard's thread dies of an error that it also raises in the main thread."""
    before = threading.excepthook

    def hook(died: threading.ExceptHookArgs) -> None:
        if not (isinstance(died.exc_value, OSError) and "tensorboard" in type(died.thread).__module__):
            before(died)

    threading.excepthook = hook
