"""python -m experiments.latency: engines, and dense baselines in Faiss's HNSW, timed in turn on one core."""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.dense import EF_SEARCH, LINKS, HnswSearcher, build_hnsw, open_dense
from experiments.timing import SearchQuery, time_searches
from experiments.workbench import IndexMeasurement, Workbench, measurements_table, validate_workbench
from milco_pyserini.analysis.cli import SweepOptions
from milco_pyserini.analysis.experiment import UNPRUNED, RetrievalTask, parse_variants
from milco_pyserini.cli import program
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, validate_unique
from milco_pyserini.eval.report import FORMATS, render
from milco_pyserini.io.files import read_json
from milco_pyserini.io.manifest import MANIFEST
from milco_pyserini.options import option

PROG = "python -m experiments.latency"
RESULTS = Path("results")


@dataclass(frozen=True)
class LatencyOptions(SweepOptions):
    """Latency on one core, effectiveness and index size, for each pruning and engine.

    A row has the mean and the 95th percentile of the latencies, and queries/s. Each dense encoder has a row, too, in
    Faiss's HNSW (M=32, efSearch=64).

    Encoding the query does not count. All indexes are open at once and searched in turn, so that what slows the
    machine down for a while slows all of them. The rows of the paper:

      python -m experiments.latency --vectors vectors/miracl-en --topics miracl-en-dev --qrels miracl-en-dev \\
        --engines seismic:n_postings=15000,query_cut=10,heap_factor=0.9 --views pivot \\
        --prune none mass:10 mass:30 mass:50 mass:60 --dense Qwen/Qwen3-Embedding-0.6B
    """

    engines: tuple[str, ...] = option(
        ("lucene", "seismic", "exact"),
        metavar="ENGINE",
        help="engines, with settings such as seismic:query_cut=10,heap_factor=0.9",
    )
    prune: tuple[str, ...] = option((UNPRUNED,), metavar="RULE", help="pruning rules, see milco analyze sweep")
    rounds: int = option(5, minimum=1, help="times that each topic is searched; the median counts")
    output: Path | None = option(
        None, metavar="DIR", help="directory for results, runs and indexes, which are reused (default: results/NAME)"
    )
    format: str = option("text", choices=FORMATS, help="format of the table on stdout")
    dense: tuple[str, ...] = option(
        (),
        metavar="MODEL",
        help="dense encoders by hub name or directory, directories of experiments.dense, or with documents.npy, "
        "documents.txt (an id per line), queries.npy, queries.txt; of a MILCO checkpoint, the mean of its states",
    )
    dense_pooling: str | None = option(
        None, choices=("cls", "mean", "last"), help="pooling (default: as in the model's files, else mean)"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 2 for bad input, 130 for Ctrl-C."""
    return run_command(PROG, LatencyOptions, latency_command, argv, "the same command resumes")


def latency_command(options: LatencyOptions) -> None:
    """Measure, and print the table."""
    output = options.output or RESULTS / directory_name(options.vectors.name)
    validate_workbench(output)
    measurements = measure_latency(
        options.open_task(),
        output,
        prune=options.prune,
        engines=options.engines,
        dense=options.dense,
        dense_pooling=options.dense_pooling,
        rounds=options.rounds,
        threads=options.threads,
        overwrite=options.overwrite,
    )
    sys.stdout.write(render(measurements_table(measurements), options.format))
    log(f"Results: latency.csv, latency.json and runs/ in {output} (indexes/ may be removed)")


def measure_latency(
    task: RetrievalTask,
    output: str | Path,
    *,
    prune: Sequence[str] = (UNPRUNED,),
    engines: Sequence[str] = ("lucene", "seismic", "exact"),
    dense: Sequence[str] = (),
    dense_pooling: str | None = None,
    rounds: int = 5,
    threads: int = 1,
    overwrite: bool = False,
) -> list[IndexMeasurement]:
    """Time all indexes in turn, so that what slows the machine down for a while slows all of them.

    Args:
        task: See open_task().
        output: Directory for latency.csv, latency.json, runs and indexes. Existing indexes are reused.
        prune, engines: See parse_variants().
        dense: Dense encoders or directories of dense vectors, see open_dense().
        dense_pooling: "cls", "mean" or "last" (default: as the encoder's files specify, else mean).
        rounds: How often each topic is timed; the median counts.
        threads: Threads that build indexes.
        overwrite: Build all indexes again.

    Raises:
        MilcoError: A rule, an engine or a baseline is invalid, before anything is built.
    """
    variants = parse_variants(prune, engines)
    # Vectors, index and run of each are kept under its name.
    validate_unique("--dense", map(directory_name, dense))
    if dense and importlib.util.find_spec("faiss") is None:
        raise MilcoError("--dense needs Faiss: pip install '.[dense]'")
    label = f"hnsw M={LINKS} ef={EF_SEARCH}"
    workbench = Workbench(Path(output), task, variants, rounds, threads, overwrite)
    baselines: dict[str, Path] = {}
    searches: dict[str, SearchQuery] = {}
    for name in dense:
        documents, queries = open_dense(name, dense_pooling, task, workbench.directory / "dense")
        path = workbench.directory / "indexes" / f"hnsw.{directory_name(name)}" / "index.faiss"
        manifest = path.with_name(MANIFEST)
        if overwrite or not manifest.is_file() or read_json(manifest) != documents.manifest:
            log(f"{name}, {label}: building")
            build_hnsw(documents, path)
        baselines[name] = path.parent
        searches[name] = _searches(HnswSearcher(documents, path), queries, task.k)
    indexes = {variant: workbench.index(variant) for variant in variants}
    searches |= {str(variant): workbench.open(variant, index) for variant, index in indexes.items()}
    timed = time_searches(searches, len(task.ids), rounds)
    measurements = [workbench.measure_dense(name, label, path, timed[name]) for name, path in baselines.items()]
    measurements += [workbench.measure(variant, index, timed[str(variant)]) for variant, index in indexes.items()]
    return workbench.report(measurements)


def _searches(searcher: HnswSearcher, queries: NDArray[np.float32], k: int) -> SearchQuery:
    return lambda number: searcher.search(queries[number], k)


if __name__ == "__main__":
    raise SystemExit(program.start(main, PROG))
