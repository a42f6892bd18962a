"""milco eval --run runs/ar.txt --qrels miracl-ar-dev"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, say
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.eval.measures import KINDS, parse_measures
from milco_pyserini.io.files import atomic_file, validate_output_file
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.eval.comparison import Comparison
    from milco_pyserini.eval.evaluation import Evaluation

PROG = "milco eval"
_GOES_ON = "the same command goes on with what is not there yet"


@dataclass(frozen=True)
class EvalOptions:
    """Figures of runs, as `trec_eval -c` computes them: judged queries without results count 0.

    All runs against one set of judgements, a row each:
      --run runs/bm25.txt runs/milco.txt --qrels miracl-ar-dev
    As many judgements as runs, paired in order, and the mean over them:
      --run runs/ar.txt runs/bn.txt --qrels miracl-ar-dev miracl-bn-dev
    Several systems over several judgements: all runs of the first system, all runs of the next:
      --run bm25/ar.txt bm25/bn.txt milco/ar.txt milco/bn.txt --qrels miracl-ar-dev miracl-bn-dev

    Other systems than the baseline are tested against it, query by query; a * marks p < 0.05. The p-values of
    one measure are corrected together.

    Four more commands, each with its own --help:
      sweep      effectiveness against terms per document, index size and latency, under pruning
      latency    a table of engines on one core: milliseconds, queries/s, effectiveness, index size
      stats      how sparse vectors are: terms per document, posting lists, languages, length against terms
      reproduce  the paper's tables again, by name, measured beside published
    """

    run: tuple[Path, ...] = option(help="TREC or MS MARCO run files, plain or .gz")
    qrels: tuple[str, ...] = option(help="judgements: names or files; one for all runs, or one for each")
    measures: tuple[str, ...] = option(
        ("nDCG@10", "R@100"),
        names=("-m",),
        help=f"any of {' '.join(kind.example for kind in KINDS.values())}, with any cutoff, "
        "brackets such as P(rel=2)@10, or trec_eval's names such as ndcg_cut.10",
    )
    names: tuple[str, ...] = option((), help="one name for each system, in place of its file's or directory's")
    per_query: bool = option(False, help="a row for each query too")
    baseline: str | None = option(None, help="the system that the others are tested against (default: the first)")
    test: str = option("t", choices=("t", "wilcoxon", "randomisation", "none"), help="paired test against the baseline")
    correction: str = option(
        "holm", choices=("holm", "bonferroni", "none"), help="correction of p-values for many comparisons"
    )
    format: str = option("text", choices=("text", "markdown", "csv", "latex", "json"), help="how the table is written")
    output: Path | None = option(None, help="write the table to this file, not to stdout")
    overwrite: bool = option(False, help="replace the output file if it is there")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 0, 1 where reproduce measured nothing, 2 for bad input, 130 for Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["sweep"]:
        from milco_pyserini.analysis.sweep import SweepOptions, sweep_command

        return run_command(f"{PROG} sweep", SweepOptions, sweep_command, arguments[1:], _GOES_ON)
    if arguments[:1] == ["latency"]:
        from milco_pyserini.analysis.latency import LatencyOptions, latency_command

        return run_command(f"{PROG} latency", LatencyOptions, latency_command, arguments[1:], _GOES_ON)
    if arguments[:1] == ["stats"]:
        from milco_pyserini.analysis.stats import StatsOptions, stats_command

        return run_command(f"{PROG} stats", StatsOptions, stats_command, arguments[1:], "nothing was written")
    if arguments[:1] == ["reproduce"]:
        from milco_pyserini.cli.reproduce import reproduce

        return reproduce(f"{PROG} reproduce", arguments[1:], _GOES_ON)
    return run_command(PROG, EvalOptions, _evaluate, argv, interrupted="nothing was written")


def _evaluate(options: EvalOptions) -> None:
    measures = [str(measure) for measure in parse_measures(options.measures)]
    systems = _systems(options)
    collections = _short(options.qrels, lambda name: _stem(name) if Path(name).exists() else name)
    if options.baseline is not None and options.baseline not in systems:
        raise unknown_name("baseline", options.baseline, systems)
    _check_files(options)

    from milco_pyserini.corpora import open_qrels
    from milco_pyserini.eval.comparison import compare
    from milco_pyserini.eval.evaluation import evaluate
    from milco_pyserini.io.runs import read_run

    results: dict[str, dict[str, Evaluation]] = {system: {} for system in systems}
    for place, (collection, name) in enumerate(zip(collections, options.qrels, strict=True)):
        qrels = open_qrels(name)
        for system, runs in systems.items():
            run = read_run(runs[place])
            try:
                evaluation = evaluate(run, qrels, measures)
            except MilcoError as error:
                raise MilcoError(f"{runs[place]} against {name}: {error}") from None
            say(f"{runs[place]} against {name}: {_account(evaluation)}")
            results[system][collection] = evaluation
    _write(options, compare(results, options.baseline, options.test, options.correction))


def _systems(options: EvalOptions) -> dict[str, tuple[Path, ...]]:
    """Each system's name and its runs, one for each of the judgements."""
    runs, size = options.run, len(options.qrels)
    if len(runs) % size:
        raise MilcoError(
            f"{counted(len(runs), 'run')} cannot be paired with {size} judgements: give one --qrels for all runs, "
            "or all runs of one system, then all runs of the next"
        )
    groups = [runs[start : start + size] for start in range(0, len(runs), size)]
    if options.names and len(options.names) != len(groups):
        given = counted(len(options.names), "name")
        raise MilcoError(f"--names has {given}, the number of systems is {len(groups)}")
    firsts = [str(group[0]) for group in groups]
    names = options.names or _short(firsts, _stem if size == 1 else lambda path: Path(path).absolute().parent.name)
    _refuse_repeated("the system", names)
    return dict(zip(names, groups, strict=True))


