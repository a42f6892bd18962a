"""milco analyze statistics|sweep|latency"""

import sys
from collections.abc import Sequence

from milco_pyserini.analysis.latency import LatencyOptions, latency_command
from milco_pyserini.analysis.stats import StatsOptions, stats_command
from milco_pyserini.analysis.sweep import SweepOptions, sweep_command
from milco_pyserini.cli.parser import Subcommand, run_subcommand

PROG = "milco analyze"
_SUMMARY = "Analyze vectors: their sparsity, what pruning costs, how fast engines search them."
_RESUMES = "the same command resumes"
SUBCOMMANDS = {
    "statistics": Subcommand(StatsOptions, stats_command, "nothing was written"),
    "sweep": Subcommand(SweepOptions, sweep_command, _RESUMES),
    "latency": Subcommand(LatencyOptions, latency_command, _RESUMES),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 2 for bad input, 130 for Ctrl-C."""
    return run_subcommand(PROG, _SUMMARY, SUBCOMMANDS, sys.argv[1:] if argv is None else argv)
