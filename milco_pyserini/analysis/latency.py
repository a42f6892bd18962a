"""Measure engines, and dense baselines in Faiss's HNSW, in turn on one core, as in the paper's latency table."""

from collections.abc import Sequence
from pathlib import Path

from milco_pyserini.analysis.dense import DOCUMENTS, QUERIES, DenseBaseline
from milco_pyserini.analysis.experiment import UNPRUNED, RetrievalTask, parse_variants
from milco_pyserini.analysis.timing import SearchQuery, time_searches
from milco_pyserini.analysis.workbench import IndexMeasurement, Workbench
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, shown, validate_unique
from milco_pyserini.index.faiss_engines import HnswEngine


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
