"""Parameters and answers of the API: what requests are read into, and what /openapi.json describes."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from milco_pyserini.errors import shown, unknown_name
from milco_pyserini.explain.origins import MAX_TEXT_CHARACTERS
from milco_pyserini.index.hits import HitRecord
from milco_pyserini.options import option_fields, value_types
from milco_pyserini.request import SCORING, SearchRequest
from milco_pyserini.serve.service import (
    MAX_LISTED,
    MAX_QUERIES,
    MAX_QUERY_CHARACTERS,
    MAX_TEXTS,
    MAX_TOKENS,
    ServedRequest,
    served_request,
)

# Largest body of a request.
MAX_BODY_BYTES = 2**20
# Kind of an error of pydantic -> the expected value.
_EXPECTED = {
    **{"int_parsing": "an integer", "int_type": "an integer", "float_parsing": "a number", "float_type": "a number"},
    **{"int_from_float": "an integer", "bool_type": "true or false", "list_type": "a list", "string_type": "a string"},
    **{"string_unicode": "a string without lone surrogates", "model_attributes_type": "a JSON object"},
    **{"dict_type": "a JSON object"},
}


def problem_text(problem: Mapping[str, Any], name: str) -> str:
    """Return one line on what pydantic found wrong with a value. name: of the parameter, or PARAMETER.PLACE."""
    kind, value = problem["type"], problem.get("input")
    if kind == "missing":
        return f"{name} is required"
    if kind == "literal_error":
        valid = re.findall(r"'(\w+)'", problem["ctx"]["expected"])
        return str(unknown_name(f"value for {name.partition('.')[0]}", str(value), valid))
    given = shown(value) if isinstance(value, str) else json.dumps(value)[:60]
    return f"{name} expects {_EXPECTED.get(kind) or problem['msg']}, got {given}"


class _Strict(BaseModel):
    """A misspelled name is an error, and so is a lone surrogate, which pydantic finds in strings of limited length."""

    model_config = ConfigDict(extra="forbid", str_max_length=MAX_BODY_BYTES)


class _QueryText(_Strict):
    q: str = Field(
        description=f"the query, in any language; up to {MAX_QUERY_CHARACTERS:,} characters",
        json_schema_extra={"pattern": r"\S", "maxLength": MAX_QUERY_CHARACTERS},
    )


# Options of a search that the server decides, or that only a single index has.
NOT_SERVED = ("threads", "min_share", "passages", "fuse", "weights", "depth")


class _Request(_Strict):
    """Has options of a search as fields, which _request_model() adds."""

    def request(self) -> SearchRequest:
        """Return the request. Raises MilcoError if a value is out of its range."""
        names = option_fields(ServedRequest).keys()
        return served_request(**{name: value for name, value in self.model_dump().items() if name in names})


def request_fields(*names: str, without: Sequence[str] = NOT_SERVED) -> dict[str, tuple[Any, Any]]:
    """Return type and pydantic's field of options of a search: those that are named, or all without some."""
    types, found = value_types(ServedRequest), dict[str, tuple[Any, Any]]()
    for name, field in option_fields(ServedRequest).items():
        if name not in (names or types) or name in without:
            continue
        kind, several = types[name]
        value = Literal[field.metadata["choices"]] if field.metadata["choices"] else kind
        kind = list[value] if several else value if field.default is not None else value | None  # type: ignore
        bounds = zip(("minimum", "maximum"), field.metadata["range"], strict=False)
        found[name] = (
            kind,
            Field(
                [] if several else field.default,
                description=": ".join(filter(None, (field.metadata["metavar"], field.metadata["help"]))),
                json_schema_extra={bound: limit for bound, limit in bounds if limit is not None},
            ),
        )
    return found


def _request_model(*names: str) -> Any:
    return create_model("RequestModel", __base__=_Request, **request_fields(*names))  # type: ignore[call-overload]


_Search: Any = _request_model()
_Weights: Any = _request_model("alpha", "views")
_Scoring: Any = _request_model(*SCORING)
View = Literal["pivot", "source"]


class QueryParameters(_Weights, _QueryText):
    """Parameters of one query."""


class SearchParameters(_Search, _QueryText):
    """Parameters of GET /search."""


class ContextParameters(SearchParameters):
    """Parameters of GET /context."""

    tokens: int = Field(2000, description=f"the most that the sentences have together, up to {MAX_TOKENS:,}")


class SearchBody(_Search):
    """Body of POST /search."""

    model_config = ConfigDict(strict=True)
    queries: list[str] = Field(
        description=f"up to {MAX_QUERIES} queries, each of up to {MAX_QUERY_CHARACTERS:,} characters",
        json_schema_extra={"minItems": 1, "maxItems": MAX_QUERIES},
    )


class ExplainParameters(_Scoring, _QueryText):
    """Parameters of GET /explain: those of the search, and the document."""

    docid: str = Field(description="the document")
    index: str = Field(
        "", description="of several indexes, the one whose score is explained, as in by_index (default: the first)"
    )


class FieldsParameters(_Strict):
    """Parameters of GET /fields."""

    values: int = Field(20, description=f"values of each field to list, up to {MAX_LISTED:,}")


class EncodeBody(_Weights):
    """Body of POST /encode."""

    model_config = ConfigDict(strict=True)
    texts: list[str] = Field(
        description=f"up to {MAX_TEXTS} texts, in a body of up to {MAX_BODY_BYTES:,} bytes; longer than the encoder's "
        "maximum length, they are truncated",
        json_schema_extra={"minItems": 1, "maxItems": MAX_TEXTS},
    )
    kind: Literal["query", "document"] = Field("query", description="how they are encoded")


class EmbedSparseBody(_Strict):
    """Body of POST /embed_sparse, with the names of text-embeddings-inference."""

    model_config = ConfigDict(strict=True)
    inputs: Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)] = Field(
        description=f"a text, or up to {MAX_TEXTS} texts"
    )
    truncate: bool | None = Field(None, description="false: a text above the maximum length is an error")
    truncation_direction: Literal["right", "Right"] = Field("right", description="texts lose their ends")
    prompt_name: Literal["query", "document"] | None = Field(None, description="how they are encoded: as documents")


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
    """Span [start, stop) of a snippet, the query terms that it matches, and their weight in the query."""

    start: int
    stop: int
    view: View
    terms: list[str]
    weight: float


@dataclass(frozen=True, kw_only=True)
class FoundDocumentAnswer(HitRecord):
    """A hit. title and snippet are null if the documents are not available to the server.

    share: of the query's weight that is on terms of the document, from 0 to 1; null if the engine's index cannot be
    read. passage: id of its best passage, with max_passage; otherwise null. by_index: of several indexes, rank and
    score in each that returned it, by the path of the index.
    """

    snippet: str | None
    highlights: list[Highlight]


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


class ContextAnswer(_Strict):
    """Answer of GET /context: the sentences of each document in their order, by docid, the best document first."""

    query: str
    context: dict[str, str]


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
    """Any answer but 200: the error in one line."""

    error: str
