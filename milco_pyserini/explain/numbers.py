"""The numbers that an engine multiplies and adds up, read out of its index: the parts of a score, no second guess."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np

from milco_pyserini.index import Index
from milco_pyserini.index.exact import ExactSearcher
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.sparse.quantization import quantize_vector


class Numbers(Protocol):
    """A score = the sum of query() x document() over the terms of both, in the order of document()'s terms.

    scale: a document's number = its weight x scale, a whole number unless scale is 1. unit: a score in these numbers
    = a score in weights x unit. in_index: whether document() can read the index.
    """

    scale: float
    unit: float
    in_index: bool

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """A query's {term: weight} as the engine takes it."""

    def document(self, docid: str, terms: Sequence[str]) -> dict[str, float] | None:
        """Those of the terms that a document has, with its numbers; None if the index has no such document."""

    def rounded(self, total: float) -> float:
        """A sum in the precision of the engine's scores."""


class LuceneNumbers:
    """Whole numbers; a document's are the frequencies in its postings. Sums are float32 when they leave Lucene."""

    in_index = True

    def __init__(self, index: Index) -> None:
        from jnius import autoclass, cast

        self._query_scale = index.query_scale
        self.scale = index.vectors["scale"]
        self.unit = index.query_scale * self.scale
        path = autoclass("java.nio.file.Paths").get(str(index.path))
        files = autoclass("org.apache.lucene.store.FSDirectory").open(path)
        self._reader = cast(
            "org.apache.lucene.index.IndexReader", autoclass("org.apache.lucene.index.DirectoryReader").open(files)
        )
        self._terms = autoclass("org.apache.lucene.index.MultiTerms")
        self._bytes = autoclass("org.apache.lucene.util.BytesRef")

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """Impacts >= 1."""
        return dict(quantize_vector(vector, self._query_scale))

    def document(self, docid: str, terms: Sequence[str]) -> dict[str, float] | None:
        """Impacts >= 1."""
        found = self._postings("id", docid)
        if found is None:
            return None
        number = found.nextDoc()
        impacts: dict[str, float] = {}
        for term in terms:
            postings = self._postings("contents", term)
            if postings is not None and postings.advance(number) == number:
                impacts[term] = postings.freq()
        return impacts

    def rounded(self, total: float) -> float:
        """The nearest float32: exact up to 2**24."""
        return float(np.float32(total))

    def _postings(self, field: str, term: str) -> Any:
        return self._terms.getTermPostingsEnum(self._reader, field, self._bytes(term.encode()))


class ExactNumbers:
    """Float32 weights; products and sums are float64, term after term in the order of the index's columns."""

    scale = unit = 1.0
    in_index = True

    def __init__(self, searcher: ExactSearcher) -> None:
        self._ids = searcher.ids
        self._columns = searcher.columns
        self._matrix = searcher.matrix()

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """Float32 values."""
        return {term: float(np.float32(weight)) for term, weight in vector.items()}

    def document(self, docid: str, terms: Sequence[str]) -> dict[str, float] | None:
        """Float32 values, in the order of columns."""
        row = bisect_left(range(len(self._ids)), docid, key=self._id)
        if row == len(self._ids) or self._id(row) != docid:
            return None
        matrix, weights = self._matrix, {}
        for column, term in sorted((self._columns[term], term) for term in terms if term in self._columns):
            span = slice(matrix.indptr[column], matrix.indptr[column + 1])
            rows = matrix.indices[span]
            place = int(np.searchsorted(rows, row))
            if place < len(rows) and rows[place] == row:
                weights[term] = float(matrix.data[span][place])
        return weights

    def rounded(self, total: float) -> float:
        """As it is."""
        return total

    def _id(self, row: int) -> str:
        return self._ids.take(np.array([row]))[0]


class FloatNumbers:
    """Weights as they are, for an engine whose postings cannot be read: a document's come from elsewhere."""

    scale = unit = 1.0
    in_index = False

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """The vector."""
        return vector

    def document(self, docid: str, terms: Sequence[str]) -> dict[str, float] | None:
        """Not known."""
        return None

    def rounded(self, total: float) -> float:
        """As it is."""
        return total


def open_numbers(index: Index, searcher: EngineSearcher) -> Numbers:
    """The numbers of an index that is open as searcher."""
    if index.engine.name == "lucene":
        return LuceneNumbers(index)
    if index.engine.name == "exact":
        return ExactNumbers(cast(ExactSearcher, searcher))
    return FloatNumbers()
