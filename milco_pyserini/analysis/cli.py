"""milco analyze statistics|sweep"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.console import log
from milco_pyserini.defaults import INDEXES, directory_name
from milco_pyserini.eval.report import FORMATS
from milco_pyserini.options import MAX_THREADS, ExternalOptions, option

if TYPE_CHECKING:
    from milco_pyserini.analysis.experiment import RetrievalTask

PROG = "milco analyze"
_SUMMARY = "Analyze vectors: how sparse they are, and what pruning costs and saves."
_RULES = (
    "none, top-k:K, percentile:P, mass:P or threshold:T, of one view as pivot:top-k:K; several rules on the same "
    "vectors as RULE,RULE"
)


@dataclass(frozen=True)
class StatisticsOptions(ExternalOptions):
    """Sparsity of a vector store: terms per document and view, posting lists, unused columns.

    Also the most frequent terms, and length against sparsity; all by language if the name of the corpus or the ids
    (ar-07) have it.

      milco analyze statistics --vectors vectors/sample
    """

    vectors: Path = option(metavar="DIR", help="vector store of documents or topics")
    encoder: str | None = option(
        None, metavar="NAME|DIR", help="current place of the encoder, whose tokens are counted"
    )
    format: str = option("text", choices=("text", "json"), help="format on stdout")


@dataclass(frozen=True)
class SweepOptions:
    """Effectiveness against terms per document, index size and search time, for every pruning rule with every engine.

    Nothing is encoded again, and existing indexes of the same vectors are searched again.

      milco analyze sweep --vectors vectors/sample --topics sample-sw --qrels sample-sw --prune none top-k:100
    """

    vectors: Path = option(metavar="DIR", help="vector store of the documents, not pruned")
    topics: str = option(metavar="NAME|PATH", help="topics: a name (miracl-ar-dev), texts, or a vector store")
    qrels: str = option(metavar="NAME|FILE", help="qrels of the topics")
    engines: tuple[str, ...] = option(
        ("lucene", "exact"),
        metavar="ENGINE",
        help="lucene, exact, qdrant or seismic, with settings such as seismic:query_cut=10,heap_factor=0.9",
    )
    prune: tuple[str, ...] = option(
        (), metavar="RULE", help=f"{_RULES} (default: those of the paper that change these vectors)"
    )
    views: tuple[str, ...] = option((), choices=("pivot", "source"), help="views to index (default: all)")
    measures: tuple[str, ...] = option(
        ("nDCG@10",), names=("-m",), metavar="MEASURE", help="measures, see milco eval measures"
    )
    k: int | None = option(
        None, minimum=1, names=("--hits",), help="documents for each topic (default: as many as the measures need)"
    )
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that build; searches have one")
    encoder: str | None = option(None, metavar="NAME|DIR", help="current place of the encoder, for topics as texts")
    output: Path | None = option(None, metavar="DIR", help="directory of the indexes (default: indexes/NAME.sweep)")
    overwrite: bool = option(False, help="build all indexes again, and replace those of other vectors")
    format: str = option("text", choices=(*FORMATS, "json"), help="format of the table on stdout")

    def open_task(self) -> "RetrievalTask":
        """Open vectors, topics and qrels; raise MilcoError for other invalid options before topics are encoded."""
        from milco_pyserini.analysis.experiment import open_task, parse_variants

        parse_variants(self.prune or ("none",), self.engines)
        names = self.vectors, self.topics, self.qrels
        return open_task(*names, views=self.views, measures=self.measures, k=self.k, encoder=self.encoder)


def _statistics(options: StatisticsOptions) -> None:
    from milco_pyserini.analysis.statistics import compute_statistics
    from milco_pyserini.analysis.statistics_report import render_statistics

    scale = 1.0 if options.scale is None else options.scale
    statistics = compute_statistics(options.vectors, options.encoder, options.plain, scale)
    sys.stdout.write(statistics.to_json() if options.format == "json" else render_statistics(statistics.values))


def _sweep(options: SweepOptions) -> None:
    import orjson

    from milco_pyserini.analysis.sweep import sweep, sweep_table
    from milco_pyserini.eval.report import render

    task = options.open_task()
    output = options.output or INDEXES / f"{directory_name(options.vectors.name)}.sweep"
    points = sweep(
        task, output, prune=options.prune, engines=options.engines, threads=options.threads, overwrite=options.overwrite
    )
    if options.format == "json":
        sys.stdout.write(orjson.dumps(points, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        sys.stdout.write(render(sweep_table(points), options.format))
    log(f"The indexes in {output} may be removed")


SUBCOMMANDS = {
    "statistics": Subcommand(StatisticsOptions, _statistics, "nothing was written"),
    "sweep": Subcommand(SweepOptions, _sweep, "the same command reuses the indexes"),
}
main = partial(dispatch, PROG, SUBCOMMANDS, _SUMMARY)
