"""Typed records of manifests: their fields, and where two vector stores must agree in them.

Unknown fields, such as those of a later version, are ignored. UNSET marks a field that a manifest does not have, where
null is a value.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from enum import Flag, auto
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, Self, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from milco_pyserini.errors import Message, joined, parameter, value_text

Count = Annotated[int, Meta(ge=0)]
Factor = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
Setting = Annotated[int, Meta(gt=0)] | Factor
FileName = Annotated[str, Meta(pattern=r"(?s)^(?!/|\./*$)(?!(?:.*/)?\.\.(?:/|$))[^\0]+$")]
Text = str | None


class Compatibility(Flag):
    """Two manifests that are compared."""

    RESUME = auto()  # Two runs that fill one store.
    REUSE = auto()  # A new store, and the finished one whose vectors are reused in it.
    UPDATE = auto()  # An index, and documents that are added to it; a field that only one states may differ.
    INDEX = auto()  # The same two, in fields that milco index can change; a missing field is a value.
    SEARCH = auto()  # The documents of an index, and encoded topics; a field that only one states may differ.
    EXPLAIN = auto()  # An index, and the store in which an explanation looks up its vectors.
    EXPORT = auto()  # The vectors that a server holds, and those that are exported to it.


RESUME, REUSE, UPDATE, INDEX, SEARCH, EXPLAIN, EXPORT = Compatibility
_ENCODE = RESUME | REUSE
_LONGEST = 60
# The file of a checkpoint that determines a field, in place of an option.
CONFIG = "config.json"


class Agree(NamedTuple):
    """The comparisons in which two stores must agree in a field, and the option or file that determines the field."""

    between: Compatibility
    option: str = ""


_HASH = Agree(_ENCODE | UPDATE | SEARCH | EXPLAIN | EXPORT, "encoder")
_VARIANT = Agree(_ENCODE | UPDATE, CONFIG)
_CORPUS = Agree(RESUME, "corpus")


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A manifest, or an object in one."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are known, as JSON values."""
        return msgspec.to_builtins(self)


class FileRecord(Record, frozen=True, kw_only=True):
    """A file of a directory: path, size in bytes, and BLAKE2b."""

    file: FileName
    bytes: Count
    checksum: str


class FilesRecord(Record, frozen=True, kw_only=True):
    """The files that a manifest lists, of whatever kind."""

    files: list[FileRecord] = []


class PartRecord(FileRecord, frozen=True, kw_only=True, omit_defaults=False):
    """A part of a vector store. All of its fields are written, as version 0.3 reads them.

    documents: vectors, more than texts where long documents are split into passages. terms: their number per view.
    empty: vectors without a term. truncated: texts above the maximum length. digests: of the texts.
    """

    documents: Count
    texts: Count = 0
    terms: dict[str, Count] = {}
    empty: Count = 0
    truncated: Count = 0
    digests: FileRecord | None = None

    @property
    def files(self) -> list[FileRecord]:
        """The part and its digests."""
        return [self] if self.digests is None else [self, self.digests]


