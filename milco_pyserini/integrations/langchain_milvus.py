"""MILCO in langchain-milvus: sparse vectors for the store Milvus."""

import os

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.contract import as_encoder
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import SparseBatch

try:
    from langchain_milvus.utils.sparse import BaseSparseEmbedding
except ModuleNotFoundError:
    raise MilcoError("langchain-milvus is not installed", "Run pip install langchain-milvus") from None


class MilvusSparseEmbeddings(BaseSparseEmbedding):
    """An encoder for the argument embedding_function of Milvus, next to one of dense vectors or by itself.

    >>> store = Milvus.from_texts(texts, MilvusSparseEmbeddings("mini"))  # doctest: +SKIP

    Keys are columns of the encoder's vocabulary: a collection needs one encoder.

    Args:
        encoder: what load_encoder() accepts or returns.
    """

    def __init__(self, encoder: str | os.PathLike | MilcoEncoder = DEFAULT_ENCODER) -> None:
        self.encoder = as_encoder(encoder)

    def embed_documents(self, texts: list[str]) -> list[dict[int, float]]:
        """Return the vectors of documents: {column: weight}."""
        return _weights(self.encoder.encode_document(texts))

    def embed_query(self, query: str) -> dict[int, float]:
        """Return the vector of a query: {column: weight}."""
        return _weights(self.encoder.encode_query(query))[0]


def _weights(batch: SparseBatch) -> list[dict[int, float]]:
    return [dict(zip(columns.tolist(), weights.tolist(), strict=True)) for columns, weights in batch.rows()]
