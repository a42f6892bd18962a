"""Elasticsearch: a sparse_vector field without token pruning."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.errors import MilcoError
from milco_pyserini.export.access import Access
from milco_pyserini.export.elasticsearch_documents import FIELD, SETTINGS, STATED, source, stored_properties, text_query
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
    Server,
    Steps,
    write_lines,
    write_parts,
)
from milco_pyserini.export.server import client, validate_version
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import DocumentSchema
from milco_pyserini.io.files import write_json


class ElasticsearchTarget(ExportTarget):
    """Bodies of its REST API: mapping, bulk requests, and one multi-search with all queries."""

    name = "elasticsearch"
    title = "Elasticsearch"
    capabilities = FILLED | {Capability.CLUSTER, Capability.REQUEST, Capability.HYBRID, Capability.APPROXIMATE}
    schemes = ("http", "https")
    # An _id.
    max_id_bytes = 512
    # Lucene's FeatureField keeps 9 significant bits of a weight.
    exact_up_to = 512
    # Measured with OpenSearch 2.19 on two cores, with documents of 217 terms.
    posting_bytes = 10
    postings_per_second = 290_000
    field: Mapping[str, Any] = {"type": "sparse_vector", "index_options": {"prune": False}}

    def mapping(
        self, statement: str, schema: DocumentSchema | None = None, lacking: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return the body that creates the index. lacking: analyzers that the server lacks."""
        about: dict[str, Any] = {"_meta": {STATED: statement}, "dynamic": False, "properties": {FIELD: self.field}}
        if schema is not None:
            about["_source"] = {"excludes": [FIELD]}
            about["properties"] |= stored_properties(schema, lacking)
        return {"settings": SETTINGS, "mappings": about}

    def query(self, vector: ImpactDocument) -> dict[str, Any]:
        """Return the query for a vector."""
        return {"sparse_vector": {"field": FIELD, "prune": False, "query_vector": vector.weights}}

    def write(self, export: ExportJob, directory: Path) -> None:
        """Write mapping.json, documents-*.ndjson, and queries.ndjson with queries.ids, the ids in its order."""
        write_json(directory / "mapping.json", self.mapping(export.statement, export.place.schema))
        write_parts(directory, "documents", "ndjson", self._bulk(export))
        if export.topics is not None:
            searches = (self.search_request(vector, export.collection).body for vector in export.topics)
            lines = (line for body in searches for line in ({"index": export.collection}, body))
            write_lines(directory / "queries.ndjson", lines)
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))

    def _bulk(self, export: ExportJob) -> Iterator[bytes]:
        for vector in self.documents(export):
            yield orjson.dumps({"index": {"_id": vector.id}}) + b"\n" + orjson.dumps(source(vector))
        for docid in export.deleted:
            yield orjson.dumps({"delete": {"_id": docid}})

    def search_request(
        self, query: ImpactDocument, collection: str, k: int = HITS, steps: Steps | None = None
    ) -> EngineRequest:
        """Return the request for the best documents of a query; their docids are _id."""
        body = {"size": k, "_source": False, "query": self.query(query)}
        strong, weak = (query, None) if steps is None else steps.split(query)
        if steps is not None and weak is not None and weak.terms:
            # Both scores are in the unit of the query, whose strongest term is strong.
            weight = self.score(weak, 1) / self.score(query, 1)
            rescore = {"rescore_query": self.query(weak), "rescore_query_weight": weight}
            window = {"window_size": max(steps.window_size, k), "query": rescore}
            body |= {"query": self.query(strong), "rescore": window}
        return EngineRequest(f"/{collection}/_search", body)

    def hybrid_request(self, query: ImpactDocument, text: str, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request with the retriever rrf, which needs a license of Elastic."""
        retrievers = [{"standard": {"query": query}} for query in (self.query(query), text_query(text))]
        depths = {"rank_window_size": max(k, HYBRID_DEPTH), "rank_constant": RANK_CONSTANT}
        body = {"size": k, "_source": False, "retriever": {"rrf": {"retrievers": retrievers, **depths}}}
        return EngineRequest(f"/{collection}/_search", body)

    def connect(self, access: Access, collection: Collection) -> Server:
        """Connect to the nodes of one cluster."""
        client("httpcore", self.name)
        from milco_pyserini.export.elasticsearch_server import connect

        return connect(self, access, collection)

    def validate_version(self, version: Any) -> None:
        """Raise MilcoError for another product, or a version that is too old."""
        if version.distribution == "opensearch":
            fix = "Use milco export --to opensearch."
            raise MilcoError(f"this is OpenSearch {version.number}, not {self.title}", fix)
        # The serverless offering has the newest version, and gives another number.
        if version.build_flavor != "serverless":
            validate_version(self.title, version.number, (8, 19), (9, 1))

    def score(self, query: ImpactDocument, score: float) -> float:
        """Return the score of a hit in units of impacts."""
        return score
