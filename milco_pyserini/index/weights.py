"""The numbers that an engine multiplies, and how much of a query a document matches."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.directory import Index
from milco_pyserini.index.protocol import EXACT_INTEGER, EngineSearcher
from milco_pyserini.sparse.quantization import quantize_vector


class TermImpacts:
    """The numbers that the engine of an open index multiplies: integers, or float32 weights.

    A score is the sum of query() x document() over the terms of both, in the order of document()'s terms.

    Attributes:
        scale: a document's number is its weight x scale, an integer unless scale is 1.
        unit: a score in these numbers is a score in weights x unit.
        is_readable: True if document() reads the index.
    """

    def __init__(self, searcher: EngineSearcher, index: Index) -> None:
        self._searcher = searcher
        self._is_integer = index.manifest.exactness == EXACT_INTEGER
        self._query_scale = index.manifest.query_scale
        self.scale = index.vectors.scale if self._is_integer else 1.0
        self.unit = self._query_scale * self.scale if self._is_integer else 1.0
        self.is_readable = Capability.READ in searcher.capabilities

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """Return a query's {term: weight} in the engine's numbers."""
        if self._is_integer:
            return dict(quantize_vector(vector, self._query_scale))
        return {term: float(np.float32(weight)) for term, weight in vector.items()}

    def document(self, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return the document's numbers for those of the terms that it has; None if they cannot be read."""
        return self._searcher.weights(docid, terms) if self.is_readable else None

    def round_score(self, total: float) -> float:
        """Return a sum in the precision of the engine's scores: sums of integers are float32, exact up to 2**24."""
        return float(np.float32(total)) if self._is_integer else total

    def matched_shares(self, vector: dict[str, float], docids: Sequence[str]) -> dict[str, float]:
        """Return matched_share() of the documents; missing ones are left out."""
        self._searcher.require_open()
        numbers = self.query(vector)
        weights = self._searcher.term_impacts(docids, list(numbers))
        return {docid: matched_share(numbers, terms) for docid, terms in weights.items()}


def matched_share(query: Mapping[str, float], document: Collection[str]) -> float:
    """Return the share of a query's weight that is on terms of a document, in [0, 1].

    Unlike a score, it does not grow with the query: a document that has few of a query's terms matches little of it.

    >>> matched_share({"river": 3.0, "long": 1.0}, ["river", "nile"])
    0.75

    Args:
        query: {term: weight}, > 0.
        document: its terms, or those that it shares with the query.
    """
    total = sum(query.values())
    return sum(weight for term, weight in query.items() if term in document) / total if total else 0.0
