"""A document and a query: what every source is turned into."""

from dataclasses import dataclass

from milco_pyserini.errors import shown

# Lucene's limit, with room for the number of a passage. Said here, before anything is encoded.
_MAX_ID_BYTES = 32_700


@dataclass(frozen=True, slots=True)
class Document:
    """A document. title is "" where the source has none, and text may be empty too."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """What is encoded: title and text with a space between, or text alone where there is no title."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Query:
    """A query, also called a topic."""

    id: str
    text: str


def encoded_text(record: Document | Query) -> str:
    """What is encoded of a record of either kind."""
    return record.contents if isinstance(record, Document) else record.text


class BadLineError(ValueError):
    """Why a line is no record. Its reader adds the file and the line number."""


def record_id(value: object) -> str:
    """The id that a source gives, as a string; whole numbers are ids too.

    Raises BadLineError if there is none, or if it holds white space: a TREC run separates its columns by it, so
    such an id could never be judged.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadLineError(f"the id is {_kind(value)}, where a string is needed")
    if len(value.split()) != 1 or value.strip() != value:
        why = "holds white space, which a TREC run cannot hold" if value.strip() else "is empty"
        raise BadLineError(f"the id {shown(value)} {why}")
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > _MAX_ID_BYTES:
        raise BadLineError(f"the id {shown(value)} is {size:,} bytes long, an index takes up to {_MAX_ID_BYTES:,}")
    return value


def text_of(value: object, name: str) -> str:
    """The text that a source gives in field name. Raises BadLineError if it is no string."""
    if not isinstance(value, str):
        raise BadLineError(f"{name!r} is {_kind(value)}, where a string is needed")
    return value


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "a truth value", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")
