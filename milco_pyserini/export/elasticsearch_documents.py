"""Stored documents in Elasticsearch and OpenSearch: fields, texts in one field per language, and filters on them.

The source of a document is the JSON that an index stores, without id, and with {language: text} as contents. A language
without an analyzer of its own is "default".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from milco_pyserini.corpora import languages
from milco_pyserini.errors import shown
from milco_pyserini.export.faults import ServerError
from milco_pyserini.export.protocol import ImpactDocument
from milco_pyserini.index.documents import (
    MAX_VALUE_BYTES,
    DocumentSchema,
    FieldFilters,
    field_values,
    range_bounds,
)

FIELD = "vector"
# A quarter less on disk.
SETTINGS = {"index": {"codec": "best_compression"}}
# The statement, in _meta of the mapping.
STATED = "milco"
_CONTENTS = "contents"
_DEFAULT = "default"
# Built into both; those of plugins (nori, kuromoji, smartcn) have to be installed.
_ANALYZERS = {
    **{"ar": "arabic", "bg": "bulgarian", "bn": "bengali", "ca": "catalan", "ckb": "sorani", "cs": "czech"},
    **{"da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish", "et": "estonian"},
    **{"eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish", "gl": "galician"},
    **{"hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "ja": "cjk"},
    **{"ko": "cjk", "lt": "lithuanian", "lv": "latvian", "nl": "dutch", "no": "norwegian", "pt": "portuguese"},
    **{"ro": "romanian", "ru": "russian", "sv": "swedish", "th": "thai", "tr": "turkish", "zh": "cjk"},
}
_KEYWORD = {"type": "keyword", "ignore_above": MAX_VALUE_BYTES}
_FIELDS: Mapping[str, dict[str, Any]] = {
    "boolean": {"type": "boolean"},
    # The text as it is, and FIELD.date for what dates have more: intervals, time zones.
    "date": _KEYWORD | {"fields": {"date": {"type": "date", "ignore_malformed": True}}},
    "integer": {"type": "long"},
    "number": {"type": "double"},
}
_BOUNDS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def text_analyzers(languages: Iterable[str]) -> dict[str, str]:
    """Return the analyzer of each of these languages that has one: {"de": "german"}."""
    codes = sorted(set(map(_code, languages)))
    return {code: _ANALYZERS[code] for code in codes if code in _ANALYZERS}


def stored_properties(schema: DocumentSchema, lacking: Iterable[str] = ()) -> dict[str, Any]:
    """Return the properties of a mapping for documents. lacking: analyzers that the server lacks."""
    texts: dict[str, Any] = {f"{_CONTENTS}.{_DEFAULT}": {"type": "text"}}
    for language, analyzer in text_analyzers(schema.languages).items():
        chosen = {} if analyzer in lacking else {"analyzer": analyzer}
        texts[f"{_CONTENTS}.{language}"] = {"type": "text"} | chosen
    return texts | {name: _FIELDS.get(kind, _KEYWORD) for name, kind in schema.kinds.items()}


def flat_properties(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the properties of a mapping as stored_properties() has them: those of an object by name.property."""
    for name, value in properties.items():
        if "properties" in value:
            yield from flat_properties(value["properties"], f"{prefix}{name}.")
        else:
            yield prefix + name, value


def source(vector: ImpactDocument) -> dict[str, Any]:
    """Return the source of a document."""
    return {FIELD: vector.weights} | ({} if vector.document is None else stored_source(vector.document))


def stored_source(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the source of a document, without its vector."""
    source = {name: value for name, value in document.items() if name != "id"}
    if _CONTENTS in source:
        code = _code(source.get(languages.FIELD))
        source[_CONTENTS] = {code if code in _ANALYZERS else _DEFAULT: source[_CONTENTS]}
    return source


def stored_json(docid: str, source: Mapping[str, Any]) -> str:
    """Return the JSON of which stored_source() made a source. Raises ServerError for another source."""
    document = {"id": docid, **source}
    texts = document.get(_CONTENTS, {_DEFAULT: ""})
    if not source or not isinstance(texts, dict) or [*map(type, texts.values())] != [str]:
        raise ServerError(f"the index has a document {shown(docid)} that another program wrote")
    if _CONTENTS in document:
        (document[_CONTENTS],) = texts.values()
    return orjson.dumps(document).decode()


def text_query(text: str) -> dict[str, Any]:
    """Return the BM25 query for a text, by the best of the languages."""
    return {"multi_match": {"query": text, "fields": [f"{_CONTENTS}.*"]}}


def filter_clauses(filters: FieldFilters, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a clause for each filter. fields: the type of each field."""
    return [
        {"range": {name: {_BOUNDS[operator]: value for operator, value in range_bounds(wanted, fields[name]).items()}}}
        if isinstance(wanted, Mapping)
        else {"terms": {name: field_values(wanted, fields[name])}}
        for name, wanted in filters.items()
    ]


def _code(language: Any) -> str:
    """Return the code of a language without its region or script: de of de-AT."""
    return re.split("[-_]", language)[0].lower() if isinstance(language, str) else ""
