"""PackedForward equals the reference forward pass."""

import numpy as np
import pytest
import torch
from golden_set import CHECKPOINTS, TEXTS, encoder
from torch import Tensor
from torch.nn import functional

from milco_pyserini.model import packed
from milco_pyserini.model.configuration import ECHO_VARIANTS
from milco_pyserini.model.modeling import MilcoConfig, MilcoModel
from milco_pyserini.model.packed import (
    Int8Linear,
    Linear,
    NotPacked,
    OneDnnLinear,
    PackedForward,
    int8_is_exact,
    linear_kind,
    packed_positions,
    padded_rows,
)

PADDING = 1
LENGTHS = [5, 2, 40, 17, 17, 17, 3, 33, 9, 40]
DTYPES = [torch.float32, torch.bfloat16]
needs_int8 = pytest.mark.skipif(not int8_is_exact(), reason="needs exact int8 products (VNNI or AMX)")


def network(**changes: object) -> MilcoModel:
    """A small network with random weights, biases and norms; changes: MilcoConfig fields, "encoder" a dict of them."""
    torch.manual_seed(20260)
    sizes = {
        "model_type": "xlm-roberta",
        "vocab_size": 300,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_position_embeddings": 60,
        "type_vocab_size": 1,
    }
    sizes.update(changes.pop("encoder", {}))  # type: ignore[call-overload]
    model = MilcoModel(MilcoConfig(encoder=sizes, english_hidden_size=48, english_vocab_size=5000, **changes)).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=float("norm" in name.lower() and "weight" in name), std=0.2)
    return model


def random_rows(lengths: list[int] = LENGTHS, vocabulary: int = 300) -> list[list[int]]:
    """Token ids of texts of these lengths."""
    draw = np.random.default_rng(20260)
    return [[0, *draw.integers(3, vocabulary, length - 2).tolist(), 2] for length in lengths]


