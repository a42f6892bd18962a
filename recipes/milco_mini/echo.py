"""The LexEcho head that training starts from: a linear function of the encoder's states, fitted to how rare tokens are.

Weights are inverse document frequencies, of the language where the token is most frequent: a rare string of one
language that is an everyday word of another must not be a strong term. Frequent tokens have none: within a language
they help a little, among all languages they rank texts in the query's own first.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import cast

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
# Texts of each language on whose states the head is fitted, their length in tokens, and the penalty of its squared
# weights.
_FITTED, _LONGEST, _RIDGE = 100, 128, 10.0
_BATCH = 16


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
def fit_echo(model: MilcoModel, rows: list[list[int]], weights: NDArray[np.float32], scale: float) -> None:
    """Fit the LexEcho head to weights of the tokens of some texts, on their states; then multiply it by a scale.

    Args:
        model: in eval mode.
        rows: token ids of texts, special ones included.
        weights: float32 [V_m]; negative ones are what the head's relu makes 0.
        scale: of the source view next to the pivot view.
    """
    states = np.concatenate(list(_states(model, rows)))
    goal = weights[np.concatenate(rows)].astype(np.float64)
    centered = states - states.mean(axis=0)
    penalty = _RIDGE * np.eye(states.shape[1])
    slope = np.linalg.solve(centered.T @ centered + penalty, centered.T @ (goal - goal.mean()))
    level = goal.mean() - states.mean(axis=0) @ slope
    fit = 1 - np.square(states @ slope + level - goal).mean() / goal.var()
    log(f"LexEcho head: R squared {fit:.3f} against the tokens' weights")
    head = cast(LexEcho, model.echo)
    head.weight.copy_(torch.from_numpy(slope))
    head.bias.fill_(level)
    head.scale.fill_(scale)


def fitted_rows(data: Path, tokenizer: Tokenizer) -> list[list[int]]:
    """Return token ids of texts of all languages, on whose states a head is fitted."""
    return [
        tokenizer.encode(text).ids[:_LONGEST]
        for texts in texts_by_language(data).values()
        for text in texts[:: max(1, len(texts) // _FITTED)]
    ]


def _states(model: MilcoModel, rows: list[list[int]]) -> Iterator[NDArray[np.float64]]:
    """Yield the encoder's states of each text's tokens, [tokens, D_m], in the order of the rows."""
    for begin in range(0, len(rows), _BATCH):
        part = [torch.tensor(row) for row in rows[begin : begin + _BATCH]]
        ids = torch.nn.utils.rnn.pad_sequence(part, True, model.config.encoder.pad_token_id)
        mask = (torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in part]).unsqueeze(1)).long()
        hidden = model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        for row, states in zip(part, hidden, strict=True):
            yield states[: len(row)].double().numpy()
