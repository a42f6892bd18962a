"""A dense encoder as the teacher of contrast: how similar the texts of a batch are, whatever their languages."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from milco_pyserini.train.batches import batch_texts
from milco_pyserini.train.config import SctConfig
from milco_pyserini.train.data.parallel import Translations
from milco_pyserini.train.data.streams import ExampleStream, QueryGroup
from milco_pyserini.train.stages import prepare_sct
from milco_pyserini.train.teachers import Texts
from milco_pyserini.train.trainer import TrainingTask

from .encoder import DenseEncoder

# Examples that the means are computed from, and the texts of all languages that a language's mean is shrunk toward.
_EXAMPLES, _PRIOR = 1024, 8


def taught_by(name: str, temperature: float = 0.05) -> Callable[[SctConfig], TrainingTask]:
    """Return what run_stage() prepares contrastive training with, so that a dense encoder's cosines are distilled.

    >>> run_stage(config, taught_by("intfloat/multilingual-e5-base"))  # doctest: +SKIP
    """

    def prepare(config: SctConfig) -> TrainingTask:
        def similarity(stream: ExampleStream, device: torch.device) -> DenseTeacher:
            return DenseTeacher(DenseEncoder(name, device=device, dtype=config.loop.dtype), stream, temperature)

        task = prepare_sct(config, similarity)
        # A run is resumed with the same teacher.
        return replace(task, data=task.data | {"dense_teacher": name, "teacher_temperature": temperature})

    return prepare


class DenseTeacher:
    """Cosines of dense vectors, centered per language: without it, a text is most similar to texts in its language.

    Args:
        encoder: of the vectors, with its prompts.
        examples: of the training data, whose first ones give each language's mean.
        temperature: divisor of the cosines.
    """

    def __init__(
        self, encoder: DenseEncoder, examples: Iterable[QueryGroup | Translations], temperature: float
    ) -> None:
        self.encoder, self.temperature = encoder, temperature
        by_language: dict[bool, dict[str, list[str]]] = {True: defaultdict(list), False: defaultdict(list)}
        for example in islice(examples, _EXAMPLES):
            for side in batch_texts([example]).values():
                for text, language in zip(side.texts, side.languages, strict=True):
                    by_language[side.are_queries][language].append(text)
        self._means = {kind: self._language_means(texts, kind) for kind, texts in by_language.items()}

    def scores(self, rows: Texts, columns: Texts) -> Tensor:
        """Return cosines divided by the temperature, float32 [R, C], on the CPU."""
        left = self._centered(rows)
        right = left if columns is rows else self._centered(columns)
        return left @ right.T / self.temperature

    def _centered(self, side: Texts) -> Tensor:
        means = self._means[side.are_queries]
        centers = np.stack([means.get(language, means[""]) for language in side.languages])
        return functional.normalize(torch.from_numpy(self._encode(side.texts, side.are_queries) - centers), dim=1)

    def _language_means(self, texts: dict[str, list[str]], are_queries: bool) -> dict[str, NDArray[np.float32]]:
        """Return the mean vector of each language; that of all texts is "", for languages without any."""
        if not texts:
            return {}
        vectors = {language: self._encode(listed, are_queries) for language, listed in texts.items()}
        mean = np.concatenate(list(vectors.values())).mean(axis=0)
        means = {
            language: (rows.sum(axis=0) + _PRIOR * mean) / (len(rows) + _PRIOR) for language, rows in vectors.items()
        }
        return {**means, "": mean}

    def _encode(self, texts: list[str], are_queries: bool) -> NDArray[np.float32]:
        encode = self.encoder.encode_query if are_queries else self.encoder.encode_document
        return encode(texts, max_length=self.encoder.passage_max_length)
