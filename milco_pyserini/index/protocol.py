"""What an engine is: build an index of documents, open it, search it. Each says what its results are worth.

An engine also says what its queries are, and so what its documents are: terms with weights, dense vectors, or texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.index.errors import engine_errors
from milco_pyserini.sparse import SparseBatch

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document

# What a query is, and where documents come from. TERMS: {term: weight}, a Store. DENSE: float32 [d], a DenseStore.
# TEXT: a string, a TextStore.
TERMS = "terms"
DENSE = "dense"
TEXT = "text"


class Documents(Protocol):
    """What every kind of store says of itself."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def manifest(self) -> dict:
        """What it is."""


class Store(Documents, Protocol):
    """Documents as {term: weight}: a vector store, read once in either of two ways."""

    @property
    def terms(self) -> list[str]:
        """Term of each column; complete when batches() has ended."""

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Every document's id and {term: impact}, impacts >= 1."""

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Documents' ids and float weights."""


class DenseStore(Documents, Protocol):
    """Documents as dense vectors, all of the same length."""

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Documents' ids and float32 [ids, d]."""


class TextStore(Documents, Protocol):
    """Documents as texts. The manifest has the language of the texts as language."""

    def documents(self) -> "Iterator[Document]":
        """Every document."""


@dataclass(frozen=True)
class Hits:
    """What one query found, best first; ties stand in ascending order of docid.

    docids: k' strings, k' <= k. scores: float [k'], never increasing; > 0, unless the queries are dense.
    """

    docids: list[str]
    scores: NDArray[np.floating]

    def __len__(self) -> int:
        return len(self.docids)


@dataclass(frozen=True)
class Built:
    """What an index holds: documents that can be found; empty counts those without a term, left out."""

    documents: int
    empty: int


class Searcher:
    """An open index: what its engine makes of search(), which is for everyone else, is in find().

    engine: its name. documents: how many it holds.
    """

    def __init__(self, engine: str, path: Path, documents: int) -> None:
        self.engine = engine
        self.path = path
        self.documents = documents

    def search(self, queries: Sequence[Any], k: int, threads: int = 1) -> list[Hits]:
        """The k best documents for each query, in the order of the queries. A query is what the engine says of them.

        Terms that the index does not know find nothing; a query without terms has no hits. Where there are fewer than
        k documents, k is their number, however large it is. Raises MilcoError where the engine's library fails.
        """
        with engine_errors(self.engine, "search", self.path):
            return self.find(queries, min(k, self.documents), threads)

    def find(self, queries: Sequence[Any], k: int, threads: int) -> list[Hits]:
        """What search() promises, for 1 <= k <= documents."""
        raise NotImplementedError


class Engine(Protocol):
    """One way to index. name stands in the registry and in every index; exactness in every manifest.

    queries: TERMS, DENSE or TEXT.
    """

    name: str
    exactness: str
    queries: str

    def available(self) -> None:
        """Raise MilcoError, with what is missing and how to get it, if the engine cannot work here."""

    def build(self, store: Any, directory: Path, threads: int) -> Built:
        """Write the index of store, of the kind that queries says, into an empty directory."""

    def open(self, directory: Path, manifest: dict) -> Searcher:
        """Open what build() wrote. manifest: the index's own. Raises MilcoError if files are missing."""
