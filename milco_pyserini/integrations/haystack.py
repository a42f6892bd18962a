"""An index as a retriever of Haystack, and sparse embedders for its stores.

A pipeline that was saved is loaded after allow_deserialization_module("milco_pyserini").
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from milco_pyserini.errors import installed_by
from milco_pyserini.integrations.retrieval import VectorAdapter, find_documents
from milco_pyserini.search import Searcher

with installed_by("'.[haystack]'"):
    from haystack import Document, component
    from haystack.dataclasses import SparseEmbedding

__all__ = ["HaystackDocumentEmbedder", "HaystackRetriever", "HaystackTextEmbedder"]


@component
@dataclass(eq=False)
class HaystackRetriever:
    """Searches an index. Arguments are of Searcher.open() and search(). Meta of a document: fields and title."""

    index: str
    encoder: str | None = None
    device: str = "auto"
    top_k: int = 10
    filters: dict[str, Any] | None = None
    alpha: float | None = None

    @cached_property
    def searcher(self) -> Searcher:
        """The open index."""
        return Searcher.open(self.index, self.encoder, device=self.device, alpha=self.alpha)

    def close(self) -> None:
        """Close the index; the next query opens it again."""
        if searcher := vars(self).pop("searcher", None):
            searcher.close()

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> dict[str, Any]:
        """Return the best documents for a query. filters, top_k: in place of the component's."""
        filters, top_k = self.filters if filters is None else filters, self.top_k if top_k is None else top_k
        found = find_documents(self.searcher, query, top_k, filters=filters)
        return {"documents": [Document(id=docid, content=text, meta=m, score=score) for docid, text, m, score in found]}


@component
class HaystackTextEmbedder(VectorAdapter):
    """Encodes a query for the sparse retrievers of Haystack's stores."""

    vector = staticmethod(SparseEmbedding)

    @component.output_types(sparse_embedding=SparseEmbedding)
    def run(self, text: str) -> dict[str, SparseEmbedding]:
        """Return the vector of a query."""
        return {"sparse_embedding": self.embed_query(text)}


@component
@dataclass(eq=False)
class HaystackDocumentEmbedder(VectorAdapter):
    """Adds sparse vectors to documents. meta_fields_to_embed: metadata before the text, such as ["title"]."""

    meta_fields_to_embed: list[str] | None = None
    vector = staticmethod(SparseEmbedding)

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return copies of the documents with their vectors, which are empty without a text."""
        fields = self.meta_fields_to_embed or []
        texts = [" ".join(str(part) for part in [*map(one.meta.get, fields), one.content] if part) for one in documents]
        embedded = zip(documents, self.embed_documents(texts), strict=True)
        return {"documents": [replace(document, sparse_embedding=vector) for document, vector in embedded]}
