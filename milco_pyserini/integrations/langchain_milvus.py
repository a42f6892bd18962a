"""Sparse vectors for langchain-milvus."""

from milco_pyserini.errors import installed_by
from milco_pyserini.integrations.retrieval import VectorAdapter

with installed_by("langchain-milvus"):
    from langchain_milvus.utils.sparse import BaseSparseEmbedding

__all__ = ["MilvusSparseEmbeddings"]


class MilvusSparseEmbeddings(VectorAdapter, BaseSparseEmbedding):
    """The argument embedding_function of Milvus, next to an encoder of dense vectors or by itself."""

    vector = staticmethod(lambda columns, weights: dict(zip(columns, weights, strict=True)))
