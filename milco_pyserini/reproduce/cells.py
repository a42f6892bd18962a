"""One figure of a table: what makes it, and how it is read off what was made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.reproduce.published import Figures
from milco_pyserini.reproduce.records import ANOTHER_MODEL
from milco_pyserini.reproduce.roads import MANIFEST, PLAIN, Collection, Roads, Step, Variant
from milco_pyserini.reproduce.systems import PUBLIC, SYSTEMS, System

Key = tuple[str, str, str]
MEAN, DIFFERENCE = "mean", "difference"
NO_SYSTEM = "not among the systems that this command measures"


@dataclass(frozen=True)
class Cell:
    """One figure. Its key is table, row and column.

    steps, read: what is run, and what then tells the figure, in the published table's units. run: the TREC run among
    what was made. parts, combine: instead of steps, the cells whose mean or difference it is. missing: why it cannot
    be had at all. unlike: as in CellResult. A cell with none of these is quoted: a published fact; quoted says why it
    is not measured.
    """

    table: str
    row: str
    column: str
    measure: str
    published: float | None = None
    steps: tuple[Step, ...] = ()
    read: Callable[[], float] | None = None
    run: Path | None = None
    parts: tuple[Key, ...] = ()
    combine: str = MEAN
    missing: str = ""
    unlike: str = ""
    quoted: str = ""

    @property
    def key(self) -> Key:
        """Table, row and column."""
        return self.table, self.row, self.column

    @property
    def is_fact(self) -> bool:
        """Whether there is nothing to measure."""
        return not (self.steps or self.parts or self.missing)

    @property
    def commands(self) -> tuple[str, ...]:
        """The steps as they are typed."""
        return tuple(step.command for step in self.steps)


@dataclass(frozen=True)
class Table:
    """Cells of one table, and how it is drawn: the other fields are TableResult's."""

    name: str
    title: str
    caption: str
    cells: tuple[Cell, ...]
    picture: str | None = None
    x_label: str = ""
    y_label: str = ""
    x: str | None = None
    y: tuple[str, ...] = ()
    size: str | None = None


# The published figure of a system in a column, if there is one.
Published = Callable[[System, str], float | None]


def labelled(figures: Figures, table: str) -> Published:
    """The figures of a published table by the labels that systems have in it."""
    return lambda system, column: figures.get((system.labels.get(table, ""), column))


def others(table: str, figures: Figures, label: str, measures: Mapping[str, str]) -> list[Cell]:
    """The rows of a published table for which none of our systems stands, as facts.

    label: the published table, in the systems' labels. measures: the columns, and what each is measured by.
    """
    ours = {system.labels.get(label) for system in SYSTEMS.values()}
    return [
        Cell(table, row, column, measure, figures[row, column], quoted=NO_SYSTEM)
        for row in dict.fromkeys(row for row, _ in figures)
        for column, measure in measures.items()
        if row not in ours and (row, column) in figures
    ]


def nothing(system: System, column: str) -> float | None:
    """No figure: nobody published one."""
    return None


def effect_cells(
    table: str,
    roads: Roads,
    systems: Iterable[System],
    collections: Mapping[str, Collection],
    published: Published,
) -> list[Cell]:
    """A cell for each system and each column, by its collection's measure."""
    return [
        effect(table, system.title, column, roads, system, collection, published(system, column), unlike=system.unlike)
        for system in systems
        for column, collection in collections.items()
    ]


def effect(
    table: str,
    row: str,
    column: str,
    roads: Roads,
    system: System,
    collection: Collection,
    published: float | None = None,
    variant: Variant = PLAIN,
    measures: Sequence[str] = (),
    measure: str = "",
    unlike: str = "",
) -> Cell:
    """The effectiveness of a system on a collection. measures: all that its run is asked for; measure: the cell's."""
    measure = measure or collection.measure
    if missing := lacking(roads, system):
        return Cell(table, row, column, measure, published, missing=missing)
    run = roads.run(system, collection, variant)
    figures = roads.evaluation(run, collection, measures)
    read = partial(evaluated, figures.output, measure)
    differs = another(roads, system) or unlike
    return Cell(table, row, column, measure, published, figures.steps, read, run.output, unlike=differs)


def mean_cells(
    table: str,
    roads: Roads,
    systems: Iterable[System],
    columns: Sequence[str],
    over: Sequence[str],
    published: Published,
    name: str = "avg",
    measure: str = "nDCG@10",
) -> list[Cell]:
    """For each system the mean over columns; none unless all of over, whose mean was published, are among columns."""
    if len(over) < 2 or not set(over) <= set(columns):
        return []
    return [
        Cell(
            table,
            system.title,
            name,
            measure,
            published(system, name),
            parts=tuple((table, system.title, column) for column in over),
            unlike=another(roads, system) or system.unlike,
        )
        for system in systems
    ]


def lacking(roads: Roads, system: System) -> str:
    """Why a system cannot be run at all; "" if it can."""
    if roads.has(system):
        return ""
    return f"needs --checkpoints {system.checkpoint}=PATH: nobody published that checkpoint, it has to be trained"


def another(roads: Roads, system: System) -> str:
    """ "another model" if an encoder is not the one that was published, else ""."""
    keys = {one.checkpoint for one in [SYSTEMS[part] for part in system.parts] or [system]} & PUBLIC.keys()
    return ANOTHER_MODEL if any(roads.checkpoints[str(key)] != PUBLIC[str(key)] for key in keys) else ""


def evaluated(path: Path, measure: str) -> float:
    """Points of 100: a mean in what eval wrote."""
    from milco_pyserini.eval.measures import parse_measures

    (name,) = map(str, parse_measures([measure]))
    measures = read_json(path)["results"][0]["measures"]
    if name not in measures:
        raise MilcoError(f"{path} has no {name}, but {', '.join(measures)}: remove it, and it is made again")
    return 100 * measures[name]["mean"]


def terms_of(indexes: Sequence[Path]) -> float:
    """Terms of a document on average, those without any counted too; of several indexes the mean of their averages."""
    manifests = [read_json(index / MANIFEST) for index in indexes]
    averages = [one["postings"] / (one["documents"] + one["empty_documents"]) for one in manifests]
    return sum(averages) / len(averages)


def timed(path: Path, vectors: str, field: str, factor: float = 1.0) -> float:
    """A figure of a latency table's row, by its vectors ("mass:10", or an encoder)."""
    rows = [point for point in read_json(path)["points"] if point["vectors"] == vectors]
    if not rows:
        raise MilcoError(f"{path} has no row of {vectors}")
    return factor * (rows[0]["figures"] | rows[0])[field]


def counted_length(path: Path, number: int, *keys: str) -> float:
    """A figure of one bin of lengths in what analyze statistics wrote; number: from 0, of the shortest texts."""
    bins = _length(path)["bins"]
    if number >= len(bins):
        raise MilcoError(f"there are {len(bins)} bins only: many texts have one length")
    return _at(bins[number], keys)


def correlated_length(path: Path, *keys: str) -> float:
    """A correlation of length and terms in what analyze statistics wrote."""
    return _at(_length(path)["correlation"], keys)


def _length(path: Path) -> dict[str, Any]:
    found = read_json(path)["length"]
    if found is None:
        raise MilcoError(f"{path}: the texts were not at hand, so that their lengths are not known")
    return found


def _at(found: Any, keys: Iterable[str]) -> float:
    for key in keys:
        found = found[key]
    return float(found)
