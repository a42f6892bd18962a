"""Train the rows of a query table: a Poisson regression of query vectors on the tokens of texts, by EM, in numpy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.batch import row_pointers

# A text, and the text that is encoded for it: itself, or its English translation.
TextPair = tuple[str, str]
# Texts with different vectors in which a pair of tokens has to occur to have a row of its own.
LEAST = 3
# Pivot terms of a text's vector that are fitted, the strongest.
TERMS = 16
_ITERATIONS = 6
# Texts as many as which a token's own vector counts, and the share of that vector in a text of several tokens.
_PRIOR, _SHARE = 1.0, 0.3


@dataclass(frozen=True)
class Units:
    """What has a row: every token, then pairs of adjacent tokens.

    Args:
        num_tokens: number of tokens.
        pairs: first id x num_tokens + second id of each pair, ascending: int64 [P].
    """

    num_tokens: int
    pairs: NDArray[np.int64]

    def __len__(self) -> int:
        return self.num_tokens + len(self.pairs)

    @classmethod
    def frequent(cls, num_tokens: int, rows: Sequence[Sequence[int]], vector_of: NDArray[np.int64]) -> Self:
        """Return the units of texts: the pairs that occur in texts with LEAST different vectors.

        Args:
            rows: token ids of texts.
            vector_of: number of the vector of each text: int64 [T].
        """
        texts, pairs = cls(num_tokens, np.empty(0, np.int64))._adjacent(rows)
        distinct = np.unique(np.stack([pairs, vector_of[texts]], axis=1), axis=0)[:, 0]
        found, counts = np.unique(distinct, return_counts=True)
        return cls(num_tokens, found[counts >= LEAST])

    def of(self, rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the units of texts, each once in a text: numbers of texts, ascending, and of units, int64 [n] each."""
        texts, pairs = self._adjacent(rows)
        places = np.searchsorted(self.pairs, pairs)
        is_unit = np.append(self.pairs, -1)[places] == pairs
        ids = np.fromiter(chain.from_iterable(rows), np.int64)
        tokens = np.repeat(np.arange(len(rows)), list(map(len, rows))) * len(self) + ids
        keys = np.unique(np.append(tokens, texts[is_unit] * len(self) + self.num_tokens + places[is_unit]))
        return keys // len(self), keys % len(self)

    def _adjacent(self, rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the text and the two ids of all adjacent tokens."""
        ids = np.fromiter(chain.from_iterable(rows), np.int64)
        texts = np.repeat(np.arange(len(rows)), list(map(len, rows)))
        places = np.flatnonzero(texts[1:] == texts[:-1])
        return texts[places], ids[places] * self.num_tokens + ids[places + 1]


def fit_rows(
    units: Units,
    rows: Sequence[Sequence[int]],
    vectors: SparseBatch,
    vector_of: NDArray[np.int64],
    alone: SparseBatch,
) -> SparseBatch:
    """Return the pivot terms of every unit whose sums over a text's units are near the text's vector.

    The sum minimizes the generalized KL divergence from the vectors, which has the L1 norm of the sums as a term. Each
    iteration divides a term's weight among the units of a text in proportion to their rows, and a row becomes the mean
    of what its unit received (EM of a Poisson regression). So what a word means goes to its tokens, and the tokens of
    any text get almost nothing. A token's own vector counts as much as _PRIOR texts.

    Args:
        rows: token ids of T texts, without special tokens.
        vectors: pivot terms of V different texts.
        vector_of: which of them stands for each text: int64 [T].
        alone: pivot terms of each token alone.
    """
    size = vectors.english_size
    # An entry is a unit of a text and a term of the text's vector: its cell is of the rows, its slot of the texts.
    texts, numbers = units.of(rows)
    counts = vectors.lengths()[vector_of]
    starts, slots = vectors.indptr[:-1][vector_of], row_pointers(counts)
    lengths = counts[texts]
    offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = offsets + np.repeat(starts[texts], lengths)
    slot = offsets + np.repeat(slots[:-1][texts], lengths)
    keys = np.repeat(numbers, lengths) * size + vectors.columns[places]
    weights = vectors.weights[places]
    del offsets, places
    own = alone.row_numbers() * size + alone.columns
    cells, cell = np.unique(np.append(keys, own), return_inverse=True)
    cell, own_cell = cell[: len(keys)].astype(np.int32), cell[len(keys) :]
    del keys
    unit, term = cells // size, cells % size
    occurrences = np.bincount(numbers, minlength=len(units))[unit]
    prior: NDArray[np.float64] = np.bincount(own_cell, _SHARE * alone.weights, len(cells))
    # A term that is more frequent with a unit than without belongs to it.
    together = np.bincount(cell, weights, len(cells))
    mean = np.bincount(term, together, size) / max(len(rows), 1)
    means = together / np.maximum(occurrences, 1)
    row = means * means / np.maximum(mean[term], 1e-6) + _PRIOR * prior
    seen = _PRIOR * (unit < units.num_tokens) + occurrences
    for _ in range(_ITERATIONS):
        sums = np.bincount(slot, row[cell], slots[-1])
        shares = row[cell] / np.maximum(sums[slot], 1e-9) * weights
        row = (np.bincount(cell, shares, len(cells)) + _PRIOR * prior) / seen
    indptr = row_pointers(np.bincount(unit, minlength=len(units)))
    fitted = SparseBatch(indptr, term.astype(np.int32), row.astype(np.float32), size)
    return fitted.where(fitted.weights > 0)
