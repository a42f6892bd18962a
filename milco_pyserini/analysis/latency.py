"""milco_pyserini.eval latency: engines side by side on one core, as in the paper's latency table."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.analysis.task import TaskOptions, open_task
from milco_pyserini.console import say
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.analysis.timing import Ask
    from milco_pyserini.analysis.workbench import Workbench


@dataclass(frozen=True)
class LatencyOptions(TaskOptions):
    """Average and 95th-percentile latency of a search on one core, queries/s, effectiveness and index size on disk: a
    row for each rule of --prune with each engine, and for each dense encoder with Faiss's HNSW (M=32, efSearch=64).

    A query is encoded beforehand; its time is from its vector to its documents' ids. All systems are open at once and
    are asked in turn, so that what slows the machine down for a while slows all of them. The paper's rows are
      --engines seismic:n_postings=15000,query_cut=10,heap_factor=0.9 --views pivot
      --prune none mass:10 mass:30 mass:50 mass:60 --dense Qwen/Qwen3-Embedding-0.6B
    """

    engines: tuple[str, ...] = option(
        ("lucene", "seismic", "exact"), metavar="ENGINE", help="with settings as seismic:query_cut=10,heap_factor=0.9"
    )
    dense: tuple[str, ...] = option(
        (),
        metavar="MODEL",
        help="encoders by hub name or directory; of mini or another MILCO checkpoint the mean of its encoder's states; "
        "or directories of vectors: a store of encode --dense, or NumPy's: documents.npy, documents.txt (an id a "
        "line), queries.npy, queries.txt",
    )
    dense_pooling: str | None = option(
        None, choices=("cls", "mean", "last"), help="(default: as the model's files say, else mean)"
    )


def latency_command(options: LatencyOptions) -> None:
    """Build what is not there, time everything, print the table. Raises MilcoError before anything is built."""
    from milco_pyserini.analysis.measured import write_report
    from milco_pyserini.analysis.systems import check_available, read_systems
    from milco_pyserini.analysis.timing import ask_in_turn
    from milco_pyserini.analysis.workbench import Workbench, refuse_foreign
    from milco_pyserini.index.faiss_engines import HnswEngine

    systems = read_systems(options.prune, options.engines)
    check_available(systems)
    if options.dense:
        HnswEngine().available()
    refuse_foreign(options.directory)
    task = open_task(options)
    workbench = Workbench(options.directory, task)
    workbench.open(systems)
    dense = {name: _dense_index(workbench, name, options) for name in options.dense}
    indexes = {system: workbench.index(system, options.threads) for system in systems}
    asks = {name: ask for name, (_, ask) in dense.items()}
    asks |= {str(system): workbench.ask(system, index) for system, index in indexes.items()}
    timed = ask_in_turn(asks, len(task.ids), options.rounds)
    points = [workbench.dense_point(name, _hnsw(), path, timed[name]) for name, (path, _) in dense.items()]
    points += [workbench.point(system, index, timed[str(system)]) for system, index in indexes.items()]
    write_report(options, task, [(point, workbench.evaluation(point).mean) for point in points], "latency")
    say(f"latency.csv, latency.json and runs/ are in {options.directory}; indexes/ there may be removed")


def _dense_index(workbench: "Workbench", name: str, options: LatencyOptions) -> "tuple[Path, Ask]":
    """The HNSW index of a dense encoder, built if need be, and how it is asked."""
    from milco_pyserini.analysis.dense import LoadedStore
    from milco_pyserini.analysis.dense_source import DenseSource
    from milco_pyserini.encode.prompts import DOCUMENTS, QUERIES
    from milco_pyserini.index.directory import Index, build_index, is_index
    from milco_pyserini.index.faiss_engines import HnswEngine
    from milco_pyserini.io.manifest import MANIFEST, read_checked

    task, folder = workbench.task, directory_name(name)
    source = DenseSource(name, options.dense_pooling, task, options.topics, workbench.directory / "dense" / folder)
    about, path = source.about(DOCUMENTS), workbench.indexes / f"hnsw.{folder}"
    queries = source.load(QUERIES)
    rows = {topic: row for row, topic in enumerate(queries.ids)}
    lacking = [topic for topic in task.ids if topic not in rows]
    if lacking:
        raise MilcoError(f"--dense {name}: there is no vector of topic {shown(lacking[0])}")
    if is_index(path) and read_checked(path / MANIFEST)["vectors"].get("of") == about:
        index = Index(path, read_checked(path / MANIFEST))
    else:
        say(f"{name}, {_hnsw()}: building")
        store = LoadedStore(Path(name), source.load(DOCUMENTS), about)
        index = build_index(store, HnswEngine(), path, options.threads, overwrite=True)
    searcher, asked = index.searcher(), queries.matrix[[rows[topic] for topic in task.ids]]
    return path, lambda number: searcher.search([asked[number]], task.hits)[0]


def _hnsw() -> str:
    """How the table calls the index of dense vectors."""
    from milco_pyserini.index.faiss_engines import HnswEngine

    engine = HnswEngine()
    return f"{engine.name} M={engine.links} ef={engine.ef_search}"
