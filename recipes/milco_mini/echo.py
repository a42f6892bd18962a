"""Source view weights of tokens, and a LexEcho head that reproduces them, from which SCT starts.

Weights are inverse document frequencies, of the language where the token is most frequent: a rare string of one
language that is an everyday word of another must not be a strong term. Nor must a string that means different things in
two languages: a token that English has, too, weighs less if the translations of its sentences lack it.

After SCT, scripts of few languages weigh less: in a search among all languages, their tokens rank texts in the query's
own first.
"""

from pathlib import Path
from typing import cast

import numpy as np
import regex
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.console import log
from milco_pyserini.model import MilcoModel
from milco_pyserini.model.modeling import LexEcho

from . import corpus

# Document frequencies from fewer texts are not reliable.
_LEAST_TEXTS = 8_000
_MOST_TEXTS = 60_000
_WINDOW = 40
_LARGEST_IDF, _IDF_OF_COMMON = 9.5, 1.5
_LARGEST_WEIGHT, _POWER = 1.2, 0.5
# Pairs of each language in which shared tokens are counted, and what is added to the sentences that have a token.
_PAIRS, _UNKNOWN = 20_000, 5
_SPECIALS = 4
_LONGEST = 128
# Penalty of the head's squared weights, next to the sum of squared errors.
_RIDGE = 10.0
# Scripts whose tokens raise the share of hits in the query's own language most (FLORES pooled, sample), and the factor
# of their weights. Latin letters spell names in half of the languages; Chinese, Japanese and Thai raise it less.
_OWN_LANGUAGE = regex.compile(r"[\p{Arabic}\p{Bengali}\p{Cyrillic}\p{Devanagari}\p{Greek}\p{Hangul}\p{Telugu}]")
_OWN_LANGUAGE_FACTOR = 0.38


