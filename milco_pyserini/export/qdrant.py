"""Qdrant: points with one named sparse vector and the docid as payload."""

import re
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from milco_pyserini.errors import ParameterError
from milco_pyserini.export.access import Access, public_url
from milco_pyserini.export.protocol import (
    FILLED,
    HITS,
    HYBRID_DEPTH,
    RANK_CONSTANT,
    Collection,
    EngineRequest,
    ExportJob,
    ExportTarget,
    ImpactDocument,
    TextServer,
    common_impacts,
    write_lines,
    write_parts,
)
from milco_pyserini.export.server import client, validate_version, version_of
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import DocumentSchema, FieldFilters, field_values, filter_text, range_bounds
from milco_pyserini.io.files import is_json_with, write_json

_DOCID, _CONTENTS = "docid", "contents"
# Name of the sparse vector of a point.
_VECTOR = "terms"
# Types of the index of a field; keyword for the others.
_INDEXES = {"boolean": "bool", "integer": "integer", "number": "float"}
# Splits text by the rules of Unicode, and languages without spaces by dictionaries. BM25 needs Qdrant 1.20.
_TEXT_INDEX = {"type": "text", "tokenizer": "multilingual", "scoring": True}
_TEXT_VERSION = (1, 20)
_BOUNDS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_POINTS = {"start": b'{"points":[\n', "separator": b",\n", "end": b"\n]}\n"}


