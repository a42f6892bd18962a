"""Measure the head in training: max_logits() with its sparse gradient against autograd through all logits.

python benchmarks/training_head.py --batch 32 --tokens 64 --vocabulary 30522 --width 768

A step is SMSE forward and backward from the connector's output to the teacher's vectors. Inputs are random; the bias
is chosen so that a text has about --terms terms, as with a trained model, and the teacher has as many. Both
formulations are timed in turn in one process, and their losses and gradients are compared (in bfloat16, tied maxima may
send a gradient to another token). Memory is the peak of a separate process minus its memory before the step. The goal
is at least twice the pairs per second and at most a third of the memory.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from milco_pyserini.cli.parser import run_command
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

if TYPE_CHECKING:
    from torch import Tensor

SEED = 20261
_CHILD = "import sys, training_head; print(training_head.measure_peak(sys.argv[1], sys.argv[2]))"


@dataclass(frozen=True)
class TrainingHeadOptions:
    """Measure time and memory of SAP's head: the sparse gradient against all logits."""

    batch: int = option(32, minimum=1, metavar="N", help="pairs per step")
    tokens: int = option(64, minimum=1, metavar="N", help="tokens per text")
    vocabulary: int = option(30_522, minimum=1, metavar="N", help="size of the English vocabulary")
    width: int = option(768, minimum=1, metavar="N", help="width of the connector's output")
    terms: int = option(150, minimum=1, metavar="N", help="terms per text, of the student and of the teacher")
    repeats: int = option(5, minimum=1, metavar="N", help="rounds; medians are printed")
    threads: int = option(2, minimum=1, metavar="N", help="threads of torch")
    dtype: str = option("float32", choices=("float32", "bfloat16"), help="dtype of the matrix products")


class HeadInputs(NamedTuple):
    """States [B, S, D], mask [B, S], decoder weight [V, D] and bias [V], the teacher's logits [B, V]."""

    states: "Tensor"
    mask: "Tensor"
    weight: "Tensor"
    bias: "Tensor"
    teacher: "Tensor"


def command(options: TrainingHeadOptions) -> None:
    """Print a row per formulation, the ratios, and how far losses and gradients differ."""
    import torch

    torch.set_num_threads(options.threads)
    inputs = random_inputs(options)
    steps = {name: _step(name, inputs, options) for name in ("plain", "sparse")}
    losses, gradients = zip(*(step() for step in steps.values()), strict=True)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.repeats):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - started)
    rates = {name: options.batch / statistics.median(times) for name, times in seconds.items()}
    peaks = {name: peak_in_subprocess(name, options) for name in steps}
    head = f"{options.batch} pairs x {options.tokens} tokens, vocabulary {options.vocabulary:,}, width {options.width}"
    sys.stdout.write(f"{head}, {options.dtype}, {options.threads} threads, median of {options.repeats}\n")
    for name in steps:
        sys.stdout.write(f"{name:>8}: {rates[name]:8.1f} pairs/s, {peaks[name]:8.1f} MB above the start\n")
    faster, smaller = rates["sparse"] / rates["plain"], peaks["sparse"] / peaks["plain"]
    sys.stdout.write(f"   ratio: {faster:.2f} times the pairs/s, {smaller:.2f} of the memory\n")
    difference = max(
        ((sparse - plain).abs().max() / plain.abs().max()).item() for plain, sparse in zip(*gradients, strict=True)
    )
    sys.stdout.write(
        f"   losses {losses[0]:.6f} and {losses[1]:.6f}; gradients differ by at most {difference:.1e} (relative)\n"
    )


def random_inputs(options: TrainingHeadOptions) -> HeadInputs:
    """Return random inputs, with a bias under which a text has about `terms` terms."""
    import torch

    from milco_pyserini.model.pooling import max_logits

    generator = torch.Generator().manual_seed(SEED)
    shape = options.batch, options.tokens, options.width
    states = torch.nn.functional.layer_norm(torch.randn(shape, generator=generator), shape[2:])
    mask = torch.ones(shape[:2], dtype=torch.bool)
    weight = torch.randn(options.vocabulary, options.width, generator=generator) / options.width**0.5
    highest = max_logits(states, mask, weight, torch.zeros(options.vocabulary))
    share = 1 - min(1.0, options.terms / options.vocabulary)
    bias = torch.full((options.vocabulary,), -highest.flatten()[:1_000_000].quantile(share).item())
    teacher = torch.zeros(options.batch, options.vocabulary)
    teacher.scatter_(1, torch.randint(options.vocabulary, (options.batch, options.terms), generator=generator), 2.0)
    return HeadInputs(states, mask, weight, bias, teacher)


def _step(name: str, inputs: HeadInputs, options: TrainingHeadOptions) -> "Callable[[], tuple[float, list[Tensor]]]":
    """Return a function that runs a step and returns its loss and the gradients of states, decoder and bias."""
    import torch

    from milco_pyserini.model.pooling import max_logits, max_logits_reference
    from milco_pyserini.train.losses import sparse_mean_squared_error

    pool = max_logits if name == "sparse" else max_logits_reference
    dtype = getattr(torch, options.dtype)

    def step() -> "tuple[float, list[Tensor]]":
        leaves = [tensor.requires_grad_() for tensor in (inputs.states, inputs.weight, inputs.bias)]
        for leaf in leaves:
            leaf.grad = None
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            logits = pool(inputs.states, inputs.mask, inputs.weight, inputs.bias)
        loss = sparse_mean_squared_error(logits.float(), inputs.teacher)
        loss.backward()
        return loss.item(), [leaf.grad for leaf in leaves if leaf.grad is not None]

    return step


def peak_in_subprocess(name: str, options: TrainingHeadOptions) -> float:
    """Return measure_peak() of one step in a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, name, json.dumps(asdict(options))],
        check=False,
        capture_output=True,
        text=True,
        cwd=sys.path[0] or None,
    )
    if done.returncode:
        raise MilcoError(f"the {name} step failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return float(done.stdout.split()[-1])


def measure_peak(name: str, options: str) -> float:
    """Run one step and return its peak of resident memory in MB (10**6 bytes) above the memory before it.

    Args:
        options: TrainingHeadOptions as JSON.
    """
    import torch

    given = TrainingHeadOptions(**json.loads(options))
    torch.set_num_threads(given.threads)
    inputs = random_inputs(given)
    # A small step first loads the libraries and buffers that every step needs.
    small = TrainingHeadOptions(**{**json.loads(options), "batch": 1, "tokens": 2})
    _step(name, random_inputs(small), small)()
    Path("/proc/self/clear_refs").write_text("5")  # Resets the peak.
    before = _resident("VmRSS")
    _step(name, inputs, given)()
    return _resident("VmHWM") - before


def _resident(kind: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) * 1024 / 1e6


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/training_head.py", TrainingHeadOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