@torch.inference_mode()
def padded(model: MilcoModel, rows: list[list[int]], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the reference's logits [B, V_e], and echo [T] of the real tokens."""
    ids = np.full((len(rows), max(map(len, rows))), PADDING)
    mask = np.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        output = model(torch.from_numpy(ids), torch.from_numpy(mask))
    assert output.echo is not None
    return output.logits, output.echo[torch.from_numpy(mask).bool()]


def assert_same(found: tuple[Tensor, Tensor | None], expected: tuple[Tensor, Tensor]) -> None:
    """The same support, and weights within 1e-5."""
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        assert one.dtype == torch.float32
        assert torch.equal(one > 0, other > 0)
        torch.testing.assert_close(one.relu().log1p(), other.relu().log1p(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("variant", ECHO_VARIANTS)
def test_packing_changes_no_vector(variant: str) -> None:
    """Texts of all lengths, equal ones next to each other or not, have the padded network's vectors."""
    model = network(echo_variant=variant)
    assert_same(PackedForward(model, torch.float32)(random_rows()), padded(model, random_rows(), torch.float32))


@pytest.mark.golden
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_packing_changes_no_vector_of_a_golden_checkpoint(checkpoint: str) -> None:
    """Both checkpoints of the golden set, on its texts; the first has no LexEcho head."""
    one = encoder(checkpoint)
    rows = [row.ids for row in one.tokenizer.tokenize([text for text in TEXTS if text], 64)]
    logits, echo = PackedForward(one.model, torch.float32)(rows)
    for number, row in enumerate(rows):
        ids = torch.tensor([row])
        with torch.inference_mode():
            expected = one.model(ids, torch.ones_like(ids))
        torch.testing.assert_close(logits[number], expected.logits[0], atol=1e-5, rtol=1e-5)
    assert (echo is None) == (checkpoint == "alignment")


@pytest.mark.parametrize("lengths", [LENGTHS * 5, [70, 32, 90, 90, 128, 200]])
def test_bfloat16_is_no_further_from_float32_than_autocast(lengths: list[int]) -> None:
    """Mean distance of the logits and of the echo weights from the float32 network, by both ways of attention."""
    model, rows = network(encoder={"max_position_embeddings": 210}), random_rows(lengths)
    exact = padded(model, rows, torch.float32)
    found = PackedForward(model, torch.bfloat16)(rows)
    for rounded, plain, truth in zip(found, padded(model, rows, torch.bfloat16), exact, strict=True):
        assert rounded is not None
        assert rounded.dtype == torch.float32
        assert float((rounded - truth).abs().mean()) <= 1.2 * float((plain - truth).abs().mean())


@needs_int8
@pytest.mark.parametrize("tokens", [3, 600])
def test_int8_products_are_those_of_the_rounded_numbers(tokens: int) -> None:
    """Weights in 255 steps per output, states in 255 steps per token, of any size; nothing else is rounded."""
    draw = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(40, 64, generator=draw), torch.randn(40, generator=draw)
    states = torch.randn(tokens, 64, generator=draw) * torch.logspace(-6, 6, tokens)[:, None]
    states[0], states[1, 5], states[2, 7:] = 0, -100, 0
    linear = Int8Linear(weight, bias, torch.float32)

    def rounded(rows: Tensor) -> Tensor:
        scale = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / 127
        return (rows / scale).round().double() * scale

    expected = rounded(states) @ rounded(weight).T + bias
    largest = expected.abs().amax(dim=1, keepdim=True)
    # Numbers halfway between two steps may be rounded up or down.
    for found, wanted in (
        (linear(states), expected),
        (linear.gelu(states), functional.gelu(expected)),
        (Int8Linear(weight, bias, torch.bfloat16)(states), expected),
    ):
        tolerance = 1e-2 if found.dtype == torch.bfloat16 else 3e-3
        torch.testing.assert_close(found / largest, wanted / largest, check_dtype=False, rtol=0, atol=tolerance)
    states[2] = torch.inf
    assert not linear(states)[2].isfinite().any() and linear(states)[[0, 1]].isfinite().all()


@needs_int8
def test_int8_is_near_float32() -> None:
    """Logits and echo weights of a network, and the same whether a text is alone or in a batch."""
    model, rows = network(), random_rows(LENGTHS * 20)
    forward, exact = PackedForward(model, torch.int8), PackedForward(model, torch.float32)(rows)
    found = forward(rows)
    for one, other in zip(found, exact, strict=True):
        assert one is not None and other is not None
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 0.03
    alone = forward(rows[2:3])[0][0]
    assert float((alone - found[0][2]).norm() / alone.norm()) < 0.01


def test_int8_products_that_overflow_are_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on processors without VNNI, or a torch without the operation."""

    def overflow(linear: Int8Linear, states: Tensor) -> Tensor:
        return torch.full((len(states), 32), 2.0**15)

    def missing(linear: Int8Linear, *_: object) -> None:
        raise AttributeError("qlinear_prepack")

    monkeypatch.setattr(Int8Linear, "__call__", overflow)
    assert not int8_is_exact.__wrapped__()
    monkeypatch.setattr(Int8Linear, "__init__", missing)
    assert not int8_is_exact.__wrapped__()


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_and_kinds_of_products_never_change_a_vector(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks shorter than a text, in the layers and in the head; plain layers, where oneDNN has no packed ones."""
    model = network()
    complete = PackedForward(model, dtype)(random_rows())
    unpacked = PackedForward(model, dtype, Linear)(random_rows())
    monkeypatch.setattr(packed, "LAYER_TOKENS", 8)
    monkeypatch.setattr(packed, "HEAD_TOKENS", 8)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for found in (unpacked, PackedForward(model, dtype)(random_rows())):
        for one, other in zip(found, complete, strict=True):
            assert one is not None and other is not None
            torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("failure", [AttributeError, RuntimeError, None])
def test_an_operation_that_fails_the_probe_is_not_used(
    failure: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operation is missing, raises, or gives a wrong product."""

    def broken(linear: OneDnnLinear, states: Tensor) -> Tensor:
        if failure:
            raise failure
        return torch.zeros(len(states), 96, dtype=states.dtype)

    monkeypatch.setattr(OneDnnLinear, "__call__", broken)
    assert linear_kind.__wrapped__(torch.float32) is Linear


def test_a_padding_token_in_a_text_is_not_counted() -> None:
    """RoBERTa gives the padding id its own position, also if a text spells it out."""
    assert packed_positions(np.array([0, 7, PADDING, 8, 2, 0, PADDING, 2]), [5, 3], PADDING).tolist() == [
        *(2, 3, 1, 4, 5),
        *(2, 1, 3),
    ]
    rows = random_rows()
    rows[2][3] = rows[2][4] = rows[3][1] = PADDING
    model = network()
    assert_same(PackedForward(model, torch.float32)(rows), padded(model, rows, torch.float32))


@pytest.mark.parametrize(
    ("field", "value"), [("model_type", "bert"), ("position_embedding_type", "relative_key"), ("is_decoder", True)]
)
def test_another_encoder_or_attention_is_refused(field: str, value: object) -> None:
    """Relative positions and causal masks are part of attention, which the packed pass leaves to torch."""
    model = network(encoder={"model_type": "bert"} if field == "model_type" else {})
    setattr(model.config.encoder, field, value)
    with pytest.raises(NotPacked, match=f"type {value}" if field == "model_type" else f"{field} {value!r}"):
        PackedForward(model, torch.float32)


def test_training_and_half_precision_are_refused() -> None:
    """The packed pass has no dropout, and the CPU no float16 products."""
    model = network()
    with pytest.raises(NotPacked, match="float16"):
        PackedForward(model, torch.float16)
    with pytest.raises(NotPacked, match="in training"):
        PackedForward(model.train(), torch.float32)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 127, 129, 300])
def test_padding_rows_change_no_vector(length: int) -> None:
    """Matrices are padded to a few sizes, whatever number of tokens a query has."""
    model = network(encoder={"max_position_embeddings": 400})
    rows = [[0] * length]
    rows[0][-1] = 2
    assert padded_rows(length) % 16 == 0
    assert 0 <= padded_rows(length) - length < 128
    assert_same(PackedForward(model, torch.float32)(rows), padded(model, rows, torch.float32))