class QdrantTarget(ExportTarget):
    """Bodies of its REST API: the collection, batches of points, and one batch with all queries."""

    name = "qdrant"
    title = "Qdrant"
    capabilities = FILLED | {Capability.REQUEST, Capability.HYBRID}
    schemes = ("http", "https")
    takes_paths = True
    own_fields = frozenset((_DOCID,))

    def write(self, export: ExportJob, directory: Path) -> None:
        """Write collection.json, documents-*.json.gz, deleted-*.json.gz, and queries.json with queries.ids, its ids.

        For stored documents, fields.jsonl has a request for the index of each field.
        """
        about = {"sparse_vectors": {_VECTOR: {}}, "metadata": {"milco": export.statement}}
        write_json(directory / "collection.json", about)
        if schema := export.place.schema:
            write_lines(directory / "fields.jsonl", field_indexes(schema))
        points = (orjson.dumps(point(vector)) for vector in self.documents(export))
        write_parts(directory, "documents", "json", points, **_POINTS)
        write_parts(directory, "deleted", "json", (orjson.dumps(point_id(one)) for one in export.deleted), **_POINTS)
        if export.topics is not None:
            searches = [self.search_request(vector, export.collection).body for vector in export.topics]
            write_json(directory / "queries.json", {"searches": searches})
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))

    def search_request(self, query: ImpactDocument, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request for the best documents of a query; their docids are in the payload."""
        body = {"query": sparse(query), "using": _VECTOR, "limit": k, "with_payload": True}
        return EngineRequest(f"/collections/{collection}/points/query", body)

    def hybrid_request(self, query: ImpactDocument, text: str, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request that fuses two prefetched rankings (Qdrant 1.20)."""
        depth = max(k, HYBRID_DEPTH)
        rankings = [
            {"query": sparse(query), "using": _VECTOR, "limit": depth},
            {"query": {"text": text}, "using": _CONTENTS, "limit": depth},
        ]
        fusion = {"rrf": {"k": RANK_CONSTANT}}
        body = {"prefetch": rankings, "query": fusion, "limit": k, "with_payload": [_DOCID]}
        return EngineRequest(f"/collections/{collection}/points/query", body)

    def connect(self, access: Access, collection: Collection) -> "QdrantServer":
        """Connect to a URL, or open the directory of the client's local mode."""
        (url,) = access.urls
        qdrant = client("qdrant_client", self.name)
        if "://" in url:
            # The requests are sent as those to any server; the client's own timeout is a number for the server.
            options = {"timeout": 60, "check_compatibility": False, "transport": transport(access)}
            connected = qdrant.QdrantClient(url=public_url(url), **options)
        elif Path(url).exists() and not is_json_with(Path(url) / "meta.json", "collections"):
            raise ParameterError("url", url, "this is neither a URL nor a directory of Qdrant's local mode")
        else:
            connected = qdrant.QdrantClient(path=url)
        validate_version(self.title, connected.info().version, (1, 16))
        return QdrantServer(connected, qdrant.models, collection)


class QdrantServer(TextServer):
    """A collection."""

    # Strings have no order there, and only keywords and booleans are counted.
    ranged = frozenset(("number",))
    counted = frozenset(("string", "strings", "boolean"))

    def __init__(self, connected: Any, models: Any, collection: Collection) -> None:
        self.client, self._models, (self._name, _, self._schema) = connected, models, collection

    def stated(self, alias: bool = False) -> str | None:
        """Return the statement in the collection's metadata."""
        if not self.client.collection_exists(self._name):
            return None
        config = self.client.get_collection(self._name).config
        stated = (config.metadata or {}).get("milco", "")
        return stated if set(config.params.sparse_vectors or ()) == {_VECTOR} else ""

    def create(self, statement: str) -> None:
        sparse_vectors, about = {_VECTOR: self._models.SparseVectorParams()}, {"milco": statement}
        self.client.create_collection(self._name, {}, sparse_vectors, metadata=about)
        self._index_fields()

    def present(self, ids: list[str]) -> set[str]:
        docids = {point_id(docid): docid for docid in ids}
        return {docids[point.id] for point in self.client.retrieve(self._name, list(docids), with_payload=False)}

    def write(self, vectors: list[ImpactDocument]) -> None:
        self.client.upsert(self._name, [self._models.PointStruct(**point(vector)) for vector in vectors], wait=True)

    def delete(self, ids: list[str]) -> None:
        self.client.delete(self._name, self._models.PointIdsList(points=list(map(point_id, ids))), wait=True)

    def state(self, statement: str) -> None:
        """Replace the statement in the collection's metadata, and add indexes of fields that it lacks."""
        self.client.update_collection(self._name, metadata={"milco": statement})
        self._index_fields()

    def count(self) -> int:
        """Return the number of points, which are searchable at once."""
        return self.client.count(self._name, exact=True).count

    def search(self, queries: Sequence[ImpactDocument], k: int, filters: FieldFilters) -> list[list[tuple[str, float]]]:
        """Return the best documents, by one request."""
        return self._searched([self._models.SparseVector(**sparse(query)) for query in queries], _VECTOR, k, filters)

    def search_texts(self, texts: Sequence[str], k: int, filters: FieldFilters) -> list[list[tuple[str, float]]]:
        """Return the best documents by BM25 (Qdrant 1.20)."""
        return self._searched([self._models.TextQuery(text=text) for text in texts], _CONTENTS, k, filters)

    def impacts(self, ids: list[str], query: ImpactDocument) -> dict[str, dict[str, int]]:
        points = self.client.retrieve(self._name, list(map(point_id, ids)), with_payload=[_DOCID], with_vectors=True)
        vectors = ((point.payload[_DOCID], point.vector[_VECTOR]) for point in points)
        return {
            docid: common_impacts(query, dict(zip(vector.indices, vector.values, strict=True)))
            for docid, vector in vectors
        }

    def stored(self, ids: list[str]) -> dict[str, str]:
        """Return the JSON in the payload of the docids whose points exist."""
        points = self.client.retrieve(self._name, list(map(point_id, ids)), with_payload=True)
        payloads = ((point.payload.pop(_DOCID), point.payload) for point in points)
        return {docid: orjson.dumps({"id": docid, **payload}).decode() for docid, payload in payloads}

    def count_values(self, field: str, limit: int) -> dict[str, int]:
        found = self.client.facet(self._name, payload_key(field), limit=limit, exact=True)
        return {filter_text(hit.value): hit.count for hit in found.hits}

    def _searched(
        self, queries: Sequence[Any], using: str, k: int, filters: FieldFilters
    ) -> list[list[tuple[str, float]]]:
        options: dict[str, Any] = {"using": using, "limit": k, "with_payload": [_DOCID]}
        if filters and self._schema is not None:
            options["filter"] = self._models.Filter(**payload_filter(filters, self._schema.fields))
        requests = [self._models.QueryRequest(query=query, **options) for query in queries]
        found = self.client.query_batch_points(self._name, requests)
        return [[(hit.payload[_DOCID], hit.score) for hit in answer.points] for answer in found]

    def _index_fields(self) -> None:
        """Make the indexes of fields; existing ones are left as they are."""
        if self._schema is None:
            return
        has_text = version_of(self.client.info().version) >= _TEXT_VERSION
        with warnings.catch_warnings():
            # The client's local mode has none.
            warnings.filterwarnings("ignore", message="Payload indexes have no effect")
            for index in field_indexes(self._schema):
                if has_text or index["field_schema"] != _TEXT_INDEX:
                    self.client.create_payload_index(self._name, **index)


def transport(access: Access) -> Any:
    """Return the transport of an httpx.Client whose requests have a deadline, and answers a largest size."""
    # Requirements of the client.
    import httpx

    from milco_pyserini.export.rest import Rest, error_of

    class Transport(httpx.BaseTransport):
        """Sends requests by Rest."""

        rest = Rest(access, {"api-key": access.key} if access.key else {})

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            path = request.url.raw_path.decode().removeprefix(urlsplit(access.urls[0]).path.rstrip("/"))
            answer = self.rest.send(request.method, path, request.read())
            if answer.status >= 400:
                raise error_of(answer)
            return httpx.Response(answer.status, headers={"Content-Type": answer.media}, content=answer.content)

        def close(self) -> None:
            self.rest.close()

    return Transport()


def point_id(docid: str) -> str:
    """Return the id of a document's point."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, docid))


def point(vector: ImpactDocument) -> dict[str, Any]:
    """Return a document as a point of the REST API."""
    payload = {name: value for name, value in (vector.document or {}).items() if name != "id"}
    payload[_DOCID] = vector.id
    return {"id": point_id(vector.id), "vector": {_VECTOR: sparse(vector)}, "payload": payload}


def sparse(vector: ImpactDocument) -> dict[str, Any]:
    """Return columns and impacts; Qdrant's numbers are floats."""
    return {"indices": vector.columns, "values": list(map(float, vector.impacts))}


def field_indexes(schema: DocumentSchema) -> list[dict[str, Any]]:
    """Return a request for the index of each field of stored documents, and for that of their text."""
    indexes: list[dict[str, Any]] = [
        {"field_name": payload_key(name), "field_schema": _INDEXES.get(kind, "keyword")}
        for name, kind in schema.kinds.items()
    ]
    return [*indexes, {"field_name": _CONTENTS, "field_schema": _TEXT_INDEX}]


def payload_key(field: str) -> str:
    """Return the path of a field in a payload, where a dot would lead into an object."""
    return field if re.fullmatch(r"[\w-]+", field) else f'"{field}"'


def payload_filter(filters: FieldFilters, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a filter of the REST API. fields: the type of each field; ranges are of numbers."""
    conditions: list[dict[str, Any]] = []
    for name, wanted in filters.items():
        key, kind = payload_key(name), fields[name]
        if isinstance(wanted, Mapping):
            bounds = {_BOUNDS[operator]: value for operator, value in range_bounds(wanted, kind).items()}
            conditions.append({"key": key, "range": bounds})
            continue
        values = field_values(wanted, kind)
        strings = [value for value in values if isinstance(value, str)]
        # Without strings, this condition matches nothing.
        alternatives: list[dict[str, Any]] = [{"key": key, "match": {"any": strings}}]
        for value in values[len(strings) :]:
            equal = {"match": {"value": value}} if isinstance(value, bool) else {"range": {"gte": value, "lte": value}}
            alternatives.append({"key": key, **equal})
        conditions.append({"should": alternatives})
    return {"must": conditions}
