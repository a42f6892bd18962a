"""A corpus and a set of topics: records that can be read again and again, and checked before they are used."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

from milco_pyserini.console import counted, say
from milco_pyserini.corpora.records import Document, Query, SeenIds, encoded_text
from milco_pyserini.errors import MilcoError, shown

RecordT = TypeVar("RecordT", Document, Query)
RecordT_co = TypeVar("RecordT_co", bound=Document | Query, covariant=True)

OnBad = Callable[[str, int, str], None]


class Source(Protocol[RecordT_co]):
    """Where records come from."""

    @property
    def field_rule(self) -> str:
        """How the text that is encoded is made of the source's fields."""

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, RecordT_co]]:
        """Yield (file or data set, line or position from 1, record), the same ones at every call.

        What is no record goes to bad(file, line, why), which may raise.
        """


@dataclass(frozen=True)
class CorpusReport:
    """What a full pass over a corpus found. skipped has one "file:line: why" for each line left out.

    digest: of all ids and contents, in their order (TextDigest).
    """

    documents: int
    skipped: list[str]
    digest: str
    first: Document


@dataclass(frozen=True)
class TopicsReport:
    """What a full pass over topics found, as CorpusReport says it."""

    topics: int
    skipped: list[str]
    digest: str
    first: Query


class TextDigest:
    """BLAKE2b over ids and encoded texts: equal records in equal order, equal digest."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)

    def add(self, record: Document | Query) -> None:
        """Count one record in."""
        text = encoded_text(record)
        # No id holds white space, so that the two cannot be cut apart in another place.
        self._digest.update(f"{record.id} {len(text)} {text}".encode("utf-8", "surrogatepass"))

    def hexdigest(self) -> str:
        """32 hexadecimal digits."""
        return self._digest.hexdigest()


class _Collection(Generic[RecordT]):
    """Records of one source under one name. Iterating streams them, in the same order every time.

    published: how many there should be, where it is known; check() says it if there are others.
    """

    def __init__(
        self, name: str, source: Source[RecordT], skip_bad_lines: bool = False, published: int | None = None
    ) -> None:
        self.name = name
        self._source: Source[RecordT] = source
        self._skip_bad_lines = skip_bad_lines
        self._published = published

    def __iter__(self) -> Iterator[RecordT]:
        return (record for _, _, record in self._source.read(_ignore if self._skip_bad_lines else _refuse))

    def _check(self) -> tuple[int, list[str], str, RecordT]:
        skipped: list[str] = []

        def note(where: str, number: int, why: str) -> None:
            skipped.append(f"{where}:{number}: {why}")

        ids, digest, first = SeenIds(), TextDigest(), None
        for _, _, record in self._source.read(note if self._skip_bad_lines else _refuse):
            first = first or record
            ids.add(record.id)
            digest.add(record)
        if first is None:
            left_out = f" (left out: {counted(len(skipped), 'line')}, the first {skipped[0]})" if skipped else ""
            raise MilcoError(f"{self.name} is empty: nothing in it can be read{left_out}")
        duplicate = ids.find_duplicate(
            lambda: ((record.id, f"{where}:{number}") for where, number, record in self._source.read(_ignore))
        )
        if duplicate is not None:
            more = f" ({duplicate.total:,} ids have duplicates)" if duplicate.total > 1 else ""
            raise MilcoError(f"duplicate id {shown(duplicate.id)}: {duplicate.first} and {duplicate.second}{more}")
        if self._published not in (None, len(ids)):
            say(f"{self.name}: read {len(ids):,} records, {self._published:,} were published: is the copy complete?")
        return len(ids), skipped, digest.hexdigest(), first


class Corpus(_Collection[Document]):
    """The documents of one name or path. Iterating streams them, in the same order every time.

    Iterating raises MilcoError at the first broken line, or leaves it out where broken lines are skipped.
    """

    @property
    def field_rule(self) -> str:
        """How Document.contents is made of the source's fields, for the manifest."""
        return self._source.field_rule

    def check(self) -> CorpusReport:
        """Read everything once, before expensive work; 8 bytes of memory a document.

        Raises MilcoError on the first broken line (unless they are skipped), on an id that stands twice
        (naming both places), and on a corpus without a document.
        """
        return CorpusReport(*self._check())


class Topics(_Collection[Query]):
    """The queries of one name or path. Iterating streams them, in the same order every time.

    Iterating raises MilcoError at the first broken line, or leaves it out where broken lines are skipped.
    """

    def check(self) -> TopicsReport:
        """Read everything once, before expensive work. Raises MilcoError as Corpus.check does."""
        return TopicsReport(*self._check())


def _refuse(where: str, number: int, why: str) -> None:
    raise MilcoError(f"{where}:{number}: {why}")


def _ignore(where: str, number: int, why: str) -> None:
    """Leave a broken line out: check() has listed it."""
