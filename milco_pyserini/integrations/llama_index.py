"""MILCO in LlamaIndex: an index as a retriever, and sparse vectors for QdrantVectorStore."""

import os
from collections.abc import Sequence
from typing import Any

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.contract import as_encoder
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.integrations.retrieval import find_documents, metadata
from milco_pyserini.search import Searcher
from milco_pyserini.sparse import SparseBatch

try:
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ModuleNotFoundError:
    raise MilcoError("LlamaIndex is not installed", "Run pip install '.[llama-index]'") from None

# Indices and values of every vector.
Vectors = tuple[list[list[int]], list[list[float]]]


class LlamaIndexRetriever(BaseRetriever):
    """Searches an index of any engine. A node has the docid as its id, and fields and title as metadata.

    >>> searcher = Searcher.open("indexes/sample.lucene")  # doctest: +SKIP
    >>> LlamaIndexRetriever(searcher, similarity_top_k=5).retrieve("Wer erfand das Telefon?")  # doctest: +SKIP

    Args:
        searcher: an open index; several retrievers and threads may share it.
        similarity_top_k: nodes per query.
        search_kwargs: further arguments of Searcher.search(), such as filters={"lang": "de"} and alpha=0.8.
    """

    def __init__(self, searcher: Searcher, similarity_top_k: int = 10, **search_kwargs: Any) -> None:
        super().__init__()
        self.searcher = searcher
        self.similarity_top_k = similarity_top_k
        self.search_kwargs = search_kwargs

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Return the best nodes. Raises MilcoError as find_documents() does."""
        found = find_documents(self.searcher, query_bundle.query_str, self.similarity_top_k, **self.search_kwargs)
        return [
            NodeWithScore(node=TextNode(id_=one.id, text=one.contents, metadata=metadata(one)), score=score)
            for one, score in found
        ]


class LlamaIndexEncoder:
    """An encoder as functions from texts to indices and values of their vectors, for QdrantVectorStore.

    >>> sparse = LlamaIndexEncoder("mini")
    >>> functions = {"sparse_doc_fn": sparse.documents, "sparse_query_fn": sparse.queries}
    >>> store = QdrantVectorStore("docs", client=client, enable_hybrid=True, **functions)  # doctest: +SKIP

    Indices are columns of the encoder's vocabulary: a collection needs one encoder.

    Args:
        encoder: what load_encoder() accepts or returns.
    """

    def __init__(self, encoder: str | os.PathLike | MilcoEncoder = DEFAULT_ENCODER) -> None:
        self.encoder = as_encoder(encoder)

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Encode documents: the argument sparse_doc_fn."""
        return _columns(self.encoder.encode_document(texts))

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Encode queries: the argument sparse_query_fn."""
        return _columns(self.encoder.encode_query(texts))


def _columns(batch: SparseBatch) -> Vectors:
    return [columns.tolist() for columns, _ in batch.rows()], [weights.tolist() for _, weights in batch.rows()]
