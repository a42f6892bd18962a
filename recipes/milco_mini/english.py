"""Pivot weights of English texts: a lexical teacher.

A token's weight is its saturated idf, and somewhat more if it is repeated; stop words and punctuation have weight 0.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from tokenizers import Tokenizer

from . import corpus

_SPECIALS = 5
_SENTENCE_END = re.compile(r"(?<=[.!?]) ")
_LARGEST_WEIGHT = 1.1
_IDF_SCALE, _IDF_POWER = 9.0, 0.7
_REPETITION = 0.3


class EnglishTerms:
    """English tokens with their weights. weights: float32 [V_e], LogSat scale, 0 for stop words."""

    def __init__(self, tokenizer: Path, weights: NDArray[np.float32] | None = None) -> None:
        self.tokenizer = Tokenizer.from_file(str(tokenizer))
        self.size = self.tokenizer.get_vocab_size()
        tokens = [self.tokenizer.id_to_token(i) for i in range(self.size)]
        self.silent = np.array(
            [
                i < _SPECIALS or token in corpus.STOP_WORDS or not any(map(str.isalnum, token))
                for i, token in enumerate(tokens)
            ]
        )
        self.weights = np.zeros(self.size, np.float32) if weights is None else weights

    def pieces(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of each text's tokens that have a weight, in order and with repetitions."""
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [[i for i in e.ids if not self.silent[i]] for e in encoded]

    def count(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Count tokens: float32 [texts, V_e]."""
        rows = self.pieces(texts)
        ends = np.cumsum([0] + [len(row) for row in rows])
        columns = np.concatenate([np.asarray(row, np.int32) for row in rows]) if ends[-1] else np.empty(0, int)
        counts = sp.csr_matrix((np.ones(ends[-1], np.float32), columns, ends), (len(rows), self.size))
        counts.sum_duplicates()
        return counts

    def bag(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Return the teacher's weights, float32 [texts, V_e], LogSat scale."""
        bags = self.count(texts)
        bags.data = (1 + _REPETITION * np.log(bags.data)) * self.weights[bags.indices]
        bags.eliminate_zeros()
        return bags


def measure_weights(data: Path, tokenizer: Path) -> NDArray[np.float32]:
    """Return token weights from document frequencies over English sentences: 1.1 (idf / 9) ^ .7."""
    terms = EnglishTerms(tokenizer)
    sentences = dict.fromkeys(corpus.english_sentences(data))
    for passage in corpus.passages(data, "en"):
        sentences.update(dict.fromkeys(_SENTENCE_END.split(passage)))
    frequency = terms.count(list(sentences)).getnnz(axis=0)
    idf = np.log((len(sentences) + 1) / (frequency + 3))
    weights = _LARGEST_WEIGHT * (np.maximum(idf, 0) / _IDF_SCALE) ** _IDF_POWER
    return np.where(terms.silent, 0, weights).astype(np.float32)
