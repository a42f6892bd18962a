"""Train the rows of a query table: the mean vectors of the texts in which a token, or a pair of tokens, is."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.sparse import PIVOT, SparseBatch
from milco_pyserini.sparse.pruning import PruningRule

# A text, and the text that is encoded for it: itself, or its English translation.
TextPair = tuple[str, str]
# A pair of tokens has a row if it occurs in at least this many texts with different vectors.
LEAST = 3
# The vector of a token alone counts as much as this many texts, and is this share of it in a text.
_PRIOR, _SHARE = 6.0, 0.5
# The mean of all texts is subtracted this many times.
_LIFT = 6.0
# Units at a time.
_BLOCK = 4096


@dataclass(frozen=True)
class Units:
    """The units that have rows: every token, then pairs of adjacent tokens.

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

    def pool(self, vectors: SparseBatch, rows: Sequence[Sequence[int]]) -> SparseBatch:
        """Return the largest weight of each term in the rows of each text's units. vectors: the row of each unit."""
        texts, units = self.of(rows)
        found = vectors.take(units)
        texts = np.repeat(texts, found.lengths())
        return SparseBatch.from_maxima(texts, found.columns, found.weights, len(rows), vectors.english_size)

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
    top_k: int,
) -> SparseBatch:
    """Return the row of every unit: the mean vector of the texts that have it, with at most top_k pivot terms.

    The mean of all texts is subtracted _LIFT times: the rows of words that are in every text become empty.
    A token's own vector counts as much as _PRIOR texts.

    Args:
        rows: token ids of T texts, without special tokens.
        vectors: of V different texts.
        vector_of: which of them is that of each text: int64 [T].
        alone: pivot terms of each token alone.
    """
    from scipy.sparse import coo_array, csr_array, diags_array

    targets, size = vectors.view(PIVOT).to_scipy(), vectors.english_size
    texts, numbers = units.of(rows)
    # Translations of one text count once.
    keys = np.unique(numbers * len(vectors) + vector_of[texts])
    members = csr_array(
        (np.ones(len(keys), np.float32), (keys // len(vectors), keys % len(vectors))), (len(units), len(vectors))
    )
    everywhere = _LIFT * targets.mean(axis=0)
    prior = csr_array((_PRIOR * _SHARE * alone.weights, alone.columns, alone.indptr), (len(alone), targets.shape[1]))
    prior.resize((len(units), targets.shape[1]))
    strongest, parts = PruningRule("top-k", top_k, PIVOT), []
    for start in range(0, len(units), _BLOCK):
        block = slice(start, start + _BLOCK)
        counts = members[block].sum(axis=1)
        sums = coo_array(members[block] @ targets)
        excess = sums.data - counts[sums.row] * everywhere[sums.col]
        kept = excess > 0
        sums = csr_array((excess[kept], (sums.row[kept], sums.col[kept])), sums.shape)
        means = diags_array(1 / (counts + _PRIOR)) @ (sums + prior[block])
        parts.append(strongest(SparseBatch.from_scipy(means, english_size=size)))
    return SparseBatch.concatenate(parts, size)
