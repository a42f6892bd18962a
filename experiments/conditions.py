"""The conditions of the paper's tables (conditions.yaml) and its published figures (paper/)."""

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from experiments.records import Picture
from milco_pyserini.errors import MilcoError, unknown_name, validate_name

SPARSE, DENSE, BM25, FUSION = "sparse", "dense", "bm25", "fusion"
MILCO = "milco"
BASELINES = (MILCO, "bm25")

# (row, column) -> figure, in the table's units.
Figures = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Condition:
    """A row of the tables: a retrieval system. conditions.yaml describes the fields."""

    name: str
    title: str
    kind: str
    checkpoint: str | None = None
    lowercase: bool = False
    max_length: int | None = None
    published_as: Mapping[str, str] = field(default_factory=dict)
    caveats: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """A column of the tables: a corpus, its topics, and how runs on them are evaluated.

    Args:
        language: Of the documents, for BM25's analyzer.
        split_passages: Encode passages of the documents, for systems that read 512 tokens.
        lowercase: Follow the paper's evaluation, which lowercases.
        judged_by_answers: Judge passages by the topics' answers, as for MKQA.
        remove_query: Remove the topic itself from its results, as for ArguAna.
        language_of: Corpora with the languages of documents, for measures of language fairness.
    """

    corpus: str
    topics: str
    language: str
    measure: str = "nDCG@10"
    split_passages: bool = False
    lowercase: bool = True
    judged_by_answers: bool = False
    remove_query: bool = False
    language_of: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableSpec:
    """A table of conditions.yaml, which describes the fields."""

    name: str
    kind: str
    title: str
    caption: str
    columns: Mapping[str, Dataset]
    picture: Picture | None
    measure: str = "nDCG@10"
    means: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)
    source: str = ""
    conditions: tuple[str, ...] = BASELINES
    parts: tuple["TableSpec", ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def milco_only(self) -> bool:
        """An analysis of MILCO, in which other systems have no row."""
        return self.kind in ("sweep", "lengths", "coverage")


@dataclass(frozen=True)
class Paper:
    """All of conditions.yaml. by_cost: the tables of the paper, small collections first."""

    checkpoints: Mapping[str, str]
    conditions: Mapping[str, Condition]
    tables: Mapping[str, TableSpec]
    by_cost: tuple[str, ...]


def published_figures(
    name: str,
    row_columns: int = 1,
    factor: float = 1.0,
    transposed: bool = False,
    rename: Mapping[str, str] | None = None,
) -> dict[tuple[str, str], float]:
    """Return the figures of paper/NAME.tsv.

    Args:
        row_columns: First columns that together name a row.
        factor: Of all figures, to the table's units; gigabytes ("61G") become MB in any case.
        transposed: The file's rows are the table's columns.
        rename: Column in the file -> its name in the table.
    """
    path = files("experiments") / "paper" / f"{name}.tsv"
    if not path.is_file():
        raise MilcoError(f"no published table {name!r}: {path} does not exist")
    head, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
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
            figures[key[0], (rename or {}).get(key[1], key[1])] = value
    return figures


@functools.cache
def task_datasets() -> dict[str, dict[str, Dataset]]:
    """Return the datasets of MTEB's tasks (2.26): task -> language, or pair of languages -> dataset."""
    text = (files("experiments") / "mteb_tasks.tsv").read_text(encoding="utf-8")
    tasks: dict[str, dict[str, Dataset]] = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        measure = paper().tables["mteb-v2"].columns[row["task"]].measure
        dataset = Dataset(row["corpus"], row["topics"], row["language"], measure)
        tasks.setdefault(row["task"], {})[row["column"]] = dataset
    return tasks


def find_condition(name: str) -> Condition:
    """Return the condition with that name; raise MilcoError, with the valid names, if there is none."""
    validate_name("system", name, paper().conditions)
    return paper().conditions[name]


def find_table(name: str) -> TableSpec:
    """Return the table with that name; raise MilcoError, with the valid names, if there is none."""
    validate_name("table", name, paper().tables)
    return paper().tables[name]


def resolve_checkpoints(encoder: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return checkpoint -> name or path: the published ones, encoder for MILCO's, and those given."""
    known = dict.fromkeys(one.checkpoint for one in paper().conditions.values() if one.checkpoint)
    for name in given:
        if name == MILCO:
            raise MilcoError(f"--checkpoints {name}={given[name]}: MILCO's checkpoint is given as --encoder")
        if name not in known:
            raise unknown_name("checkpoint", name, [str(key) for key in known if key != MILCO])
    return {**paper().checkpoints, MILCO: encoder, **given}


@functools.cache
def paper() -> Paper:
    """Return the content of conditions.yaml."""
    import yaml

    data = yaml.safe_load((files("experiments") / "conditions.yaml").read_text(encoding="utf-8"))
    return Paper(
        checkpoints=data["checkpoints"],
        conditions={
            name: Condition(name, **{**entry, "parts": tuple(entry.get("parts", ()))})
            for name, entry in data["conditions"].items()
        },
        tables={name: _table(name, entry) for name, entry in data["tables"].items()},
        by_cost=tuple(data["all"]),
    )


def _table(name: str, entry: dict[str, Any]) -> TableSpec:
    settings = dict(entry)
    columns = settings.pop("columns")
    overrides = columns if isinstance(columns, dict) else {key: {} for key in columns}
    template: dict[str, Any] = settings.pop("dataset")

    def filled(value: Any, column: str) -> Any:
        if isinstance(value, list):
            return tuple(value)
        return value.format(column) if isinstance(value, str) else value

    datasets = {
        column: Dataset(**{key: filled(value, column) for key, value in (template | changes).items()})
        for column, changes in overrides.items()
    }
    layout = dict(settings.pop("published", {"files": []}))
    files_of_figures = layout.pop("files")
    figures: dict[tuple[str, str], float] = {}
    for file in files_of_figures:
        # An earlier file wins.
        figures = figures | published_figures(file, **layout) | figures
    picture = settings.pop("picture")
    return TableSpec(
        name=name,
        columns=datasets,
        picture=Picture(**{**picture, "y": tuple(picture.get("y", ()))}),
        means={
            mean: tuple(datasets) if over == "all" else tuple(over) for mean, over in settings.pop("means", {}).items()
        },
        figures=figures,
        source=next(iter(files_of_figures), ""),
        parts=tuple(_table(*part) for part in settings.pop("parts", {}).items()),
        conditions=tuple(settings.pop("conditions", BASELINES)),
        **{key: settings.pop(key) for key in ("kind", "title", "caption", "measure") if key in settings},
        settings=settings,
    )
