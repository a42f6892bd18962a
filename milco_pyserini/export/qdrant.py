"""Qdrant: points with one named sparse vector and the docid as payload."""

import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.errors import MilcoError
from milco_pyserini.export.protocol import (
    HITS,
    EngineRequest,
    Export,
    Server,
    Target,
    Vector,
    common_impacts,
    write_lines,
    write_parts,
)
from milco_pyserini.export.server import API_KEY, client, single_url, validate_version
from milco_pyserini.index.documents import Filters
from milco_pyserini.index.qdrant import VECTOR
from milco_pyserini.io.files import is_json_with, write_json

_POINTS = {"start": b'{"points":[\n', "separator": b",\n", "end": b"\n]}\n"}


class QdrantTarget(Target):
    """Bodies of its REST API: the collection, batches of points, and one batch with all queries."""

    name = "qdrant"
    title = "Qdrant"

    def write(self, export: Export, directory: Path) -> None:
        """Write collection.json, documents-*.json.gz, deleted-*.json.gz, and queries.json with queries.ids, its ids."""
        about = {"sparse_vectors": {VECTOR: {}}, "metadata": {"milco": export.documents.fingerprint}}
        write_json(directory / "collection.json", about)
        points = (orjson.dumps(point(vector)) for vector in self.documents(export))
        write_parts(directory, "documents", "json", points, **_POINTS)
        write_parts(directory, "deleted", "json", (orjson.dumps(point_id(one)) for one in export.deleted), **_POINTS)
        if export.topics is not None:
            searches = [self.search_request(vector, export.collection).body for vector in export.topics]
            write_json(directory / "queries.json", {"searches": searches})
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))

    def search_request(self, query: Vector, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request for the best documents of a query; their docids are in the payload."""
        body = {"query": sparse(query), "using": VECTOR, "limit": k, "with_payload": True}
        return EngineRequest(f"/collections/{collection}/points/query", body)

    def connect(self, urls: Sequence[str], collection: str, columns: int) -> "QdrantServer":
        """Connect to a URL, or open the directory of the client's local mode."""
        url = single_url(self.title, urls)
        qdrant = client("qdrant_client", self.name)
        options = {"api_key": os.environ.get(API_KEY), "timeout": 60, "check_compatibility": False}
        if "://" in url:
            connected = qdrant.QdrantClient(url=url, **options)
        elif re.fullmatch(r"[^/]+:\d+", url):
            raise MilcoError(f"`url={url}`: a URL begins with http:// or https://, as in http://{url}")
        elif Path(url).exists() and not is_json_with(Path(url) / "meta.json", "collections"):
            raise MilcoError(f"`url={url}`: this is neither a URL nor a directory of Qdrant's local mode")
        else:
            connected = qdrant.QdrantClient(path=url)
        validate_version(self.title, connected.info().version, (1, 16))
        return QdrantServer(connected, qdrant.models, collection)


class QdrantServer(Server):
    """A collection."""

    def __init__(self, connected: Any, models: Any, collection: str) -> None:
        self.client, self._models, self._name = connected, models, collection

    def stated(self, alias: bool = False) -> str | None:
        """Return the statement in the collection's metadata."""
        if not self.client.collection_exists(self._name):
            return None
        config = self.client.get_collection(self._name).config
        stated = (config.metadata or {}).get("milco", "")
        return stated if set(config.params.sparse_vectors or ()) == {VECTOR} else ""

    def create(self, statement: str) -> None:
        """Create the collection."""
        sparse_vectors, about = {VECTOR: self._models.SparseVectorParams()}, {"milco": statement}
        self.client.create_collection(self._name, {}, sparse_vectors, metadata=about)

    def present(self, ids: list[str]) -> set[str]:
        """Return those docids whose points exist."""
        docids = {point_id(docid): docid for docid in ids}
        return {docids[point.id] for point in self.client.retrieve(self._name, list(docids), with_payload=False)}

    def write(self, vectors: list[Vector]) -> None:
        """Add or replace points."""
        self.client.upsert(self._name, [self._models.PointStruct(**point(vector)) for vector in vectors], wait=True)

    def delete(self, ids: list[str]) -> None:
        """Delete points."""
        self.client.delete(self._name, self._models.PointIdsList(points=list(map(point_id, ids))), wait=True)

    def state(self, statement: str) -> None:
        """Replace the statement in the collection's metadata."""
        self.client.update_collection(self._name, metadata={"milco": statement})

    def finish(self) -> int:
        """Return the number of points, which are searchable at once."""
        return self.client.count(self._name, exact=True).count

    def search(self, queries: Sequence[Vector], k: int, filters: Filters) -> list[list[tuple[str, float]]]:
        """Return the best documents, by one request."""
        requests = [
            self._models.QueryRequest(
                query=self._models.SparseVector(**sparse(query)), using=VECTOR, limit=k, with_payload=["docid"]
            )
            for query in queries
        ]
        found = self.client.query_batch_points(self._name, requests)
        return [[(hit.payload["docid"], hit.score) for hit in answer.points] for answer in found]

    def impacts(self, docid: str, query: Vector) -> dict[str, int] | None:
        """Return impacts of the document's vector."""
        found = self.client.retrieve(self._name, [point_id(docid)], with_payload=False, with_vectors=True)
        if not found:
            return None
        vector = found[0].vector[VECTOR]
        return common_impacts(query, dict(zip(vector.indices, vector.values, strict=True)))


def point_id(docid: str) -> str:
    """Return the id of a document's point."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, docid))


def point(vector: Vector) -> dict[str, Any]:
    """Return a document as a point of the REST API."""
    return {"id": point_id(vector.id), "vector": {VECTOR: sparse(vector)}, "payload": {"docid": vector.id}}


def sparse(vector: Vector) -> dict[str, Any]:
    """Return columns and impacts; Qdrant's numbers are floats."""
    return {"indices": vector.columns, "values": list(map(float, vector.impacts))}