class StoreManifest(FilesRecord, frozen=True, kw_only=True):
    """The plan of a vector store, and, once it is complete, its parts and totals.

    Fields in which two stores must agree come first, in the order in which a difference is reported.
    """

    weight_hash: Annotated[Text, _HASH] = None
    tokenizer_hash: Annotated[Text, _HASH] = None
    english_prefix: Annotated[Text, Agree(_ENCODE | UPDATE | SEARCH | EXPORT, "english_prefix")] = None
    source_prefix: Annotated[Text, Agree(_ENCODE | UPDATE | SEARCH | EXPORT, "encoder")] = None
    lowercase: Annotated[bool | None, Agree(_ENCODE | UPDATE | SEARCH, "lowercase")] = None
    corpus_hash: Annotated[Text, Agree(RESUME | EXPLAIN, "corpus")] = None
    plain: Annotated[bool | None, Agree(INDEX, "plain")] = None
    scale: Annotated[Factor, Agree(_ENCODE | INDEX | EXPLAIN | EXPORT, "scale")]
    views: Annotated[list[str] | None, Agree(_ENCODE | INDEX, "views")] = None
    pruning: Annotated[str | UnsetType | None, Agree(_ENCODE | INDEX | EXPORT, "prune")] = UNSET
    max_length: Annotated[Count | None, Agree(_ENCODE | UPDATE | EXPLAIN, "max_length")] = None
    split_passages: Annotated[bool | None, Agree(_ENCODE | UPDATE | EXPLAIN, "split_passages")] = None
    query_network: Annotated[str | UnsetType | None, Agree(_ENCODE, "encoder")] = UNSET
    echo_variant: Annotated[Any, _VARIANT] = UNSET
    source_pool: Annotated[Any, _VARIANT] = UNSET
    source_drop_special: Annotated[Any, _VARIANT] = UNSET
    lowercase_capitals: Annotated[Any, _VARIANT] = UNSET
    pivot_top_k: Annotated[Any, _VARIANT] = UNSET
    source_top_k: Annotated[Any, _VARIANT] = UNSET
    # Only topics have them.
    query_pivot_top_k: Annotated[Count | UnsetType | None, _VARIANT] = UNSET
    query_source_top_k: Annotated[Count | UnsetType | None, _VARIANT] = UNSET
    format: Annotated[Text, Agree(_ENCODE, "format")] = None
    dtype: Annotated[Text, Agree(_ENCODE, "dtype")] = None
    device: Annotated[Text, Agree(_ENCODE, "device")] = None
    # The vector of a text depends neither on the name of its encoder nor on the other texts.
    encoder: Annotated[Text, Agree(RESUME, "encoder")] = None
    batch_size: Annotated[Count | None, Agree(RESUME, "batch_size")] = None
    part_size: Annotated[Count | None, Agree(RESUME, "part_size")] = None
    kind: Annotated[Text, _CORPUS] = None
    corpus: Annotated[Text, _CORPUS] = None
    field_rule: Annotated[Text, _CORPUS] = None
    texts: Annotated[Count | None, _CORPUS] = None
    # Documents in the store have a digest, and, in kinds and languages, their fields and the values of lang.
    documents_hash: Annotated[Text, _CORPUS] = None
    store_documents: Annotated[bool | None, Agree(RESUME)] = None
    format_version: Annotated[Count | None, Agree(RESUME)] = None
    # Not compared.
    versions: dict[str, str] = {}
    kinds: dict[str, str] | None = None
    languages: list[str] = []
    documents: Count = 0
    terms_per_document: dict[str, float] | None = None
    empty_documents: Count | None = None
    truncated_documents: Count | None = None
    parts: list[PartRecord] = []

    @property
    def rules(self) -> list[str]:
        """The pruning rules, as texts."""
        return (self.pruning or "").split()

    def without_files(self) -> Self:
        """Return what determines the vectors, for a record of what was made of them."""
        return msgspec.structs.replace(self, files=[], parts=[])

    @property
    def has_checksums(self) -> bool:
        """True if it lists parts with checksums, which determine the content; external vectors have none."""
        return bool(self.parts)


class VocabularyRecord(Record, frozen=True, kw_only=True):
    """The terms of a store: pieces of both views, and the prefixes of their terms."""

    english_prefix: str
    source_prefix: str
    english: list[str]
    source: list[str]


class ShardRecord(Record, frozen=True, kw_only=True):
    """The number of a shard, from 0, and the number of shards."""

    id: Count
    num: Count


class UpdateRecord(Record, frozen=True, kw_only=True):
    """An update of an index.

    deleted: number of documents that were; of docids if documents were added, too, which the index need not have had.
    since: documents that the new vectors lack were deleted. request: digest of what was asked for. The corpus is that
    of the documents that were added.
    """

    documents: Count
    deleted: Count | None = None
    since: bool | None = None
    corpus: Text = None
    request: Text = None


class IndexManifest(FilesRecord, frozen=True, kw_only=True):
    """An index.

    postings: terms of all documents, an upper bound once documents were replaced or deleted. vectors: the store that
    it was built from. detects_languages: texts that are added get the field lang.
    """

    format_version: int
    engine: str
    exactness: str
    documents: Count
    empty_documents: Count
    id_with_space: Text
    postings: Count
    query_scale: Factor
    vectors: StoreManifest
    build_settings: dict[str, Setting] = {}
    search_settings: dict[str, Setting] = {}
    shard: ShardRecord | None = None
    topics: Text = None
    fields: dict[str, str] | None = None
    stores_vectors: bool | None = None
    stored_checksum: Text = None
    recall: dict[str, Any] | None = None
    milco_pyserini: Text = None
    lucene: Text = None
    qdrant_edge: Text = None
    updates: list[UpdateRecord] = []
    detects_languages: bool | None = None


class RemoteManifest(IndexManifest, frozen=True, kw_only=True):
    """An index that a server holds: in a collection of a target, at URLs."""

    target: str
    urls: list[str]
    collection: str
    fingerprint: str
    schema: dict[str, Any] | None = None
    languages: dict[str, Count] = {}


