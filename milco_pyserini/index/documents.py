"""The documents of an index: validated and counted while an engine reads them, and stored next to their vectors."""

import contextlib
import json
import math
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson
from msgspec.structs import replace
from numpy.typing import NDArray

from milco_pyserini.console import Progress
from milco_pyserini.corpora import Document
from milco_pyserini.corpora.readers import json_document
from milco_pyserini.corpora.records import MAX_ID_BYTES, NOT_FIELDS, BadLineError, SeenIds
from milco_pyserini.encode.documents import HOLDER, DocumentSchema, SchemaReader, document_json, json_bytes, valid_text
from milco_pyserini.errors import Message, MilcoError, ParameterError, shown, unknown_name, validate_name
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.sparse import SparseBatch

# Longer values (bytes of UTF-8) are stored but not indexed, so filters do not match them.
MAX_VALUE_BYTES = 1024
# A field with more different values supports neither counts nor ranges.
MAX_VALUES = 100_000
# Maximum sum of a document's impacts: the limit of Lucene, which applies to every engine, as does its limit of ids.
MAX_IMPACTS = 2**31 - 1
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_DIGITS = re.compile(r"[-+]?[0-9]+")
# ASCII, which separates the columns of a run.
WHITE_SPACE = re.compile(r"\s", re.ASCII)


class SparseDocuments(Protocol):
    """Documents as sparse vectors, such as a VectorStore. An engine reads them once, in one of the two ways."""

    @property
    def path(self) -> Path:
        """Their path, for messages."""

    @property
    def manifest(self) -> StoreManifest:
        """Their description, for the manifest of the index."""

    @property
    def terms(self) -> list[str]:
        """Term of each column; complete when batches() has ended."""

    def documents(self) -> Iterator[bytes]:
        """Yield the JSON object next to every vector, in their order, for an index that stores documents."""

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield the id and {term: impact} of every document, impacts >= 1."""

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield ids and float weights of many documents at a time."""


class CheckedDocuments:
    """SparseDocuments that are validated and counted while they are read, with 8 bytes of memory for each id.

    A document that no index can hold raises MilcoError before an engine has seen it.

    corpus: what the index stores of each document, or None. postings: number of terms of all documents. id_with_space:
    the first id with white space in it, which no run can hold.
    """

    def __init__(self, source: Any, progress: Progress, corpus: "StoredDocuments | None" = None) -> None:
        self.corpus = corpus
        self.postings = 0
        self.id_with_space: str | None = None
        self._source = source
        self._progress = progress
        self._seen = SeenIds()

    @property
    def terms(self) -> list[str]:
        """Term of each column."""
        return self._source.terms

    @property
    def deleted(self) -> list[str]:
        """Ids that an update deletes, once all documents have been read; none for a new index."""
        return getattr(self._source, "deleted", [])

    @property
    def replaces_passages(self) -> bool:
        """True if an update replaces and deletes documents with all passages that the index has of them."""
        return getattr(self._source, "replaces_passages", False)

    @property
    def scale(self) -> float:
        """The impact of weight 1."""
        return self._source.manifest.scale

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield the id and {term: impact} of every document."""
        for docid, vector in self._source.vectors():
            self._count([docid], [sum(vector.values())], len(vector))
            yield docid, vector

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield ids and float weights."""
        scale = np.float64(self.scale)
        for names, batch in self._source.batches():
            sums = np.bincount(batch.row_numbers(), np.rint(batch.weights * scale), len(names))
            self._count(names, sums, len(batch.columns))
            yield names, batch

    def validate_unique_ids(self) -> None:
        """Raise MilcoError if two of the documents share an id: a ranking could not tell them apart."""
        ids = (docid for docid, _ in self._source.vectors())
        duplicate = self._seen.find_duplicate(lambda: ((docid, place) for place, docid in enumerate(ids)))
        if duplicate is not None:
            raise MilcoError(f"{self._source.path}: two documents have the id {shown(duplicate[0])}")

    def _count(self, ids: list[str], impacts: Sequence[float] | NDArray[Any], postings: int) -> None:
        """Validate ids and the sums of impacts of documents, and count them."""
        for docid in ids:
            if not docid:
                raise MilcoError(f"{self._source.path}: a document has an empty id")
            size = len(docid.encode("utf-8", "surrogatepass"))
            if size > MAX_ID_BYTES:
                raise MilcoError(
                    f"document {shown(docid)}: its id has {size:,} bytes, an index takes up to {MAX_ID_BYTES:,}"
                )
            self._seen.add(docid)
            if self.id_with_space is None and WHITE_SPACE.search(docid):
                self.id_with_space = docid
        if max(impacts, default=0) > MAX_IMPACTS:
            docid, total = next(pair for pair in zip(ids, impacts, strict=True) if pair[1] > MAX_IMPACTS)
            raise MilcoError(
                f"document {shown(docid)}: its impacts add up to {total:,.0f}, an index takes up to {MAX_IMPACTS:,}: "
                "choose a smaller scale"
            )
        self.postings += postings
        self._progress.add(len(ids))


