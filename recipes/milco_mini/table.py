"""The token table: English terms and weights of every source token, LogSat scale.

A word of any language has the English tokens of its translations; a token has the mean over the words that contain it,
in all languages together. English words have themselves and, with less weight, their paraphrases (translations to
another language and back).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from tokenizers import Tokenizer

from . import corpus
from .alignment import Translations
from .english import EnglishTerms

# A translation with probability .45 or more has full weight, a less likely one the root of its ratio.
_SURE_PROBABILITY = 0.45
_COUNT_POWER = 0.75
_PART_OF_WORD = 0.4
_LEAST_SHARE, _LEAST_WEIGHT = 0.08, 0.05
# Minimum share of a token's strongest term: weaker ones make passages half as long again and find next to nothing.
_LEAST_OF_ROW = 0.2
# Share of its own weight that an English word of one token keeps, whatever the same letters mean elsewhere.
_IDENTITY = 0.7
_ENGLISH_VOTES = 2.0
_PARAPHRASE_GAIN, _PARAPHRASE_LIMIT, _LEAST_PARAPHRASE = 2.2, 0.5, 0.012
_MOST_PARAPHRASES = 5
_LEAST_LANGUAGES = 2


def build_table(
    data: Path, tokenizer: Tokenizer, terms: EnglishTerms, translations: Mapping[str, Translations]
) -> sp.csr_matrix:
    """Build the table, float32 [V_m, V_e], from the translations of every language and from English."""
    english = count_english_words(data, translations)
    paraphrases = paraphrase_shares(list(english), translations)
    votes = [language_vote(tokenizer, terms, t) for t in translations.values()]
    votes.append(english_vote(tokenizer, terms, english, paraphrases))
    # Languages vote in proportion to their use of a token: with damped votes "die" would be half English.
    mass = sum(total * weight for _, total, weight in votes)
    table = sum(
        sp.diags(total * weight / np.maximum(mass, 1e-9)) @ _means(sums, total) for sums, total, weight in votes
    )
    table = table.maximum(identity_table(tokenizer, terms)).tocsr()
    strongest = np.repeat(table.max(axis=1).toarray().ravel(), np.diff(table.indptr))
    table.data[table.data < np.maximum(_LEAST_WEIGHT, _LEAST_OF_ROW * strongest)] = 0
    table.eliminate_zeros()
    return table.astype(np.float32)


def identity_table(tokenizer: Tokenizer, terms: EnglishTerms) -> sp.csr_matrix:
    """Return [V_m, V_e] with a share of its own weight for every English term that is one source token."""
    words = ((column, tokenizer.token_to_id(f"▁{word}")) for word, column in terms.tokenizer.get_vocab().items())
    pairs = np.array([(column, piece) for column, piece in words if piece is not None], np.int64).reshape(-1, 2)
    weights = _IDENTITY * terms.weights[pairs[:, 0]]
    return sp.csr_matrix((weights, (pairs[:, 1], pairs[:, 0])), (tokenizer.get_vocab_size(), terms.size))


def _means(sums: sp.csr_matrix, total: NDArray[np.float64]) -> sp.csr_matrix:
    means = (sp.diags(1 / np.maximum(total, 1e-9)) @ sums).tocsr()
    means.data[means.data < _LEAST_SHARE] = 0
    means.eliminate_zeros()
    return means


Vote = tuple[sp.csr_matrix, NDArray[np.float64], float]


def language_vote(tokenizer: Tokenizer, terms: EnglishTerms, found: Translations) -> Vote:
    """Return the sum over the words of one language that contain a token, and the mass of those words."""
    targets = word_targets(terms, found)
    translated = np.flatnonzero(np.diff(targets.indptr))
    pieces = _encode(tokenizer, [found.units[i] for i in translated])
    holds = _incidence(pieces, found.counts[translated], tokenizer.get_vocab_size())
    return (holds.T @ targets[translated]).tocsr(), np.asarray(holds.sum(axis=0)).ravel(), 1.0


def word_targets(terms: EnglishTerms, found: Translations) -> sp.csr_matrix:
    """Return the English terms of each unit of one language: [units, V_e]."""
    strength = np.minimum(1, np.sqrt(found.probability / _SURE_PROBABILITY))
    return _targets(terms, found.words, len(found.units), found.unit, found.word, strength)


def _encode(tokenizer: Tokenizer, units: list[str]) -> list[list[int]]:
    """Return the token ids of each unit; a unit that is a token itself (in languages without spaces) is that token."""
    encoded = tokenizer.encode_batch(units, add_special_tokens=False)
    known = (tokenizer.token_to_id(unit) for unit in units)
    return [e.ids if k is None or len(e.ids) == 1 else [k] for k, e in zip(known, encoded, strict=True)]


def _incidence(pieces: list[list[int]], counts: NDArray[np.float64], size: int) -> sp.csr_matrix:
    """Return the weight of a word's vote for each of its tokens, much lower if it has several: [words, V_m]."""
    rows = np.repeat(np.arange(len(pieces)), [len(p) for p in pieces])
    lengths = np.array([len(p) for p in pieces])
    weight = counts**_COUNT_POWER * np.where(lengths == 1, 1.0, _PART_OF_WORD / np.maximum(lengths, 1))
    columns = np.fromiter((i for p in pieces for i in p), np.int64, len(rows))
    return sp.csr_matrix((weight[rows], (rows, columns)), (len(pieces), size))


