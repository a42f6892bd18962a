"""MILCO in langchain-qdrant: sparse vectors for QdrantVectorStore."""

import os

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.contract import as_encoder
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import SparseBatch

try:
    from langchain_qdrant import SparseEmbeddings, SparseVector
except ModuleNotFoundError:
    raise MilcoError("langchain-qdrant is not installed", "Run pip install langchain-qdrant") from None


class QdrantSparseEmbeddings(SparseEmbeddings):
    """An encoder for the argument sparse_embedding of QdrantVectorStore.

    >>> sparse = QdrantSparseEmbeddings("mini")
    >>> options = {"sparse_embedding": sparse, "retrieval_mode": RetrievalMode.SPARSE}
    >>> store = QdrantVectorStore.from_texts(texts, **options)  # doctest: +SKIP

    Indices are columns of the encoder's vocabulary: a collection needs one encoder.

    Args:
        encoder: what load_encoder() accepts or returns.
    """

    def __init__(self, encoder: str | os.PathLike | MilcoEncoder = DEFAULT_ENCODER) -> None:
        self.encoder = as_encoder(encoder)

    def embed_documents(self, texts: list[str]) -> list[SparseVector]:
        """Return the vectors of documents."""
        return _sparse_vectors(self.encoder.encode_document(texts))

    def embed_query(self, text: str) -> SparseVector:
        """Return the vector of a query."""
        return _sparse_vectors(self.encoder.encode_query(text))[0]


def _sparse_vectors(batch: SparseBatch) -> list[SparseVector]:
    return [SparseVector(indices=columns.tolist(), values=weights.tolist()) for columns, weights in batch.rows()]
