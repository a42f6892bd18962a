"""The source view: how much a piece of the text's own wording weighs, by how rare it is.

A piece is as common as it is in the language that has it most often: a rare string of one language that is an
everyday word of another must not be a strong term.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from milco_pyserini.model import MilcoModel
from milco_pyserini.model.modeling import LexEcho

from . import corpus
from .network import ECHO_ENLARGED, echo_dimensions

# Fewer texts than this say little about how common a piece is.
_LEAST_TEXTS = 8_000
_MOST_TEXTS = 60_000
_WINDOW = 40
_LARGEST_IDF, _IDF_OF_COMMON = 9.5, 1.5
_LARGEST_WEIGHT, _POWER = 1.2, 0.5
_SPECIALS = 4
_LONGEST = 128


def measure_echo(data: Path, tokenizer: Tokenizer) -> NDArray[np.float32]:
    """Float32 [V_m]: source view weight of every piece, a root of its idf; 0 for specials and for symbols."""
    share = np.zeros(tokenizer.get_vocab_size())
    for language in (*corpus.languages(data), "en"):
        found, texts = _document_frequency(tokenizer, _texts(data, language))
        share = np.maximum(share, found / max(texts, _LEAST_TEXTS))
    idf = np.where(share > 0, -np.log(np.maximum(share, 1e-9)), _LARGEST_IDF).clip(0, _LARGEST_IDF)
    scale = (_LARGEST_IDF - _IDF_OF_COMMON) ** _POWER
    weight = _LARGEST_WEIGHT * np.maximum(idf - _IDF_OF_COMMON, 0) ** _POWER / scale
    spelling = [tokenizer.id_to_token(i) for i in range(len(weight))]
    silent = np.array([i < _SPECIALS or not any(map(str.isalnum, s)) for i, s in enumerate(spelling)])
    silent[-1] = True  # <mask>
    return np.where(silent, 0, weight).astype(np.float32)


def _texts(data: Path, language: str) -> list[str]:
    if language == "en":
        sentences = corpus.english_sentences(data, per_language=8_000)
    else:
        sentences = list(dict.fromkeys(pair.text for pair in corpus.bitext(data, language)))
    step = max(1, len(sentences) // _MOST_TEXTS)
    return sentences[::step] + corpus.passages(data, language)


def _document_frequency(tokenizer: Tokenizer, texts: list[str]) -> tuple[NDArray[np.float64], int]:
    """In how many texts a piece is, and of how many; a passage counts as its windows of 40 pieces."""
    windows = [np.unique(w) for w in _windows(tokenizer, texts)]
    pieces = np.concatenate(windows) if windows else np.empty(0, np.int64)
    return np.bincount(pieces, minlength=tokenizer.get_vocab_size()).astype(float), len(windows)


def _windows(tokenizer: Tokenizer, texts: list[str]) -> Iterator[list[int]]:
    for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
        for start in range(0, max(1, len(encoding.ids) - _WINDOW // 2), _WINDOW):
            if encoding.ids:
                yield encoding.ids[start : start + _WINDOW]


@torch.no_grad()
def fit_echo(model: MilcoModel, tokenizer: Tokenizer, texts: list[str], weights: NDArray[np.float32]) -> float:
    """Fit the echo head to the pieces' weights on the hidden states of some texts; returns R squared.

    Only the reserved dimensions and the bias are read: attention writes nothing there.
    """
    head = cast(LexEcho, model.echo)
    part = echo_dimensions(model.config.encoder.hidden_size)
    states, goals = [], []
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text).ids[:_LONGEST]])
        hidden = model.encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        states.append(hidden[0, :, part].numpy())
        goals.append(weights[ids[0].numpy()])
    goal = np.concatenate(goals)
    # One number was written, in units of the first dimension; the second holds its rounding error, enlarged.
    read = np.concatenate(states) @ np.array([1, 1 / ECHO_ENLARGED], np.float32)
    slope, level = np.polyfit(read, goal, 1)
    head.weight.zero_()
    head.weight[0, part] = torch.tensor([slope, slope / ECHO_ENLARGED], dtype=torch.float32)
    head.bias.fill_(level)
    return float(1 - np.square(slope * read + level - goal).mean() / goal.var())
