"""The documents of a store: the JSON that is stored next to a vector, and what the fields of all documents are.

A document is stored as Anserini stores it (-storeRaw): a JSON object with id, title, contents (the text that was
encoded) and its fields. Only the first passage of a document has them; the others hold its id.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from milco_pyserini.corpora import Document, Query
from milco_pyserini.corpora.languages import FIELD
from milco_pyserini.corpora.records import NOT_FIELDS
from milco_pyserini.errors import MilcoError, shown

# A passage without text stores the id of the passage that holds it.
HOLDER = "passage"
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "strings"}
# The types of fields do not distinguish these kinds.
_TYPES = {"integer": "number", "date": "string"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
# A field whose documents have kinds of a set is of the kind before it.
_JOINED = {"number": {"integer", "number"}, "string": {"date", "string"}, "strings": {"date", "string", "strings"}}
_MAX_INTEGER = 2**63 - 1
# With more distinct values, `lang` is not a language field.
_MAX_LANGUAGES = 1000


@dataclass(frozen=True)
class DocumentSchema:
    """The kind of each field of documents, and the values of the field lang.

    A kind is a type, or more precisely integer or date if all of the values are.
    """

    kinds: Mapping[str, str]
    languages: Sequence[str] = ()

    @property
    def fields(self) -> dict[str, str]:
        """The type of each field: string, strings, number, boolean, or mixed."""
        return {field: _TYPES.get(kind, kind) for field, kind in self.kinds.items()}


class SchemaReader:
    """Gathers the schema of documents that are read one by one, and a digest of all that is stored of them.

    name: of the documents, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kinds: dict[str, set[str]] = {}
        self._languages: set[str] = set()
        self._digest = blake2b(digest_size=16)

    def add(self, document: Document) -> None:
        """Add a document. Raises MilcoError if a field has a name that no store can take."""
        for field, value in document.fields.items():
            if field not in self._kinds:
                if field in NOT_FIELDS or len(field.splitlines()) != 1:
                    raise MilcoError(f"{self._name}: a store cannot hold a field named {shown(field)}")
                self._kinds[field] = set()
            self._kinds[field].add(_kind(value))
        if isinstance(language := document.fields.get(FIELD), str) and len(self._languages) < _MAX_LANGUAGES:
            self._languages.add(language)
        self._digest.update(json_bytes([document.id, document.title, document.text, document.fields]))

    def manifest_fields(self) -> dict[str, Any]:
        """Return what the manifest of a store states of its documents."""
        kinds = {field: _joined(self._kinds[field]) for field in sorted(self._kinds)}
        return {"documents_hash": self._digest.hexdigest(), "kinds": kinds, "languages": sorted(self._languages)}


def document_records(
    records: Sequence[Document | Query], ids: Sequence[str], counts: NDArray[np.integer]
) -> list[bytes]:
    """Return the JSON object that is stored next to each vector of records.

    ids: of the vectors. counts: number of vectors of each record: of its passages.
    """
    found, names = [], iter(ids)
    for record, count in zip(records, counts.tolist(), strict=True):
        holder = next(names)
        found.append(_record(record, holder))
        found += [json_bytes({"id": next(names), HOLDER: holder}) for _ in range(count - 1)]
    return found


def document_json(document: Document) -> bytes:
    """Return the JSON object that is stored of a document."""
    return _record(document, document.id)


def valid_text(text: str) -> str:
    """Return the text without lone surrogates, which UTF-8 does not have."""
    if text.isascii():
        return text
    from milco_pyserini.model.tokenization import replace_lone_surrogates

    return replace_lone_surrogates(text)


def joined_fields(these: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Return the types of the fields of two sets of documents."""
    types = {name: {fields[name] for fields in (these, other) if name in fields} for name in {*these, *other}}
    return {name: _joined(types[name]) for name in sorted(types)}


def _record(record: Document | Query, docid: str) -> bytes:
    if isinstance(record, Query):
        return json_bytes({"id": docid, "contents": record.text})
    value = {"id": docid, **({"title": record.title} if record.title else {}), "contents": record.contents}
    return json_bytes({**value, **record.fields, **value})


def _kind(value: Any) -> str:
    kind = _KINDS[type(value)]
    if kind == "string" and _DATE.fullmatch(value):
        return "date"
    return "number" if kind == "integer" and abs(value) > _MAX_INTEGER else kind


def _joined(types: set[str]) -> str:
    if len(types) == 1:
        return next(iter(types))
    return next((joined for joined, kinds in _JOINED.items() if types <= kinds), "mixed")


def json_bytes(value: Any) -> bytes:
    """Return a JSON value as UTF-8, lone surrogates replaced."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Lone surrogates.
        return valid_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
