"""Retrieval tasks in MTEB's layout on the Hugging Face hub: tables of documents, queries and judgments.

A repository's card (README.md) lists the files of each table, which are Parquet or JSON lines; in a copy without a
card, a table is the file or directory of its name. A document has id or _id, text, and optionally title; a query id or
_id and text, which may be a conversation; a judgment query-id, corpus-id and score, which is 1 if the table has none.
Queries without a judgment are dropped, as MTEB does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from milco_pyserini.corpora.collection import OnBad, refuse_bad_line
from milco_pyserini.corpora.readers import Judgment, json_objects, make_records
from milco_pyserini.corpora.records import BadLineError, Document, Query, document_fields, record_id, text_of
from milco_pyserini.corpora.remote import HubFile, RemoteSource, find_hub_files, locate
from milco_pyserini.errors import MilcoError, require_package
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.io.qrels import Qrels

T = TypeVar("T")
_CARD = "README.md"
_QRELS = ("qrels", "default")
_BATCH_ROWS = 1024


@dataclass(frozen=True)
class HubTask:
    """One task of a repository. config: its subset, or "" if the repository has one task."""

    repository: str
    revision: str
    split: str
    config: str = ""

    def documents(self) -> "HubTable[Document]":
        """Return the task's documents."""
        return HubTable(self, ("corpus",), _document, "title + ' ' + text")

    def queries(self) -> "HubTable[Query]":
        """Return the task's queries, also those without judgments."""
        rule = "text; a conversation's turns as 'role: content', joined by '; '"
        return HubTable(self, ("queries", "query"), _query, rule)


@dataclass(frozen=True)
class HubTable(RemoteSource, Generic[T]):
    """The records of one of a task's tables, as a RecordSource. tables: its possible names."""

    task: HubTask
    tables: tuple[str, ...]
    make: Callable[[dict], T]
    field_rule: str

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, T]]:
        """Yield (file, row from 1, record)."""
        return _records(self.task, self.tables, self.copy, self.make, bad)


@dataclass(frozen=True)
class HubQrels(RemoteSource):
    """The judgments of a task."""

    task: HubTask

    def __call__(self) -> Qrels:
        """Return query id -> document id -> grade."""
        qrels: Qrels = {}
        for where, number, judgment in _records(self.task, _QRELS, self.copy, _judgment, refuse_bad_line):
            query, document, grade = judgment
            if qrels.setdefault(query, {}).setdefault(document, grade) != grade:
                refuse_bad_line(where, number, f"query {query} and document {document} have two grades")
        return qrels


def _document(row: dict) -> Document:
    identity, text = record_id(row.get("id", row.get("_id"))), text_of(row.get("text"), "text")
    title = "" if row.get("title") is None else text_of(row["title"], "title")
    return Document(identity, title, text, document_fields(row, "id", "_id", "title", "text"))


def _query(row: dict) -> Query:
    text = row.get("text")
    if isinstance(text, list):  # a conversation; MTEB joins its turns like this
        text = "; ".join(turn if isinstance(turn, str) else f"{turn['role']}: {turn['content']}" for turn in text)
    return Query(record_id(row.get("id", row.get("_id"))), text_of(text, "text"))


def _judgment(row: dict) -> Judgment:
    grade = row.get("score", 1)
    if isinstance(grade, bool) or not isinstance(grade, int | float) or not float(grade).is_integer():
        raise BadLineError(f"the score {grade!r} is not an integer, as grades of relevance are")
    return str(row["query-id"]), str(row["corpus-id"]), int(grade)


def _records(
    task: HubTask, tables: tuple[str, ...], copy: Path | None, make: Callable[[dict], T], bad: OnBad
) -> Iterator[tuple[str, int, T]]:
    """Yield (file, row from 1, record) of every row of a table."""
    if copy is not None:
        if not copy.is_dir():
            raise MilcoError(f"{copy} is a file: a copy of {task.repository} is a directory")
        # The copy may be among others.
        own = copy / PurePosixPath(task.repository).name
        copy = own if own.is_dir() else copy
    for file in _files(task, tables, copy):
        path = locate(file, copy)
        is_bad = partial(bad, file.path)
        parsed = _parquet_rows(path) if path.suffix == ".parquet" else json_objects(numbered_lines(path), is_bad)
        for number, record in make_records(parsed, make, is_bad):
            yield file.path, number, record


def _files(task: HubTask, tables: tuple[str, ...], copy: Path | None) -> list[HubFile]:
    """Return the files of the first of these tables that exists, according to the card or, without one, by name."""
    names = [f"{task.config}-{table}" if task.config else table for table in tables]
    if copy is not None and not (copy / _CARD).is_file():
        for name in names:
            for pattern in (f"{name}.jsonl", f"{name}.jsonl.gz", f"{name}/{task.split}-*"):
                if any(copy.glob(pattern)):
                    return find_hub_files(task.repository, task.revision, pattern, copy)
        raise MilcoError(
            f"{copy} holds neither {_CARD}, which lists the files, nor {names[0]}.jsonl or {names[0]}/{task.split}-*: "
            f"a copy must have the layout of {task.repository} on the Hugging Face hub"
        )
    card = locate(HubFile(task.repository, _CARD, task.revision), copy)
    files_of_table = _read_card(card)
    table = next((name for name in names if name in files_of_table), None)
    if table is None:
        raise MilcoError(f"{card} lists no table {' or '.join(names)}: it is not the card of {task.repository}")
    splits = files_of_table[table]
    # Documents and queries have no splits, and are called by any name.
    if task.split not in splits and (len(splits) != 1 or tables == _QRELS):
        raise MilcoError(f"{card}: {table} has no split {task.split}: expected one of {', '.join(splits)}")
    patterns = splits.get(task.split) or next(iter(splits.values()))
    return [file for pattern in patterns for file in find_hub_files(task.repository, task.revision, pattern, copy)]


def _read_card(card: Path) -> dict[str, dict[str, list[str]]]:
    """Return table -> split -> patterns of paths, from the YAML header of a card."""
    import yaml

    text = card.read_text(encoding="utf-8")
    header = text.split("\n---", 1)[0].removeprefix("---") if text.startswith("---") else ""
    tables: dict[str, dict[str, list[str]]] = {}
    try:
        for config in (yaml.safe_load(header) or {}).get("configs", []):
            if "data_files" not in config:
                continue
            files = config["data_files"]
            if isinstance(files, str):
                files = [{"split": "train", "path": files}]
            tables[config["config_name"]] = {
                entry["split"]: [entry["path"]] if isinstance(entry["path"], str) else entry["path"] for entry in files
            }
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise MilcoError(f"{card} does not list the files of its tables: {error}") from None
    return tables


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict]]:
    require_package("pyarrow", "parquet", str(path))
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        rows = (row for batch in ParquetFile(path).iter_batches(_BATCH_ROWS) for row in batch.to_pylist())
        yield from enumerate(rows, start=1)
    except (ArrowInvalid, OSError) as error:
        raise MilcoError(f"{path} is not a complete Parquet file ({error}): remove it to fetch it again") from None
