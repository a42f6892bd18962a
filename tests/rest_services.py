"""The REST APIs of Qdrant and Milvus over the engines that their clients embed, for the commands of an export.

Bodies are those of the API: Qdrant's client has their types, and Milvus Lite gets what a body states. A request that is
not valid ends its connection, so that curl fails.
"""

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from background_server import running

Answer = Callable[[str, list[str], Any], Any]


def qdrant_answers() -> Answer:
    """Return what answers method, parts of the path and body by the local mode of Qdrant's client."""
    from pydantic import TypeAdapter
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")

    def answer(method: str, path: list[str], body: Any) -> Any:
        name, action = path[1], (method, *path[2:])
        if action == ("PUT",):
            given = models.CreateCollection(**body)
            return client.create_collection(
                name, given.vectors or {}, sparse_vectors_config=given.sparse_vectors, metadata=given.metadata
            )
        if action == ("PATCH",):
            return client.update_collection(name, metadata=models.UpdateCollection(**body).metadata)
        if action == ("PUT", "index"):
            index = models.CreateFieldIndex(**body)
            with warnings.catch_warnings(action="ignore"):
                client.create_payload_index(name, index.field_name, index.field_schema)
            return None
        if action == ("PUT", "points"):
            client.upsert(name, models.PointsList(**body).points)
            return None
        if action == ("POST", "points", "delete"):
            client.delete(name, TypeAdapter(models.PointsSelector).validate_python(body))
            return None
        assert action == ("POST", "points", "query", "batch"), action
        return [
            {"points": [{"payload": hit.payload, "score": hit.score} for hit in found.points]}
            for found in client.query_batch_points(name, models.QueryRequestBatch(**body).searches)
        ]

    return lambda method, path, body: {"result": json_of(answer(method, path, body)), "status": "ok"}


def json_of(value: Any) -> Any:
    """Return a value that is JSON, or None."""
    return value if isinstance(value, list | bool) else None


def milvus_answers(file: Path) -> Answer:
    """Return what answers method, parts of the path and body by Milvus Lite."""
    from pymilvus import DataType, MilvusClient

    client = MilvusClient(str(file))
    types = {"VarChar": DataType.VARCHAR, "SparseFloatVector": DataType.SPARSE_FLOAT_VECTOR, "JSON": DataType.JSON}

    def create(name: str, schema: dict, indexParams: list) -> None:  # noqa: N803
        assert schema.pop("enableDynamicField") is False
        made, index = client.create_schema(auto_id=schema.pop("autoId")), client.prepare_index_params()
        for field in schema.pop("fields"):
            options = {"is_primary": field.pop("isPrimary", False), **field.pop("elementTypeParams", {})}
            made.add_field(field.pop("fieldName"), types[field.pop("dataType")], **options)
            assert not field
        for one in indexParams:
            index.add_index(one["fieldName"], index_type=one["indexType"], metric_type=one["metricType"])
        assert not schema
        client.create_collection(name, schema=made, index_params=index)

    def search(name: str, data: list, annsField: str, limit: int, outputFields: list) -> list:  # noqa: N803
        queries = [{int(column): weight for column, weight in query.items()} for query in data]
        found = client.search(name, queries, anns_field=annsField, limit=limit, output_fields=outputFields)
        return [[{"docid": hit["docid"], "distance": hit["distance"]} for hit in hits] for hits in found]

    actions: dict[tuple[str, ...], Callable] = {
        ("collections", "create"): create,
        ("entities", "upsert"): lambda name, data: client.upsert(name, data) and None,
        ("entities", "delete"): lambda name, filter: client.delete(name, filter=filter) and None,
        ("entities", "search"): search,
    }

    def answer(method: str, path: list[str], body: dict) -> Any:
        assert (method, path[:2]) == ("POST", ["v2", "vectordb"])
        found = actions[tuple(path[2:])](body.pop("collectionName"), **body) or []
        # The hits of all queries, one after the other.
        return {"code": 0, "data": [hit for hits in found for hit in hits], "topks": list(map(len, found))}

    return answer


@contextlib.contextmanager
def rest_service(answer: Answer) -> Iterator[str]:
    """Run a service; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0].strip("/").split("/")
            value = json.dumps(answer(self.command, path, json.loads(content))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(value)))
            self.end_headers()
            self.wfile.write(value)

        do_PUT = do_POST = do_PATCH = do  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    with running(server) as port:
        yield f"http://127.0.0.1:{port}"
