"""Sparse vectors for langchain-qdrant."""

from langchain_qdrant import SparseEmbeddings, SparseVector

from milco_pyserini.integrations.retrieval import VectorAdapter


class QdrantSparseEmbeddings(VectorAdapter, SparseEmbeddings):
    """The argument sparse_embedding of QdrantVectorStore."""

    vector = staticmethod(lambda columns, weights: SparseVector(indices=columns, values=weights))
