"""The cells of the paper's tables: the commands of each figure, and how it is read from their output."""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.steps import Pipeline, Step
from experiments.tables import DENSE, MILCO, Dataset, System, Table, find_system, find_table, paper, task_datasets
from milco_pyserini.errors import MilcoError, validate_name
from milco_pyserini.io.files import read_json
from milco_pyserini.io.manifest import MANIFEST

BINS = 10
VIEWS = ("pivot", "source", "both")
# Why a figure need not agree with the published one, besides the caveats of tables.yaml.
ANOTHER_MODEL = "another model"
# Note of a published figure next to which none is measured.
QUOTED = "quoted"

# Table, row and column.
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Cell:
    """A figure of a table, in the table's units: points of 100 for effectiveness, milliseconds, terms.

    Args:
        read: Returns the figure from the outputs of steps, or from the figures of parts; None if it is not measured.
        steps: The steps whose outputs read() needs.
        parts: The cells whose mean or difference it is.
        note: Why it need not agree with the published figure, or why it is not measured.
    """

    table: str
    row: str
    column: str
    measure: str
    published: float | None
    read: Callable[..., float] | None = None
    steps: tuple[Step, ...] = ()
    parts: tuple["Cell", ...] = ()
    note: str = ""

    @property
    def key(self) -> Key:
        """Table, row and column."""
        return self.table, self.row, self.column

    @property
    def lack(self) -> str:
        """Why it cannot be measured; "" if it can."""
        return self.note if self.read is None else next((part.lack for part in self.parts if part.lack), "")

    def pipeline(self, missing: bool = False) -> list[Step]:
        """Return its steps, those of its parts included, in the order of running. missing: what is to be run."""
        steps = [step for last in self.steps for step in last.pipeline(missing)]
        return list(dict.fromkeys([*steps, *(step for part in self.parts for step in part.pipeline(missing))]))

    def figure(self) -> float | None:
        """Return the measured figure, None until the outputs of its steps exist. Raises MilcoError if they lack it."""
        if self.read is None or not all(step.done.exists() for step in self.steps):
            return None
        figures = [part.figure() for part in self.parts]
        return None if None in figures else self.read(*figures)


# Tables with their cells.
Plan = list[tuple[Table, list[Cell]]]
Columns = Mapping[str, Dataset]


def plan_table(table: Table, pipeline: Pipeline, systems: Sequence[str] = (), columns: Collection[str] = ()) -> Plan:
    """Return a table, and those that come with it, for some systems and columns (default: the table's own).

    Raises MilcoError for an unknown name, and for an analysis of MILCO without MILCO.
    """
    if table.milco_only and systems and MILCO not in systems:
        raise MilcoError(f"--systems {' '.join(systems)}: {table.name} is an analysis of {MILCO} only")
    for column in columns:
        validate_name(f"column of {table.name} (--lang)", column, table.columns)
    rows = [find_system(name) for name in dict.fromkeys(systems or table.systems)]
    wanted = {name: dataset for name, dataset in table.columns.items() if not columns or name in columns}
    plan = _KINDS[table.kind](table, pipeline, rows, wanted)
    for part in table.parts:
        # Analyses of MILCO are left out for other systems.
        if part.kind == "effectiveness" or find_system(MILCO) in rows:
            plan += _KINDS[part.kind](part, pipeline, rows, part.columns)
    return plan


def plan_all(pipeline: Pipeline, systems: Sequence[str] = (), columns: Collection[str] = ()) -> Plan:
    """Return every table of the paper that has one of the systems and one of the columns, small ones first.

    Raises MilcoError for a name that no table has.
    """
    tables = [find_table(name) for name in paper().by_cost]
    tables = [table for table in tables if not (table.milco_only and systems and MILCO not in systems)]
    for column in columns:
        validate_name("column (--lang)", column, dict.fromkeys(name for table in tables for name in table.columns))
    plan: Plan = []
    for table in tables:
        own = [column for column in columns if column in table.columns]
        if own or not columns:
            plan += plan_table(table, pipeline, systems, own)
    return plan


