"""The head in training: max_logits() and its sparse gradient against the plain formulation, in one run.

python benchmarks/training_head.py --batch 32 --tokens 64 --vocabulary 30522 --width 768

A pair is a text's states and a teacher's vector: SMSE forward and backward, from the connector's states on. States are
random, the bias is chosen so that a text has about --terms terms, as with a trained model; the teacher has as many. The
two formulations are timed in turn in one process, and the loss and gradients of both are compared (in bfloat16 equal
maxima may send a gradient to another token); memory is the peak of a process of its own above what it had before the
step. The project promises at least twice the pairs per second and at most a third of the memory.
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
_CHILD = "import sys, training_head; training_head.print_peak(sys.argv[1], sys.argv[2])"


@dataclass(frozen=True)
class Options:
    """Time and memory of the head of SAP: the sparse gradient against all the logits."""

    batch: int = option(32, help="pairs a step")
    tokens: int = option(64, help="tokens of a text")
    vocabulary: int = option(30_522, help="English pieces")
    width: int = option(768, help="of the connector's states")
    terms: int = option(150, help="terms of a text, of the student and of the teacher")
    repeats: int = option(5, help="rounds; the median is printed")
    threads: int = option(2, help="processor threads")
    dtype: str = option("float32", choices=("float32", "bfloat16"), help="of the matrix products")


class Case(NamedTuple):
    """A step's input: states [B, S, D], mask [B, S], decoder, bias, teacher's logits [B, V]."""

    states: "Tensor"
    mask: "Tensor"
    weight: "Tensor"
    bias: "Tensor"
    teacher: "Tensor"


def command(options: Options) -> None:
    """Measure and print a row for each formulation and the ratios."""
    if min(options.batch, options.tokens, options.vocabulary, options.width, options.repeats) < 1:
        raise MilcoError("sizes and --repeats must be at least 1")
    import torch

    torch.set_num_threads(options.threads)
    case = make_case(options)
    steps = {name: _step(name, case, options) for name in ("plain", "sparse")}
    losses, gradients = zip(*(step() for step in steps.values()), strict=True)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.repeats):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - started)
    rates = {name: options.batch / statistics.median(times) for name, times in seconds.items()}
    peaks = {name: _peak(name, options) for name in steps}
    head = f"{options.batch} pairs x {options.tokens} tokens, vocabulary {options.vocabulary:,}, width {options.width}"
    sys.stdout.write(f"{head}, {options.dtype}, {options.threads} threads, median of {options.repeats}\n")
    for name in steps:
        sys.stdout.write(f"{name:>8}: {rates[name]:8.1f} pairs/s, {peaks[name]:8.1f} MB above the state before\n")
    faster, smaller = rates["sparse"] / rates["plain"], peaks["sparse"] / peaks["plain"]
    sys.stdout.write(f"   ratio: {faster:.2f} times the pairs/s, {smaller:.2f} of the memory\n")
    furthest = max(
        ((ours - theirs).abs().max() / theirs.abs().max()).item() for theirs, ours in zip(*gradients, strict=True)
    )
    sys.stdout.write(
        f"   losses {losses[0]:.6f} and {losses[1]:.6f}; gradients at most {furthest:.1e} apart (relative)\n"
    )


def make_case(options: Options) -> Case:
    """Random states, a decoder, and a bias under which a text has about as many terms as asked for."""
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
    return Case(states, mask, weight, bias, teacher)


def _step(name: str, case: Case, options: Options) -> "Callable[[], tuple[float, list[Tensor]]]":
    """A step, forward and backward: its loss and the gradients of states, decoder and bias."""
    import torch

    from milco_pyserini.model.pooling import max_logits, max_logits_reference
    from milco_pyserini.train.losses import sparse_mean_squared_error

    pool = max_logits if name == "sparse" else max_logits_reference
    dtype = getattr(torch, options.dtype)

    def step() -> "tuple[float, list[Tensor]]":
        leaves = [tensor.requires_grad_() for tensor in (case.states, case.weight, case.bias)]
        for leaf in leaves:
            leaf.grad = None
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            logits = pool(case.states, case.mask, case.weight, case.bias)
        loss = sparse_mean_squared_error(logits.float(), case.teacher)
        loss.backward()
        return loss.item(), [leaf.grad for leaf in leaves if leaf.grad is not None]

    return step


def _peak(name: str, options: Options) -> float:
    """MB (10**6 bytes) that one step takes at its peak above what the process had before it."""
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


def print_peak(name: str, options: str) -> None:
    """In a process of its own: one step, and what it added to the peak of resident memory."""
    import torch

    given = Options(**json.loads(options))
    torch.set_num_threads(given.threads)
    case = make_case(given)
    # A small step first: libraries and buffers that any step needs are not its own.
    small = Options(**{**json.loads(options), "batch": 1, "tokens": 2})
    _step(name, make_case(small), small)()
    Path("/proc/self/clear_refs").write_text("5")  # The peak starts anew.
    before = _resident("VmRSS")
    _step(name, case, given)()
    sys.stdout.write(f"{_resident('VmHWM') - before}\n")


def _resident(kind: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) * 1024 / 1e6


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("benchmarks/training_head.py", Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
