"""Answers of the REST API that Elasticsearch and OpenSearch have in common: the parts that are read, with types."""

from typing import Annotated, Any

import msgspec

from milco_pyserini.export.faults import ServerError
from milco_pyserini.export.rest import cause_of

# The docid as doc values: to read _id, a server decompresses the stored fields, with the vectors or texts in them.
DOCID = "milco_docid"
Number = Annotated[int, msgspec.Meta(ge=0)]
Score = Annotated[float, msgspec.Meta(ge=0)]


class Version(msgspec.Struct):
    number: Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+[\w.-]*$")]
    distribution: Annotated[str, msgspec.Meta(pattern=r"^[\w-]*$")] = ""
    build_flavor: str = ""


class Property(msgspec.Struct):
    type: str = ""
    properties: dict[str, "Property"] = {}


class Mappings(msgspec.Struct):
    properties: dict[str, Property] = {}
    meta: dict[str, str | dict[str, str | None]] = msgspec.field(name="_meta", default_factory=dict)


class IndexState(msgspec.Struct):
    settings: dict[str, Any]
    mappings: dict[str, Any]

    def __post_init__(self) -> None:
        # Mappings are compared and written as they are.
        msgspec.convert(self.mappings, Mappings)


class Shards(msgspec.Struct):
    total: int
    successful: int
    failed: int = 0

    def validate(self, index: str) -> None:
        """Raise ServerError unless all have answered."""
        missing = max(self.total - self.successful, self.failed)
        if missing > 0:
            raise ServerError(f"{missing} of the {self.total} shards of {index} are missing", "missing_shards")


class FoundHit(msgspec.Struct):
    id: str = msgspec.field(name="_id", default="")
    score: float = msgspec.field(name="_score", default=0.0)
    fields: dict[str, list[str]] = {}
    matched: dict[str, Score] = msgspec.field(name="matched_queries", default_factory=dict)


class FoundHits(msgspec.Struct):
    hits: list[FoundHit]
    total: dict[str, Number | str] | None = None


class Found(msgspec.Struct):
    """The answer to a search, or its error."""

    shards: Shards | None = msgspec.field(name="_shards", default=None)
    hits: FoundHits | None = None
    error: Any = None
    status: int = 200
    timed_out: bool = False
    scroll_id: str = msgspec.field(name="_scroll_id", default="")

    def valid_hits(self, index: str) -> list[FoundHit]:
        """Return the hits. Raises ServerError if the search failed, or a part of the index has not answered."""
        if self.error is not None:
            kind, reason = cause_of(self.error)
            raise ServerError(f"{index}: {reason or 'the search failed'}", kind, self.status)
        if self.shards is None or self.hits is None or self.timed_out:
            raise ServerError(f"{index}: the answer is incomplete")
        self.shards.validate(index)
        return self.hits.hits


class MultiGetDocument(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    found: bool | None = None
    source: dict[str, Any] = msgspec.field(name="_source", default_factory=dict)
    error: Any = None


class Count(msgspec.Struct):
    count: Number
    shards: Shards = msgspec.field(name="_shards")


class Result(msgspec.Struct):
    id: str = msgspec.field(name="_id", default="")
    status: int = 0
    error: Any = None


class Bucket(msgspec.Struct):
    key: dict[str, str | float | bool | None]
    doc_count: Number


class Page(msgspec.Struct):
    buckets: list[Bucket]
    after_key: dict[str, Any] | None = None
