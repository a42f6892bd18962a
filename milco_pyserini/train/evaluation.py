"""Retrieval effectiveness of a checkpoint during training: nDCG@10 of a small collection, by exact search."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.encode.dense import DenseEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import evaluate
from milco_pyserini.io.files import read_json, write_json

MEASURE = "nDCG@10"
BEST = "best.json"
# All scores are in memory.
_MOST_DOCUMENTS = 50_000
_HITS = 100


class CheckpointEvaluation:
    """A collection with topics and qrels of its name, read once.

    Raises:
        MilcoError: there is no such collection, or it has more than 50,000 documents.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        corpus = open_corpus(name)
        self._qrels = open_qrels(name)
        self._topics = [topic for topic in open_topics(name) if topic.id in self._qrels]
        self._documents = []
        for document in corpus:
            self._documents.append(document)
            if len(self._documents) > _MOST_DOCUMENTS:
                raise MilcoError(
                    f"`evaluate={name}`: it has more than {_MOST_DOCUMENTS:,} documents, too many to encode at every "
                    "checkpoint. Choose a small collection, such as sample"
                )

    def measure(self, checkpoint: Path, device: torch.device, is_dense: bool) -> float:
        """Return nDCG@10 of a checkpoint, as `milco encode` would read it. The random state is that of before."""
        queries = [topic.text for topic in self._topics]
        texts = [document.text for document in self._documents]
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            if is_dense:
                dense = DenseEncoder(checkpoint, device=device)
                # Cosines above 0, because a document is found by a score above 0.
                scores = dense.encode_query(queries) @ dense.encode_document(texts).T + 1.001
            else:
                encoder = load_encoder(checkpoint, device=device)
                scores = encoder.similarity(encoder.encode_query(queries), encoder.encode_document(texts))
        run = {}
        for topic, row in zip(self._topics, scores, strict=True):
            best = np.argsort(-row, kind="stable")[:_HITS]
            run[topic.id] = {self._documents[place].id: float(row[place]) for place in best if row[place] > 0}
        return evaluate(run, self._qrels, [MEASURE]).mean[MEASURE] if any(run.values()) else 0.0


class BestCheckpoint(NamedTuple):
    """The step of the checkpoint with the highest value of the measure, and the value."""

    step: int
    value: float


def read_best(run: Path) -> BestCheckpoint | None:
    """Return the best checkpoint of a run that was begun earlier, None if there is none."""
    if not (run / BEST).is_file():
        return None
    values = read_json(run / BEST)
    return BestCheckpoint(values["step"], values[MEASURE]) if (run / f"checkpoint-{values['step']}").is_dir() else None


def write_best(run: Path, best: BestCheckpoint) -> None:
    """Record the best checkpoint of a run."""
    write_json(run / BEST, {"step": best.step, MEASURE: best.value})