def _targets(
    terms: EnglishTerms,
    words: list[str],
    rows: int,
    row: NDArray[np.int32],
    word: NDArray[np.int32],
    strength: NDArray[np.float64],
) -> sp.csr_matrix:
    """Return the weights of the tokens of every linked word, the maximum over links: [rows, V_e]."""
    pieces = terms.pieces(words)
    lengths = np.array([len(p) for p in pieces])
    link = np.repeat(np.arange(len(word)), lengths[word])
    column = np.fromiter((i for w in word for i in pieces[w]), np.int64, len(link))
    return max_coo(row[link], column, strength[link] * terms.weights[column], (rows, terms.size))


def max_coo(rows: NDArray, columns: NDArray, values: NDArray, shape: tuple[int, int]) -> sp.csr_matrix:
    """Return a sparse matrix in which repeated entries have their maximum."""
    order = np.lexsort((values, columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    last = np.r_[(np.diff(rows) != 0) | (np.diff(columns) != 0), True] if len(rows) else np.empty(0, bool)
    return sp.csr_matrix((values[last], (rows[last], columns[last])), shape)


def count_english_words(data: Path, translations: Mapping[str, Translations]) -> dict[str, int]:
    """Count the English words of the dictionaries, and those that occur at least twice in the texts."""
    counts: Counter[str] = Counter()
    for text in corpus.english_sentences(data) + corpus.passages(data, "en"):
        counts.update(dict.fromkeys(corpus.words(text), 1))
    translated = dict.fromkeys(t.words[i] for t in translations.values() for i in np.unique(t.word))
    frequent = (word for word, count in counts.items() if count > 1)
    kept = dict.fromkeys([*translated, *frequent])
    return {word: counts[word] + 1 for word in kept if word not in corpus.STOP_WORDS}


def paraphrase_shares(words: list[str], translations: Mapping[str, Translations]) -> sp.csr_matrix:
    """Return the probability of translating one word to another through a language, averaged: [words, words]."""
    index = {word: i for i, word in enumerate(words)}
    size = len(words)
    total, languages = sp.csr_matrix((size, size)), np.zeros(size)
    for found in translations.values():
        english = np.array([index.get(word, -1) for word in found.words])[found.word]
        kept = english >= 0
        english, unit, probability = english[kept], found.unit[kept], found.probability[kept]
        there = sp.csr_matrix((probability * found.counts[unit], (english, unit)), (size, len(found.units)))
        mass = np.asarray(there.sum(axis=1)).ravel()
        back = sp.csr_matrix((probability, (unit, english)), (len(found.units), size))
        total = total + sp.diags(1 / (mass + 0.5)) @ there @ back
        languages += mass > 0
    mean = (sp.diags((languages >= _LEAST_LANGUAGES) / (languages + 1)) @ total).tocsr()
    mean.setdiag(0)
    return _best_of_row(mean, _MOST_PARAPHRASES, _LEAST_PARAPHRASE)


def _best_of_row(matrix: sp.csr_matrix, most: int, least: float) -> sp.csr_matrix:
    """Keep the largest entries of every row above a limit."""
    coo = matrix.tocoo()
    order = np.lexsort((-coo.data, coo.row))
    row, column, value = coo.row[order], coo.col[order], coo.data[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    kept = (rank < most) & (value > least)
    return sp.csr_matrix((value[kept], (row[kept], column[kept])), matrix.shape)


def english_vote(
    tokenizer: Tokenizer, terms: EnglishTerms, counts: Mapping[str, int], paraphrases: sp.csr_matrix
) -> Vote:
    """Return the vote of English: a source token has the English tokens it overlaps, and paraphrases."""
    words = list(counts)
    number = np.fromiter(counts.values(), np.float64, len(words))
    links = paraphrases.tocoo()
    strength = np.minimum(_PARAPHRASE_LIMIT, _PARAPHRASE_GAIN * np.sqrt(links.data))
    others = _targets(terms, words, len(words), links.row, links.col, strength)
    holds = _incidence(_encode(tokenizer, words), number, tokenizer.get_vocab_size())
    identity, total = overlapping_terms(tokenizer, terms, words, number)
    return (identity + holds.T @ others).tocsr(), total, _ENGLISH_VOTES


def overlapping_terms(
    tokenizer: Tokenizer, terms: EnglishTerms, words: list[str], counts: NDArray[np.float64]
) -> tuple[sp.csr_matrix, NDArray[np.float64]]:
    """Return the sums of the share of each English token that a source token covers, and the words' mass."""
    rows, columns, values = [], [], []
    total = np.zeros(tokenizer.get_vocab_size())
    source = tokenizer.encode_batch(words, add_special_tokens=False)
    target = terms.tokenizer.encode_batch(words, add_special_tokens=False)
    for here, there, count in zip(source, target, counts, strict=True):
        mass = count**_COUNT_POWER / max(1, len(here.ids))
        for piece, (start, end) in zip(here.ids, here.offsets, strict=True):
            total[piece] += mass
            for term, (left, right) in zip(there.ids, there.offsets, strict=True):
                covered = min(end, right) - max(start, left)
                if covered > 0 and not terms.silent[term]:
                    rows.append(piece)
                    columns.append(term)
                    values.append(mass * covered / (right - left) * terms.weights[term])
    return sp.csr_matrix((values, (rows, columns)), (len(total), terms.size)), total


def piece_units(tokenizer: Tokenizer, texts: Iterable[str]) -> list[list[str]]:
    """Return the tokens of texts in a language without spaces."""
    encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [[piece for token in e.tokens if (piece := token.lstrip("▁"))] for e in encoded]
