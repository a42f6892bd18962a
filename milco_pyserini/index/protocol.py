"""What an engine is: build an index from a vector store, open it, search it. Each says what its results are worth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.sparse import SparseBatch


class Store(Protocol):
    """Where an engine gets its documents: a vector store, read once in either of two ways."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def manifest(self) -> dict:
        """What it is."""

    @property
    def terms(self) -> list[str]:
        """Term of each column; complete when batches() has ended."""

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Every document's id and {term: impact}, impacts >= 1."""

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Documents' ids and float weights."""


@dataclass(frozen=True)
class Hits:
    """What one query found, best first; ties stand in ascending order of docid.

    docids: k' strings, k' <= k. scores: float [k'], > 0, never increasing.
    """

    docids: list[str]
    scores: NDArray[np.floating]

    def __len__(self) -> int:
        return len(self.docids)


@dataclass(frozen=True)
class Built:
    """What an index holds: documents with at least one term; empty counts the documents without, left out."""

    documents: int
    empty: int


class Searcher(Protocol):
    """An index that is open."""

    def search(self, queries: Sequence[dict[str, float]], k: int, threads: int = 1) -> list[Hits]:
        """The k best documents for each {term: weight}, in the order of the queries.

        Terms that the index does not know find nothing; a query without terms has no hits.
        """


class Engine(Protocol):
    """One way to index. name stands in the registry and in every index; exactness in every manifest."""

    name: str
    exactness: str

    def available(self) -> None:
        """Raise MilcoError, with what is missing and how to get it, if the engine cannot work here."""

    def build(self, store: Store, directory: Path, threads: int) -> Built:
        """Write the index of store into an empty directory."""

    def open(self, directory: Path, manifest: dict) -> Searcher:
        """Open what build() wrote. manifest: the index's own. Raises MilcoError if files are missing."""