Filters = Mapping[str, Sequence[str]]
"""Field -> the values of which a document must have one; the text of a value is that of filter_text()."""

FieldFilters = Mapping[str, Sequence[str] | Mapping[str, Any]]
"""Filters, or a range of values: {"year": {">=": 2000, "<": 2010}}."""


class StoredDocument(NamedTuple):
    """A document as an index stores it: its JSON, and (number of the field, value) of all that filters find."""

    raw: str
    values: list[tuple[int, str]]


class StoredDocuments:
    """The documents of a vector store, in the order in which an index takes their vectors.

    External vectors are read once more before, for the fields of their documents.

    Args:
        source: the store, or vectors of it: documents() yields the JSON objects in the order of the vectors.
        vectors: store the vectors, too, as Anserini does, for its relevance feedback.

    Attributes:
        schema, fields: kinds and types of their fields.
        checksum: a digest of everything that is stored.
    """

    def __init__(self, source: Any, vectors: bool = False) -> None:
        about, read = source.manifest, source.documents
        if about.plain:
            documents, reader = (lambda: map(_external_document, source.documents())), SchemaReader(str(source.path))
            for document in documents():
                reader.add(document)
            about, read = replace(about, **reader.manifest_fields()), lambda: map(document_json, documents())
        self.vectors = vectors
        self.schema = DocumentSchema(about.kinds or {}, about.languages)
        self.fields = self.schema.fields
        self.checksum = about.documents_hash
        self._path = source.path
        self._numbers = {field: number for number, field in enumerate(self.fields)}
        self._stream = iter(read())
        self._passages = bool(about.split_passages)
        # orjson reads integers of more than 64 bits as floats.
        self._parse = json.loads if {"number", "mixed"} & set(self.schema.kinds.values()) else orjson.loads
        # The last document that has a text, and the id of its first passage with terms.
        self._document: dict[str, Any] = {}
        self._holder = ""

    def entry(self, docid: str, vector: Mapping[str, int]) -> StoredDocument:
        """Return a document that has a vector. Raises MilcoError if the store does not have it."""
        beginning = b'{"id":' + orjson.dumps(docid)
        for raw in self._stream:
            is_wanted = raw.startswith(beginning)
            if self._passages or (is_wanted and self._numbers):
                self._read(raw)
            if is_wanted:
                return self._entry(docid, raw, vector)
        raise MilcoError(f"{self._path} has no document {shown(docid)}, which has a vector: encode it again")

    def _read(self, raw: bytes) -> None:
        value = self._parse(raw)
        if "contents" in value:
            self._document, self._holder = value, ""

    def _entry(self, docid: str, raw: bytes, vector: Mapping[str, int]) -> StoredDocument:
        if self._passages:
            self._holder = self._holder or docid
            text = {**self._document, "id": docid}
            raw = json_bytes(text if self._holder == docid else {"id": docid, HOLDER: self._holder})
        values = [
            (number, text)
            for name, number in self._numbers.items()
            if (value := self._document.get(name)) is not None
            for text in dict.fromkeys(map(filter_text, value if isinstance(value, list) else [value]))
            if len(text.encode()) <= MAX_VALUE_BYTES
        ]
        if self.vectors:
            raw = raw[:-1] + b',"vector":' + orjson.dumps(vector) + b"}"
        return StoredDocument(raw.decode(), values)


