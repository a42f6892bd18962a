"""Sparse vectors for langchain-qdrant."""

from milco_pyserini.errors import installed_by
from milco_pyserini.integrations.retrieval import VectorAdapter

with installed_by("langchain-qdrant"):
    from langchain_qdrant import SparseEmbeddings, SparseVector

__all__ = ["QdrantSparseEmbeddings"]


class QdrantSparseEmbeddings(VectorAdapter, SparseEmbeddings):
    """The argument sparse_embedding of QdrantVectorStore."""

    vector = staticmethod(lambda columns, weights: SparseVector(indices=columns, values=weights))
