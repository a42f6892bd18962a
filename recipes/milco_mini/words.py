"""The word translation table as a model without a network, and as the teacher of SAP.

A text has the terms of its words' translations, each with its maximum weight. English texts have their own terms, or
those of the token table, which knows paraphrases.

A network that starts as the token table knows a word of several tokens only by its parts; the word table knows the
word, and teaches the network to read it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.train.data.bitext import BitextPair

from . import alignment, corpus, table
from .english import EnglishTerms

_MEANT = 0.6
# Lower weights of a teacher are dropped: they are many, and worth little.
_LEAST_WEIGHT = 0.08


class WordTable:
    """An encoder over the files of the stages; vectors are float32 [texts, V_e].

    Args:
        work: directory of the stages.
        fallback: encode words without a translation by their tokens; otherwise they add nothing.
    """

    def __init__(self, work: Path, fallback: bool = False) -> None:
        self._work = work
        self._terms = EnglishTerms(work / "english.json", np.load(work / "english_weights.npy"))
        self._tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
        self._pieces = sp.load_npz(work / "table.npz").tocsr()
        self._fallback = fallback
        self._read: dict[str, tuple[dict[str, int], sp.csr_matrix]] = {}

    @property
    def vocabulary(self) -> list[str]:
        """English tokens, in the order of the columns."""
        return [self._terms.tokenizer.id_to_token(i) for i in range(self._terms.size)]

    def encode(self, language: str, texts: Sequence[str]) -> sp.csr_matrix:
        """Encode texts of a language by their words, or by their tokens if it has no spaces."""
        number, rows = self._translations(language)
        units = alignment.word_units(list(texts))
        if language in corpus.UNSPACED:
            units = table.piece_units(self._tokenizer, texts)
        found = _strongest([[number[unit] for unit in text if unit in number] for text in units], rows)
        if not self._fallback:
            return found
        return found.maximum(self.encode_english([" ".join(u for u in text if u not in number) for text in units]))

    def encode_english(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Encode texts of any language by their tokens."""
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return _strongest([e.ids for e in encoded], self._pieces)

    def bag(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Encode English texts by their own terms."""
        return self._terms.bag(texts)

    def read_english(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Encode English texts by their own terms, and by their tokens' further terms with less weight."""
        return self.bag(texts).maximum(self.encode_english(texts) * _MEANT)

    def _translations(self, language: str) -> tuple[dict[str, int], sp.csr_matrix]:
        """Return the row of every word that has a translation, and the rows."""
        if language not in self._read:
            found = alignment.load(self._work / f"translations.{language}.npz")
            rows = table.word_targets(self._terms, found).tocsr()
            known = np.flatnonzero(np.diff(rows.indptr))
            self._read[language] = {found.units[i]: int(i) for i in known}, rows
        return self._read[language]


class WordTeacher:
    """The AlignmentTeacher of SAP, over the directory of the stages; both sides of a pair teach.

    The English side disambiguates: a term of both sides keeps its weight, a term of one side has half of it.
    """

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


def _strongest(texts: list[list[int]], rows: sp.csr_matrix) -> sp.csr_matrix:
    """Return the maximum weight of each term over the rows of each text: [texts, V_e]."""
    text = np.repeat(np.arange(len(texts)), [len(named) for named in texts])
    found = rows[np.fromiter((i for named in texts for i in named), np.int64, len(text))].tocoo()
    return table.max_coo(text[found.row], found.col, found.data, (len(texts), rows.shape[1]))
