"""The cells of the paper's tables: how each figure is obtained, by the kind of its table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.conditions import (
    DENSE,
    MILCO,
    Condition,
    Dataset,
    TableSpec,
    find_condition,
    find_table,
    paper,
    task_datasets,
)
from experiments.records import ANOTHER_MODEL
from experiments.steps import Pipeline, Step
from milco_pyserini.errors import MilcoError, validate_name
from milco_pyserini.io.files import read_json
from milco_pyserini.io.manifest import MANIFEST

# Table, row and column of a cell.
Key = tuple[str, str, str]
BINS = 10
VIEWS = ("pivot", "source", "both")


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure that steps produce: run them, then read it. run: the TREC run among their outputs."""

    steps: tuple[Step, ...]
    read: Callable[[], float]
    run: Path | None = None


@dataclass(frozen=True)
class Combination:
    """The mean of other cells, or the difference of two."""

    parts: tuple[Key, ...]
    is_difference: bool = False


@dataclass(frozen=True)
class Unavailable:
    """A figure that cannot be measured with what was given."""

    reason: str


@dataclass(frozen=True)
class Quotation:
    """A published figure that is never measured."""

    reason: str


FigureSource = MeasuredFigure | Combination | Unavailable | Quotation


@dataclass(frozen=True)
class Cell:
    """A figure of a table and how it is obtained. caveat: as in CellResult. label: the published row it belongs to."""

    table: str
    row: str
    column: str
    measure: str
    published: float | None
    source: FigureSource
    caveat: str = ""
    label: str = ""

    @property
    def key(self) -> Key:
        """Table, row and column."""
        return self.table, self.row, self.column

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps of its pipelines, in the order of running."""
        last = self.source.steps if isinstance(self.source, MeasuredFigure) else ()
        return tuple(dict.fromkeys(each for step in last for each in step.pipeline()))

    @property
    def is_quoted(self) -> bool:
        """A published figure that is never measured: no result."""
        return isinstance(self.source, Quotation)


@dataclass(frozen=True)
class TablePlan:
    """The cells of a table, before they are measured."""

    spec: TableSpec
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.spec.name


def plan_tables(
    spec: TableSpec, pipeline: Pipeline, conditions: Sequence[str] = (), columns: Sequence[str] = ()
) -> list[TablePlan]:
    """Return a table, and those that come with it, for some conditions and columns (default: the table's own).

    Raises MilcoError for an unknown name, and for an analysis of MILCO without MILCO.
    """
    if spec.milco_only and conditions and MILCO not in conditions:
        raise MilcoError(f"--systems {' '.join(conditions)}: {spec.name} is an analysis of {MILCO} only")
    for column in columns:
        validate_name(f"column of {spec.name} (--lang)", column, spec.columns)
    rows = [find_condition(name) for name in dict.fromkeys(conditions or spec.conditions)]
    wanted = {name: dataset for name, dataset in spec.columns.items() if not columns or name in columns}
    plans = _KINDS[spec.kind](spec, pipeline, rows, wanted)
    for part in spec.parts:
        # Analyses of MILCO are left out for other systems.
        if part.kind == "effectiveness" or find_condition(MILCO) in rows:
            plans += _KINDS[part.kind](part, pipeline, rows, part.columns)
    return plans


def plan_all(pipeline: Pipeline, conditions: Sequence[str] = (), columns: Sequence[str] = ()) -> list[TablePlan]:
    """Return every table of the paper that has one of the conditions and one of the columns, small ones first.

    Raises MilcoError for a name that no table has.
    """
    specs = [find_table(name) for name in paper().by_cost]
    specs = [spec for spec in specs if not (spec.milco_only and conditions and MILCO not in conditions)]
    known = dict.fromkeys(column for spec in specs for column in spec.columns)
    for column in columns:
        validate_name("column (--lang)", column, known)
    plans: list[TablePlan] = []
    for spec in specs:
        if not columns or set(columns) & set(spec.columns):
            plans += plan_tables(spec, pipeline, conditions, [column for column in columns if column in spec.columns])
    return plans


Rows = Sequence[Condition]
Columns = Mapping[str, Dataset]


def _effectiveness(spec: TableSpec, pipeline: Pipeline, rows: Rows, columns: Columns) -> list[TablePlan]:
    """A row for each system, a column for each dataset; then the published rows of other systems."""
    cells = [_effect(spec, pipeline, row, column, row.title) for row in rows for column in columns]
    for row in rows:
        cells += _means(spec, pipeline, row, row.title, columns)
    return [TablePlan(spec, (*cells, *_quoted_rows(spec, columns)))]


def _tasks(spec: TableSpec, pipeline: Pipeline, rows: Rows, columns: Columns) -> list[TablePlan]:
    """A column for each task of MTEB: the mean over a table of its own."""
    plans, cells = [], []
    for task, dataset in columns.items():
        name = f"{spec.name}-{task.lower()}"
        caption = "Every language, or pair of documents' and queries' languages."
        of_task = TableSpec(name, "effectiveness", f"MTEB v2: {task}", caption, task_datasets()[task], None)
        (plan,) = _effectiveness(of_task, pipeline, rows, of_task.columns)
        plans.append(plan)
        for row in rows:
            parts = Combination(tuple(part.key for part in plan.cells if part.row == row.title))
            cells.append(_cell(spec, pipeline, row, row.title, task, dataset.measure, parts))
    for row in rows:
        cells += _means(spec, pipeline, row, row.title, columns)
    return [TablePlan(spec, (*cells, *_quoted_rows(spec, columns))), *plans]


def _sweep(spec: TableSpec, pipeline: Pipeline, rows: Rows, columns: Columns) -> list[TablePlan]:
    """MILCO with a row for each pruning rule, or each alpha. Terms and means need all columns."""
    milco, vary = find_condition(MILCO), spec.settings["vary"]
    cells: list[Cell] = []
    for row, value in spec.settings["rows"].items():
        if vary == "prune" and len(columns) == len(spec.columns):
            indexes = tuple(pipeline.index(milco, dataset, value) for dataset in columns.values())
            terms = MeasuredFigure(indexes, partial(mean_terms, [index.output for index in indexes]))
            cells.append(_cell(spec, pipeline, milco, row, "terms", "terms", terms))
        cells += _means(spec, pipeline, milco, row, columns)
        cells += [_effect(spec, pipeline, milco, column, row, **{vary: value}) for column in columns]
    return [TablePlan(spec, tuple(cells))]


def _latency(spec: TableSpec, pipeline: Pipeline, rows: Rows, columns: Columns) -> list[TablePlan]:
    """MILCO with a row for each pruned index, and a row for each dense system; timed together on one core."""
    milco, (dataset,) = find_condition(MILCO), columns.values()
    rules = spec.settings["rows"]
    dense = [row for row in rows if row.kind == DENSE and pipeline.has_checkpoints(row)]
    encoders = [pipeline.checkpoints[str(row.checkpoint)] for row in dense]
    step = pipeline.latency(milco, dataset, spec.settings["engine"], tuple(rules.values()), tuple(encoders))
    measured = [(title, rule, milco) for title, rule in rules.items()]
    measured += [(row.title, encoder, row) for row, encoder in zip(dense, encoders, strict=True)]
    cells = []
    for title, vectors, condition in measured:
        for column, timing in spec.settings["timings"].items():
            read = partial(latency_figure, step.done, vectors, timing["field"], timing.get("factor", 1))
            source = MeasuredFigure((step,), read)
            cells.append(_cell(spec, pipeline, condition, title, column, column, source, timing.get("caveat", "")))
    return [TablePlan(spec, tuple(cells))]


def _lengths(spec: TableSpec, pipeline: Pipeline, rows: Rows, columns: Columns) -> list[TablePlan]:
    """A table for each dataset: ten bins of documents by length, their terms, and the correlation of both."""
    plans = []
    for column, dataset in columns.items():
        name = f"{spec.name}-{column}" if len(spec.columns) > 1 else spec.name
        table = replace(spec, name=name, title=spec.title.format(column))
        step = pipeline.statistics(find_condition(MILCO), dataset)
        fields: dict[tuple[str, str, str], tuple] = {}
        for number in range(BINS):
            row = f"{number + 1}/{BINS}"
            fields[row, "tokens", "tokens"] = ("bins", number, "tokens")
            fields |= {(row, view, "terms"): ("bins", number, "terms", view) for view in VIEWS}
        fields |= {("Pearson's r", view, "r"): ("correlation", view, "pearson") for view in VIEWS}
        cells = [
            Cell(name, row, view, measure, None, MeasuredFigure((step,), partial(length_figure, step.output, *path)))
            for (row, view, measure), path in fields.items()
        ]
        plans.append(TablePlan(table, tuple(cells)))
    return plans


def _coverage(spec: TableSpec, pipeline: Pipeline, rows: Rows, columns: Columns) -> list[TablePlan]:
    """Bitext of each language (quoted), and MILCO's gain on the dense model of the same training data."""
    measured, milco, dense = find_table("miracl-hn"), find_condition(MILCO), find_condition("milco-dense")
    (effectiveness,) = _effectiveness(measured, pipeline, [milco, dense], columns)
    quotation, cells = Quotation("a fact about the paper's training data: there is nothing to measure"), []
    for row in columns:
        ours, theirs = ((measured.name, one.title, row) for one in (milco, dense))
        gain = Combination((ours, theirs), is_difference=True)
        cells.append(_cell(spec, pipeline, milco, row, "nDCG@10", "nDCG@10", Combination((ours,))))
        cells.append(_cell(spec, pipeline, milco, row, "gain on dense", "nDCG@10", gain))
        for column, measure in (("bitext pairs", "pairs"), ("% of bitext", "%")):
            cells.append(Cell(spec.name, row, column, measure, spec.figures.get((row, column)), quotation))
    return [effectiveness, TablePlan(spec, tuple(cells))]


_KINDS: dict[str, Callable[[TableSpec, Pipeline, Rows, Columns], list[TablePlan]]] = {
    "effectiveness": _effectiveness,
    "tasks": _tasks,
    "sweep": _sweep,
    "latency": _latency,
    "lengths": _lengths,
    "coverage": _coverage,
}


def _effect(
    spec: TableSpec,
    pipeline: Pipeline,
    condition: Condition,
    column: str,
    row: str,
    prune: str | None = None,
    alpha: str | None = None,
) -> Cell:
    """Return the cell of a condition's effectiveness on a column's dataset."""
    dataset = spec.columns[column]
    source: MeasuredFigure | Unavailable
    if pipeline.has_checkpoints(condition):
        run = pipeline.search(condition, dataset, prune, alpha)
        # Columns may differ in the measure only: one evaluation of the run has all of them.
        asked = (dataset.corpus, dataset.topics)
        measures = [one.measure for one in spec.columns.values() if (one.corpus, one.topics) == asked]
        evaluation = pipeline.evaluate(run, dataset, tuple(dict.fromkeys(measures)))
        read = partial(effectiveness_figure, evaluation.output, dataset.measure)
        source = MeasuredFigure((evaluation,), read, run.output)
    else:
        needed = f"--checkpoints {condition.checkpoint}=PATH"
        source = Unavailable(f"needs {needed}: that checkpoint is not published and must be trained")
    return _cell(spec, pipeline, condition, row, column, dataset.measure, source)


def _means(spec: TableSpec, pipeline: Pipeline, condition: Condition, row: str, columns: Columns) -> list[Cell]:
    """Return a row's means whose columns are all among the given ones."""
    return [
        _cell(spec, pipeline, condition, row, mean, spec.measure, Combination(tuple((spec.name, row, c) for c in over)))
        for mean, over in spec.means.items()
        if set(over) <= columns.keys()
    ]


def _cell(
    spec: TableSpec,
    pipeline: Pipeline,
    condition: Condition,
    row: str,
    column: str,
    measure: str,
    source: FigureSource,
    caveat: str = "",
) -> Cell:
    """Return a cell next to its published figure. caveat: one that counts more than those of the condition."""
    published = paper().checkpoints
    encoders = [str(one.checkpoint) for one in [find_condition(part) for part in condition.parts] or [condition]]
    if not caveat and any(key in published and pipeline.checkpoints[key] != published[key] for key in encoders):
        caveat = ANOTHER_MODEL
    caveat = caveat or condition.caveats.get(spec.source, "")
    label = condition.published_as.get(spec.source, "")
    return Cell(spec.name, row, column, measure, spec.figures.get((label or row, column)), source, caveat, label)


def _quoted_rows(spec: TableSpec, columns: Columns) -> list[Cell]:
    """Return the published rows of systems that are not among the conditions."""
    known = {condition.published_as.get(spec.source) for condition in paper().conditions.values()}
    quotation = Quotation("not among the systems that this command measures")
    measures = {column: dataset.measure for column, dataset in columns.items()}
    return [
        Cell(spec.name, row, column, measure, spec.figures[row, column], quotation)
        for row in dict.fromkeys(row for row, _ in spec.figures)
        for column, measure in (measures | dict.fromkeys(spec.means, spec.measure)).items()
        if row not in known and (row, column) in spec.figures
    ]


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
    averages = [one["postings"] / (one["documents"] + one["empty_documents"]) for one in manifests]
    return sum(averages) / len(averages)


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
