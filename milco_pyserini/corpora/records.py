"""Documents, queries and their ids: the records that every source yields."""

import json
import math
import re
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from typing import Any

from milco_pyserini.errors import shown

PASSAGE_DELIMITER = "#"
"""Separates document and passage number in the ids of passages: DOCID#0, DOCID#1."""

PASSAGE = re.compile(rf"{PASSAGE_DELIMITER}([0-9]+)\Z")
"""Matches the end of a passage's id: delimiter and number."""

MAX_ID_BYTES = 32_766
"""Lucene's limit for the UTF-8 bytes of an id. It holds for all engines, so that they accept the same documents."""

# Leaves room for a passage delimiter and number within Lucene's limit.
_MAX_RECORD_ID_BYTES = MAX_ID_BYTES - 66
# More ids than this cannot share a 64-bit hash by chance, so rereading these finds a real duplicate.
_CANDIDATES = 1000
# Names that an index uses for the document itself, in Lucene and in stored JSON.
NOT_FIELDS = frozenset(("id", "contents", "raw", "vector"))


@dataclass(frozen=True, slots=True)
class Document:
    """A document.

    >>> Document("d1", "Nile", "The Nile flows north.", {"lang": "en", "year": 2024}).contents
    'Nile The Nile flows north.'

    Args:
        title: "" if the source has none; text may be empty, too.
        fields: what else the source states about it: strings, numbers, booleans and lists of strings, by name.
    """

    id: str
    title: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def contents(self) -> str:
        """The text to encode: title and text with a space between, or the text if there is no title."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Query:
    """A query, also called a topic."""

    id: str
    text: str


def document_line(document: Document) -> str:
    """Return a document as a line of a JSONL corpus, without the line end."""
    text = {"title": document.title, "text": document.text} if document.title else {"contents": document.text}
    return json.dumps({"id": document.id, **text, **document.fields}, ensure_ascii=False)


def encoded_text(record: Document | Query) -> str:
    """Return the text to encode of a document or a query."""
    return record.contents if isinstance(record, Document) else record.text


def document_fields(record: Mapping[str, Any], *used: str) -> dict[str, Any]:
    """Return the fields of a record that is a document.

    >>> document_fields({"_id": "d1", "text": "...", "lang": "en", "metadata": {"url": "https://a/b"}}, "_id", "text")
    {'lang': 'en', 'metadata.url': 'https://a/b'}

    The members of an object are fields with its name before theirs, and dates are strings. Nulls, lists of anything but
    strings, and names that an index needs itself (id, contents, raw, vector) are left out.

    Args:
        used: names that are not fields, because they hold the id, the title or the text.
    """
    return dict(_flat_fields({name: record[name] for name in record if name not in used and name not in NOT_FIELDS}))


def _flat_fields(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat_fields(value, f"{prefix}{name}.")
        elif isinstance(value, date):
            yield prefix + name, value.isoformat()
        elif isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
            yield prefix + name, value
        elif isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
            yield prefix + name, list(value)


class BadLineError(ValueError):
    """The reason why a line is not a record. Its reader adds the file and the line number."""


def record_id(value: object) -> str:
    """Return the id of a record as a string; integers are valid ids.

    Raises:
        BadLineError: the id is missing, too long, or contains white space, which separates the columns of a TREC run:
            a document with such an id could never be judged.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadLineError(f"the id is {_json_type(value)}: ids are strings or integers")
    if len(value.split()) != 1 or value.strip() != value:
        problem = "holds white space, which separates the columns of a TREC run" if value.strip() else "is empty"
        raise BadLineError(f"the id {shown(value)} {problem}")
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > _MAX_RECORD_ID_BYTES:
        raise BadLineError(f"the id {shown(value)} has {size:,} bytes: the limit is {_MAX_RECORD_ID_BYTES:,}")
    return value


def text_of(value: object, name: str) -> str:
    """Return the text in the field called name. Raises BadLineError if it is not a string."""
    if not isinstance(value, str):
        raise BadLineError(f"{name!r} is {_json_type(value)}: texts are strings")
    return value


def _json_type(value: object) -> str:
    names = {type(None): "null", bool: "a boolean", list: "a list", dict: "an object", bytes: "binary"}
    return names.get(type(value), "a number")


class SeenIds:
    """Finds duplicate ids among millions with 8 bytes of memory each: their hashes, which candidates must share."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, identity: str) -> None:
        """Remember an id."""
        self._hashes.append(hash(identity))

    def find_duplicate(
        self, reread: Callable[[], Iterable[tuple[str, Hashable]]]
    ) -> tuple[str, Hashable, Hashable, int] | None:
        """Return the first id that occurs in two places, these, and the number of such ids; None if there is none.

        Args:
            reread: yields each id once more with its place. Called only if hashes are equal, which may be by chance.
        """
        import numpy as np  # here, so that --help does not wait for it

        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        hashes.sort()  # in place: no second copy of millions of hashes
        repeated = np.unique(hashes[1:][hashes[1:] == hashes[:-1]]).tolist()
        candidates = set(islice(repeated, _CANDIDATES))
        places: dict[str, Hashable] = {}
        for identity, place in reread() if candidates else ():
            if hash(identity) in candidates and places.setdefault(identity, place) != place:
                return identity, places[identity], place, len(repeated)
        return None
