"""Corpora and topics: records that can be read any number of times, and checked before they are used."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

from milco_pyserini.console import counted, log
from milco_pyserini.corpora.records import Document, Query, SeenIds, encoded_text
from milco_pyserini.errors import MilcoError, shown

RecordT = TypeVar("RecordT", Document, Query)
RecordT_co = TypeVar("RecordT_co", covariant=True)

OnBad = Callable[[str, int, str], None]
"""Receives the file, the line number and the reason of a line that is not a record. It may raise."""


class RecordSource(Protocol[RecordT_co]):
    """A source of records: local files, a publisher's files, or ir_datasets."""

    @property
    def field_rule(self) -> str:
        """How the text to encode is made from the source's fields."""

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, RecordT_co]]:
        """Yield (file or dataset, line or position from 1, record), the same records at every call.

        Documents of a program have "" as their file, and positions from 0.
        """


@dataclass(frozen=True)
class RecordsReport(Generic[RecordT]):
    """The findings of a full pass over a corpus or topics.

    Args:
        records: number of documents or queries.
        skipped: "file:line: reason" of each skipped line.
        digest: TextDigest of all records, in their order.
        first: the first record.
        surrogates: number of records with lone surrogates, which tokenizers read as U+FFFD.
    """

    records: int
    skipped: list[str]
    digest: str
    first: RecordT
    surrogates: int = 0


class TextDigest:
    """BLAKE2b over ids and encoded texts: equal records in equal order have equal digests."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)
        self.surrogates = 0

    def add(self, record: Document | Query) -> None:
        """Add one record."""
        text = encoded_text(record)
        # No id contains white space, so the boundary between id and text is unambiguous.
        content = f"{record.id} {len(text)} {text}"
        try:
            self._digest.update(content.encode())
        except UnicodeEncodeError:
            self.surrogates += 1
            self._digest.update(content.encode("utf-8", "surrogatepass"))

    def hexdigest(self) -> str:
        """Return 32 hexadecimal digits."""
        return self._digest.hexdigest()


class _Records(Generic[RecordT]):
    def __init__(
        self, name: str, source: RecordSource[RecordT], skip_bad_lines: bool = False, published: int | None = None
    ) -> None:
        """published: the number of records according to the publisher; check() reports a difference."""
        self.name = name
        self._source: RecordSource[RecordT] = source
        self._skip_bad_lines = skip_bad_lines
        self._published = published

    def __iter__(self) -> Iterator[RecordT]:
        return (record for _, _, record in self._source.read(_skip if self._skip_bad_lines else refuse_bad_line))

    def check(self, also: Callable[[RecordT], None] | None = None) -> RecordsReport[RecordT]:
        """Read all records once, before expensive work; needs 8 bytes of memory for each.

        also: called with each record.

        Raises:
            MilcoError: a line is malformed (unless these are skipped), an id occurs twice, or there is no record.
        """
        skipped: list[str] = []

        def note(where: str, number: int, why: str) -> None:
            skipped.append(f"{_place(where, number)}: {why}")

        ids, digest, first = SeenIds(), TextDigest(), None
        for _, _, record in self._source.read(note if self._skip_bad_lines else refuse_bad_line):
            first = first or record
            ids.add(record.id)
            digest.add(record)
            if also is not None:
                also(record)
        if first is None:
            why = (
                f"all {counted(len(skipped), 'line')} were skipped, the first: {skipped[0]}"
                if skipped
                else "no records"
            )
            raise MilcoError(f"{self.name} is empty: {why}")
        duplicate = ids.find_duplicate(
            lambda: ((record.id, _place(where, number)) for where, number, record in self._source.read(_skip))
        )
        if duplicate is not None:
            identity, place, other, total = duplicate
            more = f" ({total:,} ids have duplicates)" if total > 1 else ""
            raise MilcoError(f"duplicate id {shown(identity)}: {place} and {other}{more}")
        if self._published not in (None, len(ids)):
            log(f"{self.name}: read {len(ids):,} records, {self._published:,} were published: is the copy complete?")
        return RecordsReport(len(ids), skipped, digest.hexdigest(), first, digest.surrogates)


class Corpus(_Records[Document]):
    """The documents of one name or path; iterating streams them, in the same order every time.

    Iterating raises MilcoError at the first malformed line, or skips it if opened with skip_bad_lines.
    """

    @property
    def field_rule(self) -> str:
        """How Document.contents is made from the source's fields, for the manifest."""
        return self._source.field_rule


class Topics(_Records[Query]):
    """The queries of one name or path; iterating streams them, in the same order every time."""


def refuse_bad_line(where: str, number: int, why: str) -> None:
    """Raise MilcoError for a line that is not a record."""
    raise MilcoError(f"{_place(where, number)}: {why}")


def _place(where: str, number: int) -> str:
    return f"{where}:{number}" if where else f"document {number}"


def _skip(where: str, number: int, why: str) -> None:
    """Do nothing: check() has listed the line."""
