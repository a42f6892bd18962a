"""Elasticsearch: a sparse_vector field without token pruning, filled by bulk requests."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.export.protocol import HITS, Export, Target, Vector, write_lines, write_parts
from milco_pyserini.io.files import write_json

FIELD = "vector"


class ElasticsearchTarget(Target):
    """Bodies of its REST API: mapping, bulk requests, and one multi-search with all queries."""

    name = "elasticsearch"
    title = "Elasticsearch"
    # An _id.
    max_id_bytes = 512
    # Lucene's FeatureField keeps 9 significant bits of a weight.
    exact_up_to = 512

    def mapping(self, fingerprint: str) -> dict[str, Any]:
        """Return the body that creates the index."""
        field = {"type": "sparse_vector", "index_options": {"prune": False}}
        return {"mappings": {"_meta": {"milco": fingerprint}, "dynamic": False, "properties": {FIELD: field}}}

    def query(self, vector: Vector) -> dict[str, Any]:
        """Return the query for a vector."""
        weights = dict(zip(vector.terms, vector.impacts, strict=True))
        return {"sparse_vector": {"field": FIELD, "prune": False, "query_vector": weights}}

    def write(self, export: Export, directory: Path) -> None:
        """Write mapping.json, documents-*.ndjson, and queries.ndjson with queries.ids, the ids in its order."""
        write_json(directory / "mapping.json", self.mapping(export.documents.fingerprint))
        write_parts(directory, "documents", "ndjson", self._bulk(export))
        if export.topics is not None:
            write_lines(directory / "queries.ndjson", self._searches(export.collection, export.topics))
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))

    def _bulk(self, export: Export) -> Iterator[bytes]:
        for vector in self.documents(export):
            document = {FIELD: dict(zip(vector.terms, vector.impacts, strict=True))}
            yield orjson.dumps({"index": {"_id": vector.id}}) + b"\n" + orjson.dumps(document)
        for docid in export.deleted:
            yield orjson.dumps({"delete": {"_id": docid}})

    def _searches(self, collection: str, queries: Iterable[Vector]) -> Iterator[dict[str, Any]]:
        for vector in queries:
            yield {"index": collection}
            yield {"size": HITS, "_source": False, "query": self.query(vector)}
