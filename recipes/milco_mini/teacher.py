"""The teacher of milco-mini's SAP: the word translation table, applied to both sides of a pair.

A network that starts as the token table knows a word of several tokens only by its parts; the word table knows the
word, and teaches the network to read it. The English side disambiguates: a term of both sides keeps its weight, a term
of one side has half of it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from milco_pyserini.train.data.bitext import BitextPair

from .words import WordTable

# Lower weights are dropped: they are many, and worth little.
_LEAST_WEIGHT = 0.08


class WordTeacher:
    """An AlignmentTeacher over the directory of the stages."""

    def __init__(self, work: Path) -> None:
        self._words = WordTable(work, fallback=True)
        self.vocabulary = self._words.vocabulary

    def prepare(self, pairs: Sequence[BitextPair]) -> dict[str, Tensor]:
        """Return columns, int64 [B, K], and weights, float32 [B, K], LogSat scale, padded with weight 0."""
        mean = (self._foreign(pairs) + self._words.read_english([pair.english for pair in pairs])).tocsr() / 2
        mean.data[mean.data < _LEAST_WEIGHT] = 0
        mean.eliminate_zeros()
        counts = np.diff(mean.indptr)
        columns = torch.zeros(len(pairs), max(1, counts.max()), dtype=torch.int64)
        weights = torch.zeros(columns.shape)
        for row, (start, end) in enumerate(zip(mean.indptr[:-1], mean.indptr[1:], strict=True)):
            columns[row, : end - start] = torch.from_numpy(mean.indices[start:end].astype(np.int64))
            weights[row, : end - start] = torch.from_numpy(mean.data[start:end].astype(np.float32))
        return {"columns": columns, "weights": weights}

    def targets(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return float32 [B, V_e]: logits whose LogSat is the weight."""
        columns, weights = prepared["columns"], prepared["weights"]
        pooled = weights.new_zeros(len(columns), len(self.vocabulary))
        return pooled.scatter_reduce_(1, columns, weights, "amax").expm1_()

    def _foreign(self, pairs: Sequence[BitextPair]) -> sp.csr_matrix:
        """Encode the foreign sides by their words, language by language: [B, V_e]."""
        places: dict[str, list[int]] = {}
        for place, pair in enumerate(pairs):
            places.setdefault(pair.language, []).append(place)
        rows = [self._words.encode(name, [pairs[p].text for p in found]) for name, found in places.items()]
        order = [place for found in places.values() for place in found]
        return sp.vstack(rows).tocsr()[np.argsort(order)]
