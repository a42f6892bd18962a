"""English words that a text can mean: those of its translation, their inflections, and neighbors in lexicons.

Contrast alone uses words as signs of a text. The share of a text's product with itself that other words have is a loss
next to it, and `benchmarks/reasons.py` counts them among the reasons of hits.
"""

import gzip
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milco_pyserini.errors import MilcoError

LEXICONS = ("omw", "wiktionary")
# Words of other languages that two English neighbors both translate, and the most translations of such a word.
LEAST_SHARED, MOST_TRANSLATIONS = 2, 5
# Beginnings in common of inflections, and their ends.
STEM = 3
ENDINGS = frozenset(
    """ s es ed d ing er ers r ly al ally ial ian ans an n y ies ied ation ations ion ions ment ments e or ors ic ical
    ist ists ism ty ity ness ful able ' ance ence ances ent ant th ese ish""".split(" ")
)
_PART = "##"
# Letters of the shortest part of a word that is not itself a piece.
_LEAST_PART = 3


def english_words(text: str) -> set[str]:
    """Return the lowercase words and numbers of an English text."""
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def read_neighbors(directory: Path) -> dict[str, set[str]]:
    """Return the English words that translate the same words of other languages as each English word.

    Raises MilcoError if there is no lexicon.
    """
    shared: Counter[tuple[str, str]] = Counter()
    paths = [path for name in LEXICONS for path in sorted((directory / name).glob("*-en.tsv.gz"))]
    if not paths:
        raise MilcoError(f"{directory} has no {' or '.join(LEXICONS)} with LANG-en.tsv.gz")
    for path in paths:
        translations: dict[str, set[str]] = defaultdict(set)
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                word, _, english = line.rstrip("\n").lower().partition("\t")
                if english.isascii() and english.isalpha():
                    translations[word].add(english)
        for words in translations.values():
            if 1 < len(words) <= MOST_TRANSLATIONS:
                shared.update((one, other) for one in words for other in words if one != other)
    neighbors: dict[str, set[str]] = defaultdict(set)
    for (one, other), count in shared.items():
        if count >= LEAST_SHARED:
            neighbors[one].add(other)
    return neighbors


def is_inflection(one: str, other: str) -> bool:
    """Return whether two words are equal, or differ in their endings only; or a word begins with the piece of it."""
    if one == other:
        return True
    same = sum(itertools.takewhile(bool, map(str.__eq__, one, other)))
    return same >= STEM and ((one[same:] in ENDINGS and other[same:] in ENDINGS) or (same == len(one) and same > STEM))


class Grounding:
    """The pivot terms that texts can mean.

    Args:
        pieces: English word pieces by column.
        neighbors: as read_neighbors() returns them.
    """

    def __init__(self, pieces: Sequence[str], neighbors: dict[str, set[str]]) -> None:
        self._size = len(pieces)
        self._columns = {piece: column for column, piece in enumerate(pieces)}
        self._stems = _by_stem(piece for piece in pieces if not piece.startswith(_PART))
        self._neighbors, self._neighbor_stems = neighbors, _by_stem(neighbors)
        self._of_word: dict[str, NDArray[np.int64]] = {}

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return which pivot terms English texts can mean: bool [N, V_e]."""
        grounded = torch.zeros(len(texts), self._size, dtype=torch.bool)
        for row, text in zip(grounded, texts, strict=True):
            for word in english_words(text):
                row[torch.from_numpy(self.columns(word))] = True
        return grounded

    def columns(self, word: str) -> NDArray[np.int64]:
        """Return the columns of the pivot terms that a word can mean."""
        if word not in self._of_word:
            terms = {term for term in self._stems[word[:STEM]] if is_inflection(term, word)}
            for other in self._neighbor_stems[word[:STEM]]:
                if is_inflection(other, word):
                    terms |= self._neighbors[other]
            if word not in self._columns:
                lengths = range(_LEAST_PART, len(word) + 1)
                terms |= {_PART + word[start : start + n] for n in lengths for start in range(len(word) - n + 1)}
            found = [self._columns[term] for term in terms if term in self._columns]
            self._of_word[word] = np.array(sorted(found), np.int64)
        return self._of_word[word]


def ungrounded_share(views: Tensor, grounded: Tensor) -> Tensor:
    """Return the share of texts' products with themselves that terms have which they cannot mean, averaged.

    views: float [N, V], >= 0. grounded: bool [N, V].
    """
    squares = views.square()
    share = squares.masked_fill(grounded, 0.0).sum(dim=1) / squares.sum(dim=1).clamp(min=1e-6)
    return share.mean()


def _by_stem(words: Iterable[str]) -> dict[str, list[str]]:
    """Return words by their beginning, which inflections share; shorter words by themselves."""
    found: dict[str, list[str]] = defaultdict(list)
    for word in words:
        found[word[:STEM]].append(word)
    return found
