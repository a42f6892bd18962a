"""milco analyze statistics|sweep"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.console import log
from milco_pyserini.defaults import directory_name
from milco_pyserini.eval.report import FORMATS
from milco_pyserini.io.files import validate_output_file
from milco_pyserini.options import MAX_INTEGER, MAX_THREADS, option

if TYPE_CHECKING:
    from milco_pyserini.analysis.experiment import RetrievalTask
    from milco_pyserini.analysis.workbench import IndexMeasurement

PROG = "milco analyze"
RESULTS = Path("results")
_SUMMARY = "Analyze vectors: how sparse they are, and what pruning costs and saves."
_RESUMES = "the same command resumes"
_RULES = (
    "none, top-k:K, percentile:P, mass:P or threshold:T, of one view as pivot:top-k:K; several rules on the same "
    "vectors as RULE,RULE"
)


@dataclass(frozen=True)
class StatisticsOptions:
    """Sparsity of a vector store: terms per document and view, posting lists, unused columns.

    Also the most frequent terms, and length against sparsity; all by language if the name of the corpus or the ids
    (ar-07) have it.

      milco analyze statistics --vectors vectors/sample --figure sample.png
    """

    vectors: Path = option(metavar="DIR", help="vector store of documents or topics")
    corpus: str | None = option(
        None, metavar="NAME|PATH", help="texts, for their lengths (default: the store's, if a path or the sample)"
    )
    encoder: str | None = option(
        None, metavar="NAME|DIR", help="current place of the encoder, whose tokens are counted"
    )
    plain: bool = option(False, help="vectors are external Anserini JSONL, a file or a directory")
    scale: float | None = option(
        None, above=0, maximum=MAX_INTEGER, help="with --plain: impact = round(weight * scale) (default: 1)"
    )
    format: str = option("text", choices=("text", "json"), help="format on stdout")
    figure: Path | None = option(None, metavar="FILE", help="picture to write, a .png file")
    overwrite: bool = option(False, help="replace an existing --figure")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with the options together."""
        if self.scale is not None and not self.plain:
            yield "--scale is for --plain: a vector store has its own"
        if self.figure is not None and self.figure.suffix.lower() != ".png":
            yield f"--figure {self.figure}: pictures are PNG. Give a name that ends in .png"


@dataclass(frozen=True)
class TaskOptions:
    """Options of whatever measures engines and pruning rules: sweep, and experiments.latency."""

    vectors: Path = option(metavar="DIR", help="vector store of the documents, not pruned")
    topics: str = option(metavar="NAME|PATH", help="topics: a name (miracl-ar-dev), texts, or a vector store")
    qrels: str = option(metavar="NAME|FILE", help="qrels of the topics")
    engines: tuple[str, ...] = option(
        ("lucene", "exact"),
        metavar="ENGINE",
        help="lucene, exact, qdrant or seismic, with settings such as seismic:query_cut=10,heap_factor=0.9",
    )
    prune: tuple[str, ...] = option(("none",), metavar="RULE", help=_RULES)
    views: tuple[str, ...] = option((), choices=("pivot", "source"), help="views to index (default: all)")
    measures: tuple[str, ...] = option(
        ("nDCG@10",), names=("-m",), metavar="MEASURE", help="measures, see milco eval measures"
    )
    k: int | None = option(
        None, minimum=1, synonyms=("--hits",), help="documents for each topic (default: as many as the measures need)"
    )
    rounds: int = option(5, minimum=1, help="times that each topic is searched; the median counts")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that build; searches have one core")
    encoder: str | None = option(None, metavar="NAME|DIR", help="current place of the encoder, for topics as texts")
    output: Path | None = option(
        None, metavar="DIR", help="directory for results, runs and indexes, which are reused (default: results/NAME)"
    )
    format: str = option("text", choices=FORMATS, help="format of the table on stdout")

    @property
    def directory(self) -> Path:
        """The output directory."""
        return self.output or RESULTS / directory_name(self.vectors.name)

    def timing(self) -> dict[str, Any]:
        """Return the engines, and how they are built and timed."""
        return {"engines": self.engines, "rounds": self.rounds, "threads": self.threads}

    def open_task(self) -> "RetrievalTask":
        """Open vectors, topics and qrels; raise MilcoError for other invalid options before topics are encoded."""
        from milco_pyserini.analysis.experiment import open_task, parse_variants
        from milco_pyserini.analysis.workbench import validate_workbench

        parse_variants(self.prune or ("none",), self.engines)
        validate_workbench(self.directory)
        return open_task(
            self.vectors,
            self.topics,
            self.qrels,
            views=self.views,
            measures=self.measures,
            k=self.k,
            encoder=self.encoder,
        )


@dataclass(frozen=True)
class SweepOptions(TaskOptions):
    """Effectiveness against terms per document, index size and latency, for every pruning rule with every engine.

    Nothing is encoded again. Results are a table, CSV, JSON and a picture with a curve for each kind of rule. An
    interrupted sweep resumes; with more rules or engines, only these are measured.

      milco analyze sweep --vectors vectors/sample --topics sample-sw --qrels sample-sw --prune none top-k:100
    """

    prune: tuple[str, ...] = option(
        (), metavar="RULE", help=f"{_RULES} (default: those of the paper that change these vectors)"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 2 for bad input, 130 for Ctrl-C."""
    return dispatch(PROG, SUBCOMMANDS, argv, _SUMMARY)


def _statistics(options: StatisticsOptions) -> None:
    if options.figure is not None:
        validate_output_file(options.figure, options.overwrite, "figure")
    from milco_pyserini.analysis.statistics import compute_statistics
    from milco_pyserini.analysis.statistics_report import render_statistics

    scale = 1.0 if options.scale is None else options.scale
    statistics = compute_statistics(options.vectors, options.corpus, options.encoder, options.plain, scale)
    if options.figure is not None:
        from milco_pyserini.analysis.pictures import draw_statistics

        draw_statistics(options.figure, statistics)
        log(f"Picture: {options.figure}")
    sys.stdout.write(statistics.to_json() if options.format == "json" else render_statistics(statistics.values))


def _sweep(options: SweepOptions) -> None:
    from milco_pyserini.analysis.sweep import sweep

    measurements = sweep(options.open_task(), options.directory, prune=options.prune or None, **options.timing())
    print_measurements(options, measurements, "sweep.png, sweep.csv, sweep.json")


def print_measurements(options: TaskOptions, measurements: "Sequence[IndexMeasurement]", files: str) -> None:
    """Print the table, and where its files are."""
    from milco_pyserini.analysis.workbench import measurements_table
    from milco_pyserini.eval.report import render

    sys.stdout.write(render(measurements_table(measurements), options.format))
    log(f"Results: {files} and runs/ in {options.directory} (indexes/ may be removed)")


SUBCOMMANDS = {
    "statistics": Subcommand(StatisticsOptions, _statistics, "nothing was written"),
    "sweep": Subcommand(SweepOptions, _sweep, _RESUMES),
}
