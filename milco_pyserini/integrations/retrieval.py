"""Parts that the adapters to LangChain, LlamaIndex and Haystack share."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.contract import as_encoder
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import Message, MilcoError, shown
from milco_pyserini.search import Searcher


def find_documents(searcher: Searcher, text: str, k: int, **options: Any) -> list[tuple[str, str, dict, float]]:
    """Return id, text, metadata (fields and title) and score of the k best documents. options: of Searcher.search().

    Raises MilcoError if the text of a document is not available, or as Searcher.search() does.
    """
    hits = searcher.search(text, k, **options)
    if unavailable := [shown(hit.docid) for hit in hits if hit.document is None]:
        fix = Message("Build the index with {store_documents}.", store_documents=True)
        raise MilcoError(f"the text of {unavailable[0]} is not available", fix)
    return [(hit.docid, hit.text or "", hit.metadata, hit.score) for hit in hits]


@dataclass(eq=False)
class VectorAdapter:
    """Vectors for the store of a framework, with columns as indices: a collection needs one encoder.

    encoder: what load_encoder() accepts or returns; it is loaded with the first text.
    """

    encoder: str | os.PathLike | MilcoEncoder = DEFAULT_ENCODER
    device: str = "auto"
    # Returns the store's vector of columns and weights.
    vector: ClassVar[Callable[..., Any]]

    def embed_documents(self, texts: Sequence[str]) -> list[Any]:
        """Return the vector of each document."""
        rows = self._loaded.encode_document(texts).rows()
        return [self.vector(columns.tolist(), weights.tolist()) for columns, weights in rows]

    def embed_query(self, text: str) -> Any:
        """Return the vector of a query."""
        columns, weights = self._loaded.encode_query(text).row(0)
        return self.vector(columns.tolist(), weights.tolist())

    @cached_property
    def _loaded(self) -> MilcoEncoder:
        return as_encoder(self.encoder, self.device)
