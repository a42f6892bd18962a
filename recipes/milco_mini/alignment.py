"""Word translations by IBM Model 1 over sentence pairs and dictionary entries.

Source: Brown et al., The Mathematics of Statistical Machine Translation (1993), Model 1. One language at a time; a
dictionary entry is a short sentence pair with a higher weight. The targets are all English words but stop words.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from milco_pyserini.io.files import atomic_file

from . import corpus

_PASSES = 6
_LONGEST = 60
# Weights of the sources. The English words of a dictionary entry share its weight.
_TRUST = {
    "wiktionary": 4.0,
    "cldr-names": 4.0,
    "osm-presets": 3.0,
    "omw": 2.0,
    "wikipedia-indic-dict": 2.0,
    "bible": 0.7,
    "python-docs": 0.7,
}
_DICTIONARY_TRUST = 2.0
# Links to keep: minimum p(e | f), minimum log ratio to p(e), minimum count, and maximum number per unit.
_LEAST_PROBABILITY, _LEAST_LIFT, _LEAST_COUNT, _MOST_TRANSLATIONS = 0.05, 0.5, 0.5, 12
_LEAST_REVERSE, _SURE = 0.002, 0.3

Units = Callable[[list[str]], list[list[str]]]


class Translations(NamedTuple):
    """Links between source units and English words: unit[k] translates to word[k] with probability[k]."""

    units: list[str]
    counts: NDArray[np.float64]  # [units], weighted number of texts with the unit
    words: list[str]
    unit: NDArray[np.int32]
    word: NDArray[np.int32]
    probability: NDArray[np.float64]


class _AlignedTexts(NamedTuple):
    units: list[str]
    words: list[str]
    unit_starts: NDArray[np.int64]
    unit_ids: NDArray[np.int32]
    word_starts: NDArray[np.int64]
    word_ids: NDArray[np.int32]
    weights: NDArray[np.float64]


def word_units(texts: list[str]) -> list[list[str]]:
    """Return the words of texts in a language with spaces."""
    return [corpus.words(text) for text in texts]


def align(data: Path, language: str, units: Units) -> Translations:
    """Return the English translations of the units of one language. units: splits texts into units."""
    pairs = corpus.bitext(data, language) + corpus.lexicon(data, language)
    texts = index_pairs(pairs, units([pair.text for pair in pairs]))
    # A key for every unit and word of the same text.
    found = _cross(texts.unit_starts, texts.unit_ids, texts.word_starts, texts.word_ids, len(texts.words))
    keys, link = np.unique(found, return_inverse=True)
    unit, word = np.divmod(keys, len(texts.words))
    counts = expected_counts(texts, unit, link.astype(np.int32))
    return select_links(texts, unit, word, counts)


def index_pairs(pairs: list[corpus.SourcePair], units: list[list[str]]) -> _AlignedTexts:
    """Return pairs as integer arrays; a unit or word counts once per text."""
    unit_ids: dict[str, int] = {}
    word_ids: dict[str, int] = {}
    sources, targets, weights = [], [], []
    for pair, found in zip(pairs, units, strict=True):
        english = [w for w in dict.fromkeys(corpus.words(pair.english)) if w not in corpus.STOP_WORDS]
        source = list(dict.fromkeys(found))[:_LONGEST]
        if source and english:
            sources.append([unit_ids.setdefault(u, len(unit_ids)) for u in source])
            targets.append([word_ids.setdefault(w, len(word_ids)) for w in english[:_LONGEST]])
            trust = _TRUST.get(pair.source, 1.0)
            shared = 1 + (len(english) - 1) / 2 if trust >= _DICTIONARY_TRUST else 1
            weights.append(trust / shared)
    return _AlignedTexts(
        list(unit_ids), list(word_ids), *_flatten(sources), *_flatten(targets), np.array(weights, np.float64)
    )


def _flatten(rows: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    starts = np.cumsum([0] + [len(row) for row in rows])
    return starts, np.fromiter((i for row in rows for i in row), np.int32, int(starts[-1]))


@numba.njit(cache=True)
def _cross(unit_starts, unit_ids, word_starts, word_ids, words):  # type: ignore[no-untyped-def]
    total = 0
    for t in range(len(unit_starts) - 1):
        total += (unit_starts[t + 1] - unit_starts[t]) * (word_starts[t + 1] - word_starts[t])
    keys = np.empty(total, np.int64)
    k = 0
    for t in range(len(unit_starts) - 1):
        for w in word_ids[word_starts[t] : word_starts[t + 1]]:
            for u in unit_ids[unit_starts[t] : unit_starts[t + 1]]:
                keys[k] = np.int64(u) * words + w
                k += 1
    return keys


@numba.njit(cache=True)
def _expect(unit_starts, word_starts, weights, link, probability, counts):  # type: ignore[no-untyped-def]
    """E step: add the expected links of every English word with the units of its text to counts."""
    k = 0
    for t in range(len(unit_starts) - 1):
        units = unit_starts[t + 1] - unit_starts[t]
        for _ in range(word_starts[t + 1] - word_starts[t]):
            total = 1e-7
            for i in range(k, k + units):
                total += probability[link[i]]
            for i in range(k, k + units):
                counts[link[i]] += weights[t] * probability[link[i]] / total
            k += units


def expected_counts(texts: _AlignedTexts, unit: NDArray[np.int64], link: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the expected count of each link after the last pass of EM."""
    probability = np.full(len(unit), 1 / len(texts.words))
    counts = np.zeros(len(unit))
    for _ in range(_PASSES):
        counts[:] = 0
        _expect(texts.unit_starts, texts.word_starts, texts.weights, link, probability, counts)
        # Smoothing by half a count keeps rare units from explaining everything that has no counterpart.
        probability = counts / (np.bincount(unit, counts, len(texts.units))[unit] + 0.5)
    return counts


