"""The output directory of a latency table: indexes, runs and their report.

indexes/ may be removed at any time: an index is built again when something is to be measured on it. runs/ are TREC
runs, for milco eval.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.timing import SearchQuery, Timed, processor
from milco_pyserini import __version__
from milco_pyserini.analysis.experiment import IndexVariant, RetrievalTask
from milco_pyserini.console import counted, log
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.eval.evaluation import evaluate
from milco_pyserini.eval.report import DIGITS, ReportTable, render
from milco_pyserini.index.directory import Index, build_index, is_index, open_index
from milco_pyserini.index.documents import SparseDocuments
from milco_pyserini.index.protocol import BUILD, SEARCH, Engine
from milco_pyserini.io.artifact import Artifact
from milco_pyserini.io.files import atomic_file, is_json_with, size_on_disk, validate_output_directory, write_json
from milco_pyserini.io.manifest import RECALL
from milco_pyserini.io.runs import write_hits
from milco_pyserini.request import BuildRequest

FORMAT_VERSION = 1
_MARKER = "workbench.json"


@dataclass(frozen=True)
class IndexMeasurement:
    """Size, speed and effectiveness of one index.

    Args:
        vectors: The pruning, or the name of a dense encoder.
        index: The engine with the settings that were given.
        settings: All settings of the engine.
        terms: Mean terms per document in the index; None for dense vectors.
        empty: Number of documents without a term; None for dense vectors.
        size: Bytes on disk.
        mean_ms, p95_ms: Milliseconds per query.
        queries_per_second: On one core, one query after the other.
        rounds_ms: Mean milliseconds per query in each round.
        run: Path of the run, relative to the directory.
        measures: Measure -> mean over the queries.
    """

    vectors: str
    index: str
    settings: dict[str, float]
    terms: float | None
    empty: int | None
    size: int
    mean_ms: float
    p95_ms: float
    queries_per_second: float
    rounds_ms: list[float]
    run: str
    measures: dict[str, float] = field(default_factory=dict)


def measurements_table(measurements: Sequence[IndexMeasurement]) -> ReportTable:
    """Tabulate measurements with the columns of the paper's latency table, and terms per document."""
    measures = list(measurements[0].measures)
    rows = [
        (
            *(
                measurement.vectors,
                measurement.index,
                measurement.mean_ms,
                measurement.p95_ms,
                measurement.queries_per_second,
            ),
            *(measurement.measures[measure] for measure in measures),
            *(measurement.size / 1e6, measurement.terms),
        )
        for measurement in measurements
    ]
    heads = ("ms", "ms p95", "queries/s", *measures, "MB", "terms")
    return ReportTable(("vectors", "index"), heads, rows, (3, 3, 0, *[DIGITS] * len(measures), 2, 1))


