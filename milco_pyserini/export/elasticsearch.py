"""Elasticsearch: a sparse_vector field without token pruning, filled by bulk requests."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.export.protocol import HITS, EngineRequest, Export, Target, Vector, write_lines, write_parts
from milco_pyserini.export.server import API_KEY, CA_FILE, client, validate_version
from milco_pyserini.index.documents import Filters
from milco_pyserini.io.files import write_json

FIELD = "vector"
# Until a server answers at all, at each of some tries.
CONNECT_SECONDS = 10
# index.max_result_window: more hits are read by scrolling.
WINDOW = 10_000
# A query may have 1,024 clauses (indices.query.bool.max_clause_count).
_CLAUSES = 500


class ElasticsearchTarget(Target):
    """Bodies of its REST API: mapping, bulk requests, and one multi-search with all queries."""

    name = "elasticsearch"
    title = "Elasticsearch"
    # An _id.
    max_id_bytes = 512
    # Lucene's FeatureField keeps 9 significant bits of a weight.
    exact_up_to = 512

    def mapping(self, statement: str) -> dict[str, Any]:
        """Return the body that creates the index."""
        field = {"type": "sparse_vector", "index_options": {"prune": False}}
        return {"mappings": {"_meta": {"milco": statement}, "dynamic": False, "properties": {FIELD: field}}}

    def query(self, vector: Vector) -> dict[str, Any]:
        """Return the query for a vector."""
        return {"sparse_vector": {"field": FIELD, "prune": False, "query_vector": vector.weights}}

    def write(self, export: Export, directory: Path) -> None:
        """Write mapping.json, documents-*.ndjson, and queries.ndjson with queries.ids, the ids in its order."""
        write_json(directory / "mapping.json", self.mapping(export.documents.fingerprint))
        write_parts(directory, "documents", "ndjson", self._bulk(export))
        if export.topics is not None:
            write_lines(directory / "queries.ndjson", self._searches(export.collection, export.topics))
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))

    def _bulk(self, export: Export) -> Iterator[bytes]:
        for vector in self.documents(export):
            yield orjson.dumps({"index": {"_id": vector.id}}) + b"\n" + orjson.dumps({FIELD: vector.weights})
        for docid in export.deleted:
            yield orjson.dumps({"delete": {"_id": docid}})

    def _searches(self, collection: str, queries: Iterable[Vector]) -> Iterator[dict[str, Any]]:
        for vector in queries:
            yield {"index": collection}
            yield self.search_request(vector, collection).body

    def search_request(self, query: Vector, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request for the best documents of a query; their docids are _id."""
        body = {"size": k, "_source": False, "query": self.query(query)}
        return EngineRequest(f"/{collection}/_search", body)

    def connect(self, urls: Sequence[str], collection: str, columns: int) -> "ElasticsearchServer":
        """Connect to URLs of one cluster, which may have a user and a password."""
        module = client("elasticsearch", self.name)
        # Otherwise the client trusts only the authorities of the package certifi.
        own = os.environ.get(CA_FILE)
        trusted = {"ca_certs": own} if own and all(url.startswith("https:") for url in urls) else {}
        options = {"request_timeout": 120, "max_retries": 5, "retry_on_timeout": True, **trusted}
        connected = module.Elasticsearch(list(urls), api_key=os.environ.get(API_KEY), **options)
        version = connected.options(request_timeout=CONNECT_SECONDS).info()["version"]
        # Elastic's serverless offering has the newest version, and gives another number.
        if version.get("build_flavor") != "serverless":
            validate_version(self.title, version["number"], (8, 19), (9, 1))
        return ElasticsearchServer(connected, client("elasticsearch.helpers", self.name), self, collection)

    def score(self, query: Vector, score: float) -> float:
        """Return the score of a hit in units of impacts."""
        return score


