"""milco search fuse --runs runs/bm25.txt runs/milco.txt: fuse runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.console import counted, log
from milco_pyserini.defaults import RUNS, directory_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option


@dataclass(frozen=True)
class FuseOptions:
    """Fuse runs as Pyserini does.

    rrf sums 1 / (--rrf-k + rank); interpolation weighs the scores of two runs by --alpha and 1 - alpha; average takes
    the mean score. A document that a run does not have gets nothing from it.

      milco search fuse --runs runs/bm25.txt runs/milco.txt
    """

    runs: tuple[Path, ...] = option(metavar="FILE", help="TREC or MS MARCO runs; their scores order the documents")
    output: Path | None = option(None, metavar="FILE", help="the fused run (default: runs/A+B.METHOD.txt)")
    method: str = option("rrf", choices=("rrf", "interpolation", "average"), help="fusion method")
    rrf_k: int | None = option(None, minimum=1, help="rrf: the larger, the less the first ranks dominate (default: 60)")
    alpha: float | None = option(
        None, minimum=0, maximum=1, help="interpolation: weight of the first run (default: 0.5)"
    )
    normalize: bool = option(
        False, help="interpolation, average: min-max normalize the scores of each run and topic first"
    )
    depth: int = option(1000, minimum=1, metavar="K", help="documents of each run and topic that count")
    hits: int = option(1000, minimum=1, metavar="K", help="documents per topic in the fused run")
    tag: str | None = option(None, help="last column of the run (default: milco-METHOD)")
    overwrite: bool = option(False, help="replace a run at --output, once the new one is complete")

    def conflicts(self) -> Iterator[str]:
        """Yield messages about options that exclude each other."""
        if len(self.runs) < 2:
            yield f"--runs {self.runs[0]}: fusion takes two runs or more"
        elif self.method == "interpolation" and len(self.runs) != 2:
            yield f"--method interpolation takes two runs, got {len(self.runs)}: use rrf or average"
        if self.method != "rrf" and self.rrf_k is not None:
            yield f"--rrf-k is for --method rrf, not for {self.method}"
        if self.method != "interpolation" and self.alpha is not None:
            yield f"--alpha is for --method interpolation, not for {self.method}"
        if self.method == "rrf" and self.normalize:
            yield "--normalize is for scores, --method rrf uses only ranks: omit it"


def command(options: FuseOptions) -> None:
    """Fuse and write the run. Raises MilcoError before anything is written if something does not fit."""
    from milco_pyserini.io.files import atomic_file, validate_output_file
    from milco_pyserini.io.lines import first_line
    from milco_pyserini.io.runs import MSMARCO_COLUMNS, read_run, validate_tag, write_hits
    from milco_pyserini.search.fusion import fuse

    tag = options.tag or f"milco-{options.method}"
    validate_tag(tag)
    names = "+".join(directory_name(str(path)) for path in options.runs)
    output = options.output or RUNS / f"{names}.{options.method}.txt"
    validate_output_file(output, options.overwrite)
    runs = []
    for path in options.runs:
        run = read_run(path)
        if options.method != "rrf" and len(first_line(path).split()) == MSMARCO_COLUMNS:
            raise MilcoError(f"{path} has ranks and no scores (MS MARCO): fuse it with --method rrf")
        unsorted = sum(list(scores.values()) != sorted(scores.values(), reverse=True) for scores in run.values())
        if unsorted:
            log(f"{path}: {counted(unsorted, 'topic')} not in the order of the scores, which count")
        runs.append(run)
    if not set.intersection(*map(set, runs)):
        raise MilcoError(
            f"{' and '.join(map(str, options.runs))} have no topic in common: they are of different topics"
        )
    topics = set().union(*runs)
    for path, run in zip(options.runs, runs, strict=True):
        if missing := len(topics) - len(run):
            log(f"{path} lacks {missing:,} of {counted(len(topics), 'topic')}: they come only from the other runs")
    found = fuse(
        runs,
        options.method,
        rrf_k=options.rrf_k or 60,
        alpha=0.5 if options.alpha is None else options.alpha,
        normalize=options.normalize,
        depth=options.depth,
        hits=options.hits,
    )
    with atomic_file(output, "w") as handle:
        for topic, hits in found:
            write_hits(handle, topic, hits, "trec", tag)
    log(f"fused {len(runs)} runs ({options.method}) into {output}: {counted(len(topics), 'query', 'queries')}")
