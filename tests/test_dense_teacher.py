"""The dense teacher of contrast: similarities without the preference for a text's own language."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from milco_pyserini.train.batches import batch_texts
from milco_pyserini.train.data.parallel import Translations
from milco_pyserini.train.data.streams import QueryGroup
from recipes.dense.encoder import DenseEncoder
from recipes.dense.teacher import DenseTeacher

MEANINGS = ("river", "bridge", "book", "town")


class LanguageBoundEncoder(DenseEncoder):
    """Vectors that are mostly a text's language: texts are "LANGUAGE MEANING"."""

    def __init__(self) -> None:
        self.passage_max_length = 512

    def encode_query(
        self, texts: str | Sequence[str], max_length: int | None = None, lowercase: bool = False
    ) -> NDArray[np.float32]:
        """Return float32 [B, 6]."""
        vectors = np.zeros((len(texts), 6), np.float32)
        for row, text in enumerate(texts):
            language, meaning = text.split()
            vectors[row, ("de", "en").index(language)] = 0.9
            vectors[row, 2 + MEANINGS.index(meaning)] = 0.4
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    encode_document = encode_query


def translations() -> list[Translations]:
    """Each meaning in two languages."""
    return [
        Translations(("de", "en"), (f"de {word}", f"en {word}"), (False, False), (f"en {word}",) * 2)
        for word in MEANINGS
    ]


def test_a_translation_is_nearer_than_texts_in_the_own_language() -> None:
    """By the encoder's own cosines it is not."""
    encoder, examples = LanguageBoundEncoder(), translations()
    side = batch_texts(examples)["text"]
    vectors = torch.from_numpy(encoder.encode_query(side.texts))
    plain = (vectors @ vectors.T).fill_diagonal_(-2)
    assert (plain.argmax(dim=1) != torch.tensor([1, 0, 3, 2, 5, 4, 7, 6])).all()
    # A mean of few texts is close to that of all languages.
    scores = DenseTeacher(encoder, examples * 50, 0.05).scores(side, side).fill_diagonal_(-100)
    assert scores.argmax(dim=1).tolist() == [1, 0, 3, 2, 5, 4, 7, 6]


def test_scores_of_queries_and_passages_have_a_row_per_query() -> None:
    """float32 [Q, P]: cosines, divided by the temperature."""
    groups = [QueryGroup("de", f"de {word}", (f"de {word}", "de book"), None) for word in MEANINGS]
    sides = batch_texts(groups)
    scores = DenseTeacher(LanguageBoundEncoder(), groups, 0.1).scores(sides["query"], sides["passage"])
    assert scores.shape == (4, 8)
    assert scores[0].argmax() == 0
    assert scores.abs().max() <= 10 * (1 + 1e-5)


def test_a_language_that_the_first_examples_lack_has_the_mean_of_all() -> None:
    """It is scored, and finite."""
    examples = translations()
    teacher = DenseTeacher(LanguageBoundEncoder(), [e._replace(languages=("de", "xx")) for e in examples], 0.05)
    side = batch_texts(examples)["text"]
    assert torch.isfinite(teacher.scores(side, side)).all()
