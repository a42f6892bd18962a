"""Where the records of one name come from, and what is known of a family of names."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from milco_pyserini.corpora.collection import OnBad, RecordT, Source
from milco_pyserini.corpora.jsonl import json_records
from milco_pyserini.corpora.records import Document, Query
from milco_pyserini.corpora.remote import RemoteFile, lines
from milco_pyserini.corpora.source_files import Reader
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.archives import is_archive
from milco_pyserini.io.qrels import Qrels, qrels_of_lines

T = TypeVar("T")
# Numbered lines, and what is told of a broken one -> numbered records.
LineReader = Callable[[Iterator[tuple[int, bytes]], Callable[[int, str], None]], Iterator[tuple[int, T]]]
Judgement = tuple[str, str, int]


@dataclass(frozen=True)
class CorpusOrigin:
    """The documents of a name. open: a local copy's path, or None -> the source; nothing is fetched by it.

    count: how many documents the publisher, or who counted them, says there are; None where nobody does.
    """

    open: Callable[[Path | None], Source[Document]]
    count: int | None = None


@dataclass(frozen=True)
class TopicsOrigin:
    """The queries of a name, and what judges them.

    answers: query id -> the answers that a relevant passage holds, for topics that are judged by them; their qrels
    raises MilcoError.
    """

    open: Callable[[Path | None], Source[Query]]
    qrels: Callable[[Path | None], Qrels]
    count: int | None = None
    answers: Callable[[Path | None], dict[str, list[str]]] | None = None


@dataclass(frozen=True)
class Family:
    """The names of one benchmark. A name stands for an ir_datasets id, or for an origin of our own.

    patterns: corpus and topics names as a person reads them. languages: of documents or queries, or both, as the
    names write them. source: who publishes what is read, as far as the revision. unconfirmed: what could not be seen
    from a publisher's own page or files when this was written; "" where nothing is open.
    """

    name: str
    title: str
    patterns: tuple[str, str]
    languages: Sequence[str]
    licence: str
    source: str
    field_rule: str
    corpora: Mapping[str, str | CorpusOrigin] = field(repr=False)
    topics: Mapping[str, str | TopicsOrigin] = field(repr=False)
    note: str = ""
    unconfirmed: str = ""


class Lines(Generic[RecordT]):
    """The records of a publisher's files, one after the other, as FileSource reads local ones.

    once: leave out records whose id came before, as rows do that share a passage.
    """

    def __init__(
        self,
        files: Sequence[RemoteFile],
        copy: Path | None,
        reader: Reader[RecordT],
        field_rule: str,
        once: bool = False,
    ) -> None:
        self.field_rule = field_rule
        self._files = files
        self._copy = copy
        self._reader: Reader[RecordT] = reader
        self._once = once

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, RecordT]]:
        """Yield (file, line number, record); a broken line goes to bad. Files are fetched as they are reached."""
        if self._copy is not None and self._copy.is_file() and not is_archive(self._copy) and len(self._files) > 1:
            first, last = self._files[0].path, self._files[-1].path
            raise MilcoError(
                f"{self._copy} is one file, where {len(self._files)} are read: give the folder of {first} to {last}"
            )
        seen: set[str] = set()
        for file in self._files:
            for number, record in self._reader(lines(file, self._copy), partial(bad, file.path)):
                if self._once and record.id in seen:
                    continue
                if self._once:
                    seen.add(record.id)
                yield file.path, number, record


class JudgedQueries:
    """The queries of a source that are judged."""

    def __init__(self, source: Source[Query], qrels: Callable[[], Qrels]) -> None:
        self.field_rule = source.field_rule
        self._source = source
        self._qrels = qrels

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Query]]:
        """Yield (file, line number, query)."""
        judged = self._qrels().keys()
        return (found for found in self._source.read(bad) if found[2].id in judged)


def judged_topics(every: Callable[[Path | None], Source[Query]], qrels: Callable[[Path | None], Qrels]) -> TopicsOrigin:
    """Of the queries that every opens those that are judged, and their judgements."""
    return TopicsOrigin(lambda copy: JudgedQueries(every(copy), lambda: qrels(copy)), qrels)


def documents(
    reader: Reader[Document], field_rule: str, *files: RemoteFile, once: bool = False
) -> Callable[[Path | None], Source[Document]]:
    """What opens the documents of files; once as Lines has it."""
    return lambda copy: Lines(files, copy, reader, field_rule, once)


def queries(reader: Reader[Query], *files: RemoteFile) -> Callable[[Path | None], Source[Query]]:
    """What opens the queries of files."""
    return lambda copy: Lines(files, copy, reader, "text")


def judgements(reader: LineReader[list[Judgement]], *files: RemoteFile) -> Callable[[Path | None], Qrels]:
    """What reads the judgements that lines of files hold; a broken line is an error."""

    def read(copy: Path | None) -> Qrels:
        qrels: Qrels = {}
        for file in files:
            for found in per_line(reader, file, copy):
                for query, document, grade in found:
                    qrels.setdefault(query, {})[document] = grade
        return qrels

    return read


def per_line(reader: LineReader[T], file: RemoteFile, copy: Path | None) -> Iterator[T]:
    """What a reader makes of a file; a broken line is an error."""
    return (record for _, record in reader(lines(file, copy), partial(_refuse, file.path)))


def trec_judgements(file: RemoteFile) -> Callable[[Path | None], Qrels]:
    """What reads the judgements of a TREC or BEIR file."""
    return lambda copy: qrels_of_lines(lines(file, copy), file.path)


def json_reader(make: Callable[[dict], T | None]) -> LineReader[T]:
    """A reader of JSON lines. make raises BadLineError, or returns None for what is no record of its own."""
    return lambda lines, bad: json_records(lines, bad, make)


def answered(topics: str, corpus: str) -> Callable[[Path | None], Qrels]:
    """For topics that are judged by answers in the passages found: an error that says how it is done."""

    def refuse(_: Path | None) -> Qrels:
        raise MilcoError(
            f"{topics} is judged by the answers in the passages that were found, not by document ids: write judgements "
            f"of a run with milco corpora judge --topics {topics} --corpus {corpus} --run RUN "
            "--output QRELS, then measure Success@100"
        )

    return refuse


def _refuse(where: str, number: int, why: str) -> None:
    raise MilcoError(f"{where}:{number}: {why}")
