"""Documents that a program has or generates, as a source of records: strings, pairs, dicts, Documents, a data frame."""

import math
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import count
from numbers import Integral
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from milco_pyserini.corpora.collection import OnBad
from milco_pyserini.corpora.readers import ID_NAMES, json_document
from milco_pyserini.corpora.records import NOT_FIELDS, BadLineError, Document, document_fields, record_id
from milco_pyserini.errors import DISK_FULL, MilcoError, shown

NAME = "the given corpus"
_FORMS = "a str, an (id, text) pair, a dict with a text, or a Document"
_ROWS = 1000
_TEXTS = ("title", "text", "contents")
_FIELDS = "strings, booleans, dates, finite numbers of up to 64 bits, lists of strings, dicts of these, or None"


class IterableDocuments:
    """Documents of an iterable, as a RecordSource; a document without an id has its number, from 0, as its id.

    An iterator, such as a generator, is read at the first read() and kept in a temporary file, which is removed with
    this object.

    Args:
        documents: strings, (id, text) pairs, dicts as in JSONL files, or Documents; or a pandas.DataFrame, whose
            columns are named as in JSONL files.

    Raises:
        TypeError: documents are not iterable, a dict, or a data frame with two columns of one name.
    """

    field_rule = "contents, or else title + ' ' + text"

    def __init__(self, documents: Iterable[Any]) -> None:
        name = type(documents).__name__
        if isinstance(documents, Mapping):
            raise TypeError(f"expected several documents, not one {name}: pass [...], or .items() of {{id: text}}")
        if isinstance(documents, bytes) or not hasattr(documents, "__iter__"):
            raise TypeError(f"expected a name, a path, or an iterable of documents, each {_FORMS}; got {name}")
        if hasattr(documents, "columns") and not hasattr(documents, "iloc"):
            raise TypeError(f"{name} is not a pandas.DataFrame: pass its rows as dicts")
        columns = list(map(str, getattr(documents, "columns", ())))
        if repeated := [column for column in columns if columns.count(column) > 1]:
            raise TypeError(f"the {name} has {len(repeated)} columns {repeated[0]!r}: rename or drop all but one")
        self._documents = documents
        self._file: Any = None

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Document]]:
        """Yield ("", number from 0, document). Raises TypeError for other objects and for wrong values."""
        if not isinstance(self._documents, Iterator):
            yield from self._convert(bad)
            return
        if self._file is None:
            spool = NamedTemporaryFile(prefix="milco-")  # noqa: SIM115
            try:
                for record in self._convert(bad):
                    pickle.dump(record, spool)
                spool.flush()
            except OSError as error:
                with suppress(OSError):
                    spool.close()
                if error.errno not in DISK_FULL:
                    raise
                message = f"{Path(spool.name).parent} is full: a generator is first written to a temporary file there"
                raise MilcoError(message, "Set TMPDIR to a directory with more space, or pass a list.") from None
            self._file = spool
        with Path(self._file.name).open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)

    def _convert(self, bad: OnBad) -> Iterator[tuple[str, int, Document]]:
        items = _rows(self._documents) if hasattr(self._documents, "columns") else self._documents
        for number, item in zip(count(), items):
            try:
                document = _document(item, number)
                document.id.encode()
            except UnicodeEncodeError as error:
                bad("", number, f"the id {shown(error.object)} has a lone surrogate, which UTF-8 does not have")
            except BadLineError as error:
                bad("", number, str(error))
            else:
                yield "", number, document


def _document(item: Any, number: int) -> Document:
    if isinstance(item, str):
        return Document(str(number), "", item)
    if isinstance(item, Document):
        fields: dict[str, Any] = {"id": item.id, "title": item.title, "text": item.text}
        _validate_types(number, fields)
        # Vectors in memory may have ids that no run can hold, and so may their documents.
        identity = item.id if isinstance(item.id, str) else record_id(fields["id"])
        fields = _plain_fields(number, item.fields)
        reserved = {name: fields[name] for name in NOT_FIELDS & fields.keys()}
        return replace(item, id=identity, fields=document_fields(fields) | reserved)
    if isinstance(item, Mapping):
        fields = {str(name): value for name, value in item.items()}
    elif isinstance(item, tuple) and len(item) == 2:
        fields = dict(zip(("id", "text"), item, strict=True))
    else:
        raise TypeError(f"document {number} is {type(item).__name__}, expected {_FORMS}")
    if fields.keys().isdisjoint(ID_NAMES):
        fields["id"] = number
    _validate_types(number, fields)
    return json_document(_plain_fields(number, fields, *ID_NAMES, *_TEXTS))


def _validate_types(number: int, fields: dict[str, Any]) -> None:
    """Make the integers among ids plain ones. Raises TypeError for an id, title or text of another type."""
    for name in (*ID_NAMES, *_TEXTS):
        if name not in fields or isinstance(fields[name], str) or (name == "title" and fields[name] is None):
            continue
        if name in ID_NAMES and isinstance(fields[name], Integral) and not isinstance(fields[name], bool):
            fields[name] = int(fields[name])
            continue
        expected = "a str or an int" if name in ID_NAMES else "a str"
        raise TypeError(f"document {number}: {name!r} is {type(fields[name]).__name__}, expected {expected}")


def _plain_fields(number: int, record: Mapping[str, Any], *used: str) -> dict[str, Any]:
    """Return a record with plain Python values, except in those used. Raises TypeError for what cannot be a field."""
    names = record.keys() - NOT_FIELDS - set(used)
    return {name: _plain(number, name, value) if name in names else value for name, value in record.items()}


def _plain(number: int, name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(number, f"{name}.{key}", member) for key, member in value.items()}
    plain, kind = value, getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "M" and value.ndim == 0 and value == value:
        plain = str(value)
    elif hasattr(value, "tolist") and kind not in ("M", "m"):
        # A scalar or an array of numpy or torch.
        plain = value.tolist()
    elif isinstance(value, date) and value == value:
        plain = value.isoformat()
    if isinstance(plain, list | tuple) and all(isinstance(item, str) for item in plain):
        return list(plain)
    is_integer = type(plain) is int and -(2**63) <= plain < 2**64
    if plain is None or type(plain) in (str, bool) or is_integer or (type(plain) is float and math.isfinite(plain)):
        return plain
    given = f"{type(value).__name__} {shown(str(value))}"
    raise TypeError(f"document {number}: field {name!r} is {given}: fields are {_FIELDS}")


def _rows(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a data frame with plain Python values, None where one is missing."""
    for start in range(0, len(frame), _ROWS):
        part = frame.iloc[start : start + _ROWS].astype(object)
        yield from part.where(part.notna(), None).to_dict("records")
