"""Milvus: rows with the docid as primary key and a sparse float vector."""

from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.export.protocol import HITS, Export, Target, Vector, write_lines, write_parts
from milco_pyserini.io.files import write_json

FIELD = "vector"


class MilvusTarget(Target):
    """Bodies of its REST API: the collection, rows to insert or replace, and one search with all queries."""

    name = "milvus"
    title = "Milvus"
    # The length of a VARCHAR, in bytes.
    max_id_bytes = 512

    def write(self, export: Export, directory: Path) -> None:
        """Write schema.json, documents-*.json, deleted-*.json, and queries.json with queries.ids, its ids."""
        name = export.collection
        fields: list[dict[str, Any]] = [
            {"fieldName": "docid", "dataType": "VarChar", "isPrimary": True},
            {"fieldName": FIELD, "dataType": "SparseFloatVector"},
        ]
        fields[0]["elementTypeParams"] = {"max_length": self.max_id_bytes}
        index = {"fieldName": FIELD, "indexName": FIELD, "indexType": "SPARSE_INVERTED_INDEX", "metricType": "IP"}
        schema = {"autoId": False, "enableDynamicField": False, "fields": fields}
        write_json(directory / "schema.json", {"collectionName": name, "schema": schema, "indexParams": [index]})
        start = b'{"collectionName":"%s",' % name.encode()
        rows = (orjson.dumps({"docid": vector.id, FIELD: weights(vector)}) for vector in self.documents(export))
        write_parts(directory, "documents", "json", rows, start + b'"data":[\n', b",\n", b"\n]}\n")
        # A filter is a string that has strings.
        deleted = (orjson.dumps(orjson.dumps(docid).decode())[1:-1] for docid in export.deleted)
        write_parts(directory, "deleted", "json", deleted, start + b'"filter":"docid in [', b",", b']"}\n')
        if export.topics is not None:
            search = {"collectionName": name, "annsField": FIELD, "limit": HITS, "outputFields": ["docid"]}
            write_json(directory / "queries.json", search | {"data": [weights(vector) for vector in export.topics]})
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))


def weights(vector: Vector) -> dict[str, float]:
    """Return {column: impact}; Milvus takes floats only."""
    return {str(column): float(impact) for column, impact in zip(vector.columns, vector.impacts, strict=True)}
