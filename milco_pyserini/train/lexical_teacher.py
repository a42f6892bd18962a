"""English targets without a network: an idf-weighted bag of English pieces, expanded by paraphrases."""

import itertools
import zipfile
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.console import Progress
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file
from milco_pyserini.train.data.bitext import BitextPair

# Function words stand in every text and say nothing about it.
STOP_WORDS = frozenset(
    """a an the of and or in on at to for from by with as is are was were be been being am do does did done have
    has had having it its this that these those there here he she they them his her hers their him we us our you
    your i me my mine yours ours who whom whose which what when where why how not no nor so if then than too very
    can could will would shall should may might must just also but about into over under out up down off again
    only own same such s t d ll m re ve don didn doesn isn wasn aren won couldn shouldn wouldn o someone
    something oneself himself herself itself themselves yourself myself etc thou thee thy ye hath unto""".split()
)
# Enough for document frequencies, and half a minute's work.
MOST_TEXTS = 1_000_000

_LARGEST_WEIGHT = 1.1
_IDF_SCALE, _IDF_POWER = 9.0, 0.7
_REPETITION = 0.3
_UNSEEN = 3
_BATCH = 1000
# How other tokenizers than WordPiece mark that a piece begins a word.
_WORD_STARTS = "▁Ġ"
_WEIGHTS, _TOKENIZER, _PARAPHRASES = "weights", "tokenizer", ("indptr", "indices", "data")