def select_links(
    texts: _AlignedTexts, unit: NDArray[np.int64], word: NDArray[np.int64], counts: NDArray[np.float64]
) -> Translations:
    """Return the links above all limits, best first within a unit."""
    unit_mass = np.bincount(texts.unit_ids, np.repeat(texts.weights, np.diff(texts.unit_starts)))
    word_mass = np.bincount(texts.word_ids, np.repeat(texts.weights, np.diff(texts.word_starts)))
    explained = np.bincount(unit, counts, len(texts.units))
    probability = counts / (np.maximum(unit_mass, explained)[unit] + 0.7)
    reverse = counts / (word_mass[word] + 0.7)
    lift = np.log(np.maximum(probability * texts.weights.sum() / word_mass[word], 1e-9))
    keep = (probability > _LEAST_PROBABILITY) & (lift > _LEAST_LIFT) & (counts > _LEAST_COUNT)
    kept = np.flatnonzero(keep & ((reverse > _LEAST_REVERSE) | (probability > _SURE)))
    kept = kept[np.lexsort((-probability[kept], unit[kept]))]
    # Rank within the unit: links are sorted by unit, best first.
    rank = np.arange(len(kept)) - np.searchsorted(unit[kept], unit[kept])
    kept = kept[rank < _MOST_TRANSLATIONS]
    return Translations(
        texts.units,
        unit_mass.astype(np.float64),
        texts.words,
        unit[kept].astype(np.int32),
        word[kept].astype(np.int32),
        probability[kept],
    )


def save(path: Path, translations: Translations) -> None:
    """Write translations as arrays, without pickle."""
    fields: dict[str, Any] = {name: np.asarray(value) for name, value in translations._asdict().items()}
    with atomic_file(path) as handle:
        np.savez(handle, **fields)


def load(path: Path) -> Translations:
    """Read a file of save()."""
    with np.load(path) as fields:
        arrays = {name: fields[name] for name in Translations._fields}
    arrays["units"], arrays["words"] = arrays["units"].tolist(), arrays["words"].tolist()
    return Translations(**arrays)
