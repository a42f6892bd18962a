"""What an index must know of its documents' ids, noted while an engine reads them."""

import re
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np

from milco_pyserini.console import Progress
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.protocol import Store
from milco_pyserini.sparse import SparseBatch

_SPACE = re.compile(r"\s")


class Census:
    """A store that counts its documents as they are read, and remembers 8 bytes of each id."""

    def __init__(self, store: Store, progress: Progress) -> None:
        self.id_with_space: str | None = None
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
            yield name, vector

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """The store's, counted."""
        for names, batch in self._store.batches():
            self._note(names)
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
                    raise MilcoError(f"{self.path} holds two documents with the id {name!r}")
                seen.add(name)

    def _note(self, names: list[str]) -> None:
        for name in names:
            self._hashes.append(_hash(name))
            if self.id_with_space is None and _SPACE.search(name):
                self.id_with_space = name
        self._progress.add(len(names))


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)
