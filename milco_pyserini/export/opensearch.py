"""OpenSearch: a rank_features field, searched by neural_sparse queries that carry their own weights."""

import math
from collections.abc import Mapping
from typing import Any

from milco_pyserini.errors import MilcoError
from milco_pyserini.export.elasticsearch import ElasticsearchTarget
from milco_pyserini.export.elasticsearch_documents import FIELD, text_query
from milco_pyserini.export.protocol import HITS, HYBRID_DEPTH, RANK_CONSTANT, EngineRequest, ImpactDocument
from milco_pyserini.export.server import validate_version

# A query's weight is in (0, 64]. Impacts divided by a power of two are exact, and so are their products and sums.
_MAX_WEIGHT = 64
_UNIT = 128.0


class OpenSearchTarget(ElasticsearchTarget):
    """Documents as for Elasticsearch; the weights of queries are impacts / 128."""

    name = "opensearch"
    title = "OpenSearch"
    field: Mapping[str, Any] = {"type": "rank_features"}

    def query(self, vector: ImpactDocument) -> dict[str, Any]:
        unit = score_unit(vector)
        weights = {term: impact / unit for term, impact in vector.weights.items()}
        return {"neural_sparse": {FIELD: {"query_tokens": weights}}}

    def hybrid_request(self, query: ImpactDocument, text: str, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request with the query hybrid, which brings its search pipeline (OpenSearch 2.19)."""
        queries = {"queries": [self.query(query), text_query(text)], "pagination_depth": max(k, HYBRID_DEPTH)}
        ranker = {"combination": {"technique": "rrf", "rank_constant": RANK_CONSTANT}}
        pipeline = {"phase_results_processors": [{"score-ranker-processor": ranker}]}
        body = {"size": k, "_source": False, "query": {"hybrid": queries}, "search_pipeline": pipeline}
        return EngineRequest(f"/{collection}/_search", body)

    def validate_version(self, version: Any) -> None:
        if version.distribution != "opensearch":
            product = version.distribution or "Elasticsearch"
            hint = "" if version.distribution else "Use milco export --to elasticsearch."
            raise MilcoError(f"this is {product} {version.number}, not {self.title}", hint)
        validate_version(self.title, version.number, (2, 14))

    def score(self, query: ImpactDocument, score: float) -> float:
        return score * score_unit(query)


def score_unit(vector: ImpactDocument) -> float:
    """Return the power of two by which the impacts of a query are divided to be at most 64; mostly 128."""
    return max(_UNIT, 2.0 ** math.ceil(math.log2(max(vector.impacts, default=1) / _MAX_WEIGHT)))
