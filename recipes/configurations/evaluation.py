"""Evaluate a trained configuration: nDCG@10 of held-out queries, and grounding of its terms."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from milco_pyserini.corpora.bitext import BitextPair, open_bitext
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.eval import evaluate
from milco_pyserini.sparse import PIVOT
from milco_pyserini.train.monitor import CollapseMonitor

from ..dense.encoder import DenseEncoder
from .catalogue import DENSE, MULTILINGUAL_HEAD, Configuration
from .data import TestCollection
from .dense import POOLING
from .stages import PASSAGE_LENGTH, QUERY_LENGTH

MEASURE = "nDCG@10"
# Figures of the collapse alarms: the share of a sentence's terms that are tokens of its English translation (under the
# multilingual head, of the sentence or its translation), terms per sentence, and the shares of the vocabulary that are
# active in no sentence, and in more than half of them.
COLLAPSE_FIGURES = ("grounded", "terms", "dead", "always_on")
_HITS = 100
_PAIRS_PER_LANGUAGE = 100

Probe = dict[str, list[BitextPair]]


def retrieval_figures(
    encoder: MilcoEncoder, configuration: Configuration, collections: Sequence[TestCollection]
) -> dict[str, float]:
    """Return nDCG@10 by COLLECTION.LANG, by exact search."""
    figures = {}
    dense = DenseEncoder(encoder.name, POOLING, encoder.device) if configuration.output == DENSE else None

    def encode(texts: Sequence[str], max_length: int) -> Any:
        if dense is not None:
            return dense.encode_document(texts, max_length=max_length)
        return encoder.encode(texts, max_length=max_length, views=configuration.views)

    for collection in collections:
        passages = encode(collection.passages, PASSAGE_LENGTH)
        for language, test_queries in collection.queries.items():
            queries = encode([query.text for query in test_queries], QUERY_LENGTH)
            # A dense query finds every passage: scores must be above 0.
            scores = queries @ passages.T + 2 if dense is not None else encoder.similarity(queries, passages)
            relevant = [query.passage for query in test_queries]
            figures[f"{collection.name}.{language}"] = ndcg(scores, relevant)
    return figures


def ndcg(scores: NDArray[np.float32], relevant: Sequence[int]) -> float:
    """Return mean nDCG@10 of scores, float [queries, passages], with one relevant passage per query.

    A passage with score 0 shares no term with the query, and is not found.
    """
    run = {}
    for number, row in enumerate(scores):
        best = np.argsort(-row, kind="stable")[:_HITS]
        run[str(number)] = {str(place): float(row[place]) for place in best if row[place] > 0}
    qrels = {str(number): {str(passage): 1} for number, passage in enumerate(relevant)}
    return evaluate(run, qrels, [MEASURE]).mean[MEASURE] if any(run.values()) else 0.0


def collapse_figures(encoder: MilcoEncoder, configuration: Configuration, probe: Probe) -> dict[str, float]:
    """Return COLLAPSE_FIGURES over the probe's sentence pairs."""
    monitor = CollapseMonitor(counted=1)
    columns = {token: column for column, token in enumerate(encoder.vocabulary.english)}
    for pairs in probe.values():
        batch = encoder.encode([pair.text for pair in pairs], max_length=PASSAGE_LENGTH, views=(PIVOT,))
        pivot = torch.zeros(len(pairs), encoder.vocabulary.english_size)
        pivot[batch.row_numbers(), batch.columns.astype(np.int64)] = torch.from_numpy(batch.weights)
        if configuration.output == MULTILINGUAL_HEAD:
            tokenizer, expected = encoder.tokenizer.tokenizer, [f"{pair.text} {pair.english}" for pair in pairs]
        else:
            tokenizer, expected = encoder.english_tokenizer, [pair.english for pair in pairs]
        grounded = torch.zeros(len(pairs), len(columns), dtype=torch.bool)
        for row, encoding in enumerate(tokenizer.encode_batch(expected, add_special_tokens=False)):
            grounded[row, [columns[token] for token in encoding.tokens if token in columns]] = True
        monitor.update("text", [pair.language for pair in pairs], pivot, grounded)
    figures = monitor.figures()
    return {name: figures.get(f"pivot/{name}/text", 0.0) for name in COLLAPSE_FIGURES}


def read_probe(directory: Path) -> Probe:
    """Read the first sentence pairs of every LANG-en.tsv; an id column, as in FLORES, is skipped.

    Raises MilcoError if there is no such file, or a line is not a pair.
    """
    probe = {
        source.language: list(itertools.islice(source.pairs(), _PAIRS_PER_LANGUAGE))
        for source in open_bitext([directory], ids=True)
    }
    return dict(sorted(probe.items()))
