"""OpenSearch: a rank_features field, searched by neural_sparse queries that carry their own weights."""

import math
from typing import Any

from milco_pyserini.errors import MilcoError
from milco_pyserini.export.elasticsearch import FIELD, ElasticsearchServer, ElasticsearchTarget
from milco_pyserini.export.protocol import Export, Vector
from milco_pyserini.export.server import client, validate_version

# A query's weight is in (0, 64].
_MAX_WEIGHT = 64


class OpenSearchTarget(ElasticsearchTarget):
    """Documents as for Elasticsearch; the weights of queries are floats."""

    name = "opensearch"
    title = "OpenSearch"

    def mapping(self, statement: str) -> dict[str, Any]:
        """Return the body that creates the index."""
        properties = {FIELD: {"type": "rank_features"}}
        return {"mappings": {"_meta": {"milco": statement}, "dynamic": False, "properties": properties}}

    def query(self, vector: Vector) -> dict[str, Any]:
        """Return the query for a vector."""
        unit = score_unit(vector)
        weights = {term: weight / unit for term, weight in zip(vector.terms, vector.floats, strict=True)}
        return {"neural_sparse": {FIELD: {"query_tokens": weights}}}

    def connect(self, url: str, export: Export) -> ElasticsearchServer:
        """Connect to a URL, which may have a user and a password."""
        connected = client("opensearchpy", self.name).OpenSearch(url, timeout=120)
        version = connected.info()["version"]
        if version.get("distribution") != "opensearch":
            raise MilcoError(f"this is not OpenSearch, but {version.get('distribution', 'Elasticsearch')}")
        validate_version(self.title, version["number"], (2, 14))
        return ElasticsearchServer(connected, client("opensearchpy.helpers", self.name), self, export.collection)

    def score(self, query: Vector, score: float) -> float:
        """Return the score of a hit in units of impacts."""
        return score * score_unit(query) * query.impacts[0] / query.floats[0]


def score_unit(vector: Vector) -> float:
    """Return the power of two by which the weights of a query are divided to be at most 64; mostly 1."""
    return 2.0 ** max(0, math.ceil(math.log2(max(vector.floats, default=1) / _MAX_WEIGHT)))
