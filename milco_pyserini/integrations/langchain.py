"""An index as a retriever of LangChain. langchain_qdrant and langchain_milvus have sparse vectors for its stores."""

from typing import Any

from milco_pyserini.errors import installed_by
from milco_pyserini.integrations.retrieval import find_documents
from milco_pyserini.search import Searcher

with installed_by("'.[langchain]'"):
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

__all__ = ["LangChainRetriever"]


class LangChainRetriever(BaseRetriever):
    """Searches an index. search_kwargs are of Searcher.search(). Metadata of a document: fields, title and score."""

    searcher: Searcher
    k: int = 10
    search_kwargs: dict[str, Any] = {}  # noqa: RUF012

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        found = find_documents(self.searcher, query, self.k, **self.search_kwargs)
        return [Document(text, id=docid, metadata=meta | {"score": score}) for docid, text, meta, score in found]
