"""OpenSearch: a rank_features field, searched by neural_sparse queries that carry their own weights."""

import math
from typing import Any

from milco_pyserini.export.elasticsearch import FIELD, ElasticsearchTarget
from milco_pyserini.export.protocol import Vector

# A query's weight is in (0, 64].
_MAX_WEIGHT = 64


class OpenSearchTarget(ElasticsearchTarget):
    """Documents as for Elasticsearch; the weights of queries are floats."""

    name = "opensearch"
    title = "OpenSearch"

    def mapping(self, fingerprint: str) -> dict[str, Any]:
        """Return the body that creates the index."""
        properties = {FIELD: {"type": "rank_features"}}
        return {"mappings": {"_meta": {"milco": fingerprint}, "dynamic": False, "properties": properties}}

    def query(self, vector: Vector) -> dict[str, Any]:
        """Return the query for a vector."""
        unit = score_unit(vector)
        weights = {term: weight / unit for term, weight in zip(vector.terms, vector.floats, strict=True)}
        return {"neural_sparse": {FIELD: {"query_tokens": weights}}}


def score_unit(vector: Vector) -> float:
    """Return the power of two by which the weights of a query are divided to be at most 64; mostly 1."""
    return 2.0 ** max(0, math.ceil(math.log2(max(vector.floats, default=1) / _MAX_WEIGHT)))