def quoted_cells(table: Table, cells: Collection[Cell]) -> list[Cell]:
    """Return the published figures of rows that are not among a table's cells, in the columns that are."""
    titles = {
        system.published_as.get(table.source): system.title for system in reversed(list(paper().systems.values()))
    }
    measures, keys = {cell.column: cell.measure for cell in cells}, {cell.key for cell in cells}
    found = {}
    for (label, column), figure in table.figures.items():
        cell = Cell(table.name, titles.get(label, label), column, measures.get(column, ""), figure, note=QUOTED)
        if column in measures and cell.key not in keys:
            found[cell.key] = cell
    return list(found.values())


def _effectiveness(table: Table, pipeline: Pipeline, rows: Sequence[System], columns: Columns) -> Plan:
    """A row for each system, a column for each dataset, and means of columns."""
    return [(table, [cell for row in rows for cell in _row(table, pipeline, row, row.title, columns)])]


def _tasks(table: Table, pipeline: Pipeline, rows: Sequence[System], columns: Columns) -> Plan:
    """A column for each task of MTEB: the mean over a table of its own."""
    plan: Plan = []
    cells: dict[str, dict[str, Cell]] = {row.title: {} for row in rows}
    for task, dataset in columns.items():
        name, caption = f"{table.name}-{task.lower()}", "Every language, or pair of documents' and queries' languages."
        of_task = Table(name, "effectiveness", f"MTEB v2: {task}", caption, task_datasets()[task])
        plan += _effectiveness(of_task, pipeline, rows, of_task.columns)
        for row in rows:
            parts = [cell for cell in plan[-1][1] if cell.row == row.title]
            cells[row.title][task] = _mean(table, pipeline, row, row.title, task, parts, dataset.measure)
    for row in rows:
        cells[row.title] |= _means(table, pipeline, row, row.title, cells[row.title])
    return [(table, [cell for own in cells.values() for cell in own.values()]), *plan]


def _sweep(table: Table, pipeline: Pipeline, rows: Sequence[System], columns: Columns) -> Plan:
    """MILCO with a row for each pruning rule, or each alpha. Terms and means need all columns."""
    milco, vary = find_system(MILCO), table.settings["vary"]
    cells: list[Cell] = []
    for row, value in table.settings["rows"].items():
        if vary == "prune" and len(columns) == len(table.columns):
            indexes = tuple(pipeline.index(milco, dataset, value) for dataset in columns.values())
            read = partial(mean_terms, [index.output for index in indexes])
            cells.append(_cell(table, pipeline, milco, row, "terms", "terms", read=read, steps=indexes))
        cells += _row(table, pipeline, milco, row, columns, **{vary: value})
    return [(table, cells)]


def _latency(table: Table, pipeline: Pipeline, rows: Sequence[System], columns: Columns) -> Plan:
    """MILCO with a row for each pruned index, and a row for each dense system; timed together on one core."""
    milco, (dataset,), rules = find_system(MILCO), columns.values(), table.settings["rows"]
    available = [row for row in rows if row.kind == DENSE and _has(pipeline, row)]
    dense = {pipeline.checkpoints[str(row.checkpoint)]: row for row in available}
    step = pipeline.latency(milco, dataset, table.settings["engine"], list(rules.values()), list(dense))
    measured = [(title, rule, milco) for title, rule in rules.items()]
    measured += [(row.title, encoder, row) for encoder, row in dense.items()]
    cells = []
    for title, vectors, system in measured:
        for column, timing in table.settings["timings"].items():
            read = partial(latency_figure, step.done, vectors, timing["field"], timing.get("factor", 1))
            note = timing.get("caveat", "")
            cells.append(_cell(table, pipeline, system, title, column, column, note, read=read, steps=(step,)))
    return [(table, cells)]


