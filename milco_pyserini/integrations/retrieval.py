"""Search for the retrievers of frameworks, whose documents have texts."""

from typing import Any

from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.search import Searcher


def find_documents(searcher: Searcher, text: str, k: int, **options: Any) -> list[tuple[Document, float]]:
    """Return the k best documents for a text and their scores, best first.

    Args:
        searcher: an open index.
        options: of Searcher.search(), such as filters and alpha.

    Raises:
        MilcoError: the text of a document is not available, or as Searcher.search() does.
    """
    found = []
    for hit in searcher.search(text, k, **options):
        if hit.document is None:
            raise MilcoError(
                f"the text of {shown(hit.docid)} is not available: open the searcher with `corpus`, or build the index "
                "with `store_documents=True`"
            )
        found.append((hit.document, hit.score))
    return found


def metadata(document: Document) -> dict[str, Any]:
    """Return the fields of a document and its title, if it has one."""
    return {**document.fields, "title": document.title} if document.title else dict(document.fields)
