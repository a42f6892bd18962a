"""The documents of an index: validated and counted while an engine reads them, and stored next to their vectors.

A document is stored as Anserini stores it (-storeRaw): a JSON object with id, contents (the text that was encoded) and
title, and with its fields. Only the first passage of a document has them; the others hold its id.
"""

import contextlib
import json
import math
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from milco_pyserini.console import Progress
from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.corpora.catalog import corpus_paths, local_corpora, local_corpus_name
from milco_pyserini.corpora.collection import TextDigest
from milco_pyserini.corpora.records import MAX_ID_BYTES, PASSAGE, SeenIds
from milco_pyserini.errors import Message, MilcoError, ParameterError, shown, unknown_name, validate_name
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.sparse import SparseBatch

# Longer values (bytes of UTF-8) are stored but not indexed, so filters do not match them.
MAX_VALUE_BYTES = 1024
# A field with more different values supports neither counts nor ranges.
MAX_VALUES = 100_000
# Maximum sum of a document's impacts: the limit of Lucene, which applies to every engine, as does its limit of ids.
MAX_IMPACTS = 2**31 - 1
# The field with the language of a document.
LANGUAGE = "lang"
# A passage without text stores the id of the passage that holds it.
_HOLDER = "passage"
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_RESERVED = ("id", "contents", "raw", "vector")
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "strings"}
# The types of fields do not distinguish these kinds.
_TYPES = {"integer": "number", "date": "string"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
# A field whose documents have kinds of a set is of the kind before it.
_JOINED = {"number": {"integer", "number"}, "string": {"date", "string"}, "strings": {"date", "string", "strings"}}
_MAX_INTEGER = 2**63 - 1
_DIGITS = re.compile(r"[-+]?[0-9]+")
# With more distinct values, `lang` is not a language field.
_MAX_LANGUAGES = 1000
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

    def __init__(self, source: Any, progress: Progress, corpus: "CorpusDocuments | None" = None) -> None:
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


class OtherTextsError(MilcoError):
    """A corpus whose texts are not those that were encoded."""


Filters = Mapping[str, Sequence[str]]
"""Field -> the values of which a document must have one; the text of a value is that of filter_text()."""

FieldFilters = Mapping[str, Sequence[str] | Mapping[str, Any]]
"""Filters, or a range of values: {"year": {">=": 2000, "<": 2010}}."""


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


class StoredDocument(NamedTuple):
    """A document as an index stores it: its JSON, and (number of the field, value) of all that filters find."""

    raw: str
    values: list[tuple[int, str]]


class CorpusDocuments:
    """The documents of a corpus, in the order in which an index takes their vectors.

    The corpus is read twice: for its fields, and in step with the vectors. Where the order of the two differs,
    documents wait in a temporary file.

    Args:
        passages: ids are those of passages, ID#0, ID#1, ...: their document is found.
        digest: TextDigest of the texts that were encoded; None if it is not known.
        vectors: store the vectors, too, as Anserini does, for its relevance feedback.
        first: number of leading documents without a vector in this shard; they are read last.

    Raises:
        MilcoError: the texts are not those that were encoded, or a field has a name that no index can take.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        name: str,
        passages: bool = False,
        digest: str | None = None,
        vectors: bool = False,
        first: int = 0,
    ) -> None:
        self.name = name
        self.passages = passages
        self.vectors = vectors
        self.schema, self.checksum = _read_schema(documents, name, digest)
        """The schema of the documents, and a digest of everything that is stored."""
        self.fields = self.schema.fields
        """The type of each field: string, strings, number, boolean, or mixed."""
        self._numbers = {field: number for number, field in enumerate(self.fields)}
        self._stream = chain(islice(documents, first, None), islice(documents, first))
        self._last: Document | None = None
        # The last document, and the id of its passage that has the text.
        self._holder = "", ""
        self._skipped: DiskDocuments | None = None
        self._peeked: dict[str, StoredDocument] = {}

    def entry(self, docid: str, vector: Mapping[str, int]) -> StoredDocument:
        """Return a document that has a vector. Raises MilcoError if the corpus does not have it."""
        if docid in self._peeked:
            return self._peeked.pop(docid)
        document = self._find(PASSAGE.sub("", docid) if self.passages else docid)
        if not self.passages or self._holder[0] != document.id:
            self._holder = document.id, docid
        holder = self._holder[1]
        value: dict[str, Any] = {"id": docid}
        if holder != docid:
            value[_HOLDER] = holder
        else:
            value |= {"title": document.title} if document.title else {}
            value["contents"] = document.contents
            value = {**value, **document.fields, **value}
        values = [
            (self._numbers[name], text)
            for name, value in document.fields.items()
            for text in dict.fromkeys(map(filter_text, value if isinstance(value, list) else [value]))
            if len(text.encode()) <= MAX_VALUE_BYTES
        ]
        return StoredDocument(_json({**value, "vector": vector} if self.vectors else value), values)

    def peek(self, docid: str, vector: Mapping[str, int]) -> StoredDocument:
        """Return what entry() returns when it is called for the same document later."""
        entry = self._peeked[docid] = self.entry(docid, vector)
        return entry

    def _find(self, docid: str) -> Document:
        if self._last is not None and self._last.id == docid:
            return self._last
        skipped = None if self._skipped is None else self._skipped.get(docid)
        if skipped is not None:
            self._last = skipped
            return skipped
        for document in self._stream:
            if document.id == docid:
                self._last = document
                return document
            if self._skipped is None:
                self._skipped = DiskDocuments()
            self._skipped.add([document])
        fix = Message("Pass the corpus that was encoded as {corpus}, or omit {store_documents}")
        raise MilcoError(f"{self.name} has no document {shown(docid)}, which has a vector", fix)


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


def indexed_corpus_paths(documents: Any, index: Path) -> list[str]:
    """Return where the corpus of an index is, for its manifest: absolute, and relative to the index."""
    name = local_corpus_name(documents.manifest, documents.path)
    return corpus_paths(name, index) if name else (documents.manifest.corpus_paths or [])[:1]


def open_corpus_documents(
    manifest: StoreManifest, store: Path, corpus: Any = None, vectors: bool = False, first: int = 0
) -> CorpusDocuments:
    """Return the documents of a vector store for an index.

    Args:
        store: its directory.
        corpus: a name, a path or documents, in place of the corpus that the manifest names.

    Raises:
        MilcoError: no corpus is known, it does not exist, or it is not the one that was encoded.
    """
    places: list[Any] = [corpus] if corpus is not None else local_corpora(manifest, store) or [manifest.corpus]
    *others, name = places
    for place in others:
        with contextlib.suppress(OtherTextsError):
            return open_corpus_documents(manifest, store, place, vectors, first)
    if name is None:
        fix = Message("Pass it as {corpus}")
        raise ParameterError("store_documents", True, "the vectors do not name their corpus", fix)
    try:
        # A digest, or the docids, show whether lines that are skipped here were skipped before.
        documents = open_corpus(name, skip_bad_lines=True)
    except MilcoError as error:
        if corpus is not None:
            raise
        rule = "reads the corpus of the vectors, " + error.message
        raise ParameterError("store_documents", None, rule, Message("Pass it as {corpus}")) from None
    passages, digest = bool(manifest.split_passages), manifest.corpus_hash
    return CorpusDocuments(documents, documents.name, passages, digest, vectors, first)


def parse_document(docid: str, raw: str | bytes) -> Document | str:
    """Return the document in the JSON of StoredDocument.raw, or the id of the passage that has its text."""
    value = orjson.loads(raw)
    if "contents" not in value:
        return str(value[_HOLDER])
    text, title = value["contents"], value.get("title")
    fields = {name: field for name, field in value.items() if name not in _RESERVED}
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
        return _valid(value)
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
        fix = "Build it again with milco index --store, or fill the server with milco export --store"
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


def _read_schema(documents: Iterable[Document], name: str, digest: str | None) -> tuple[DocumentSchema, str]:
    """Read all documents once; return what they have, fields in the order of their names, and a digest of it all."""
    kinds: dict[str, set[str]] = {}
    languages: set[str] = set()
    content = blake2b(digest_size=16)
    texts, progress = TextDigest(), Progress("documents")
    for document in documents:
        texts.add(document)
        for field, value in document.fields.items():
            kinds.setdefault(field, set()).add(_kind(value))
        if isinstance(language := document.fields.get(LANGUAGE), str) and len(languages) < _MAX_LANGUAGES:
            languages.add(language)
        content.update(_json([document.id, document.title, document.text, document.fields]).encode())
        progress.add(1)
    progress.close(f"Read {name}")
    if digest not in (None, texts.hexdigest()):
        raise OtherTextsError(
            f"{name} is not the corpus that was encoded: its texts have changed",
            Message("Encode it again, pass the unchanged corpus as {corpus}, or omit {store_documents}"),
        )
    for field in kinds:
        if field in _RESERVED or len(field.splitlines()) != 1:
            raise MilcoError(f"{name}: an index cannot store a field named {shown(field)}")
    schema = DocumentSchema({field: _joined(kinds[field]) for field in sorted(kinds)}, sorted(languages))
    return schema, content.hexdigest()


def _kind(value: Any) -> str:
    kind = _KINDS[type(value)]
    if kind == "string" and _DATE.fullmatch(value):
        return "date"
    return "number" if kind == "integer" and abs(value) > _MAX_INTEGER else kind


def joined_fields(these: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Return the types of the fields of two sets of documents."""
    types = {name: {fields[name] for fields in (these, other) if name in fields} for name in {*these, *other}}
    return {name: _joined(types[name]) for name in sorted(types)}


def _joined(types: set[str]) -> str:
    if len(types) == 1:
        return next(iter(types))
    return next((joined for joined, kinds in _JOINED.items() if types <= kinds), "mixed")


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        # Lone surrogates.
        return _valid(json.dumps(value, ensure_ascii=False))


def _valid(text: str) -> str:
    """Return the text without lone surrogates, which UTF-8 does not have."""
    if text.isascii():
        return text
    from milco_pyserini.model.tokenization import replace_lone_surrogates

    return replace_lone_surrogates(text)
