"""MILCO in LangChain: an index as a retriever.

    from milco_pyserini import Searcher
    from milco_pyserini.integrations.langchain import LangChainRetriever

    retriever = LangChainRetriever(searcher=Searcher.open("indexes/sample.lucene"), k=5)
    documents = retriever.invoke("Wer erfand das Telefon?")

Sparse vectors for LangChain's own stores: langchain_qdrant and langchain_milvus.
"""

from typing import Any

from milco_pyserini.errors import MilcoError
from milco_pyserini.integrations.retrieval import find_documents, metadata
from milco_pyserini.search import Searcher

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ModuleNotFoundError:
    raise MilcoError("LangChain is not installed", "Run pip install '.[langchain]'") from None


class LangChainRetriever(BaseRetriever):
    """Searches an index of any engine. A document has the docid as its id, and its fields, title and score as metadata.

    Args:
        searcher: an open index; several retrievers and threads may share it.
        k: documents per query.
        search_kwargs: further arguments of Searcher.search(), such as {"filters": {"lang": "de"}, "alpha": 0.8}.
    """

    searcher: Searcher
    k: int = 10
    search_kwargs: dict[str, Any] = {}  # noqa: RUF012

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        """Return the best documents. Raises MilcoError as find_documents() does."""
        return [
            Document(document.contents, id=document.id, metadata={**metadata(document), "score": score})
            for document, score in find_documents(self.searcher, query, self.k, **self.search_kwargs)
        ]