def _stem(path: str) -> str:
    return Path(path.removesuffix(".gz")).stem


def _short(names: Sequence[str], shorten: Callable[[str], str]) -> tuple[str, ...]:
    """Short names where they tell all apart, else the long ones."""
    short = tuple(map(shorten, names))
    return short if len(set(short)) == len(short) else tuple(names)


def _refuse_repeated(what: str, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise MilcoError(f"{what} {name} is given twice")


def _check_files(options: EvalOptions) -> None:
    """What can go wrong with files, before judgements are fetched and runs are read."""
    _refuse_repeated("--qrels", options.qrels)
    for run in options.run:
        if not run.is_file():
            why = "a directory, not a run" if run.is_dir() else "no regular file" if run.exists() else "not there"
            raise MilcoError(f"{run} is {why}")
    if options.output is not None:
        validate_output_file(options.output, options.overwrite)


def _account(evaluation: "Evaluation") -> str:
    """One line on which queries count, and how."""
    parts = [counted(len(evaluation.queries), "judged query", "judged queries")]
    if evaluation.unanswered:
        parts.append(f"{len(evaluation.unanswered):,} without results (they count 0)")
    if evaluation.unjudged:
        parts.append(f"{evaluation.unjudged:,} more not judged (left out)")
    if evaluation.reordered:
        parts.append(
            f"{evaluation.reordered:,} listed in another order than trec_eval's (score, then docid, both from "
            "high to low), which is the one that counts"
        )
    return ", ".join(parts)


def _write(options: EvalOptions, comparison: "Comparison") -> None:
    from milco_pyserini.eval.formats import render
    from milco_pyserini.eval.json_report import report
    from milco_pyserini.eval.tables import table

    if options.format == "json":
        text = report(comparison, options.per_query)
    else:
        text = render(table(comparison, options.per_query), options.format)
    if options.output is None:
        sys.stdout.write(text)
        return
    with atomic_file(options.output, "w") as file:
        file.write(text)