class LexicalTeacher:
    """Weighs an English text by its own pieces: 1.1 (idf / 9)^.7 (1 + .3 log tf), LogSat scale.

    tokenizer: the English tokenizer, whose pieces are the columns. weights: float32 [V_e], LogSat scale, >= 0, the
    weight of a piece that occurs once. paraphrases: CSR [V_e, V_e] of shares in 0..1 or None; a text that holds
    piece i gets piece j with share[i, j] of j's weight, the largest where several give it. max_length: pieces of a
    text that are read. Raises MilcoError if the sizes differ or a share is out of range.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        weights: NDArray[np.float32],
        paraphrases: sp.csr_matrix | None = None,
        max_length: int = 256,
    ) -> None:
        self.tokenizer = _own_copy(tokenizer)
        self.weights = np.asarray(weights, np.float32)
        self.paraphrases = None if paraphrases is None else sp.csr_matrix(paraphrases, dtype=np.float32)
        self.max_length = max_length
        _check_sizes(self.tokenizer.get_vocab_size(), self.weights, self.paraphrases)

    @classmethod
    def fit(
        cls,
        texts: Iterable[str],
        english_tokenizer: Tokenizer,
        paraphrases: sp.csr_matrix | None = None,
        max_length: int = 256,
    ) -> "LexicalTeacher":
        """Take the weights from document frequencies, in one pass over at most MOST_TEXTS English texts.

        Special tokens, punctuation and STOP_WORDS weigh 0. Raises MilcoError if the texts are too few to give any
        piece a weight.
        """
        tokenizer = _own_copy(english_tokenizer)
        count, frequency = _document_frequency(itertools.islice(texts, MOST_TEXTS), tokenizer)
        idf = np.log((count + 1) / (frequency + _UNSEEN))
        weights = _LARGEST_WEIGHT * (np.maximum(idf, 0) / _IDF_SCALE) ** _IDF_POWER
        weights[_silent(tokenizer)] = 0
        if not weights.any():
            raise MilcoError(f"{count} English texts are too few for a lexical teacher: it wants thousands")
        return cls(tokenizer, weights.astype(np.float32), paraphrases, max_length)

    @classmethod
    def load(cls, path: Path, max_length: int = 256) -> "LexicalTeacher":
        """The teacher that save() wrote. Raises MilcoError if the file is absent, damaged or something else."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                weights = arrays[_WEIGHTS]
                tokenizer = Tokenizer.from_str(arrays[_TOKENIZER].tobytes().decode())
                parts = {name: arrays[name] for name in _PARAPHRASES if name in arrays}
        except FileNotFoundError:
            raise MilcoError(
                f"{path} is not there: make it with LexicalTeacher.fit(...).save(), or use the teacher lexical"
            ) from None
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise MilcoError(f"{path} is no lexical teacher: {error}") from None
        paraphrases = None
        if parts:
            size = len(weights)
            paraphrases = sp.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), (size, size))
        return cls(tokenizer, weights, paraphrases, max_length)

    def save(self, path: Path) -> None:
        """Write weights, tokenizer and paraphrases as one .npz file, whole or not at all."""
        arrays: dict[str, Any] = {
            _WEIGHTS: self.weights,
            _TOKENIZER: np.frombuffer(self.tokenizer.to_str().encode(), np.uint8),
        }
        if self.paraphrases is not None:
            arrays |= {name: getattr(self.paraphrases, name) for name in _PARAPHRASES}
        with atomic_file(path) as handle:
            np.savez_compressed(handle, **arrays)

    @cached_property
    def vocabulary(self) -> list[str]:
        """The English pieces, in the order of the target's columns."""
        return _pieces(self.tokenizer)

    def prepare(self, pairs: Sequence[BitextPair]) -> dict[str, Tensor]:
        """Pieces of B English sides and their weights: columns int64 [B, K], weights float32 [B, K], LogSat scale.

        Rows are filled up with column 0 at weight 0; a column may stand several times in a row.
        """
        encodings = self.tokenizer.encode_batch_fast([pair.english for pair in pairs], add_special_tokens=False)
        rows = [self._weigh(encoding.ids[: self.max_length]) for encoding in encodings]
        longest = max((len(columns) for columns, _ in rows), default=0)
        columns = torch.zeros(len(rows), longest, dtype=torch.int64)
        weights = torch.zeros(len(rows), longest, dtype=torch.float32)
        for row, (row_columns, row_weights) in enumerate(rows):
            columns[row, : len(row_columns)] = torch.from_numpy(row_columns)
            weights[row, : len(row_columns)] = torch.from_numpy(row_weights)
        return {"columns": columns, "weights": weights}

    def targets(self, prepared: dict[str, Tensor]) -> Tensor:
        """Float32 [B, V_e] on the device of what prepare() gave: logits, >= 0, the LogSat of which is the weight."""
        columns, weights = prepared["columns"], prepared["weights"]
        pooled = weights.new_zeros(len(columns), len(self.weights))
        return pooled.scatter_reduce_(1, columns, weights, "amax").expm1_()

    def _weigh(self, ids: list[int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        columns, repetitions = np.unique(np.asarray(ids, np.int64), return_counts=True)
        spoken = self.weights[columns] > 0
        columns, repetitions = columns[spoken], repetitions[spoken]
        weights = (1 + _REPETITION * np.log(repetitions)) * self.weights[columns]
        if self.paraphrases is not None:
            others = self.paraphrases[columns]
            columns = np.concatenate([columns, others.indices])
            weights = np.concatenate([weights, others.data * self.weights[others.indices]])
        return columns, weights.astype(np.float32)


def _own_copy(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without the truncation and padding that its file or another user may have set."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _pieces(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())]


def _silent(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Bool [V_e]: special tokens, punctuation and function words."""
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    silent = []
    for piece in _pieces(tokenizer):
        word = piece.lstrip(_WORD_STARTS)
        silent.append(piece in special or word.lower() in STOP_WORDS or not any(map(str.isalnum, word)))
    return np.array(silent)


def _document_frequency(texts: Iterable[str], tokenizer: Tokenizer) -> tuple[int, NDArray[np.int64]]:
    """Number of texts, and int64 [V_e]: how many of them hold each piece."""
    frequency = np.zeros(tokenizer.get_vocab_size(), np.int64)
    progress = Progress("English texts")
    texts = iter(texts)
    while batch := list(itertools.islice(texts, _BATCH)):
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            frequency[list(set(encoding.ids))] += 1
        progress.add(len(batch))
    progress.close("document frequencies")
    return progress.done, frequency


def _check_sizes(size: int, weights: NDArray[np.float32], paraphrases: sp.csr_matrix | None) -> None:
    if weights.shape != (size,):
        raise MilcoError(f"a lexical teacher of {size} pieces needs as many weights, not {weights.shape}")
    if paraphrases is None:
        return
    if paraphrases.shape != (size, size):
        raise MilcoError(f"paraphrases are {paraphrases.shape}: a teacher of {size} pieces needs ({size}, {size})")
    if paraphrases.nnz and not (paraphrases.data.min() >= 0 and paraphrases.data.max() <= 1):
        raise MilcoError(
            f"paraphrase shares range from {paraphrases.data.min()} to {paraphrases.data.max()}: they go from 0 to 1"
        )
