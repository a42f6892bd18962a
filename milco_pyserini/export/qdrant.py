"""Qdrant: points with one named sparse vector and the docid as payload."""

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.export.protocol import HITS, Export, Target, Vector, write_lines, write_parts
from milco_pyserini.io.files import write_json

VECTOR = "terms"
_POINTS = {"start": b'{"points":[\n', "separator": b",\n", "end": b"\n]}\n"}


class QdrantTarget(Target):
    """Bodies of its REST API: the collection, batches of points, and one batch with all queries."""

    name = "qdrant"
    title = "Qdrant"

    def write(self, export: Export, directory: Path) -> None:
        """Write collection.json, documents-*.json, deleted-*.json, and queries.json with queries.ids, its ids."""
        about = {"sparse_vectors": {VECTOR: {}}, "metadata": {"milco": export.documents.fingerprint}}
        write_json(directory / "collection.json", about)
        points = (orjson.dumps(point(vector)) for vector in self.documents(export))
        write_parts(directory, "documents", "json", points, **_POINTS)
        write_parts(directory, "deleted", "json", (orjson.dumps(point_id(one)) for one in export.deleted), **_POINTS)
        if export.topics is not None:
            write_json(directory / "queries.json", {"searches": list(_searches(export.topics))})
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))


def point_id(docid: str) -> str:
    """Return the id of a document's point."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, docid))


def point(vector: Vector) -> dict[str, Any]:
    """Return a document as a point of the REST API."""
    return {"id": point_id(vector.id), "vector": {VECTOR: sparse(vector)}, "payload": {"docid": vector.id}}


def sparse(vector: Vector) -> dict[str, Any]:
    """Return columns and impacts; Qdrant's numbers are floats."""
    return {"indices": vector.columns, "values": list(map(float, vector.impacts))}


def _searches(queries: Iterable[Vector]) -> Iterator[dict[str, Any]]:
    for vector in queries:
        yield {"query": sparse(vector), "using": VECTOR, "limit": HITS, "with_payload": True}