class ExportManifest(FilesRecord, frozen=True, kw_only=True):
    """The files of an export. vectors: the fields of the store by which users know it."""

    format_version: int
    target: str
    collection: str
    fingerprint: str
    vectors: StoreManifest
    since: Text = None
    shard: ShardRecord | None = None
    topics: Text = None
    stored_checksum: Text = None
    milco_pyserini: Text = None
    documents: Count = 0
    empty_documents: Count = 0
    deleted: Count = 0


class RunTopics(Record, frozen=True, kw_only=True):
    """The topics of a run. digest: of ids and texts, or vectors, in their order. vectors: manifest of their store."""

    name: str
    count: Count
    digest: str
    vectors: StoreManifest | None = None


class RunIndex(Record, frozen=True, kw_only=True):
    """An index that a run searched. generation: digest of its manifest. query_encoder: of texts. recall: of
    approximate searches with the index's own settings, if it was measured.
    """

    name: str
    engine: str
    generation: str
    documents: Count
    vectors: StoreManifest
    query_encoder: dict[str, Any] | None = None
    recall: dict[str, Any] | None = None


class RunRecord(Record, frozen=True, kw_only=True):
    """How a run was made.

    name: its path. run_checksum: of its text, decompressed. options: of the command. encoder: of a rerank, name and
    hash. inputs: runs that it was made of; one without a record has only a name and a checksum. seconds: from
    the first topic to the last.
    """

    name: str = ""
    run_checksum: str = ""
    tag: str = ""
    options: dict[str, Any] = {}
    indexes: list[RunIndex] = []
    topics: RunTopics | None = None
    encoder: dict[str, Any] = {}
    inputs: "list[RunRecord]" = []
    versions: dict[str, str] = {}
    date: str = ""
    seconds: float = 0.0


@lru_cache
def _agreements() -> dict[str, Agree]:
    hints = get_type_hints(StoreManifest, include_extras=True).items()
    last = {name: getattr(kind, "__metadata__", (None,))[-1] for name, kind in hints}
    return {name: agree for name, agree in last.items() if isinstance(agree, Agree)}


def option_of(name: str) -> str:
    """Return the option, or the file of the checkpoint, that determines a field of a store."""
    return _agreements()[name].option


def fields_to_match(between: Compatibility) -> tuple[str, ...]:
    """Return the fields in which two stores must agree."""
    return tuple(name for name, agree in _agreements().items() if between in agree.between)


def may_differ(between: Compatibility, recorded: StoreManifest) -> set[str]:
    """Return the fields in which a plan may differ from a manifest or an older plan; others must agree.

    Earlier versions recorded no variants of the views, or none of the queries.
    """
    agreements = _agreements()
    unknown = {name for name, agree in agreements.items() if agree is _VARIANT and getattr(recorded, name) is UNSET}
    return unknown | (set(StoreManifest.__struct_fields__) - set(fields_to_match(between)))


def differences(
    recorded: Record | Mapping[str, Any], wanted: Record | Mapping[str, Any], ignored: Collection[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, recorded and wanted value of each field of wanted that differs. None, "" and missing are the same.

    Args:
        wanted: fields that a record does not know are not compared; those of a mapping are.
        ignored: fields that may differ.
    """
    for name in wanted if isinstance(wanted, Mapping) else wanted.to_json():
        old, value = (
            record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)
            for record in (recorded, wanted)
        )
        if name in ignored or (old or None) == (value or None):
            continue
        if isinstance(old, Record) and isinstance(value, Record):
            yield from ((f"{name}.{field}", *values) for field, *values in differences(old, value))
        else:
            old, value = (None if not given and type(given) is not int else given for given in (old, value))
            yield name, old, value


def described(name: str, recorded: Any, wanted: Any) -> Message:
    """Return a difference in words, such as "with max_length 512, not 9" or "without prune, not with prune top-k:5"."""
    field = name.rpartition(".")[2]
    if field == "corpus_hash" and recorded:
        return Message("with other texts")
    # The option of another field has other values, and topics have --topics in place of --corpus.
    is_option = field == "pruning" or (field in _agreements() and option_of(field) == field != "corpus")
    mention = parameter(option_of(field)) if is_option else name
    if recorded is None:
        return joined(("without ", mention, ", not with ", mention, _shown(wanted)))
    return joined(("with ", mention, _shown(recorded), ", not", " without" if wanted is None else _shown(wanted)))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        value = len(value) if value and isinstance(value[0], Record) else " ".join(map(str, value))
    text = "" if value is True else f" {value_text(value)}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
