"""A SAP teacher without a download: English targets from idf-weighted tokens."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from milco_pyserini.console import Progress
from milco_pyserini.corpora.bitext import BitextPair
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse.stop_words import STOP_WORDS

# Enough for document frequencies, in half a minute.
MAX_TEXTS = 1_000_000

_MAX_WEIGHT = 1.1
_IDF_SCALE, _IDF_POWER = 9.0, 0.7
_REPETITION = 0.3
_UNSEEN = 3
_BATCH = 1000
# Word-initial marks of tokenizers other than WordPiece.
_WORD_STARTS = "▁Ġ"


class LexicalTeacher:
    """Weights an English text's own tokens by 1.1 (idf / 9)^.7 (1 + .3 log tf), in LogSat scale.

    Args:
        tokenizer: English tokenizer, whose tokens are the columns.
        weights: float32 [V_e], LogSat scale, >= 0: weight of a token that occurs once.
        max_length: tokens read per text.

    Raises:
        MilcoError: sizes differ.
    """

    def __init__(self, tokenizer: Tokenizer, weights: NDArray[np.float32], max_length: int = 256) -> None:
        self.tokenizer = _plain_copy(tokenizer)
        # English tokens, in the order of the target's columns.
        self.vocabulary = _vocabulary(self.tokenizer)
        self.weights = np.asarray(weights, np.float32)
        self.max_length = max_length
        size = len(self.vocabulary)
        if self.weights.shape != (size,):
            raise MilcoError(
                f"weights of shape {self.weights.shape}: a lexical teacher of {size} tokens needs ({size},)"
            )

    @classmethod
    def fit(cls, texts: Iterable[str], english_tokenizer: Tokenizer, max_length: int = 256) -> "LexicalTeacher":
        """Compute the weights from document frequencies, in one pass over at most MAX_TEXTS English texts.

        Special tokens, punctuation and STOP_WORDS have weight 0. Raises MilcoError if the texts are too few to give
        any token a weight.
        """
        tokenizer = _plain_copy(english_tokenizer)
        frequency = np.zeros(tokenizer.get_vocab_size(), np.int64)
        progress = Progress("English texts")
        texts = itertools.islice(texts, MAX_TEXTS)
        while batch := list(itertools.islice(texts, _BATCH)):
            for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                frequency[list(set(encoding.ids))] += 1
            progress.add(len(batch))
        progress.close("Counted document frequencies")
        idf = np.log((progress.done + 1) / (frequency + _UNSEEN))
        weights = _MAX_WEIGHT * (np.maximum(idf, 0) / _IDF_SCALE) ** _IDF_POWER
        special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
        for column, token in enumerate(_vocabulary(tokenizer)):
            word = token.lstrip(_WORD_STARTS)
            if token in special or word.lower() in STOP_WORDS or not any(map(str.isalnum, word)):
                weights[column] = 0
        if not weights.any():
            raise MilcoError(f"a lexical teacher needs thousands of English texts, not {progress.done}")
        return cls(tokenizer, weights.astype(np.float32), max_length)

    def prepare(self, pairs: Sequence[BitextPair]) -> dict[str, Tensor]:
        """Return columns, int64 [B, K], and weights, float32 [B, K], LogSat scale, of B English sides.

        Rows are padded with column 0 at weight 0.
        """
        encodings = self.tokenizer.encode_batch_fast([pair.english for pair in pairs], add_special_tokens=False)
        rows = [self.terms(encoding.ids[: self.max_length]) for encoding in encodings]
        sides = (map(torch.from_numpy, side) for side in zip(*rows, strict=True))
        columns, weights = (pad_sequence(list(side), batch_first=True) for side in sides)
        return {"columns": columns, "weights": weights}

    def terms(self, ids: list[int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the columns and weights of a text's token ids."""
        columns, repetitions = np.unique(np.asarray(ids, np.int64), return_counts=True)
        weighted = self.weights[columns] > 0
        columns, repetitions = columns[weighted], repetitions[weighted]
        weights = (1 + _REPETITION * np.log(repetitions)) * self.weights[columns]
        return columns, weights.astype(np.float32)

    def targets(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return float32 [B, V_e] on the device of the input: logits, >= 0, whose LogSat is the weight."""
        columns, weights = prepared["columns"], prepared["weights"]
        pooled = weights.new_zeros(len(columns), len(self.weights))
        return pooled.scatter_reduce_(1, columns, weights, "amax").expm1_()


def _plain_copy(tokenizer: Tokenizer) -> Tokenizer:
    """Copy a tokenizer without truncation and padding."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _vocabulary(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())]
