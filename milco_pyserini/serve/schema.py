"""Parameters and answers of the API: what requests are read into, and what /openapi.json describes."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from milco_pyserini.explain.origins import MAX_TEXT_CHARACTERS
from milco_pyserini.serve.service import MAX_DEPTH, MAX_HITS, MAX_LISTED, MAX_QUERIES, MAX_QUERY_CHARACTERS, MAX_TEXTS

# Largest body of a request.
MAX_BODY_BYTES = 2**20

_ALPHA = "weight of the query's pivot view, from 0 to 1; its source view has 1 - alpha (default: that of the server)"
_VIEWS = "views of the query that are used; none for all that the index has"
_BALANCE = (
    "FIELD or FIELD=STRENGTH, such as lang: subtract the mean score of all documents of a language from the score of "
    "each"
)
View = Literal["pivot", "source"]


class _Strict(BaseModel):
    """A misspelled name is an error, and so is a lone surrogate, which pydantic finds in strings of limited length."""

    model_config = ConfigDict(extra="forbid", str_max_length=MAX_BODY_BYTES)


class _Query(_Strict):
    q: str = Field(
        description=f"the query, in any language; up to {MAX_QUERY_CHARACTERS:,} characters",
        json_schema_extra={"pattern": r"\S", "maxLength": MAX_QUERY_CHARACTERS},
    )


class _Weights(_Strict):
    views: list[View] = Field([], description=_VIEWS)
    alpha: float | None = Field(None, description=_ALPHA, json_schema_extra={"minimum": 0, "maximum": 1})


class QueryParameters(_Weights, _Query):
    """Parameters of one query."""


class SearchOptions(_Weights):
    """How to search, for one query or several."""

    filters: list[str] = Field(
        [],
        description="FIELD=VALUE, repeated: values of one field are alternatives, all fields must have one; or a "
        "range: FIELD>=VALUE (>, <=, <)",
    )
    k: int = Field(
        10, description=f"documents to return, up to {MAX_HITS}", json_schema_extra={"minimum": 1, "maximum": MAX_HITS}
    )
    offset: int = Field(
        0,
        description=f"better documents to skip; offset + k: up to {MAX_DEPTH:,}",
        json_schema_extra={"minimum": 0, "maximum": MAX_DEPTH - 1},
    )
    max_passage: bool = Field(False, description="documents by their best passage, if the index holds passages")
    balance: str | None = Field(None, description=_BALANCE)


class SearchParameters(SearchOptions, _Query):
    """Parameters of GET /search."""


class SearchBody(SearchOptions, strict=True):
    """Body of POST /search."""

    queries: list[str] = Field(
        description=f"up to {MAX_QUERIES} queries, each of up to {MAX_QUERY_CHARACTERS:,} characters",
        json_schema_extra={"minItems": 1, "maxItems": MAX_QUERIES},
    )


class ExplainParameters(QueryParameters):
    """Parameters of GET /explain."""

    docid: str = Field(description="the document")
    balance: str | None = Field(None, description=f"that of the search: {_BALANCE}")
    index: str = Field(
        "", description="of several indexes, the one whose score is explained, as in by_index (default: the first)"
    )


class FieldsParameters(_Strict):
    """Parameters of GET /fields."""

    values: int = Field(20, description=f"values of each field to list, up to {MAX_LISTED:,}")


class EncodeBody(_Weights, strict=True):
    """Body of POST /encode."""

    texts: list[str] = Field(
        description=f"up to {MAX_TEXTS} texts, in a body of up to {MAX_BODY_BYTES:,} bytes; longer than the encoder's "
        "maximum length, they are truncated",
        json_schema_extra={"minItems": 1, "maxItems": MAX_TEXTS},
    )
    kind: Literal["query", "document"] = Field("query", description="how they are encoded")


class FieldValue(_Strict):
    """A value of a field, as filters take it, and the number of documents that have it."""

    value: str
    documents: int


class FieldAnswer(_Strict):
    """A stored field. type: string, strings, number, boolean or mixed.

    distinct: number of different values, null beyond 100,000, where none is listed and no range is a filter. values:
    the most frequent ones.
    """

    name: str
    type: str
    distinct: int | None
    values: list[FieldValue]


class FieldsAnswer(_Strict):
    """Answer of GET /fields: all fields, by which searches can filter."""

    fields: list[FieldAnswer]


class Highlight(_Strict):
    """Characters start to stop of a snippet, the query's terms that they are, and the weight of these in the query."""

    start: int
    stop: int
    view: View
    terms: list[str]
    weight: float


class IndexHitAnswer(_Strict):
    """What one of several indexes gave a document."""

    rank: int
    score: float


class FoundDocumentAnswer(_Strict):
    """A hit. title and snippet are null if the documents are not available to the server.

    share: of the query's weight that is on terms of the document, from 0 to 1; null if the engine's index cannot be
    read. passage: id of its best passage, with max_passage; otherwise null. by_index: of several indexes, rank and
    score in each that returned it, by the path of the index.
    """

    rank: int
    docid: str
    score: float
    share: float | None
    passage: str | None
    title: str | None
    snippet: str | None
    highlights: list[Highlight]
    fields: dict[str, Any]
    by_index: dict[str, IndexHitAnswer] = {}


class Timing(_Strict):
    """Milliseconds for encoding the query, with the time that it waited, and for searching."""

    encode_ms: float
    search_ms: float


class SearchAnswer(_Strict):
    """Answer to one query. total: documents that match, null if the engine does not count them."""

    query: str
    offset: int
    total: int | None
    hits: list[FoundDocumentAnswer]
    timing: Timing


class SearchesAnswer(_Strict):
    """Answer of POST /search: one for each query, in their order; the times are those of all."""

    results: list[SearchAnswer]


class EncodeAnswer(_Strict):
    """Answer of /encode: a vector per text, {term: weight}, strongest first.

    scale: of the index's documents, whose impacts are round(weight x scale); null for external vectors.
    """

    encoder: str
    scale: float | None
    vectors: list[dict[str, float]]


class ExplainAnswer(BaseModel):
    """Answer of GET /explain: as milco explain --json prints it.

    balance: what a balanced search adds to the sum, as its score; null of a plain one. omitted_characters: those behind
    text, if it is long.
    """

    query: str
    document: str
    text: str | None
    omitted_characters: int
    score: float | None
    share: float
    sum: float
    balance: dict[str, Any] | None
    contributions: list[dict[str, Any]]


class DocumentAnswer(_Strict):
    """Answer of GET /documents/{docid}. omitted_characters: those behind text, if it is long."""

    docid: str
    title: str
    text: str = Field(max_length=MAX_TEXT_CHARACTERS)
    omitted_characters: int
    fields: dict[str, Any]


class ErrorAnswer(_Strict):
    """Any answer but 200: what is wrong, in one line."""

    error: str