def _lengths(table: Table, pipeline: Pipeline, rows: Sequence[System], columns: Columns) -> Plan:
    """A table for each dataset: ten bins of documents by length, their terms, and the correlation of both."""
    fields: list[tuple[str, str, str, tuple]] = []
    for number in range(BINS):
        row = f"{number + 1}/{BINS}"
        fields.append((row, "tokens", "tokens", ("bins", number, "tokens")))
        fields += [(row, view, "terms", ("bins", number, "terms", view)) for view in VIEWS]
    fields += [("Pearson's r", view, "r", ("correlation", view, "pearson")) for view in VIEWS]
    plan: Plan = []
    for column, dataset in columns.items():
        name = f"{table.name}-{column}" if len(table.columns) > 1 else table.name
        step = pipeline.statistics(find_system(MILCO), dataset)
        cells = [
            Cell(name, row, view, measure, None, partial(length_figure, step.output, *path), (step,))
            for row, view, measure, path in fields
        ]
        plan.append((replace(table, name=name, title=table.title.format(column)), cells))
    return plan


def _coverage(table: Table, pipeline: Pipeline, rows: Sequence[System], columns: Columns) -> Plan:
    """Bitext of each language (published facts), and MILCO's gain on the dense model of the same training data."""
    compared = [find_system(MILCO), find_system("milco-dense")]
    ((measured, effects),) = _effectiveness(find_table("miracl-hn"), pipeline, compared, columns)
    of = {(cell.row, cell.column): cell for cell in effects}
    cells = []
    for row in columns:
        ours, theirs = (of[system.title, row] for system in compared)
        cells.append(_mean(table, pipeline, compared[0], row, "nDCG@10", [ours]))
        gain: dict[str, Any] = {"read": operator.sub, "parts": (ours, theirs)}
        cells.append(_cell(table, pipeline, compared[0], row, "gain on dense", "nDCG@10", **gain))
        for column, measure in (("bitext pairs", "pairs"), ("% of bitext", "%")):
            cells.append(Cell(table.name, row, column, measure, table.figures.get((row, column))))
    gains = {cell.row: cell for cell in cells if cell.column == "gain on dense"}
    shares = {row: share for (row, column), share in table.figures.items() if column == "% of bitext"}
    if gains.keys() == table.columns.keys():
        limit = table.settings["coverage"]
        for title, languages in (
            (f"mean, at least {limit:g} %", [language for language, share in shares.items() if share >= limit]),
            (f"mean, below {limit:g} %", [language for language, share in shares.items() if share < limit]),
        ):
            parts = [gains[language] for language in languages]
            published = round(fmean(part.published or 0 for part in parts), 2)
            mean = _mean(table, pipeline, compared[0], title, "gain on dense", parts)
            cells.append(replace(mean, published=published))
    return [(measured, effects), (table, cells)]


_KINDS: dict[str, Callable[[Table, Pipeline, Sequence[System], Columns], Plan]] = {
    "effectiveness": _effectiveness,
    "tasks": _tasks,
    "sweep": _sweep,
    "latency": _latency,
    "lengths": _lengths,
    "coverage": _coverage,
}


def _row(
    table: Table,
    pipeline: Pipeline,
    system: System,
    row: str,
    columns: Columns,
    prune: str | None = None,
    alpha: str | None = None,
) -> list[Cell]:
    """Return a system's effectiveness on the columns' datasets, and the means of columns."""
    # Columns may differ in the measure only: one evaluation of a run has all of them.
    measures: dict[tuple[str, str], dict[str, None]] = {}
    for dataset in table.columns.values():
        measures.setdefault((dataset.corpus, dataset.topics), {})[dataset.measure] = None
    cells = {}
    for column, dataset in columns.items():
        how: dict[str, Any] = {}
        if _has(pipeline, system):
            run = pipeline.search(system, dataset, prune, alpha)
            evaluation = pipeline.evaluate(run, dataset, list(measures[dataset.corpus, dataset.topics]))
            how = {"read": partial(effectiveness_figure, evaluation.output, dataset.measure), "steps": (evaluation,)}
        else:
            how["note"] = f"needs --checkpoints {system.checkpoint}=PATH: that checkpoint must be trained"
        cells[column] = _cell(table, pipeline, system, row, column, dataset.measure, **how)
    return [*cells.values(), *_means(table, pipeline, system, row, cells).values()]


