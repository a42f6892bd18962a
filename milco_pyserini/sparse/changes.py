"""Find which documents of a vector store differ from those of an older one."""

from collections.abc import Iterable, Mapping


class OlderVectors:
    """Digests of the vectors of an older store: a newer one asks for each of its documents, and deletes the rest.

    Args:
        vectors: ids and {term: impact}; documents without terms are in no index.
    """

    def __init__(self, vectors: Iterable[tuple[str, Mapping[str, int]]]) -> None:
        self._digests = {docid: _digest(vector) for docid, vector in vectors if vector}

    def is_same(self, docid: str, vector: Mapping[str, int]) -> bool:
        """Return whether a document has this vector in the older store; ask once for each."""
        return self._digests.pop(docid, None) == _digest(vector)

    def remaining(self) -> list[str]:
        """Return the ids that have not been asked for, sorted."""
        return sorted(self._digests)


def _digest(vector: Mapping[str, int]) -> int:
    return hash((*vector.keys(), *vector.values()))
