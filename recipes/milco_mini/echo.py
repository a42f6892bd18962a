"""The LexEcho head: how rare each token is, in the language where it is most frequent.

A rare string of one language that is an everyday word of another must not be a strong term: at the weight with which
LIMIT has .96, the sample at once has .856, and .842 with idf over all languages together. A linear function of the
encoder's states, fitted to the same values, loses half of the tokens: cmrc2018 .959, LIMIT .796, where the table has
.975 and .912. No sentences of Yoruba, Igbo and others are known, and all of their words are rare: with the questions of
AfriQA as texts, Yoruba has .660 on FLORES pooled, where it has .491 (150 sentences), but LIMIT falls to .890.
"""

from collections import defaultdict
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from milco_pyserini.console import log
from milco_pyserini.corpora.bitext import open_bitext
from milco_pyserini.model.modeling import LexEcho, MilcoModel

from .base import SPECIAL_TOKENS
from .data import training_sets

# Shares of documents from fewer texts are not reliable.
_LEAST_TEXTS = 8_000
_MOST_TEXTS = 40_000
_WINDOW = 40
_LARGEST_IDF = 9.5


def measure_idf(data: Path, tokenizer: Tokenizer) -> NDArray[np.float32]:
    """Return the inverse document frequency of each token in windows of 40, float32 [V_m]; 0 for symbols."""
    share = np.zeros(tokenizer.get_vocab_size())
    for language, texts in texts_by_language(data).items():
        windows = [
            np.unique(encoding.ids[start : start + _WINDOW])
            for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            if encoding.ids
            for start in range(0, max(1, len(encoding.ids) - _WINDOW // 2), _WINDOW)
        ]
        counts = np.bincount(np.concatenate(windows), minlength=len(share))
        log(f"Document frequencies of {language}: {len(windows):,} windows")
        share = np.maximum(share, counts / max(len(windows), _LEAST_TEXTS))
    idf = np.where(share > 0, -np.log(np.maximum(share, 1e-9)), _LARGEST_IDF).clip(0, _LARGEST_IDF)
    pieces = [tokenizer.id_to_token(token) or "" for token in range(len(idf))]
    silent = [token < len(SPECIAL_TOKENS) or not any(map(str.isalnum, p)) for token, p in enumerate(pieces)]
    return np.where(silent, 0, idf).astype(np.float32)


def texts_by_language(data: Path) -> dict[str, list[str]]:
    """Return texts of the bitext and passages by language, up to a number for each."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in open_bitext([data / "bitext"]):
        for pair in islice(source.pairs(), _MOST_TEXTS // 4):
            found[pair.language].append(pair.text)
            found["en"].append(pair.english)
    for retrieval, examples in training_sets(data):
        # AfriQA has queries in many languages and passages in English.
        language = "en" if "afriqa" in retrieval.name else retrieval.language
        found[language] += [text for example in examples for text in example.positives]
    return {name: texts[:: max(1, len(texts) // _MOST_TEXTS)] for name, texts in sorted(found.items())}


@torch.no_grad()
def set_echo(model: MilcoModel, weights: NDArray[np.float32], scale: float) -> None:
    """Give the model a LexEcho head of a weight per token.

    Args:
        weights: float32 [V_m], >= 0.
        scale: of the source view next to the pivot view.
    """
    model.config.echo_variant = "token"
    model.echo = LexEcho(model.config.echo_size, "token").requires_grad_(False).eval()
    model.echo.weight.copy_(torch.from_numpy(weights).unsqueeze(0))
    model.echo.scale.fill_(scale)
