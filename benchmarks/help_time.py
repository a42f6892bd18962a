"""Measure the median wall time of every command's help page.

python benchmarks/help_time.py --repeats 7

Each page is requested in its own process, python -m milco_pyserini COMMAND --help, so Python's start is included. The
goal is less than 0.3 s: no help page imports torch or starts Java.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from milco_pyserini.cli.main import COMMANDS
from milco_pyserini.cli.parser import run_command
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option


@dataclass(frozen=True)
class HelpTimeOptions:
    """Time python -m milco_pyserini COMMAND --help for every command."""

    repeats: int = option(7, minimum=1, metavar="N", help="timed runs per command, after one that may compile")
    commands: tuple[str, ...] = option((), choices=tuple(COMMANDS), metavar="COMMAND", help="commands (default: all)")


def command(options: HelpTimeOptions) -> None:
    """Print a line per command, then the slowest."""
    slowest = 0.0
    for name in options.commands or COMMANDS:
        time_help(name)
        seconds = median(time_help(name) for _ in range(options.repeats))
        slowest = max(slowest, seconds)
        sys.stdout.write(f"{name:<10} {seconds:.3f} s\n")
        sys.stdout.flush()
    sys.stdout.write(f"{'slowest':<10} {slowest:.3f} s (median of {options.repeats})\n")


def time_help(name: str) -> float:
    """Return the seconds that `milco NAME --help` takes. Raises MilcoError if it fails."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "milco_pyserini", name, "--help"], check=False, capture_output=True)
    seconds = time.perf_counter() - started
    if done.returncode or not done.stdout:
        reason = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise MilcoError(f"milco {name} --help failed: {reason[-1]}")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/help_time.py", HelpTimeOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
