"""An index as a retriever of LlamaIndex, and sparse vectors for its QdrantVectorStore."""

from collections.abc import Sequence
from typing import Any

from milco_pyserini.errors import installed_by
from milco_pyserini.integrations.retrieval import VectorAdapter, find_documents
from milco_pyserini.search import Searcher

with installed_by("'.[llama-index]'"):
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

__all__ = ["LlamaIndexEncoder", "LlamaIndexRetriever"]


class LlamaIndexRetriever(BaseRetriever):
    """Searches an index. search_kwargs are of Searcher.search(). Metadata of a node: fields and title."""

    def __init__(self, searcher: Searcher, similarity_top_k: int = 10, **search_kwargs: Any) -> None:
        super().__init__()
        self.searcher, self.similarity_top_k, self.search_kwargs = searcher, similarity_top_k, search_kwargs

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = find_documents(self.searcher, query_bundle.query_str, self.similarity_top_k, **self.search_kwargs)
        nodes = ((TextNode(id_=docid, text=text, metadata=metadata), score) for docid, text, metadata, score in found)
        return [NodeWithScore(node=node, score=score) for node, score in nodes]


class LlamaIndexEncoder(VectorAdapter):
    """Has the arguments sparse_doc_fn (documents) and sparse_query_fn (queries) of QdrantVectorStore."""

    vector = staticmethod(lambda columns, weights: (columns, weights))

    def documents(self, texts: Sequence[str]) -> tuple[list, ...]:
        """Return indices and values of the vectors of documents."""
        return tuple(map(list, zip(*self.embed_documents(texts), strict=True)))

    def queries(self, texts: Sequence[str]) -> tuple[list, ...]:
        """Return indices and values of the vectors of queries."""
        return tuple(map(list, zip(*map(self.embed_query, texts), strict=True)))
