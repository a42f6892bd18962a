"""What every encoder promises: MILCO with one view and with both, and a dense encoder, as training has it."""

import functools
from collections.abc import Callable

import numpy as np
import pytest
from golden_set import EXACT, GOLDEN, TEXTS, encoder
from golden_set import dense as rows_of

from recipes.dense.encoder import DenseEncoder

LENGTH = 32


def milco(name: str) -> Callable[[list[str]], np.ndarray]:
    """Return a function that encodes texts as rows of a matrix, with a checkpoint of the golden set."""
    return lambda texts: rows_of(encoder(name).encode_document(texts, max_length=LENGTH))


@functools.cache
def dense_encoder() -> DenseEncoder:
    """Return a dense encoder, loaded once."""
    return DenseEncoder(str(GOLDEN / "ckpt_distillation"), device="cpu")


def dense(texts: list[str]) -> np.ndarray:
    """Return dense vectors of texts."""
    return dense_encoder().encode_document(texts, max_length=LENGTH)


ENCODERS = {"both views": milco("distillation"), "pivot view": milco("alignment"), "dense": dense}


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_do_not_depend_on_the_batch(name: str) -> None:
    """Alone, in another order, next to longer texts: equal up to the rounding of matrix products."""
    texts = [*TEXTS, "", "a", "x " * 200]
    together = ENCODERS[name](texts)
    np.testing.assert_allclose(ENCODERS[name](texts[::-1])[::-1], together, **EXACT)
    for number, text in enumerate(texts):
        np.testing.assert_allclose(ENCODERS[name]([text])[0], together[number], **EXACT)


@pytest.mark.parametrize("name", ENCODERS)
def test_every_text_has_a_row_of_finite_values(name: str) -> None:
    """Blank texts, emoji, control characters and lone surrogates included."""
    texts = ["", " \n", "\x00", "\ud800", "👩‍👩‍👧", "नील", "a" * 10_000]
    rows = ENCODERS[name](texts)
    assert len(rows) == len(texts)
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("name", ENCODERS)
def test_no_texts_have_no_rows(name: str) -> None:
    """An empty list is not an error."""
    assert len(ENCODERS[name]([])) == 0
