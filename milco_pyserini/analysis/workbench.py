"""The directory of a sweep or a latency table: indexes, built once; runs; what was measured of each system.

indexes/ may be removed at any time: it is built again when something is to be measured on it. runs/ are TREC runs,
which milco_pyserini.eval --run compares and tests.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from milco_pyserini.analysis.systems import System
from milco_pyserini.analysis.task import Task, digest
from milco_pyserini.analysis.timing import Ask, Timed
from milco_pyserini.console import counted, say
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.eval.evaluation import Evaluation, evaluate
from milco_pyserini.index.directory import FORMAT_VERSION as INDEX_VERSION
from milco_pyserini.index.directory import Index, build_index, is_index
from milco_pyserini.index.protocol import BUILD, SEARCH
from milco_pyserini.io.files import atomic_file, is_json_with, read_json, validate_output_directory, write_json
from milco_pyserini.io.manifest import MANIFEST, RECALL, read_checked
from milco_pyserini.io.runs import read_run, write_hits

FORMAT_VERSION = 1
_MARK = "workbench.json"


@dataclass(frozen=True)
class Point:
    """What was measured of one system.

    settings: all of the engine's, also those that were not given. terms: of a document, on average, as they stand in
    the index; None for dense vectors. size: bytes on disk. Times in milliseconds; rounds_ms: the mean of each round.
    empty: documents without a term. run: path of the run, from the directory.
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


class Workbench:
    """One such directory, for one task."""

    def __init__(self, directory: Path, task: Task) -> None:
        self.directory = directory
        self.task = task
        self.indexes = directory / "indexes"
        self._points = directory / "points"
        self._runs = directory / "runs"

    def open(self, systems: Iterable[System]) -> None:
        """Make the directory. Raises MilcoError, before that, for a rule of a view that the vectors do not have."""
        for system in systems:
            self.task.pruned(system.cut)
        write_json(self.directory / _MARK, {"format_version": FORMAT_VERSION})

    def index(self, system: System, threads: int) -> Index:
        """The index of a system: the one that stands there, if it is of these vectors and settings, or a new one."""
        path = self.indexes / self._name(system.index_name)
        engine = system.choice.adjusted_engine()
        store = self.task.pruned(system.cut)
        wanted = {
            "format_version": INDEX_VERSION,
            "engine": engine.name,
            "build_settings": engine.settings(BUILD),
            "vectors": store.manifest,
        }
        if is_index(path):
            manifest = read_checked(path / MANIFEST)
            if all(manifest.get(name) == value for name, value in wanted.items()):
                return Index(path, manifest)
        say(f"{system}: building")
        index = build_index(store, engine, path, threads, overwrite=True)
        if (name := index.manifest["id_with_space"]) is not None:
            raise MilcoError(
                f"{self.task.store.path}: docid {shown(name)} holds white space, which ends a run's column"
            )
        if empty := index.manifest["empty_documents"]:
            say(f"{system}: {counted(empty, 'document')} without a term, which no query can find")
        return index

    def ask(self, system: System, index: Index) -> Ask:
        """Open an index as a system searches it."""
        searcher = index.searcher(system.choice.adjusted_engine().settings(SEARCH))
        queries, hits = self.task.vectors, self.task.hits
        return lambda number: searcher.search([queries[number]], hits)[0]

    def point(self, system: System, index: Index, timed: Timed) -> Point:
        """What was measured of a system; its run is written."""
        documents = index.manifest["documents"] + index.manifest["empty_documents"]
        return self._measured(
            self._name(system.name),
            index.path,
            timed,
            vectors=str(system.cut),
            index=str(system.choice),
            settings=system.choice.settings(),
            terms=index.manifest["postings"] / documents,
            empty=index.manifest["empty_documents"],
        )

    def dense_point(self, vectors: str, index: str, path: Path, timed: Timed) -> Point:
        """What was measured of an index of dense vectors; its run is written."""
        return self._measured(path.name, path, timed, vectors=vectors, index=index, settings={}, terms=None, empty=None)

    def record(self, system: System, index: Index, timed: Timed) -> Point:
        """What was measured of a system, kept for recorded()."""
        point = self.point(system, index, timed)
        write_json(self._point(system), {"asked": self._asked(system, len(timed.seconds)), **asdict(point)})
        return point

    def recorded(self, system: System, rounds: int) -> Point | None:
        """What was measured of a system before, if it was asked the same."""
        path = self._point(system)
        if not is_json_with(path, "asked", *Point.__dataclass_fields__):
            return None
        known = read_json(path)
        if known.pop("asked") != self._asked(system, rounds) or not (self.directory / known["run"]).is_file():
            return None
        return Point(**known)

    def evaluation(self, point: Point) -> Evaluation:
        """The figures of a point's run."""
        return evaluate(read_run(self.directory / point.run), self.task.qrels, self.task.measures)

    def _measured(self, name: str, path: Path, timed: Timed, **what: Any) -> Point:
        run = self._runs / f"{name}.txt"
        with atomic_file(run, "w") as file:
            for topic, found in zip(self.task.ids, timed.hits, strict=True):
                write_hits(file, topic, found, "trec", name)
        return Point(
            **what,
            size=size_on_disk(path),
            mean_ms=timed.mean_ms,
            p95_ms=timed.p95_ms,
            queries_per_second=timed.queries_per_second,
            rounds_ms=timed.rounds_ms,
            run=str(run.relative_to(self.directory)),
        )

    def _point(self, system: System) -> Path:
        return self._points / f"{self._name(system.name)}.json"

    def _name(self, name: str) -> str:
        return ".".join([name, *self.task.views])

    def _asked(self, system: System, rounds: int) -> dict:
        return {
            "documents": digest(self.task.pruned(system.cut).manifest),
            "settings": system.choice.settings(),
            "topics": self.task.topics_hash,
            "hits": self.task.hits,
            "rounds": rounds,
        }


def refuse_foreign(directory: Path) -> None:
    """Raise MilcoError if a directory holds something that no sweep and no latency table wrote."""
    validate_output_directory(directory, True, lambda path: is_json_with(path / _MARK, "format_version"))


def size_on_disk(directory: Path) -> int:
    """Bytes of the files of an index, without those that say how good it is."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != RECALL]
    return sum(path.stat().st_size for path in files)
