"""The paper's tables (tables.yaml), and its published figures (paper/)."""

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from milco_pyserini.errors import validate_name

SPARSE, DENSE, BM25, FUSION = "sparse", "dense", "bm25", "fusion"
MILCO = "milco"
BASELINES = (MILCO, "bm25")
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class System:
    """A row of the tables: a retrieval system. tables.yaml describes the fields."""

    name: str
    title: str
    kind: str
    checkpoint: str | None = None
    lowercase: bool = False
    max_length: int | None = None
    prompt: str = ""
    published_as: Mapping[str, str] = field(default_factory=dict)
    caveats: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[str] = ()

    @property
    def checkpoints(self) -> list[str]:
        """The keys of its checkpoints, of all parts of a fusion."""
        own = [find_system(part) for part in self.parts] or [self]
        return [system.checkpoint for system in own if system.checkpoint is not None]


@dataclass(frozen=True)
class Dataset:
    """A column of the tables: a corpus, its topics, and how runs on them are evaluated.

    Args:
        language: Language of the documents, for BM25's analyzer.
        split_passages: Encode passages of the documents, for systems that read 512 tokens.
        lowercase: The authors' evaluation is known to lowercase it.
        judged_by_answers: Judge passages by the topics' answers, as for MKQA.
        remove_query: Remove the topic itself from its results, as for ArguAna.
        language_of: Corpora with the languages of documents, for measures of language fairness.
        instruction: Instruction for queries, for systems whose prompt has one.
    """

    corpus: str
    topics: str
    language: str
    measure: str = "nDCG@10"
    split_passages: bool = False
    lowercase: bool = False
    judged_by_answers: bool = False
    remove_query: bool = False
    language_of: Sequence[str] = ()
    instruction: str = ""


@dataclass(frozen=True)
class Table:
    """A table of tables.yaml, which describes the fields.

    Args:
        figures: (row, column) -> published figure, in the table's units.
        source: Name of its file in paper/.
        settings: Settings of one kind of table.
    """

    name: str
    kind: str
    title: str
    caption: str
    columns: Mapping[str, Dataset]
    measure: str = "nDCG@10"
    means: Mapping[str, Sequence[str]] = field(default_factory=dict)
    figures: Mapping[tuple[str, str], float] = field(default_factory=dict)
    source: str = ""
    systems: Sequence[str] = BASELINES
    parts: Sequence["Table"] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def milco_only(self) -> bool:
        """An analysis of MILCO, in which other systems have no row."""
        return self.kind in ("sweep", "lengths", "coverage")


@dataclass(frozen=True)
class Paper:
    """All of tables.yaml. checkpoints: the published ones. by_cost: the paper's tables, small collections first."""

    checkpoints: Mapping[str, str]
    systems: Mapping[str, System]
    tables: Mapping[str, Table]
    by_cost: Sequence[str]


@functools.cache
def paper() -> Paper:
    """Return the content of tables.yaml."""
    import yaml

    data = yaml.safe_load((_HERE / "tables.yaml").read_text(encoding="utf-8"))
    systems = {name: System(name, **entry) for name, entry in data["systems"].items()}
    tables = {name: _table(name, entry) for name, entry in data["tables"].items()}
    return Paper(data["checkpoints"], systems, tables, data["all"])


def find_system(name: str) -> System:
    """Return the system with that name; raise MilcoError, with the valid names, if there is none."""
    validate_name("system", name, paper().systems)
    return paper().systems[name]


def find_table(name: str) -> Table:
    """Return the table with that name; raise MilcoError, with the valid names, if there is none."""
    validate_name("table", name, paper().tables)
    return paper().tables[name]


@functools.cache
def task_datasets() -> dict[str, dict[str, Dataset]]:
    """Return the datasets of MTEB's tasks (2.26): task -> language, or pair of languages -> dataset."""
    tasks: dict[str, dict[str, Dataset]] = {}
    for row in csv.DictReader((_HERE / "mteb_tasks.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t"):
        task = paper().tables["mteb-v2"].columns[row["task"]]
        dataset = replace(task, corpus=row["corpus"], topics=row["topics"], language=row["language"])
        tasks.setdefault(row["task"], {})[row["column"]] = dataset
    return tasks


def published_figures(
    name: str,
    row_columns: int = 1,
    factor: float = 1.0,
    transposed: bool = False,
    rename: Mapping[str, str] | None = None,
    rows: Mapping[str, str] | None = None,
) -> dict[tuple[str, str], float]:
    """Return the figures of paper/NAME.tsv.

    Args:
        row_columns: First columns that together name a row.
        factor: Factor of all figures, to the table's units; gigabytes ("61G") become MB in any case.
        transposed: The file's rows are the table's columns.
        rename: Column in the file -> its name in the table.
        rows: Row in the file -> its name in the table; the others are left out (default: all, by their own names).
    """
    text = (_HERE / "paper" / f"{name}.tsv").read_text(encoding="utf-8")
    head, *lines = csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    figures = {}
    for line in lines:
        # LaTeX's hyphenation; and two files spell a model with and without spaces.
        row = " ".join(line[:row_columns]).replace("\\-", "").replace(" - ", "-")
        for column, text in zip(head[row_columns:], line[row_columns:], strict=True):
            scale = 1000 if text.endswith("G") else factor
            try:
                value = round(float(text.removesuffix("G")) * scale, 6)
            except ValueError:
                continue
            key = (column, row) if transposed else (row, column)
            if rows is None or key[0] in rows:
                figures[(rows or {}).get(key[0], key[0]), (rename or {}).get(key[1], key[1])] = value
    return figures


@functools.cache
def model_sizes() -> dict[str, tuple[float, float]]:
    """Return the models of the paper's MIRACL table: label -> billions of parameters, mean nDCG@10."""
    sizes = {}
    rows = csv.DictReader((_HERE / "paper" / "miracl.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t")
    for row in rows:
        # BM25 and a model of unknown size have no place on the axis.
        if row["avg"] and row["size"][-1:] in "MB" and row["size"][:-1]:
            billions = float(row["size"][:-1]) / (1000 if row["size"].endswith("M") else 1)
            sizes[row["model"].replace(" - ", "-")] = billions, float(row["avg"])
    return sizes


def _table(name: str, entry: dict[str, Any]) -> Table:
    settings = dict(entry)
    columns = settings.pop("columns")
    template: dict[str, Any] = settings.pop("dataset")
    overrides = columns if isinstance(columns, dict) else {column: {} for column in columns}
    datasets = {}
    for column, changes in overrides.items():
        given = template | changes
        datasets[column] = Dataset(**given | {k: v.format(column) for k, v in given.items() if isinstance(v, str)})
    layout = dict(settings.pop("published", {"files": []}))
    files = layout.pop("files")
    figures: dict[tuple[str, str], float] = {}
    for file in reversed(files):
        # An earlier file wins.
        figures |= published_figures(file, **layout)
    own = {key: settings.pop(key) for key in ("kind", "title", "caption", "measure", "systems") if key in settings}
    means = {mean: list(datasets) if over == "all" else over for mean, over in settings.pop("means", {}).items()}
    parts = [_table(*part) for part in settings.pop("parts", {}).items()]
    source = next(iter(files), "")
    return Table(
        name=name, columns=datasets, means=means, figures=figures, source=source, parts=parts, settings=settings, **own
    )
