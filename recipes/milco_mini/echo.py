"""Source view weights of tokens, and a LexEcho head that reproduces them.

Weights begin as inverse document frequencies, of the language where the token is most frequent: a rare string of one
language that is an everyday word of another must not be a strong term. Contrast on training queries then finds which
tokens distinguish passages better than their frequency suggests.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from milco_pyserini.model import MilcoModel
from milco_pyserini.model.modeling import LexEcho
from milco_pyserini.train.data.retrieval import RetrievalExample

from . import corpus
from .network import ECHO_ENLARGED, echo_dimensions, embedded_echo

# Document frequencies from fewer texts are not reliable.
_LEAST_TEXTS = 8_000
_MOST_TEXTS = 60_000
_WINDOW = 40
_LARGEST_IDF, _IDF_OF_COMMON = 9.5, 1.5
_LARGEST_WEIGHT, _POWER = 1.2, 0.5
_SPECIALS = 4
# <s> and </s>.
_BEGIN, _END = 0, 2
_LONGEST = 128
# Corrections of embedded weights, and tokens of a batch.
_CORRECTIONS, _BATCH = 3, 1024
# Contrast of token weights: queries of a step and passages besides theirs, and the penalty of a squared change of a
# weight's logarithm, without which rare tokens would follow single queries.
_STEPS, _QUERIES, _PASSAGES = 600, 128, 384
_RATE, _PENALTY = 0.02, 2.0
_LEAST_WEIGHT = 0.05
_QUERY_TOKENS, _PASSAGE_TOKENS = 64, 512


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
    return np.where(silent, 0, weight).astype(np.float32)


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


def contrast_weights(
    sets: Sequence[Sequence[RetrievalExample]], tokenizer: Tokenizer, start: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Fit token weights with which queries find their passages, float32 [V_m]; tokens of weight 0 keep it.

    A score is the sum of the squared weights of the tokens that a query and a passage share, as in the source view
    without contexts. Negatives are other passages of the same set.
    """
    texts = []
    for examples in sets:
        passages = list(dict.fromkeys(example.positives[0] for example in examples))
        rows = {passage: row for row, passage in enumerate(passages)}
        answers = np.array([rows[example.positives[0]] for example in examples])
        queries = _token_sets(tokenizer, [example.query for example in examples], _QUERY_TOKENS)
        texts.append((queries, _token_sets(tokenizer, passages, _PASSAGE_TOKENS), answers))
    before = torch.from_numpy(np.log(np.maximum(start, _LEAST_WEIGHT)))
    logs, sharpness = torch.nn.Parameter(before.clone()), torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.Adam([logs, sharpness], _RATE)
    random = np.random.default_rng(0)
    for _ in range(_STEPS):
        queries, passages, answers = texts[random.integers(len(texts))]
        chosen = random.permutation(len(answers))[:_QUERIES]
        others = random.permutation(passages.shape[0])[:_PASSAGES]
        candidates = np.concatenate([answers[chosen], others])
        # Only tokens of queries contribute to scores.
        tokens = np.unique(queries[chosen].indices)
        query, passage = (
            torch.from_numpy(matrix[:, tokens].toarray()) for matrix in (queries[chosen], passages[candidates])
        )
        held = torch.from_numpy(tokens)
        scores = (query * (2 * logs[held]).exp()) @ passage.T * sharpness.exp()
        # A passage that answers several queries of the step is a negative of none of them.
        is_answer = torch.from_numpy(candidates == answers[chosen, None])
        own = torch.arange(len(chosen))
        is_answer[own, own] = False
        contrast = torch.nn.functional.cross_entropy(scores.masked_fill(is_answer, -torch.inf), own)
        loss = contrast + _PENALTY * (logs[held] - before[held]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return np.where(start > 0, logs.detach().exp().numpy(), 0).astype(np.float32)


def _token_sets(tokenizer: Tokenizer, texts: list[str], longest: int) -> sp.csr_array:
    """Return the tokens of texts as ones, float32 [texts, V_m]."""
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    rows = [np.unique(encoding.ids[:longest]).astype(np.int32) for encoding in encodings]
    indptr = np.cumsum([0, *map(len, rows)])
    shape = (len(texts), tokenizer.get_vocab_size())
    return sp.csr_array((np.ones(indptr[-1], np.float32), np.concatenate(rows), indptr), shape=shape)


@torch.no_grad()
def write_weights(model: MilcoModel, tokenizer: Tokenizer, texts: list[str], weights: NDArray[np.float32]) -> float:
    """Write token weights into the embeddings of a trained model and fit its LexEcho head; return R squared."""
    words = model.encoder.embeddings.word_embeddings.weight
    first = echo_dimensions(words.shape[1]).start
    written = embedded_echo(weights)
    words[:, first], words[:, first + 1] = written, 0
    for _ in range(_CORRECTIONS):
        # LayerNorm divides by norms that differ between tokens, and training changed them.
        read = _states_alone(model)[:, first]
        slope, level = np.polyfit(written.numpy(), read.numpy(), 1)
        words[:, first] += (slope * written + level - read) / slope
    return fit_echo(model, tokenizer, texts, weights)


def _states_alone(model: MilcoModel) -> torch.Tensor:
    """Return the hidden state of every token as a text of its own, float32 [V_m, D_m]."""
    tokens = torch.arange(model.encoder.embeddings.word_embeddings.weight.shape[0])
    ids = torch.stack([torch.full_like(tokens, _BEGIN), tokens, torch.full_like(tokens, _END)], dim=1)
    states = [
        model.encoder(input_ids=batch, attention_mask=torch.ones_like(batch)).last_hidden_state[:, 1]
        for batch in ids.split(_BATCH)
    ]
    return torch.cat(states)


@torch.no_grad()
def fit_echo(model: MilcoModel, tokenizer: Tokenizer, texts: list[str], weights: NDArray[np.float32]) -> float:
    """Fit the LexEcho head to the token weights on the hidden states of some texts; return R squared.

    It reads only the reserved dimensions, which attention does not write, and the bias.
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
    # The weight is in the first dimension; the second has its rounding error, enlarged.
    read = np.concatenate(states) @ np.array([1, 1 / ECHO_ENLARGED], np.float32)
    slope, level = np.polyfit(read, goal, 1)
    head.scale.fill_(1)
    head.weight.zero_()
    head.weight[0, part] = torch.tensor([slope, slope / ECHO_ENLARGED], dtype=torch.float32)
    head.bias.fill_(level)
    return float(1 - np.square(slope * read + level - goal).mean() / goal.var())
