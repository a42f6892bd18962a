"""Documents that a program has or generates, as a source of records: strings, pairs, dicts, Documents, a data frame."""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from numbers import Integral
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from milco_pyserini.corpora.collection import OnBad
from milco_pyserini.corpora.readers import ID_NAMES, json_document
from milco_pyserini.corpora.records import BadLineError, Document, record_id

NAME = "the given corpus"
_FORMS = "a str, an (id, text) pair, a dict with a text, or a Document"
_ROWS = 1000


class GivenDocuments:
    """Documents of an iterable, as a RecordSource; a document without an id has its number, from 0, as its id.

    What can be iterated only once, such as a generator, is iterated at the first read() and kept in a temporary file,
    which is removed with this object.

    Args:
        documents: strings, (id, text) pairs, dicts as in JSONL files, or Documents; or a pandas.DataFrame, whose
            columns are named as in JSONL files.

    Raises:
        TypeError: documents are not iterable, or a dict.
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
        self._documents = documents
        self._file: Any = None

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Document]]:
        """Yield ("", number from 0, document). Raises TypeError if one is not a document, or its text not a str."""
        if not isinstance(self._documents, Iterator):
            yield from self._convert(bad)
            return
        if self._file is None:
            spool = NamedTemporaryFile(prefix="milco-")  # noqa: SIM115
            for record in self._convert(bad):
                pickle.dump(record, spool)
            spool.flush()
            self._file = spool
        with Path(self._file.name).open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)

    def _convert(self, bad: OnBad) -> Iterator[tuple[str, int, Document]]:
        items = _rows(self._documents) if hasattr(self._documents, "columns") else self._documents
        for number, item in zip(count(), items):
            try:
                document = _document(item, number)
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
        return item if isinstance(item.id, str) else replace(item, id=record_id(fields["id"]))
    if isinstance(item, Mapping):
        fields = {str(name): value for name, value in item.items()}
    elif isinstance(item, tuple) and len(item) == 2:
        fields = dict(zip(("id", "text"), item, strict=True))
    else:
        raise TypeError(f"document {number} is {type(item).__name__}, expected {_FORMS}")
    if fields.keys().isdisjoint(ID_NAMES):
        fields["id"] = number
    _validate_types(number, fields)
    return json_document(fields)


def _validate_types(number: int, fields: dict[str, Any]) -> None:
    """Make the integers among ids plain ones. Raises TypeError for an id, title or text of another type."""
    for name in (*ID_NAMES, "title", "text", "contents"):
        if name not in fields or isinstance(fields[name], str) or (name == "title" and fields[name] is None):
            continue
        if name in ID_NAMES and isinstance(fields[name], Integral):
            fields[name] = int(fields[name])
            continue
        expected = "a str or an int" if name in ID_NAMES else "a str"
        raise TypeError(f"document {number}: {name!r} is {type(fields[name]).__name__}, expected {expected}")


def _rows(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a data frame with plain Python values, None where one is missing."""
    for start in range(0, len(frame), _ROWS):
        part = frame.iloc[start : start + _ROWS].astype(object)
        yield from part.where(part.notna(), None).to_dict("records")