def measure_echo(data: Path, tokenizer: Tokenizer) -> NDArray[np.float32]:
    """Return source view weights of tokens, float32 [V_m]: a root of idf; 0 for special tokens and symbols."""
    share = np.zeros(tokenizer.get_vocab_size())
    for language in (*corpus.languages(data), "en"):
        if language == "en":
            sentences = corpus.english_sentences(data, per_language=8_000)
        else:
            sentences = list(dict.fromkeys(pair.text for pair in corpus.bitext(data, language)))
        step = max(1, len(sentences) // _MOST_TEXTS)
        texts = sentences[::step] + corpus.passages(data, language)
        frequency, count = document_frequency(tokenizer, texts)
        share = np.maximum(share, frequency / max(count, _LEAST_TEXTS))
    idf = np.where(share > 0, -np.log(np.maximum(share, 1e-9)), _LARGEST_IDF).clip(0, _LARGEST_IDF)
    scale = (_LARGEST_IDF - _IDF_OF_COMMON) ** _POWER
    weight = _LARGEST_WEIGHT * np.maximum(idf - _IDF_OF_COMMON, 0) ** _POWER / scale
    spelling = [tokenizer.id_to_token(i) for i in range(len(weight))]
    silent = np.array([i < _SPECIALS or not any(map(str.isalnum, s)) for i, s in enumerate(spelling)])
    silent[-1] = True  # <mask>
    # Both texts of a match have the weight.
    return np.where(silent, 0, weight * np.sqrt(kept_meaning(data, tokenizer))).astype(np.float32)


def kept_meaning(data: Path, tokenizer: Tokenizer) -> NDArray[np.float64]:
    """Return the share of sentences with a token whose English translation has it, too; 1 if English lacks it."""
    foreign, english, both = np.zeros((3, tokenizer.get_vocab_size()))
    for language in corpus.languages(data):
        pairs = corpus.bitext(data, language)
        pairs = pairs[:: max(1, len(pairs) // _PAIRS)]
        if len(pairs) < _LEAST_TEXTS:
            pairs += corpus.lexicon(data, language)[:_PAIRS]
        sides = ([pair.text for pair in pairs], [pair.english for pair in pairs])
        for encodings in zip(*(tokenizer.encode_batch(side, add_special_tokens=False) for side in sides), strict=True):
            here, there = (set(encoding.ids) for encoding in encodings)
            foreign[list(here)] += 1
            english[list(there)] += 1
            both[list(here & there)] += 1
    kept = (both + _UNKNOWN / 2) / (foreign + _UNKNOWN)
    return np.where((foreign > 0) & (english > 0), kept, 1.0)


def document_frequency(tokenizer: Tokenizer, texts: list[str]) -> tuple[NDArray[np.float64], int]:
    """Return document frequencies and the number of texts; passages are split into windows of 40 tokens."""
    windows = [
        np.unique(encoding.ids[start : start + _WINDOW])
        for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)
        if encoding.ids
        for start in range(0, max(1, len(encoding.ids) - _WINDOW // 2), _WINDOW)
    ]
    tokens = np.concatenate(windows) if windows else np.empty(0, np.int64)
    return np.bincount(tokens, minlength=tokenizer.get_vocab_size()).astype(float), len(windows)


def token_rows(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Return the tokens of each text, special ones included, cut to a length that a head is fitted on."""
    return [tokenizer.encode(text).ids[:_LONGEST] for text in texts]


@torch.no_grad()
def fit_echo(model: MilcoModel, rows: list[list[int]], goals: list[NDArray[np.float32]]) -> None:
    """Fit the LexEcho head to weights of the tokens of some texts, on their hidden states.

    Reserved dimensions have each token's weight (network.py), which LayerNorm divides by norms that the others have.
    """
    head = cast(LexEcho, model.echo)
    states = np.concatenate([_hidden_states(model, row).double().numpy() for row in rows])
    goal = np.concatenate(goals)
    centered = states - states.mean(axis=0)
    penalty = _RIDGE * np.eye(states.shape[1])
    slope = np.linalg.solve(centered.T @ centered + penalty, centered.T @ (goal - goal.mean()))
    level = goal.mean() - states.mean(axis=0) @ slope
    head.scale.fill_(1)
    head.weight.copy_(torch.from_numpy(slope))
    head.bias.fill_(level)
    fit = 1 - np.square(states @ slope + level - goal).mean() / goal.var()
    log(f"LexEcho head: R squared {fit:.4f} against the token weights")


@torch.no_grad()
def scale_scripts(
    model: MilcoModel, tokenizer: Tokenizer, rows: list[list[int]], weights: NDArray[np.float32]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Lower the weights that a trained LexEcho head gives to tokens in scripts of few languages.

    Args:
        model: its head was trained from the given weights.
        rows: tokens of texts.
        weights: float32 [V_m].

    Returns:
        Weights of tokens, float32 [V_m], the linear function of the given ones that is nearest to the head's; and the
        head's weights of the tokens of each text, float32 [tokens]. Both are lowered.
    """
    head = cast(LexEcho, model.echo)
    is_own = [_OWN_LANGUAGE.search(tokenizer.id_to_token(token)) for token in range(len(weights))]
    # Symbols have no weight before, and none after.
    factors = np.where(weights > 0, np.where(is_own, _OWN_LANGUAGE_FACTOR, 1), 0).astype(np.float32)
    found = [head(_hidden_states(model, row), torch.ones(len(row))).numpy() for row in rows]
    before = weights[np.concatenate(rows)]
    slope, level = np.polyfit(before[before > 0], np.concatenate(found)[before > 0], 1)
    lowered = [out * factors[row] for out, row in zip(found, rows, strict=True)]
    return (factors * (level + slope * weights)).astype(np.float32), lowered


def _hidden_states(model: MilcoModel, row: list[int]) -> Tensor:
    """Return the encoder's states of the tokens of a text, float32 [tokens, D_m]."""
    ids = torch.tensor([row])
    return model.encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
