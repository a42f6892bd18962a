"""What an index must know of its documents, noted and checked while an engine reads them, whichever engine it is."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Progress
from milco_pyserini.corpora.records import MAX_ID_BYTES, SeenIds
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.index.protocol import DENSE, TERMS, TEXT, Documents
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.quantization import SCALE

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document

# Lucene's limit. It holds for all engines, so that they accept the same documents.
MAX_IMPACTS = 2**31 - 1

_SPACE = re.compile(r"\s")


class _Count:
    """A store that counts its documents as they are read, and remembers 8 bytes of each id.

    A document that no index can hold ends the reading with a MilcoError, before an engine has seen it.
    """

    def __init__(self, store: Documents, progress: Progress) -> None:
        self.id_with_space: str | None = None
        self._store: Any = store
        self._progress = progress
        self._seen = SeenIds()

    @property
    def path(self) -> Path:
        """The store's."""
        return self._store.path

    @property
    def manifest(self) -> dict:
        """The store's."""
        return self._store.manifest

    def described(self) -> dict[str, Any]:
        """What the index's manifest says of the documents, when all have been read."""
        raise NotImplementedError

    def refuse_duplicates(self) -> None:
        """Raise MilcoError if two documents share an id: a ranking could not tell them apart."""
        duplicate = self._seen.find_duplicate(lambda: ((name, place) for place, name in enumerate(self._ids())))
        if duplicate is not None:
            raise MilcoError(f"{self.path} holds two documents with the id {shown(duplicate.id)}")

    def _ids(self) -> Iterator[str]:
        raise NotImplementedError

    def _note(self, names: list[str]) -> None:
        for name in names:
            size = len(name.encode())
            if size > MAX_ID_BYTES:
                raise MilcoError(
                    f"document {shown(name)}: its id is {size:,} bytes long, an index takes up to {MAX_ID_BYTES:,}"
                )
            self._seen.add(name)
            if self.id_with_space is None and _SPACE.search(name):
                self.id_with_space = name
        self._progress.add(len(names))


class Census(_Count):
    """A Store, counted."""

    def __init__(self, store: Documents, progress: Progress) -> None:
        super().__init__(store, progress)
        self.postings = 0

    @property
    def terms(self) -> list[str]:
        """The store's."""
        return self._store.terms

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """The store's, counted."""
        for name, vector in self._store.vectors():
            self._note([name])
            _refuse_impacts(name, sum(vector.values()))
            self.postings += len(vector)
            yield name, vector

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """The store's, counted."""
        scale = self.manifest["scale"]
        for names, batch in self._store.batches():
            self._note(names)
            sums = np.bincount(batch.row_numbers(), np.rint(batch.weights * np.float64(scale)), len(names))
            for row in np.flatnonzero(sums > MAX_IMPACTS):
                _refuse_impacts(names[row], sums[row])
            self.postings += len(batch.columns)
            yield names, batch

    def described(self) -> dict[str, Any]:
        """Postings, the scale of queries, and the vectors' own manifest."""
        # Others' whole numbers do not say their scale: for a ranking, any that is fine enough will do.
        scale = SCALE if self.manifest.get("plain") else self.manifest["scale"]
        return {"postings": self.postings, "query_scale": scale, "vectors": self.manifest}

    def _ids(self) -> Iterator[str]:
        return (name for name, _ in self._store.vectors())


class DenseCensus(_Count):
    """A DenseStore, counted."""

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """The store's, counted."""
        for names, vectors in self._store.batches():
            self._note(names)
            yield names, vectors

    def described(self) -> dict[str, Any]:
        """The vectors' own manifest."""
        return {"vectors": self.manifest}

    def _ids(self) -> Iterator[str]:
        return (name for names, _ in self._store.batches() for name in names)


class TextCensus(_Count):
    """A TextStore, counted."""

    def documents(self) -> "Iterator[Document]":
        """The store's, counted."""
        for document in self._store.documents():
            self._note([document.id])
            yield document

    def described(self) -> dict[str, Any]:
        """What the texts are."""
        return {"texts": self.manifest}

    def _ids(self) -> Iterator[str]:
        return (document.id for document in self._store.documents())


_KINDS: dict[str, type[_Count]] = {TERMS: Census, DENSE: DenseCensus, TEXT: TextCensus}


def count_in(queries: str, store: Documents, progress: Progress) -> _Count:
    """The census of a store for an engine with these queries: TERMS, DENSE or TEXT."""
    return _KINDS[queries](store, progress)


def _refuse_impacts(name: str, total: float) -> None:
    if total > MAX_IMPACTS:
        raise MilcoError(
            f"document {shown(name)}: its impacts add up to {total:,.0f}, an index takes up to {MAX_IMPACTS:,}: "
            "choose a smaller scale"
        )
