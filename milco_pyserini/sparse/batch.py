"""Sparse term vectors of a batch of texts, as compressed rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.errors import MilcoError, shown, unknown_name
from milco_pyserini.sparse.vocabulary import Vocabulary

PIVOT = "pivot"
SOURCE = "source"
VIEWS = (PIVOT, SOURCE)


@dataclass(frozen=True)
class SparseBatch:
    """B sparse vectors over a Vocabulary.

    indptr: int64 [B + 1], row i stands at indptr[i]:indptr[i + 1]. columns: int32 [n], ascending in a row.
    weights: float32 [n], > 0. english_size: columns below it are the pivot view, the others the source view.
    """

    indptr: NDArray[np.int64]
    columns: NDArray[np.int32]
    weights: NDArray[np.float32]
    english_size: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def row(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Columns and weights of one vector."""
        span = slice(self.indptr[index], self.indptr[index + 1])
        return self.columns[span], self.weights[span]

    def rows(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Columns and weights of every vector, in order."""
        for start, stop in zip(self.indptr[:-1].tolist(), self.indptr[1:].tolist(), strict=True):
            yield self.columns[start:stop], self.weights[start:stop]

    def lengths(self) -> NDArray[np.int64]:
        """Number of terms of each vector: int64 [B]."""
        return np.diff(self.indptr)

    def row_numbers(self) -> NDArray[np.int64]:
        """The row that each entry belongs to: int64 [n]."""
        return np.repeat(np.arange(len(self)), self.lengths())

    def where(self, keep: NDArray[np.bool_]) -> "SparseBatch":
        """The same vectors with only the entries that keep (bool [n]) marks."""
        counts = np.bincount(self.row_numbers()[keep], minlength=len(self))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return SparseBatch(indptr, self.columns[keep], self.weights[keep], self.english_size)

    def view(self, *views: str) -> "SparseBatch":
        """The same vectors with the entries of the named views alone. Raises MilcoError for an unknown view."""
        for view in views:
            if view not in VIEWS:
                raise unknown_name("view", view, VIEWS)
        pivot = self.columns < self.english_size
        return self.where((pivot & (PIVOT in views)) | (~pivot & (SOURCE in views)))

    def weighted(self, alpha: float) -> "SparseBatch":
        """The same vectors with alpha x their pivot weights and (1 - alpha) x their source weights, zeros left out.

        Raises MilcoError if alpha is not from 0 to 1.
        """
        if not 0 <= alpha <= 1:
            raise MilcoError(f"alpha {alpha} is not between 0 and 1")
        weights = self.weights * np.where(self.columns < self.english_size, alpha, 1 - alpha).astype(np.float32)
        return SparseBatch(self.indptr, self.columns, weights, self.english_size).where(weights > 0)

    def take(self, order: Sequence[int] | NDArray[np.int64]) -> "SparseBatch":
        """The vectors at the given positions, in the given order."""
        order = np.asarray(order, dtype=np.int64)
        lengths = self.lengths()[order]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[order] - indptr[:-1], lengths)
        return SparseBatch(indptr, self.columns[entries], self.weights[entries], self.english_size)

    def dot(self, other: "SparseBatch") -> NDArray[np.float32]:
        """Similarity of every vector here with every vector there: float32 [B, B']."""
        from scipy.sparse import csr_array

        width = int(max(self.columns.max(initial=0), other.columns.max(initial=0))) + 1
        left, right = (
            csr_array((part.weights, part.columns, part.indptr), shape=(len(part), width)) for part in (self, other)
        )
        return (left @ right.T).toarray()

    def to_dicts(self, vocabulary: Vocabulary) -> list[dict[str, float]]:
        """One {term: weight} for each vector."""
        terms = vocabulary.terms
        return [dict(zip(terms[columns].tolist(), weights.tolist(), strict=True)) for columns, weights in self.rows()]

    @classmethod
    def concatenate(cls, batches: Iterable["SparseBatch"], english_size: int) -> "SparseBatch":
        """The vectors of several batches, one after the other; of none, an empty batch."""
        parts = list(batches)
        lengths = np.concatenate([np.zeros(1, np.int64), *(part.lengths() for part in parts)])
        return cls(
            np.cumsum(lengths).astype(np.int64),
            np.concatenate([np.empty(0, np.int32), *(part.columns for part in parts)]),
            np.concatenate([np.empty(0, np.float32), *(part.weights for part in parts)]),
            english_size,
        )

    @classmethod
    def from_dicts(cls, vectors: Sequence[dict[str, float]], vocabulary: Vocabulary) -> "SparseBatch":
        """The batch of {term: weight} vectors. Raises KeyError for a term that is not in the vocabulary."""
        find = vocabulary.columns
        lengths = np.fromiter(map(len, vectors), np.int64, len(vectors))
        total = int(lengths.sum())
        columns = np.fromiter((find[term] for vector in vectors for term in vector), np.int32, total)
        weights = np.fromiter((w for vector in vectors for w in vector.values()), np.float32, total)
        order = np.lexsort((columns, np.repeat(np.arange(len(vectors)), lengths)))
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(indptr, columns[order], weights[order], vocabulary.english_size)


def validate_finite(
    weights: NDArray[np.float32], indptr: NDArray[np.int64], encoder: str, name: Callable[[int], str]
) -> None:
    """Raise MilcoError if a number of a vector is NaN or infinite.

    weights: float32 [n], row i at indptr[i]:indptr[i + 1]. name: what the text of a row is called.
    """
    if not np.isfinite(weights).all():
        place = int(np.flatnonzero(~np.isfinite(weights))[0])
        row = int(np.searchsorted(indptr, place, side="right")) - 1
        raise MilcoError(
            f"the vector of {shown(name(row))} has the weight {weights[place]}: weights must be finite. The weights of "
            f"{encoder} are damaged or too large: fetch or train it again"
        )
