"""python -m experiments.latency: engines, and dense baselines in Faiss's HNSW, timed in turn on one core."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.dense import DOCUMENTS, QUERIES, DenseBaseline
from milco_pyserini.analysis.experiment import UNPRUNED, RetrievalTask, parse_variants
from milco_pyserini.analysis.timing import SearchQuery, time_searches
from milco_pyserini.analysis.workbench import IndexMeasurement, Workbench
from milco_pyserini.cli import program
from milco_pyserini.cli.analyze import TaskOptions, print_measurements
from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, shown, validate_unique
from milco_pyserini.index.faiss_engines import HnswEngine
from milco_pyserini.options import option

PROG = "python -m experiments.latency"


@dataclass(frozen=True)
class LatencyOptions(TaskOptions):
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
    dense: tuple[str, ...] = option(
        (),
        metavar="MODEL",
        help="dense encoders by hub name or directory, stores of encode --dense, or directories with documents.npy, "
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
    measurements = measure_latency(
        options.open_task(),
        options.directory,
        prune=options.prune,
        dense=options.dense,
        dense_pooling=options.dense_pooling,
        **options.timing(),
    )
    print_measurements(options, measurements, "latency.csv, latency.json")


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
) -> list[IndexMeasurement]:
    """Time all indexes in turn, so that what slows the machine down for a while slows all of them.

    Args:
        task: See open_task().
        output: Directory for latency.csv, latency.json, runs and indexes. Existing indexes are reused.
        prune, engines: See parse_variants().
        dense: Dense encoders or directories of dense vectors, see DenseBaseline.
        dense_pooling: "cls", "mean" or "last" (default: as the encoder's files specify, else mean).
        rounds: How often each topic is timed; the median counts.
        threads: Threads that build indexes.

    Raises:
        MilcoError: A rule, an engine or a baseline is invalid, before anything is built.
    """
    variants = parse_variants(prune, engines)
    # Vectors, index and run of each are kept under its name.
    validate_unique("--dense", map(directory_name, dense))
    if dense:
        HnswEngine().available()
    workbench = Workbench(Path(output), task, variants, rounds, threads)
    baselines = {name: _open_dense(workbench, name, dense_pooling) for name in dense}
    indexes = {variant: workbench.index(variant) for variant in variants}
    searches = {name: search for name, (_, search) in baselines.items()}
    searches |= {str(variant): workbench.open(variant, index) for variant, index in indexes.items()}
    timed = time_searches(searches, len(task.ids), rounds)
    measurements = [
        workbench.measure_dense(name, _hnsw_name(), path, timed[name]) for name, (path, _) in baselines.items()
    ]
    measurements += [workbench.measure(variant, index, timed[str(variant)]) for variant, index in indexes.items()]
    return workbench.report(measurements, "latency")


def _open_dense(workbench: Workbench, name: str, pooling: str | None) -> tuple[Path, SearchQuery]:
    """Return the HNSW index of a dense baseline, built if it does not exist, and how to search it."""
    task, folder = workbench.task, directory_name(name)
    baseline = DenseBaseline(name, pooling, task, workbench.directory / "dense" / folder)
    queries = baseline.load(QUERIES)
    rows = {topic: row for row, topic in enumerate(queries.ids)}
    missing = [topic for topic in task.ids if topic not in rows]
    if missing:
        raise MilcoError(f"--dense {name} has no vector of topic {shown(missing[0])}")
    origin = baseline.origin(DOCUMENTS)
    index = workbench.built(
        f"hnsw.{folder}",
        f"{name}, {_hnsw_name()}",
        HnswEngine(),
        lambda of: of.get("of") == origin,
        lambda: baseline.load(DOCUMENTS),
    )
    searcher, vectors = index.searcher(), queries.matrix[[rows[topic] for topic in task.ids]]
    return index.path, lambda number: searcher.search([vectors[number]], task.hits)[0]


def _hnsw_name() -> str:
    engine = HnswEngine()
    return f"{engine.name} M={engine.links} ef={engine.ef_search}"


if __name__ == "__main__":
    raise SystemExit(program.start(main, PROG))
