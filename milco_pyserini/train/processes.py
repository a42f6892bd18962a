"""What the processes of one training run have to agree on: torchrun starts one for each GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerate.utils import gather_object

from milco_pyserini.errors import MilcoError


@contextmanager
def waiting_for_others() -> Iterator[None]:
    """Around work of all processes: raises MilcoError in those that wait for one that has ended."""
    try:
        yield
    except RuntimeError as error:
        # On GPUs a process waits until torchrun ends it; on processors gloo ends the wait with a bare RuntimeError.
        if "gloo/transport" not in str(error):
            raise
        raise MilcoError(
            "another process of this run has ended: its own line says why, or torchrun's report"
        ) from error


def check_same_step(run: Path, step: int) -> None:
    """Raise MilcoError if the processes are about to go on from different steps of a run."""
    steps = sorted(set(gather_object([step])))
    if len(steps) > 1:
        raise MilcoError(
            f"{run}: one machine sees the checkpoint of step {steps[-1]}, another that of step {steps[0]} (0: none): "
            "--output must be a directory that all machines share"
        )