class DiskDocuments:
    """Documents by id in a temporary file, which is removed by close(), or with the process. Threads may share them."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        # A database without a name is SQLite's own temporary file.
        self._database = sqlite3.connect("", check_same_thread=False)
        self._database.execute("CREATE TABLE documents (id TEXT PRIMARY KEY, document TEXT) WITHOUT ROWID")
        self._lock = threading.Lock()
        self.add(documents)

    def add(self, documents: Iterable[Document]) -> None:
        """Add documents, of which the first of an id is kept."""
        # Lone surrogates are escaped.
        rows = ((item.id, json.dumps((item.title, item.text, dict(item.fields)))) for item in documents)
        with self._lock:
            self._database.executemany("INSERT OR IGNORE INTO documents VALUES (?, ?)", rows)

    def get(self, docid: str) -> Document | None:
        """Return a document; None if it was not added."""
        with self._lock:
            row = self._database.execute("SELECT document FROM documents WHERE id = ?", (docid,)).fetchone()
        return None if row is None else Document(docid, *json.loads(row[0]))

    def close(self) -> None:
        """Remove the file."""
        self._database.close()


def _external_document(raw: bytes) -> Document:
    try:
        return json_document({"contents": "", **json.loads(raw)})
    except BadLineError as error:
        raise MilcoError(f"external vectors: {error}") from None


def stored_documents(
    source: Any, is_wanted: bool | None, can_store: bool, vectors: bool = False
) -> StoredDocuments | None:
    """Return the documents of a vector store for an index; None if it is to store none.

    is_wanted: None for those that there are, if the engine can_store. Raises MilcoError if wanted ones are missing.
    """
    if is_wanted is False or not (is_wanted or can_store):
        return None
    if source.manifest.documents_hash is not None or (is_wanted and source.manifest.plain):
        return StoredDocuments(source, vectors)
    if not is_wanted:
        return None
    rule = f"{source.path} holds vectors without their documents"
    fix: str | Message = f"Run milco encode --reuse {source.path}, which takes the vectors from there."
    if not source.manifest.has_checksums:
        fix = Message("Pass the documents as {ids}.")
    raise ParameterError("store_documents", True, rule, fix)


def parse_document(docid: str, raw: str | bytes) -> Document | str:
    """Return the document in the JSON of StoredDocument.raw, or the id of the passage that has its text."""
    value = orjson.loads(raw)
    if "contents" not in value:
        return str(value[HOLDER])
    text, title = value["contents"], value.get("title")
    fields = {name: field for name, field in value.items() if name not in NOT_FIELDS}
    if isinstance(title, str) and text.startswith(f"{title} "):
        del fields["title"]
        return Document(docid, title, text[len(title) + 1 :], fields)
    return Document(docid, "", text, fields)


def filter_text(value: Any) -> str:
    """Return the text by which the value of a field is found.

    >>> [filter_text(value) for value in ("de", 2024, 2024.0, True)]
    ['de', '2024', '2024', 'true']
    """
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return str(value)
    raise TypeError(f"{value!r} is {type(value).__name__}: filters compare strings, numbers and booleans")


def field_type(name: str, fields: Mapping[str, str] | None, index: Path, use: str = "filter") -> str:
    """Return the type of a stored field. Raises MilcoError if the index does not store it. use: for the message."""
    if fields is None:
        fix = (
            "Build it again with milco index --store (milco encode --reuse adds documents to vectors without), or fill "
            "the server with milco export --store"
        )
        raise MilcoError(f"{index} stores no fields to {use} by", fix)
    if not fields:
        raise MilcoError(f"no field {shown(name)}: the documents of {index} have no fields")
    if name not in fields:
        raise unknown_name(f"field of {index}", name, fields)
    return fields[name]


def validate_filters(
    filters: Mapping[str, Any], fields: Mapping[str, str] | None, index: Path
) -> dict[str, list[str] | dict[str, Any]]:
    """Return the texts of the values of filters, and ranges as they are.

    Raises:
        MilcoError: the index does not store such a field, a filter has no value, or one that is too long or not of the
            field's type, or a range is not one of numbers or strings.
    """
    wanted: dict[str, list[str] | dict[str, Any]] = {}
    for name, given in filters.items():
        kind = field_type(name, fields, index)
        if isinstance(given, Mapping):
            for operator, bound in given.items():
                validate_name("comparison", operator, _COMPARISONS)
                _comparable(name, bound, kind)
            wanted[name] = dict(given)
        else:
            values = given if isinstance(given, list | tuple | set | frozenset) else [given]
            if kind == "number":
                values = [_comparable(name, value, kind) for value in values]
            wanted[name] = sorted(set(map(filter_text, values)))
        if not wanted[name]:
            raise MilcoError(f"filter {shown(name)} has no value: omit it, or give one")
        for text in wanted[name] if isinstance(wanted[name], list) else ():
            if text in _COMPARISONS:
                raise MilcoError(f"filter {shown(name)}: {text} is a comparison, not a value", _range_form(name))
            if len(text.encode()) > MAX_VALUE_BYTES:
                raise MilcoError(
                    f"filter {shown(name)}: a value has {len(text.encode()):,} bytes, fields of up to "
                    f"{MAX_VALUE_BYTES:,} can be filtered by"
                )
    return dict(sorted(wanted.items()))


def values_in_range(name: str, bounds: Mapping[str, Any], kind: str, values: Iterable[str] | None) -> list[str]:
    """Return those of the values of a field that are within bounds: {">=": 2000, "<": 2010}.

    Numbers are compared by their size, strings by their characters, as dates of the form 2026-11-26 can be.

    Args:
        kind: type of the field.
        values: of all documents; None if there are too many.

    Raises:
        MilcoError: there are too many, or strings and a number would be compared.
    """
    if values is None:
        raise MilcoError(
            f"filter {shown(name)}: ranges are for fields of up to {MAX_VALUES:,} different values: store a coarser one"
        )
    values = list(values)
    limits = [(_COMPARISONS[operator], _comparable(name, bound, kind)) for operator, bound in bounds.items()]
    digits = set() if kind == "number" else {len(number[0]) for value in values if (number := _DIGITS.match(value))}
    for _, limit in limits:
        if values and kind != "number" and (number := _DIGITS.match(limit)) and digits != {len(number[0])}:
            raise MilcoError(
                f"filter {shown(name)}: its values are strings, which are compared by their characters, and not all "
                f"begin with as many digits as {shown(limit)}: index numbers to compare numbers"
            )
    found = ((text, _comparable(name, text, kind)) for text in values)
    return sorted(text for text, value in found if all(holds(value, limit) for holds, limit in limits))


def parse_number(text: str) -> int | float:
    """Return the number that a text is. Raises ValueError for other texts."""
    # Integers of any size are exact.
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def field_values(texts: Iterable[str], kind: str) -> list[Any]:
    """Return the strings, numbers and booleans, as the type of a field allows, whose texts these are."""
    texts = list(texts)
    values: list[Any] = []
    if kind in ("string", "strings", "mixed"):
        values += texts
    if kind in ("number", "mixed"):
        for text in texts:
            with contextlib.suppress(ValueError):
                number = parse_number(text)
                # inf and nan are no JSON, and 1.0 is not the text of a value.
                values += [number] if math.isfinite(number) and filter_text(number) == text else []
    if kind in ("boolean", "mixed"):
        values += [text == "true" for text in texts if text in ("true", "false")]
    return values


def range_bounds(bounds: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the bounds of a range as numbers, for a field of numbers, or else as strings."""
    texts = {operator: filter_text(value) for operator, value in bounds.items()}
    return {operator: parse_number(text) if kind == "number" else text for operator, text in texts.items()}


def _comparable(name: str, value: Any, kind: str) -> Any:
    """Return a bound or a value of a field as a string or a number. Raises MilcoError for other fields and values."""
    if kind in ("string", "strings"):
        return filter_text(value)
    if kind != "number":
        raise MilcoError(f"filter {shown(name)}: ranges are for fields of numbers or strings, its values are {kind}")
    try:
        return parse_number(filter_text(value))
    except ValueError:
        fix = _range_form(name)
        raise MilcoError(f"filter {shown(name)}: its values are numbers, {shown(str(value))} is not", fix) from None


def _range_form(name: str) -> str:
    return f'A range is "{name}>=20", or {{"{name}": {{">=": 20}}}} in Python.'
