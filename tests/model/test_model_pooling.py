"""Chunked pooling of the pivot view equals its reference, without building all logits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from milco_pyserini.model.configuration import ECHO_VARIANTS
from milco_pyserini.model.modeling import LexEcho, MilcoConfig, MilcoModel
from milco_pyserini.model.pooling import VOCABULARY_CHUNK, highest_logits, max_logits, max_logits_reference

Case = tuple[Tensor, Tensor, Tensor, Tensor]


def case(texts: int, tokens: int, width: int, vocabulary: int, seed: int) -> Case:
    """Random states, a mask with at least one real token in every row, and a decoder."""
    generator = torch.Generator().manual_seed(seed)
    projected = torch.randn(texts, tokens, width, generator=generator)
    mask = torch.rand(texts, tokens, generator=generator) < 0.7
    mask[torch.arange(texts), torch.randint(tokens, (texts,), generator=generator)] = True
    weight = torch.randn(vocabulary, width, generator=generator)
    return projected, mask, weight, torch.randn(vocabulary, generator=generator)


@settings(max_examples=60)
@given(
    texts=st.integers(1, 5),
    tokens=st.integers(1, 6),
    width=st.integers(1, 4),
    chunk=st.integers(1, 9),
    vocabulary=st.integers(1, 40),
    block=st.integers(1, 200),
    seed=st.integers(0, 2**31),
)
def test_chunks_and_blocks_change_nothing(
    texts: int, tokens: int, width: int, chunk: int, vocabulary: int, block: int, seed: int
) -> None:
    """For any chunk of the vocabulary and block of texts, the maximum is that of all logits at once."""
    states, _, weight, bias = case(texts, tokens, width, vocabulary, seed)
    actual = highest_logits(states, weight, bias, block, chunk)
    wanted = max_logits_reference(states, torch.ones(texts, tokens, dtype=torch.bool), weight, bias)
    torch.testing.assert_close(actual, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("vocabulary", [1, VOCABULARY_CHUNK - 1, VOCABULARY_CHUNK, VOCABULARY_CHUNK + 1])
@pytest.mark.parametrize(("texts", "tokens"), [(1, 1), (3, 2), (5, 400)])
def test_default_chunks_change_nothing(texts: int, tokens: int, vocabulary: int) -> None:
    """At the default chunk, one piece more or less, and several blocks of texts: equal to the reference."""
    values = case(texts, tokens, 3, vocabulary, seed=texts)
    torch.testing.assert_close(max_logits(*values), max_logits_reference(*values), atol=1e-5, rtol=1e-5)


def test_a_row_of_padding_is_refused() -> None:
    """A text without an unmasked token has no maximum: an error, not zeros that look like a vector."""
    projected, mask, weight, bias = case(2, 3, 2, 5, seed=1)
    mask[1] = False
    with pytest.raises(ValueError, match="has no unmasked token"):
        max_logits(projected, mask, weight, bias)


def test_a_frozen_decoder_has_no_gradient() -> None:
    """The states still have theirs."""
    projected, mask, weight, bias = case(3, 4, 3, 11, seed=2)
    gradients = []
    for pool in (max_logits, max_logits_reference):
        leaf = projected.clone().requires_grad_()
        pool(leaf, mask, weight, bias).square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)
    assert weight.grad is None and bias.grad is None


def small_config(**variants: object) -> MilcoConfig:
    """A network of a few thousand parameters."""
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    encoder = {"model_type": "xlm-roberta", **sizes, "intermediate_size": 16, "max_position_embeddings": 16}
    return MilcoConfig(encoder=encoder, english_hidden_size=6, english_vocab_size=11, **variants)


@pytest.mark.parametrize("variant", ECHO_VARIANTS)
def test_a_new_echo_head_can_learn(variant: str) -> None:
    """From scratch some tokens echo, and each of the head's own parameters that matters has a gradient."""
    torch.manual_seed(0)
    model = MilcoModel(small_config(echo_variant=variant))
    ids = torch.arange(12).view(2, 6) + 4
    echo = model(ids, torch.ones_like(ids)).echo
    assert (echo > 0).any()
    echo.sum().backward()
    assert model.echo.weight.grad.abs().sum() > 0
    assert model.echo.bias.grad.abs().sum() > 0


def test_echo_variants_equal_their_formulas() -> None:
    """linear: relu(w H + b) x scale. paper: log1p(relu(w Z + b)). token: relu(w[t] + b) x scale. Zero where masked."""
    hidden, projected = torch.randn(2, 2, 3, 4, generator=torch.Generator().manual_seed(3))
    tokens = torch.tensor([[0, 1, 3], [2, 2, 1]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    one_hot = torch.nn.functional.one_hot(tokens, 4).float()
    for variant, states in (("linear", hidden), ("paper", projected), ("token", one_hot)):
        head = LexEcho(4, variant)
        with torch.no_grad():
            for parameter, value in ((head.weight, 0.5), (head.bias, 0.25), (head.scale, 3.0)):
                parameter.fill_(value)
            actual = head(tokens, hidden, projected, mask).numpy()
        gate = np.maximum(states.numpy().sum(-1) * 0.5 + 0.25, 0)
        wanted = np.log1p(gate) if variant == "paper" else gate * 3
        np.testing.assert_allclose(actual, wanted * mask.numpy(), rtol=1e-5)


@pytest.mark.parametrize("variant", ECHO_VARIANTS)
def test_echo_is_float32_under_autocast(variant: str) -> None:
    """Its weights are summed over repeated tokens: bfloat16 is only for the matrix products before it."""
    torch.manual_seed(0)
    head = LexEcho(64, variant)
    torch.nn.init.normal_(head.weight)
    states, tokens = torch.randn(2, 5, 64), torch.zeros(2, 5, dtype=torch.int64)
    mask = torch.ones(2, 5, dtype=torch.bool)
    with torch.inference_mode():
        exact = head(tokens, states, states, mask)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = head(tokens, states, states, mask)
    assert rounded.dtype == torch.float32
    assert torch.equal(exact, rounded)


def test_an_echo_head_has_the_size_of_what_it_reads() -> None:
    """ "linear" reads the encoder's states, "paper" the connector's output, "token" the tokens."""
    for variant, size in (("linear", 8), ("paper", 6), ("token", 20)):
        assert MilcoModel(small_config(echo_variant=variant)).echo.weight.shape == (1, size)
    assert MilcoModel(small_config(echo=False)).echo is None
