"""What an index must know of its documents, noted and checked while an engine reads them, whichever engine it is."""

import re
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np

from milco_pyserini.console import Progress
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.index.protocol import Store
from milco_pyserini.sparse import SparseBatch

# Lucene's limits. They hold for every engine: what one of them takes, the others take too.
MAX_ID_BYTES = 32_766
MAX_IMPACTS = 2**31 - 1

_SPACE = re.compile(r"\s")


class Census:
    """A store that counts its documents as they are read, and remembers 8 bytes of each id.

    A document that no index can hold ends the reading with a MilcoError, before an engine has seen it.
    """

    def __init__(self, store: Store, progress: Progress) -> None:
        self.id_with_space: str | None = None
        self.postings = 0
        self._store = store
        self._progress = progress
        self._hashes = array("q")

    @property
    def path(self) -> Path:
        """The store's."""
        return self._store.path

    @property
    def manifest(self) -> dict:
        """The store's."""
        return self._store.manifest

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

    def refuse_duplicates(self) -> None:
        """Raise MilcoError if two documents share an id: a ranking could not tell them apart."""
        hashes = np.sort(np.frombuffer(self._hashes, np.int64))
        twice = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        if not twice:
            return
        seen: set[str] = set()
        for name, _ in self._store.vectors():
            if _hash(name) in twice:
                if name in seen:
                    raise MilcoError(f"{self.path} holds two documents with the id {shown(name)}")
                seen.add(name)

    def _note(self, names: list[str]) -> None:
        for name in names:
            size = len(name.encode())
            if size > MAX_ID_BYTES:
                raise MilcoError(
                    f"document {shown(name)}: its id is {size:,} bytes long, an index takes up to {MAX_ID_BYTES:,}"
                )
            self._hashes.append(_hash(name))
            if self.id_with_space is None and _SPACE.search(name):
                self.id_with_space = name
        self._progress.add(len(names))


def _refuse_impacts(name: str, total: float) -> None:
    if total > MAX_IMPACTS:
        raise MilcoError(
            f"document {shown(name)}: its impacts add up to {total:,.0f}, an index takes up to {MAX_IMPACTS:,}: "
            "choose a smaller scale"
        )


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)
