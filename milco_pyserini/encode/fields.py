"""The fields of a vector store's manifest that state how its vectors were made, and where two manifests must agree."""

from collections.abc import Mapping
from enum import Flag, auto
from typing import Any, NamedTuple

from milco_pyserini.model.configuration import VIEW_VARIANTS


class Between(Flag):
    """Two manifests that are compared."""

    # Two runs that fill one store.
    RESUME = auto()
    # A new store, and the finished one whose vectors are reused in it.
    REUSE = auto()
    # An index, and documents that are added to it. Fields that only one of them states may differ.
    UPDATE = auto()
    # The same two, in fields that milco index can change. A missing field is a value, too.
    INDEX = auto()
    # The documents of an index, and encoded topics. Fields that only one of them states may differ.
    SEARCH = auto()
    # An index, and the store in which an explanation looks up its vectors.
    EXPLAIN = auto()
    # The vectors that a server holds, and those that are exported to it.
    EXPORT = auto()


RESUME, REUSE, UPDATE, INDEX, SEARCH, EXPLAIN, EXPORT = Between
# Those that identify an encoder.
HASHES = ("weight_hash", "tokenizer_hash")
CONFIG = "config.json"
_ENCODE = RESUME | REUSE


class Field(NamedTuple):
    """Where two manifests must agree in a field, and the option, or the file of the checkpoint, that determines it."""

    agree: Between
    option: str


# Those that search, update and export compare come first, in the order in which they report a difference.
FIELDS = {
    **dict.fromkeys(HASHES, Field(_ENCODE | UPDATE | SEARCH | EXPLAIN | EXPORT, "encoder")),
    "english_prefix": Field(_ENCODE | UPDATE | SEARCH | EXPORT, "english_prefix"),
    "source_prefix": Field(_ENCODE | UPDATE | SEARCH | EXPORT, "encoder"),
    "lowercase": Field(_ENCODE | UPDATE | SEARCH, "lowercase"),
    "corpus_hash": Field(RESUME | EXPLAIN, "corpus"),
    "plain": Field(INDEX, "plain"),
    "scale": Field(_ENCODE | INDEX | EXPLAIN | EXPORT, "scale"),
    "views": Field(_ENCODE | INDEX, "views"),
    "pruning": Field(_ENCODE | INDEX | EXPORT, "prune"),
    "max_length": Field(_ENCODE | UPDATE | EXPLAIN, "max_length"),
    "split_passages": Field(_ENCODE | UPDATE | EXPLAIN, "split_passages"),
    **dict.fromkeys(VIEW_VARIANTS, Field(_ENCODE | UPDATE, CONFIG)),
    "format": Field(_ENCODE, "format"),
    "dtype": Field(_ENCODE, "dtype"),
    "device": Field(_ENCODE, "device"),
    "query_table_top_k": Field(_ENCODE, "encoder"),
    # The vector of a text depends neither on the name of its encoder nor on the other texts.
    "encoder": Field(RESUME, "encoder"),
    "batch_size": Field(RESUME, "batch_size"),
    "part_size": Field(RESUME, "part_size"),
    **dict.fromkeys(("kind", "corpus", "field_rule", "texts"), Field(RESUME, "corpus")),
    "format_version": Field(RESUME, ""),
    "versions": Field(Between(0), ""),
}


def must_agree(between: Between) -> tuple[str, ...]:
    """Return the fields in which two manifests must agree."""
    return tuple(name for name, field in FIELDS.items() if between in field.agree)


def may_differ(between: Between, recorded: Mapping[str, Any]) -> set[str]:
    """Return the fields in which a plan may differ from a manifest or an older plan; others must agree.

    Earlier versions recorded no variants of the views.
    """
    differing = {name for name, field in FIELDS.items() if between not in field.agree}
    return differing | (set(VIEW_VARIANTS) - recorded.keys())