def _means(table: Table, pipeline: Pipeline, system: System, row: str, cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return a row's means whose columns are all among its cells."""
    return {
        mean: _mean(table, pipeline, system, row, mean, [cells[column] for column in over])
        for mean, over in table.means.items()
        if set(over) <= cells.keys()
    }


def _mean(
    table: Table, pipeline: Pipeline, system: System, row: str, column: str, parts: Sequence[Cell], measure: str = ""
) -> Cell:
    mean = _cell(table, pipeline, system, row, column, measure or table.measure)
    return replace(mean, read=lambda *figures: fmean(figures), parts=tuple(parts), note=mean.note or parts[0].note)


def _cell(
    table: Table,
    pipeline: Pipeline,
    system: System,
    row: str,
    column: str,
    measure: str,
    note: str = "",
    **how: Any,
) -> Cell:
    """Return a cell next to its published figure. note: one that counts more than those of the system."""
    published, given = paper().checkpoints, pipeline.checkpoints
    if not note and any(key in published and given[key] != published[key] for key in system.checkpoints):
        note = ANOTHER_MODEL
    note = note or system.caveats.get(table.source, "")
    figure = table.figures.get((system.published_as.get(table.source, row), column))
    return Cell(table.name, row, column, measure, figure, note=note, **how)


def _has(pipeline: Pipeline, system: System) -> bool:
    """Return whether every checkpoint of a system is published or given."""
    return all(key in pipeline.checkpoints for key in system.checkpoints)


def effectiveness_figure(path: Path, measure: str) -> float:
    """Return the mean of a measure in what milco eval wrote, in points of 100."""
    from milco_pyserini.eval.fairness import FAIRNESS_MEASURES
    from milco_pyserini.eval.measures import parse_measures

    name = measure if measure in FAIRNESS_MEASURES else str(parse_measures([measure])[0])
    measures = read_json(path)["results"][0]["measures"]
    if name not in measures:
        raise MilcoError(f"{path} has no {name}, only {', '.join(measures)}", hint="Remove it and run again.")
    return 100 * measures[name]["mean"]


def mean_terms(indexes: Sequence[Path]) -> float:
    """Return the terms per document, those without terms included; the mean over indexes."""
    manifests = [read_json(index / MANIFEST) for index in indexes]
    return fmean(one["postings"] / (one["documents"] + one["empty_documents"]) for one in manifests)


def latency_figure(path: Path, vectors: str, field: str, factor: float) -> float:
    """Return a figure of a latency table's row. vectors: its pruning rule or dense encoder."""
    rows = [point for point in read_json(path)["points"] if point["vectors"] == vectors]
    if not rows:
        raise MilcoError(f"{path} has no row of {vectors}", hint="Remove it and run again.")
    return factor * (rows[0]["figures"] | rows[0])[field]


def length_figure(path: Path, *keys: str | int) -> float:
    """Return a figure of the lengths that milco analyze statistics reports."""
    value: Any = read_json(path)["length"]
    if value is None:
        raise MilcoError(f"{path} has no lengths: the texts of the corpus were not available")
    if keys[0] == "bins" and int(keys[1]) >= len(value["bins"]):
        raise MilcoError(f"{path} has only {len(value['bins'])} bins: many texts have the same length")
    for key in keys:
        value = value[key]
    return float(value)
