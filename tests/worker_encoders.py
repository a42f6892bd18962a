"""Encoders for the tests of workers: they need no network, and some end their process."""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np

from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.options import option
from milco_pyserini.sparse import SparseBatch, Vocabulary


class WordLengthEncoder:
    """One term per text: column i with weight i, where i is the number of words."""

    hashes: ClassVar = dict.fromkeys(("weight_hash", "tokenizer_hash"), "words")
    dtype = "float32"
    encodes_documents = True
    vocabulary = Vocabulary([f"w{number}" for number in range(100)], [])
    config = SimpleNamespace(passage_max_length=64, query_max_length=64)

    def __init__(self, lives: str = "") -> None:
        self.tokenizer = self.network = self
        self._lives = lives

    def validate_length(self, max_length: int) -> None:
        """Accept every length."""

    def resolve_views(self, views: Sequence[str]) -> tuple[str, ...]:
        """Return the only view."""
        return ("pivot",)

    def of_records(self, records: Sequence[object]) -> "WordLengthEncoder":
        """Return self: every text is split in the same way."""
        return self

    def tokenize(self, texts: Sequence[str], max_length: int) -> list[SimpleNamespace]:
        """Return a token per word."""
        return [SimpleNamespace(ids=[7] * len(text.split()[:max_length]), truncated=False) for text in texts]

    def encode(
        self,
        rows: Sequence[Sequence[int]],
        views: Sequence[str],
        batch_size: int,
        ids: Sequence[str],
        report: Callable[[int, int], None],
    ) -> SparseBatch:
        """Return the vectors; kill the process at a text of one word, as often as there are files in lives."""
        lengths = np.array([len(row) for row in rows])
        for life in Path(self._lives).iterdir() if self._lives and 1 in lengths else ():
            with contextlib.suppress(FileNotFoundError):
                life.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        report(len(rows), int(lengths.sum()))
        indptr = np.arange(len(rows) + 1)
        return SparseBatch(indptr, lengths.astype(np.int32), lengths.astype(np.float32), 100)


@dataclass(frozen=True)
class WordLengthPlan(EncodePlan):
    """A plan with a WordLengthEncoder. lives: a directory with a file for each time that it kills its process."""

    lives: str = option("", help="directory of lives")

    def load_encoder(self, checkpoint: Checkpoint, device: str) -> WordLengthEncoder:
        """Return the encoder."""
        return WordLengthEncoder(self.lives)


@dataclass(frozen=True)
class BrokenPlan(EncodePlan):
    """A plan whose encoder fails with an error that is a bug."""

    def load_encoder(self, checkpoint: Checkpoint, device: str) -> SimpleNamespace:
        """Return an encoder without a network."""
        return SimpleNamespace(tokenizer=WordLengthEncoder())
