"""MILCO in Haystack: an index as a retriever, and sparse embedders for stores of Qdrant, Elasticsearch and Milvus.

    from milco_pyserini.integrations.haystack import HaystackDocumentEmbedder, HaystackRetriever, HaystackTextEmbedder

    retriever = HaystackRetriever("indexes/sample.lucene", top_k=5)
    documents = retriever.run("Wer erfand das Telefon?")["documents"]

    indexing.add_component("embedder", HaystackDocumentEmbedder("mini"))
    querying.add_component("embedder", HaystackTextEmbedder("mini"))

A pipeline that was saved is loaded after allow_deserialization_module("milco_pyserini").
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.integrations.retrieval import find_documents, metadata
from milco_pyserini.search import Searcher
from milco_pyserini.sparse import SparseBatch

try:
    from haystack import Document, component
    from haystack.dataclasses import SparseEmbedding
except ModuleNotFoundError:
    raise MilcoError("Haystack is not installed", "Run pip install '.[haystack]'") from None


@component
class HaystackRetriever:
    """Searches an index of any engine. A document has the docid as its id, and fields and title as meta.

    Args:
        index: directory of the index.
        encoder: where the index's encoder is now, if it moved.
        corpus: where the index's documents are now, if they moved.
        device: auto, cpu, cuda or cuda:N.
        top_k: documents per query.
        filters: {"lang": ["de", "fr"], "year": 2024}: only documents that have one of the values in each field.
        alpha: weigh the views of queries: alpha x pivot + (1 - alpha) x source, alpha from 0 to 1.
    """

    def __init__(
        self,
        index: str,
        encoder: str | None = None,
        corpus: str | None = None,
        device: str = "auto",
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        alpha: float | None = None,
    ) -> None:
        # Haystack saves a component by the attributes that have the names of its arguments.
        self.index, self.encoder, self.corpus, self.device = index, encoder, corpus, device
        self.top_k, self.filters, self.alpha = top_k, filters, alpha

    @cached_property
    def searcher(self) -> Searcher:
        """The open index."""
        return Searcher.open(self.index, self.encoder, corpus=self.corpus, device=self.device, alpha=self.alpha)

    def warm_up(self) -> None:
        """Open the index and load its encoder, before the first query. Raises MilcoError as Searcher.open() does."""
        _ = self.searcher.query_encoder

    def close(self) -> None:
        """Close the index; the next query opens it again."""
        if "searcher" in vars(self):
            self.searcher.close()
            del self.searcher

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the best documents for a query: {"documents": [...]}. Raises MilcoError as find_documents() does.

        filters, top_k: in place of the component's.
        """
        top_k = self.top_k if top_k is None else top_k
        filters = self.filters if filters is None else filters
        found = find_documents(self.searcher, query, top_k, filters=filters)
        return {
            "documents": [
                Document(id=one.id, content=one.contents, meta=metadata(one), score=score) for one, score in found
            ]
        }


class _Embedder:
    """Loads an encoder when a pipeline is warmed up, or with the first text."""

    def __init__(self, encoder: str = DEFAULT_ENCODER, device: str = "auto") -> None:
        self.encoder, self.device = encoder, device

    @cached_property
    def loaded(self) -> MilcoEncoder:
        """The encoder."""
        return load_encoder(self.encoder, self.device)

    def warm_up(self) -> None:
        """Load the encoder. Raises MilcoError as load_encoder() does."""
        _ = self.loaded


@component
class HaystackTextEmbedder(_Embedder):
    """Encodes a query for the sparse retrievers of Haystack's stores.

    Indices are columns of the encoder's vocabulary: a store needs one encoder.

    Args:
        encoder, device: as for load_encoder().
    """

    @component.output_types(sparse_embedding=SparseEmbedding)
    def run(self, text: str) -> dict[str, SparseEmbedding]:
        """Return the vector of a query: {"sparse_embedding": ...}."""
        return {"sparse_embedding": _embeddings(self.loaded.encode_query(text))[0]}


@component
class HaystackDocumentEmbedder(_Embedder):
    """Adds sparse vectors to documents, for Haystack's stores. Documents without a text have an empty vector.

    Args:
        encoder, device: as for load_encoder().
        meta_fields_to_embed: metadata that is encoded before the text, such as ["title"].
    """

    def __init__(
        self, encoder: str = DEFAULT_ENCODER, device: str = "auto", meta_fields_to_embed: list[str] | None = None
    ) -> None:
        # component() makes another class, which super() would not know.
        _Embedder.__init__(self, encoder, device)
        self.meta_fields_to_embed = meta_fields_to_embed

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return copies of the documents with their vectors: {"documents": [...]}."""
        fields = self.meta_fields_to_embed or []
        texts = [
            " ".join(str(part) for part in [*map(document.meta.get, fields), document.content] if part)
            for document in documents
        ]
        embeddings = _embeddings(self.loaded.encode_document(texts))
        return {
            "documents": [
                replace(document, sparse_embedding=embedding)
                for document, embedding in zip(documents, embeddings, strict=True)
            ]
        }


def _embeddings(batch: SparseBatch) -> list[SparseEmbedding]:
    return [SparseEmbedding(columns.tolist(), weights.tolist()) for columns, weights in batch.rows()]
