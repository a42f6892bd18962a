"""Read benchmarks.toml, which has every benchmark of the package; its first lines explain its keys."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from milco_pyserini.corpora.benchmark import FIELD_RULE, Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.collection import RecordSource
from milco_pyserini.corpora.formats import FORMATS
from milco_pyserini.corpora.hub_tables import HubQrels, HubTask
from milco_pyserini.corpora.ir_datasets import DatasetDocuments, DatasetQueries, dataset_qrels
from milco_pyserini.corpora.records import Document
from milco_pyserini.corpora.remote import ArchiveMember, HubFile, RemoteFile, RemoteQrels, RemoteRecords, WebFile
from milco_pyserini.corpora.sample import sample_documents, sample_qrels, sample_queries

_TABLE = Path(__file__).with_name("benchmarks.toml")


def read_benchmarks() -> list[Benchmark]:
    """Return the benchmarks of the package, in the order of the table."""
    tables = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    codes = {spelling: code for code, spellings in tables["codes"].items() for spelling in spellings.split()}
    return [_benchmark(table, codes) for table in tables["benchmark"]]


@dataclass(frozen=True)
class _Row:
    """The values of one row of an entry: its cells, and the entry's templates with the cells in place."""

    entry: Mapping[str, Any]
    cells: Mapping[str, str]

    def __getitem__(self, key: str) -> str:
        return self.cells[key] if key in self.cells else str(self.entry[key]).format_map(self)

    def get(self, key: str, default: str = "") -> str:
        """Return a value, or the default if there is none."""
        return self[key] if key in self.cells or key in self.entry else default

    def count(self) -> int | None:
        """Return the published number of records; None if it is unknown."""
        count = self.get("count")
        count = self.cells.get(count, count)
        return int(count) if count else None

    def file(self, key: str) -> RemoteFile:
        """Return the file that a value describes: PATH, PATH#CHECKSUM, or one of these with !MEMBER."""
        path, _, member = self[key].partition("!")
        path, _, checksum = path.partition("#")
        file: HubFile | WebFile = HubFile(self.get("hub"), path, self.get("revision", "main"))
        if "server" in self.entry:
            file = WebFile(f"{self['server']}/{path}", self["name"], path, checksum or None)
        return ArchiveMember(file, member) if member else file

    def task(self) -> HubTask:
        """Return the task in MTEB's layout."""
        return HubTask(self["hub"], self["revision"], self["split"], self.get("config"))


def _benchmark(table: dict[str, Any], codes: Mapping[str, str]) -> Benchmark:
    texts = [field.name for field in fields(Benchmark) if isinstance(table.get(field.name), str)]
    facts: dict[str, Any] = {name: _Row(table, {})[name] for name in texts}
    facts["languages"] = tuple(
        facts["languages"].split() if "languages" in facts else dict.fromkeys(row["lang"] for row in _rows(table))
    )
    facts["corpora"] = {}
    for name, rows in _named_rows(table, "corpora").items():
        language = codes.get(rows[0]["language"], rows[0]["language"])
        facts["corpora"][name] = BenchmarkCorpus(_documents(rows), language or None, rows[0].count())
    facts["topics"] = {name: _topics(rows) for name, rows in _named_rows(table, "topics").items()}
    return Benchmark(**facts)


def _rows(entry: Mapping[str, Any]) -> list[_Row]:
    """Return the rows of an entry, each once for every value of `each`."""
    columns, axes = entry.get("columns", "lang").split(), entry.get("each", {})
    return [
        _Row(entry, dict(zip(columns, cells.split(","), strict=True)) | dict(zip(axes, values, strict=True)))
        for cells in entry["rows"].split()
        for values in product(*(values.split() for values in axes.values()))
    ]


def _named_rows(table: dict[str, Any], kind: str) -> dict[str, list[_Row]]:
    """Return the rows of each name of corpora, or of topics."""
    named: dict[str, list[_Row]] = {}
    for entry in table[kind]:
        for row in _rows({**table, **entry}):
            for name in row["names"].split():
                named.setdefault(name, []).append(row)
    return named


def _documents(rows: list[_Row]) -> RecordSource[Document]:
    row = rows[0]
    match row["format"]:
        case "ir_datasets":
            return DatasetDocuments(row["id"])
        case "mteb":
            return row.task().documents()
        case "sample":
            return sample_documents([row["lang"] for row in rows])
    files = [row.file("file") for row in rows]
    return RemoteRecords(
        FORMATS[row["format"]].documents, files, row.get("field_rule", FIELD_RULE), bool(row.get("unique"))
    )


def _topics(rows: list[_Row]) -> BenchmarkTopics:
    row = rows[0]
    match row["format"]:
        case "ir_datasets":
            return BenchmarkTopics(DatasetQueries(row["id"]), partial(dataset_qrels, row["id"]))
        case "mteb":
            return BenchmarkTopics(row.task().queries(), HubQrels(row.task()), row.count(), judged_only=True)
        case "sample":
            languages = [row["lang"] for row in rows]
            qrels = partial(sample_qrels, "" if len(languages) > 1 else languages[0])
            return BenchmarkTopics(sample_queries(languages), qrels, row.count())
    form, file = FORMATS[row["format"]], row.file("file")
    queries = RemoteRecords(form.queries, [file], row.get("query_rule", "text"))
    if form.answers:
        return BenchmarkTopics(queries, None, row.count(), answers=RemoteRecords(form.answers, [file]))
    judgments = file if form.judgments else row.file("qrels")
    first, _, last = row.get("judged").partition("-")
    keep = frozenset(map(str, range(int(first), int(last) + 1))) if last else None
    return BenchmarkTopics(
        queries, RemoteQrels([judgments], form.judgments, keep), row.count(), judged_only=keep is not None
    )