class ElasticsearchServer:
    """An index, by the methods that the clients of Elasticsearch and OpenSearch have in common."""

    def __init__(self, connected: Any, helpers: Any, target: ElasticsearchTarget, index: str) -> None:
        self.client, self._helpers, self._target, self._index = connected, helpers, target, index

    def stated(self, alias: bool = False) -> str | None:
        """Return the statement in the mapping."""
        if not self.client.indices.exists(index=self._index):
            return None
        found = dict(self.client.indices.get_mapping(index=self._index))
        if len(found) > 1 or not (alias or self._index in found):
            return ""
        (mapping,) = (about["mappings"] for about in found.values())
        is_same = mapping.get("properties") == self._target.mapping("")["mappings"]["properties"]
        return mapping.get("_meta", {}).get("milco", "") if is_same else ""

    def create(self, statement: str) -> None:
        """Create the index."""
        self.client.indices.create(index=self._index, body=self._target.mapping(statement))

    def state(self, statement: str) -> None:
        """Replace the statement in the mapping."""
        self.client.indices.put_mapping(index=self._index, body={"_meta": {"milco": statement}})

    def present(self, ids: list[str]) -> set[str]:
        """Return those docids that are an _id."""
        body = {"docs": [{"_id": docid, "_source": False} for docid in ids]}
        return {found["_id"] for found in self.client.mget(index=self._index, body=body)["docs"] if found["found"]}

    def write(self, vectors: list[Vector]) -> None:
        """Index documents by a bulk request."""
        self._bulk(
            [{"_op_type": "index", "_id": document.id, "_source": {FIELD: document.weights}} for document in vectors]
        )

    def delete(self, ids: list[str]) -> None:
        """Delete documents by a bulk request."""
        self._bulk([{"_op_type": "delete", "_id": docid} for docid in ids])

    def finish(self) -> int:
        """Refresh the index, and return the number of documents."""
        self.client.indices.refresh(index=self._index)
        return self.client.count(index=self._index)["count"]

    def search(self, queries: Sequence[Vector], k: int, filters: Filters) -> list[list[tuple[str, float]]]:
        """Return the best documents, by one request (_msearch); for more than its window, by scrolling."""
        bodies = [self._target.search_request(query, self._index, min(k, WINDOW)).body for query in queries]
        if k <= WINDOW:
            found = self._searched([body | {"track_total_hits": False} for body in bodies])
        else:
            options = {"preserve_order": True, "size": WINDOW, "allow_partial_search_results": False}
            scans = (self._helpers.scan(self.client, body, index=self._index, **options) for body in bodies)
            found = [list(islice(hits, k)) for hits in scans]
        return [
            [(hit["_id"], self._target.score(query, hit["_score"])) for hit in hits]
            for query, hits in zip(queries, found, strict=True)
        ]

    def impacts(self, docid: str, query: Vector) -> dict[str, int] | None:
        """Return the scores of queries of one term, which are the named parts of a query for this document."""
        units = [Vector("", [term], [column], [1]) for term, column in zip(query.terms, query.columns, strict=True)]
        named = [{"bool": {"must": self._target.query(unit), "_name": str(place)}} for place, unit in enumerate(units)]
        options = {"include_named_queries_score": True, "allow_partial_search_results": False}
        found: dict[int, float] = {}
        for start in range(0, len(named) or 1, _CLAUSES):
            parts = {"filter": {"ids": {"values": [docid]}}, "should": named[start : start + _CLAUSES]}
            body = {"size": 1, "_source": False, "query": {"bool": parts}}
            hits = self._hits(self.client.search(index=self._index, body=body, **options))
            if not hits:
                return None
            found |= {int(place): score for place, score in hits[0].get("matched_queries", {}).items()}
        return {query.terms[place]: round(self._target.score(units[place], found[place])) for place in sorted(found)}

    def _searched(self, bodies: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Return the hits of each search, by one request."""
        header = {"index": self._index, "allow_partial_search_results": False}
        lines = [line for body in bodies for line in (header, body)]
        return [self._hits(answer) for answer in self.client.msearch(body=lines)["responses"]]

    def _hits(self, answer: Any) -> list[dict[str, Any]]:
        """Return the hits of an answer. Raises RuntimeError if the search failed, or a shard is missing."""
        if "error" in answer:
            error = answer["error"]
            causes = [error, *error.get("root_cause", ()), error.get("caused_by", {})]
            reasons = dict.fromkeys(cause["reason"] for cause in causes if cause.get("reason"))
            raise RuntimeError(f"{self._index}: {': '.join(reasons)}")
        shards = answer["_shards"]
        if shards["successful"] != shards["total"]:
            raise RuntimeError(f"{self._index}: {shards['successful']} of {shards['total']} shards have answered")
        return answer["hits"]["hits"]

    def _bulk(self, actions: list[dict[str, Any]]) -> None:
        self._helpers.bulk(self.client, actions, index=self._index, max_retries=5, ignore_status=(404,))
