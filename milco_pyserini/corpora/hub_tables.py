"""Retrieval tasks as MTEB lays them out on the Hugging Face hub: tables of documents, queries and judgements.

The card of a repository (README.md) says which files each table has; they are Parquet or JSON lines. In a copy that has
no card, a table is the file or the folder of its name. A document has id
or _id, text, and perhaps title; a query id or _id and text, which may be a conversation; a judgement query-id,
corpus-id and score. As in MTEB, queries without a judgement are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import orjson

from milco_pyserini.corpora.collection import OnBad, RecordT
from milco_pyserini.corpora.origin import CorpusOrigin, TopicsOrigin
from milco_pyserini.corpora.records import BadLineError, Document, Query, record_id, text_of
from milco_pyserini.corpora.remote import HubFile, located, matching
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.io.qrels import Qrels

FIELD_RULE = "title + ' ' + text"
_CARD = "README.md"
_ROWS_AT_A_TIME = 1024


@dataclass(frozen=True)
class HubTask:
    """One task in a repository. config: its subset, or "" where the repository holds one task."""

    repository: str
    revision: str
    split: str
    config: str = ""

    def corpus(self, count: int | None = None) -> CorpusOrigin:
        """The task's documents."""
        return CorpusOrigin(lambda copy: HubDocuments(self, copy), count)

    def topics(self, count: int | None = None) -> TopicsOrigin:
        """The task's queries and judgements."""
        return TopicsOrigin(lambda copy: HubQueries(self, copy), lambda copy: hub_qrels(self, copy), count)


class _Table(Generic[RecordT]):
    def __init__(self, task: HubTask, copy: Path | None) -> None:
        self._task = task
        self._copy = copy

    def _rows(self, bad: OnBad, kinds: tuple[str, ...]) -> Iterator[tuple[str, int, dict]]:
        for file in _files(self._task, kinds, self._copy):
            for number, row in enumerate(_rows(located(file, self._copy)), start=1):
                yield file.path, number, row


class HubDocuments(_Table[Document]):
    """The documents of a task."""

    field_rule = FIELD_RULE

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Document]]:
        """Yield (file, row from 1, document)."""
        for where, number, row in self._rows(bad, ("corpus",)):
            try:
                text = text_of(row.get("text"), "text")
                document = Document(record_id(_id(row)), row.get("title") or "", text)
            except BadLineError as error:
                bad(where, number, str(error))
                continue
            yield where, number, document


class HubQueries(_Table[Query]):
    """The queries of a task that are judged."""

    field_rule = "text; a conversation's turns as 'role: content', with '; ' between them"

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Query]]:
        """Yield (file, row from 1, query)."""
        judged = hub_qrels(self._task, self._copy).keys()
        for where, number, row in self._rows(bad, ("queries", "query")):
            try:
                query = Query(record_id(_id(row)), _query_text(row.get("text")))
            except BadLineError as error:
                bad(where, number, str(error))
                continue
            if query.id in judged:
                yield where, number, query


def hub_qrels(task: HubTask, copy: Path | None) -> Qrels:
    """Query id -> document id -> grade."""
    qrels: Qrels = {}
    for file in _files(task, ("qrels", "default"), copy):
        for number, row in enumerate(_rows(located(file, copy)), start=1):
            try:
                grade = int(row["score"])
                qrels.setdefault(str(row["query-id"]), {})[str(row["corpus-id"])] = grade
            except (KeyError, TypeError, ValueError):
                raise MilcoError(f"{file.path}:{number}: no query-id, corpus-id and score, but {row}") from None
    return qrels


def _id(row: dict) -> object:
    return row["id"] if "id" in row else row.get("_id")


def _query_text(value: object) -> str:
    """A text, or a conversation as MTEB makes one text of it."""
    if not isinstance(value, list):
        return text_of(value, "text")
    return "; ".join(turn if isinstance(turn, str) else f"{turn['role']}: {turn['content']}" for turn in value)


def _files(task: HubTask, kinds: tuple[str, ...], copy: Path | None) -> list[HubFile]:
    """The files of the first table that the card has of those kinds."""
    if copy is not None and not copy.is_dir():
        raise MilcoError(f"{copy} is a file: a copy of {task.repository} is a folder")
    names = [f"{task.config}-{kind}" if task.config else kind for kind in kinds]
    if copy is not None and not (copy / _CARD).is_file():
        return _files_by_name(task, names, copy)
    card = located(HubFile(task.repository, _CARD, task.revision), copy)
    tables = _tables(card)
    name = next((name for name in names if name in tables), None)
    if name is None:
        raise MilcoError(f"{card} names no table {' or '.join(names)}: it is not the card of {task.repository}")
    splits = tables[name]
    if task.split not in splits and len(splits) != 1:
        raise MilcoError(f"{card}: {name} has no split {task.split}, but {', '.join(splits)}")
    patterns = splits.get(task.split) or next(iter(splits.values()))
    found = [matching(task.repository, task.revision, pattern, copy) for pattern in patterns]
    return [file for files in found for file in files]


def _files_by_name(task: HubTask, names: list[str], copy: Path) -> list[HubFile]:
    """The files of the first of these tables that a copy without a card has, as the hub's own libraries name them."""
    for name in names:
        for pattern in (f"{name}.jsonl", f"{name}.jsonl.gz", f"{name}/{task.split}-*"):
            if any(copy.glob(pattern)):
                return matching(task.repository, task.revision, pattern, copy)
    raise MilcoError(
        f"{copy} holds neither {_CARD}, which names the files, nor {names[0]}.jsonl or {names[0]}/{task.split}-*: a "
        f"copy must have the layout of {task.repository} on the Hugging Face hub"
    )


def _tables(card: Path) -> dict[str, dict[str, list[str]]]:
    """Table -> split -> patterns of paths, from the YAML at the head of a card."""
    import yaml

    text = card.read_text(encoding="utf-8")
    head = text.split("\n---", 1)[0].removeprefix("---") if text.startswith("---") else ""
    try:
        configs = (yaml.safe_load(head) or {}).get("configs", [])
        return {config["config_name"]: _splits(config["data_files"]) for config in configs if "data_files" in config}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise MilcoError(f"{card} does not say which files its tables have: {error}") from None


def _splits(files: Any) -> dict[str, list[str]]:
    if isinstance(files, str):
        files = [{"split": "train", "path": files}]
    return {entry["split"]: [entry["path"]] if isinstance(entry["path"], str) else entry["path"] for entry in files}


def _rows(path: Path) -> Iterator[dict]:
    if path.suffix != ".parquet":
        yield from _json_rows(path)
        return
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        raise MilcoError(f"{path} is no whole Parquet file ({error}): remove it to have it fetched again") from None
    for batch in file.iter_batches(_ROWS_AT_A_TIME):
        yield from batch.to_pylist()


def _json_rows(path: Path) -> Iterator[dict]:
    for number, line in numbered_lines(path):
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise MilcoError(f"{path}:{number}: not JSON: {error.msg}") from None