class Workbench:
    """An output directory for one task.

    Args:
        directory: Made if it does not exist.
        task: The task to measure.
        variants: The variants to compare.
        rounds: How often each topic is timed.
        threads: Threads that build indexes.
        overwrite: Build all indexes again.

    Raises:
        MilcoError: The directory has something else, or a rule is of a view that the vectors lack.
    """

    def __init__(
        self,
        directory: Path,
        task: RetrievalTask,
        variants: Iterable[IndexVariant],
        rounds: int = 5,
        threads: int = 1,
        overwrite: bool = False,
    ) -> None:
        self.directory = directory
        self.task = task
        self.rounds = rounds
        self.threads = threads
        self.overwrite = overwrite
        for variant in variants:
            # Raises for a rule of a view that the store does not have.
            task.pruned(variant.rules)
        validate_workbench(directory)
        write_json(directory / _MARKER, {"format_version": FORMAT_VERSION})

    def index(self, variant: IndexVariant) -> Index:
        """Return the index of a variant, with a message if it leaves documents out."""
        store = self.task.pruned(variant.rules)
        index = self.built(variant.directory_name(self.task.views), str(variant), variant.engine, store)
        if empty := index.manifest.empty_documents:
            log(f"{variant}: {counted(empty, 'document')} without terms, which no query can find")
        return index

    def built(self, name: str, label: str, engine: Engine, vectors: SparseDocuments) -> Index:
        """Return an existing index of the same vectors and settings, or a new one.

        Args:
            name: Name of its directory.
            label: For messages.

        Raises MilcoError for docids that a run cannot have.
        """
        path = self.directory / "indexes" / name
        wanted = {"engine": engine.name, "build_settings": engine.settings(BUILD), "vectors": vectors.manifest}
        index = open_index(path) if is_index(path) and not self.overwrite else None
        if index is None or Artifact(path, is_index, index.manifest).difference(wanted):
            log(f"{label}: building")
            request = BuildRequest(threads=self.threads, overwrite=True, store_documents=False)
            index = build_index(vectors, engine, path, request)
        if (docid := index.manifest.id_with_space) is not None:
            raise MilcoError(f"{label}: docid {shown(docid)} has white space, which separates the columns of a run")
        return index

    def open(self, variant: IndexVariant, index: Index) -> SearchQuery:
        """Open an index with the search settings of a variant."""
        searcher = index.searcher(variant.engine.settings(SEARCH))
        queries, k = self.task.vectors, self.task.k
        return lambda number: searcher.search([queries[number]], k)[0]

    def measure(self, variant: IndexVariant, index: Index, timed: Timed) -> IndexMeasurement:
        """Write the run of a variant, and return what was measured."""
        documents = index.manifest.documents + index.manifest.empty_documents
        label = variant.label(BUILD, SEARCH)
        return self._measured(
            ".".join([directory_name(f"{label}.{variant.pruning}"), *self.task.views]),
            index.path,
            timed,
            vectors=variant.pruning,
            index=label,
            settings=variant.engine.settings(BUILD) | variant.engine.settings(SEARCH),
            terms=index.manifest.postings / documents,
            empty=index.manifest.empty_documents,
        )

    def measure_dense(self, name: str, description: str, path: Path, timed: Timed) -> IndexMeasurement:
        """Write the run of an index of dense vectors, and return what was measured."""
        return self._measured(
            path.name, path, timed, vectors=name, index=description, settings={}, terms=None, empty=None
        )

    def report(self, measurements: Sequence[IndexMeasurement]) -> list[IndexMeasurement]:
        """Evaluate the runs and write latency.csv and latency.json; return the measurements with their measures."""
        task = self.task
        measured = [
            replace(measurement, measures=evaluate(self.directory / measurement.run, task.grades, task.measures).mean)
            for measurement in measurements
        ]
        with atomic_file(self.directory / "latency.csv", "w") as file:
            file.write(render(measurements_table(measured), "csv"))
        points = [vars(measurement) | {"figures": measurement.measures} for measurement in measured]
        for point in points:
            del point["measures"]
        about = {
            "vectors": str(task.store.path),
            "topics": task.topics,
            "qrels": task.qrels,
            "documents": len(task.store),
            "queries": len(task.ids),
            "hits": task.k,
            "rounds": self.rounds,
            "processor": processor(),
            "milco_pyserini": __version__,
        }
        write_json(self.directory / "latency.json", {**about, "points": points})
        return measured

    def _measured(self, name: str, path: Path, timed: Timed, **about: Any) -> IndexMeasurement:
        run = self.directory / "runs" / f"{name}.txt"
        with atomic_file(run, "w") as file:
            for topic, hits in zip(self.task.ids, timed.hits, strict=True):
                write_hits(file, topic, hits, "trec", name)
        return IndexMeasurement(
            **about,
            size=size_on_disk(path, without=RECALL),
            mean_ms=timed.mean_ms,
            p95_ms=timed.p95_ms,
            queries_per_second=timed.queries_per_second,
            rounds_ms=timed.rounds_ms,
            run=str(run.relative_to(self.directory)),
        )


def validate_workbench(directory: Path) -> None:
    """Raise MilcoError if a directory has something that no latency table wrote."""
    validate_output_directory(directory, True, lambda path: is_json_with(path / _MARKER, "format_version"))
