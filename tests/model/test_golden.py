"""Vectors and intermediate tensors equal the authors': both checkpoints, both lengths.

Needs only torch, transformers, tokenizers, safetensors, numpy, scipy, pyarrow and orjson.
"""

import json

import numpy as np
import pytest
import torch
from golden_set import CHECKPOINTS, EMPTY, EXACT, GOLDEN, TEXTS, dense, encoder, expected, expected_rows
from torch.nn import functional

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.model.modeling import MilcoOutput
from milco_pyserini.sparse import VIEWS, SparseBatch

pytestmark = pytest.mark.golden
LENGTHS = (512, 64)


def golden_rows() -> tuple[torch.Tensor, torch.Tensor]:
    """The authors' padded ids and mask of the first texts."""
    return torch.from_numpy(expected()["input_ids"]), torch.from_numpy(expected()["attention_mask"])


def forward(checkpoint: str) -> MilcoOutput:
    """Our network on the authors' padded batch."""
    with torch.inference_mode():
        return encoder(checkpoint).model(*golden_rows())


def vectors_with_empty(checkpoint: str, length: int, dtype: str = "float32") -> SparseBatch:
    """Encode the golden texts, the empty one as <s> </s>, as the authors do."""
    loaded = encoder(checkpoint, dtype)
    filled = loaded.encode([text for text in TEXTS if text], max_length=length)
    empty = loaded.network.encode([[0, 2]], loaded.views)
    order = np.insert(np.arange(len(filled)), EMPTY, len(filled))
    return SparseBatch.concatenate([filled, empty], filled.english_size).take(order)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_vectors_equal_the_authors(checkpoint: str, length: int) -> None:
    """Same support, values within 2e-5 of the authors' encode_text in float32."""
    actual = dense(vectors_with_empty(checkpoint, length))
    authors = expected_rows(f"{checkpoint}.len{length}")
    np.testing.assert_array_equal(actual > 1e-5, authors > 1e-5)
    np.testing.assert_allclose(actual, authors, **EXACT)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_an_empty_text_has_no_terms_unlike_its_special_tokens(checkpoint: str) -> None:
    """encode() gives an empty text no terms; the special tokens <s> </s> give the authors' row."""
    loaded = encoder(checkpoint)
    assert loaded.tokenizer.tokenizer.encode("").ids == [0, 2]
    assert loaded.encode([""], max_length=512).lengths().tolist() == [0]
    row = dense(loaded.network.encode([[0, 2]], loaded.views))[0]
    assert row.any()
    np.testing.assert_allclose(row, expected_rows(f"{checkpoint}.len512")[EMPTY], **EXACT)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_dictionaries_equal_the_authors(checkpoint: str) -> None:
    """With the prefix e_ the terms are spelled as the authors spell them, with the same weights."""
    authors = json.loads((GOLDEN / f"expected_{checkpoint}_dicts.json").read_text(encoding="utf-8"))
    spelled = MilcoEncoder.from_pretrained(GOLDEN / f"ckpt_{checkpoint}", "cpu", "float32", english_prefix="e_")
    actual = spelled.encode(TEXTS[: len(authors)], max_length=512).to_dicts(spelled.vocabulary)
    for vector, golden in zip(actual, authors, strict=True):
        assert vector.keys() == golden.keys()
        assert vector == pytest.approx(golden, abs=2e-5, rel=1e-5)


def test_token_ids_equal_the_authors() -> None:
    """The tokenizer gives the authors' ids and mask."""
    ids, mask = golden_rows()
    for text, row, row_mask in zip(TEXTS, ids.tolist(), mask.tolist(), strict=False):
        actual = encoder("alignment").tokenizer.tokenize([text], 512)[0].ids
        assert row_mask == [1] * len(actual) + [0] * (len(row_mask) - len(actual))
        assert row == actual + [1] * (len(row) - len(actual))


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_hidden_states_equal_the_authors(checkpoint: str) -> None:
    """Encoder states, the connector's first half and logits of the first text, without padding."""
    arrays, output, model = expected(), forward(checkpoint), encoder(checkpoint).model
    real = arrays["attention_mask"][0].astype(bool)
    with torch.inference_mode():
        states = {
            "hidden": output.hidden[0],
            "connector": functional.gelu(model.connector.projector(output.hidden[0])),
            "logits": model.decoder(model.connector(output.hidden[0])),
        }
    for name, actual in states.items():
        np.testing.assert_allclose(actual[real], arrays[f"{checkpoint}.{name}_row0"][real], **EXACT)


def test_echo_weights_equal_the_authors() -> None:
    """The weight of every source token before the weights of a repeated token are summed."""
    output = forward("distillation")
    assert output.echo is not None
    mask = expected()["attention_mask"]
    np.testing.assert_allclose(output.echo, expected()["distillation.source_vals"] * mask, **EXACT)
    assert forward("alignment").echo is None


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_bfloat16_is_as_exact_as_the_authors(checkpoint: str) -> None:
    """Under bfloat16 no weight is farther from float32 than the authors' own error, 0.06 (pivot) and 0.5 (sums)."""
    exact, authors = expected_rows(f"{checkpoint}.len512"), expected_rows(f"{checkpoint}.bf16autocast")
    actual = dense(vectors_with_empty(checkpoint, 512, "bfloat16"))
    assert not np.array_equal(actual, exact)
    english = encoder(checkpoint).vocabulary.english_size
    for view in (slice(0, english), slice(english, None)):
        assert np.abs(actual - exact)[:, view].max() <= np.abs(authors - exact)[:, view].max() + 1e-3
        assert np.abs(actual - exact)[:, view].mean() <= np.abs(authors - exact)[:, view].mean()


@pytest.mark.parametrize(("checkpoint", "views"), [("alignment", ("pivot",)), ("distillation", VIEWS)])
def test_views_follow_the_checkpoint(checkpoint: str, views: tuple[str, ...]) -> None:
    """A checkpoint without a LexEcho head has only the pivot view."""
    assert encoder(checkpoint).views == views
