"""A benchmark: the names of its corpora and topics, where their files come from, its license and citation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from milco_pyserini.corpora.collection import OnBad, RecordSource
from milco_pyserini.corpora.ir_datasets import DatasetDocuments, DatasetQueries
from milco_pyserini.corpora.records import Document, Query
from milco_pyserini.corpora.remote import RemoteRecords, RemoteSource
from milco_pyserini.io.qrels import Qrels

T = TypeVar("T")
FIELD_RULE = "title + ' ' + text"


class _Entry:
    """Named records: the base of corpora and topics."""

    source: RecordSource
    count: int | None

    @property
    def size(self) -> int | None:
        """The published number of records, also that of ir_datasets; None if it is unknown."""
        if isinstance(self.source, DatasetDocuments | DatasetQueries):
            return self.source.published_size()
        return self.count

    @property
    def has_copies(self) -> bool:
        """True if the records can be read from a local copy."""
        return isinstance(self.source, RemoteSource)


@dataclass(frozen=True)
class BenchmarkCorpus(_Entry):
    """Documents with a name.

    Args:
        source: nothing is fetched before it is read.
        language: of the documents, in two letters if it has such a code; None if there are several.
        count: the published number of documents; None if it is unknown.
    """

    source: RecordSource[Document]
    language: str | None
    count: int | None = None

    def at(self, copy: Path) -> "BenchmarkCorpus":
        """Return the same corpus, read from a local copy."""
        return replace(self, source=_at(self.source, copy))


@dataclass(frozen=True)
class BenchmarkTopics(_Entry):
    """Queries with a name, and their judgments, as a RecordSource.

    Args:
        source: nothing is fetched before it is read.
        qrels: returns the judgments of documents; None for topics that are judged by answers.
        count: the published number of queries; None if it is unknown.
        judged_only: drop the queries without judgments.
        answers: (query id, answers) of topics that are judged by answers: a passage is relevant if it contains one.
    """

    source: RecordSource[Query]
    qrels: Callable[[], Qrels] | None
    count: int | None = None
    judged_only: bool = False
    answers: RemoteRecords[tuple[str, list[str]]] | None = None

    @property
    def field_rule(self) -> str:
        """How the text is made from the source's fields."""
        return self.source.field_rule

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Query]]:
        """Yield (file, line number, query), without the queries to drop."""
        queries = self.source.read(bad)
        if not self.judged_only or self.qrels is None:
            return queries
        judged = self.qrels().keys()
        return (record for record in queries if record[2].id in judged)

    def at(self, copy: Path) -> "BenchmarkTopics":
        """Return the same topics, read from a local copy."""
        return replace(
            self,
            source=_at(self.source, copy),
            qrels=self.qrels and _at(self.qrels, copy),
            answers=self.answers and self.answers.at(copy),
        )


@dataclass(frozen=True)
class Benchmark:
    """A named set of corpora and topics.

    Args:
        corpus_names, topics_names: the names as a person reads them, such as "miracl-LANG-SPLIT".
        languages: of documents or queries, as the names write them.
        source: the publisher, with the revision.
        field_rule: how the text to encode is made from the fields of documents.
        unconfirmed: what the publisher's own page or files have not confirmed.
    """

    name: str
    title: str
    corpus_names: str
    topics_names: str
    languages: Sequence[str]
    license: str
    citation: str
    source: str
    corpora: Mapping[str, BenchmarkCorpus] = field(repr=False)
    topics: Mapping[str, BenchmarkTopics] = field(repr=False)
    field_rule: str = FIELD_RULE
    note: str = ""
    unconfirmed: str = ""


def _at(source: T, copy: Path) -> T:
    return source.at(copy) if isinstance(source, RemoteSource) else source
