"""Figures of a trained configuration: nDCG@10 on the held-out questions, and whether its terms mean anything."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import evaluate
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.sparse import PIVOT
from milco_pyserini.train.alarms import CollapseMonitor
from milco_pyserini.train.data.bitext import BitextPair

from . import dense
from .catalogue import DENSE, MULTILINGUAL_HEAD, Configuration
from .data import Collection
from .stages import PASSAGE_LENGTH, QUERY_LENGTH

MEASURE = "nDCG@10"
_HITS = 100
_PAIRS_PER_LANGUAGE = 100

Probe = dict[str, list[BitextPair]]


def retrieval_figures(
    encoder: MilcoEncoder, configuration: Configuration, collections: Sequence[Collection]
) -> dict[str, float]:
    """COLLECTION.LANGUAGE to nDCG@10 of its questions among all the passages of the collection, exact search."""
    figures = {}
    for collection in collections:
        passages = _encode(encoder, configuration, collection.passages, PASSAGE_LENGTH)
        for language, questions in collection.questions.items():
            queries = _encode(encoder, configuration, [question.text for question in questions], QUERY_LENGTH)
            # Every passage is found by a dense query: no score may be 0 or less.
            dense_scores = configuration.output == DENSE
            scores = queries @ passages.T + 2 if dense_scores else encoder.similarity(queries, passages)
            answers = [question.passage for question in questions]
            figures[f"{collection.name}.{language}"] = ndcg(scores, answers)
    return figures


def ndcg(scores: NDArray[np.float32], answers: Sequence[int]) -> float:
    """Mean nDCG@10 where answers[i] is the one passage that answers question i. scores: float [questions, passages].

    A passage with score 0 shares no term with the question, and is not found.
    """
    run = {}
    for number, row in enumerate(scores):
        best = np.argsort(-row, kind="stable")[:_HITS]
        run[str(number)] = {str(place): float(row[place]) for place in best if row[place] > 0}
    qrels = {str(number): {str(answer): 1} for number, answer in enumerate(answers)}
    return evaluate(run, qrels, [MEASURE]).mean[MEASURE] if any(run.values()) else 0.0


def collapse_figures(encoder: MilcoEncoder, configuration: Configuration, probe: Probe) -> dict[str, float]:
    """What the alarms of training look at, over the probe's sentence pairs.

    grounded: share of a foreign sentence's terms that its English translation holds; under the multilingual head, that
    the sentence itself or its translation holds. terms: per sentence. dead, always_on: share of the vocabulary that no
    sentence uses, and that more than half of them use.
    """
    monitor = CollapseMonitor()
    for pairs in probe.values():
        batch = encoder.encode([pair.text for pair in pairs], PASSAGE_LENGTH, (PIVOT,)).batch
        pivot = torch.zeros(len(pairs), encoder.vocabulary.english_size)
        pivot[batch.row_numbers(), batch.columns.astype(np.int64)] = torch.from_numpy(batch.weights)
        if configuration.output == MULTILINGUAL_HEAD:
            tokenizer, meant = encoder.tokenizer.tokenizer, [f"{pair.text} {pair.english}" for pair in pairs]
        else:
            tokenizer, meant = encoder.english_tokenizer, [pair.english for pair in pairs]
        pieces = [encoding.tokens for encoding in tokenizer.encode_batch(meant, add_special_tokens=False)]
        monitor.update("probe", [pair.language for pair in pairs], pivot, _marked(encoder, pieces))
    figures = monitor.figures()
    names = {"grounded": "pivot/grounded/probe", "terms": "pivot/terms/probe"}
    names |= {"dead": "pivot/dead/probe", "always_on": "pivot/always_on/probe"}
    return {name: figures.get(key, 0.0) for name, key in names.items()}


def read_probe(directory: Path) -> Probe:
    """The first sentence pairs of every LANGUAGE-en.tsv: its last two columns, as FLORES has an id before them.

    Raises MilcoError if there is no such file, or a line of one is no pair.
    """
    probe = {path.name.partition("-en.")[0]: _pairs(path) for path in sorted(directory.glob("*-en.tsv*"))}
    if not probe:
        raise MilcoError(f"--probe {directory}: no LANGUAGE-en.tsv is there")
    return probe


def _pairs(path: Path) -> list[BitextPair]:
    pairs = []
    for number, line in itertools.islice(numbered_lines(path), _PAIRS_PER_LANGUAGE):
        columns = line.decode().split("\t")
        if len(columns) < 2:
            raise MilcoError(f"{path}:{number}: no tab between a sentence and its English")
        pairs.append(BitextPair(path.name.partition("-en.")[0], *columns[-2:]))
    return pairs


def _marked(encoder: MilcoEncoder, texts: Sequence[Sequence[str]]) -> torch.Tensor:
    """Bool [B, V_e]: which of the pivot's columns are among the pieces of each text."""
    columns = {piece: column for column, piece in enumerate(encoder.vocabulary.english)}
    marked = torch.zeros(len(texts), len(columns), dtype=torch.bool)
    for row, pieces in enumerate(texts):
        marked[row, [columns[piece] for piece in pieces if piece in columns]] = True
    return marked


def _encode(encoder: MilcoEncoder, configuration: Configuration, texts: Sequence[str], max_length: int) -> Any:
    """Dense rows, or a SparseBatch with the configuration's views."""
    if configuration.output == DENSE:
        return dense.encode(encoder, texts, max_length)
    return encoder.encode(texts, max_length, configuration.views).batch
