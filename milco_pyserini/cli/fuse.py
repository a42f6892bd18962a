"""milco search fuse --runs runs/bm25.txt runs/milco.txt: several runs to one."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.console import counted, say
from milco_pyserini.defaults import RUNS, directory_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.io.runs import Run


@dataclass(frozen=True)
class Options:
    """Make one run of several, with Pyserini's fusion. rrf sums 1 / (--rrf-k + rank); interpolation weighs two runs'
    scores by --alpha and 1 - alpha; average takes the mean of the scores. A document that a run does not have gets
    nothing from it.
    """

    runs: tuple[Path, ...] = option(help="runs, TREC or MS MARCO, two or more; their scores order the documents")
    output: Path | None = option(None, help="the fused run's file (default: runs/A+B.METHOD.txt)")
    method: str = option("rrf", choices=("rrf", "interpolation", "average"), help="rrf, interpolation or average")
    rrf_k: int | None = option(
        None, minimum=1, help="rrf: the larger, the less the first ranks stand out (default: 60)"
    )
    alpha: float | None = option(
        None, minimum=0, maximum=1, help="interpolation: weight of the first run, 0 to 1 (default: 0.5)"
    )
    normalize: bool = option(
        False, help="interpolation, average: bring each run's scores of a topic to 0 to 1 first (min-max)"
    )
    depth: int = option(1000, minimum=1, help="documents of each run and topic that count")
    hits: int = option(1000, minimum=1, help="documents for each topic in the fused run")
    tag: str | None = option(None, help="the run's name in its last column (default: milco-METHOD)")
    overwrite: bool = option(False, help="replace what is at --output, once the new run is whole")


def command(options: Options) -> None:
    """Fuse and write the run. Raises MilcoError before anything is written if something does not fit."""
    from milco_pyserini.io.files import atomic_file, validate_output_file
    from milco_pyserini.io.run_file import check_tag, write_hits
    from milco_pyserini.search.fusion import Method, fuse

    _check(options)
    tag = options.tag or f"milco-{options.method}"
    check_tag(tag)
    names = "+".join(directory_name(str(path)) for path in options.runs)
    output = options.output or RUNS / f"{names}.{options.method}.txt"
    validate_output_file(output, options.overwrite)
    runs = _read(options)
    method = Method(options.method, normalize=options.normalize)
    if options.rrf_k is not None:
        method = replace(method, rrf_k=options.rrf_k)
    if options.alpha is not None:
        method = replace(method, alpha=options.alpha)
    topics = 0
    with atomic_file(output, "w") as handle:
        for topic, hits in fuse(runs, method, options.depth, options.hits):
            write_hits(handle, topic, hits, "trec", tag)
            topics += 1
    say(f"fused {len(runs)} runs ({options.method}) into {output}: {counted(topics, 'query', 'queries')}")


def _check(options: Options) -> None:
    from milco_pyserini.search.fusion import INTERPOLATION, RRF

    if len(options.runs) < 2:
        raise MilcoError(f"--runs {options.runs[0]}: to fuse takes two runs or more")
    if options.method == INTERPOLATION and len(options.runs) != 2:
        raise MilcoError(f"--method {INTERPOLATION} is of two runs, not of {len(options.runs)}: use rrf or average")
    if options.method != RRF and options.rrf_k is not None:
        raise MilcoError(f"--rrf-k is for --method {RRF}, not for {options.method}")
    if options.method != INTERPOLATION and options.alpha is not None:
        raise MilcoError(f"--alpha is for --method {INTERPOLATION}, not for {options.method}")
    if options.method == RRF and options.normalize:
        raise MilcoError(f"--normalize is for scores, and --method {RRF} goes by ranks: leave it out")


def _read(options: Options) -> "list[Run]":
    """The runs. Raises MilcoError for a broken one, one without scores where they count, and without a common topic."""
    from milco_pyserini.io.runs import MSMARCO_COLUMNS, read_run
    from milco_pyserini.search.fusion import RRF

    runs = []
    for path in options.runs:
        runs.append(read_run(path))
        if options.method != RRF and _columns(path) == MSMARCO_COLUMNS:
            raise MilcoError(f"{path} has ranks and no scores (MS MARCO): fuse it with --method {RRF}")
        _say_order(path, runs[-1])
    common = set.intersection(*map(set, runs))
    if not common:
        raise MilcoError(
            f"{' and '.join(map(str, options.runs))} have no topic in common: they are of different topics"
        )
    everything = set().union(*runs)
    for path, run in zip(options.runs, runs, strict=True):
        if lacking := len(everything) - len(run):
            say(f"{path} lacks {lacking:,} of {counted(len(everything), 'topic')}: they are the other runs' alone")
    return runs


def _columns(path: Path) -> int:
    from milco_pyserini.io.lines import first_line

    return len(first_line(path).split())


def _say_order(path: Path, run: "Run") -> None:
    unsorted = 0
    for scores in run.values():
        last = math.inf
        for score in scores.values():
            if score > last:
                unsorted += 1
                break
            last = score
    if unsorted:
        say(f"{path}: {counted(unsorted, 'topic')} not in the order of the scores, which count")
