"""Find which documents of a vector store differ from those of an older one."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from milco_pyserini.sparse.store import VectorStore


class OlderVectors:
    """Digests of the vectors of an older store: a newer one asks for each of its documents, and deletes the rest.

    Args:
        vectors: ids and {term: impact}; documents without terms are in no index.

    Attributes:
        empty: number of documents without terms.
    """

    def __init__(self, vectors: Iterable[tuple[str, Mapping[str, int]]]) -> None:
        self.empty = 0
        self._digests: dict[str, int] = {}
        for docid, vector in vectors:
            if vector:
                self._digests[docid] = _digest(vector)
            else:
                self.empty += 1

    def is_same(self, docid: str, vector: Mapping[str, int]) -> bool:
        """Return whether a document has this vector in the older store; ask once for each."""
        return self._digests.pop(docid, None) == _digest(vector)

    def remaining(self) -> list[str]:
        """Return the ids that have not been asked for, sorted."""
        return sorted(self._digests)


def differing_parts(one: VectorStore, other: VectorStore) -> tuple[VectorStore, VectorStore]:
    """Return both stores without the parts that they share, by checksum: the documents of these do not differ."""
    checksums = [{part.get("checksum") for part in store.manifest["parts"]} for store in (one, other)]
    shared = checksums[0] & checksums[1] - {None}

    def differing(store: VectorStore) -> VectorStore:
        parts = [part for part in store.manifest["parts"] if part.get("checksum") not in shared]
        return replace(store, manifest=store.manifest | {"parts": parts})

    return differing(one), differing(other)


def _digest(vector: Mapping[str, int]) -> int:
    return hash((*vector.keys(), *vector.values()))
