"""How long does a person wait for --help? The median wall time of every verb's help page.

python benchmarks/help_time.py --repeats 7

Each page is asked for in a process of its own, python -m milco_pyserini.VERB --help, Python's own start included.
The project promises less than 0.3 s: no help page loads torch, and none starts Java.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from milco_pyserini.cli.main import COMMANDS
from milco_pyserini.cli.parser import run_command
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.options import option


@dataclass(frozen=True)
class Options:
    """Time python -m milco_pyserini.VERB --help for every verb."""

    repeats: int = option(7, help="runs of each; the first, which may compile, does not count")
    verbs: tuple[str, ...] = option((), help="only these (default: all)")


def command(options: Options) -> None:
    """Print one line for each verb. Raises MilcoError for an unknown one."""
    if options.repeats < 1:
        raise MilcoError(f"--repeats {options.repeats}: must be at least 1")
    for verb in options.verbs:
        if verb not in COMMANDS:
            raise unknown_name("command", verb, COMMANDS)
    slowest = 0.0
    for verb in options.verbs or COMMANDS:
        time_help(verb)
        seconds = median(time_help(verb) for _ in range(options.repeats))
        slowest = max(slowest, seconds)
        sys.stdout.write(f"{verb:<10} {seconds:.3f} s\n")
        sys.stdout.flush()
    sys.stdout.write(f"{'slowest':<10} {slowest:.3f} s (median of {options.repeats})\n")


def time_help(command: str) -> float:
    """Return the seconds that `milco COMMAND --help` takes. Raises MilcoError if it fails."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "milco_pyserini", command, "--help"], check=False, capture_output=True)
    seconds = time.perf_counter() - started
    if done.returncode or not done.stdout:
        reason = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise MilcoError(f"milco {command} --help failed: {reason[-1]}")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("benchmarks/help_time.py", Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
