"""PaddedForward and choose_forward equal the reference forward pass on every device."""

import numpy as np
import pytest
import torch
from golden_set import GOLDEN, TEXTS, dense, encoder
from torch import Tensor

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.model import MilcoModel, pooling
from milco_pyserini.model import forward as forward_module
from milco_pyserini.model.forward import PaddedForward, choose_forward, max_logits, pad_rows
from milco_pyserini.model.packed import PackedForward
from milco_pyserini.model.pooling import max_logits_reference

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch sees")


@pytest.fixture(scope="module")
def model() -> MilcoModel:
    return encoder("distillation").model


@pytest.fixture(scope="module")
def rows() -> list[list[int]]:
    """Token ids of the golden texts, the first 60 of each, in file order."""
    return [row[:60] for row in encoder("distillation").tokenizer.ids(TEXTS) if row]


def reference(model: MilcoModel, rows: list[list[int]], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """MilcoModel.forward over the rows padded to the longest, and its echo of the real tokens."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, 1)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row), dtype=torch.int64) for row in rows], True, 0)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        output = model(ids, mask)
    assert output.echo is not None
    return output.logits, output.echo[mask.bool()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_padded_forward_equals_the_model(model: MilcoModel, rows: list[list[int]], dtype: torch.dtype) -> None:
    """Same logits and echo, with matrices that were cast once instead of for every batch."""
    logits, echo = PaddedForward(model, CPU, dtype)(rows)
    wanted, wanted_echo = reference(model, rows, dtype)
    assert logits.dtype == torch.float32 and echo is not None and echo.dtype == torch.float32
    torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(echo, wanted_echo, atol=1e-5, rtol=1e-5)


def test_without_a_lexecho_head_there_is_no_echo() -> None:
    """Only logits."""
    assert PaddedForward(encoder("alignment").model, CPU, torch.float32)([[0, 9, 2]])[1] is None


def test_only_matrices_are_copied(model: MilcoModel) -> None:
    """In float32 every tensor is shared with the model; in bfloat16 all but the linear layers'."""
    own = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    twin = PaddedForward(model, CPU, torch.float32)._network.state_dict()
    assert {name: tensor.data_ptr() for name, tensor in twin.items()} == own
    cast = {
        name
        for name, tensor in PaddedForward(model, CPU, torch.bfloat16)._network.state_dict().items()
        if tensor.data_ptr() != own[name]
    }
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    assert cast == {f"{name}.{part}" for name in linear for part in ("weight", "bias")}
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize("block", [1, 1 << 15, 1 << 30])
def test_highest_logits_do_not_depend_on_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text at a time or all at once, a chunk of the vocabulary or all of it."""
    monkeypatch.setitem(forward_module._BLOCK_LOGITS, "cpu", block)
    monkeypatch.setattr(pooling, "VOCABULARY_CHUNK", 7)
    states, decoder = torch.randn(5, 6, 8), torch.nn.Linear(8, 23)
    mask = torch.arange(6) < torch.tensor([[6], [1], [3], [5], [2]])
    with torch.no_grad():
        wanted = max_logits_reference(states, mask, decoder.weight, decoder.bias)
        torch.testing.assert_close(max_logits(states, mask, decoder), wanted)


def test_padded_lengths_are_rounded_within_the_positions(
    model: MilcoModel, rows: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding changes no logit and never exceeds the positions."""
    for limit, width in ((512, 8), (5, 5)):
        ids, mask = pad_rows([[0, 5, 2]], 1, limit, torch.device("cuda"))
        assert ids.tolist() == [[0, 5, 2] + [1] * (width - 3)] and mask.sum() == 3
    plain = PaddedForward(model, CPU, torch.float32)
    wanted = plain(rows[:4])[0]
    monkeypatch.setitem(forward_module._LENGTH_MULTIPLE, "cpu", 1000)
    torch.testing.assert_close(plain(rows[:4])[0], wanted, atol=1e-5, rtol=1e-5)


def test_large_batches_use_compiled_layers(
    model: MilcoModel, rows: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layers are compiled once for all, with the same logits; a small batch is not compiled."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(forward_module, "_COMPILATION", {"dynamic": True, "backend": backend})
    monkeypatch.setattr(forward_module, "_COMPILED_FROM", 30)
    compiled = PaddedForward(model, CPU, torch.float32, compiled=True)
    compiled([[0, 9, 2]])
    assert not graphs
    torch.testing.assert_close(compiled(rows)[0], reference(model, rows, torch.float32)[0], atol=1e-5, rtol=1e-5)
    first = len(graphs)
    assert 0 < first < 2 * model.config.encoder.num_hidden_layers
    torch.testing.assert_close(
        compiled(rows[1:6])[0], reference(model, rows[1:6], torch.float32)[0], atol=1e-5, rtol=1e-5
    )
    assert len(graphs) == first


def test_falls_back_to_eager_if_compile_fails(
    model: MilcoModel, rows: list[list[int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """One line reports it, once."""

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        raise RuntimeError("cannot find Triton")

    torch._dynamo.reset()
    monkeypatch.setattr(forward_module, "_COMPILATION", {"dynamic": True, "backend": backend})
    monkeypatch.setattr(forward_module, "_COMPILED_FROM", 30)
    compiled = PaddedForward(model, CPU, torch.float32, compiled=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(rows)[0], reference(model, rows, torch.float32)[0], atol=1e-5, rtol=1e-5)
    err = capsys.readouterr().err
    assert err.count("torch.compile failed, encoding continues without it: ") == 1 == err.count("\n")


def test_the_cpu_uses_the_packed_forward_if_supported(model: MilcoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """PaddedForward for encoders that it does not support."""
    assert isinstance(choose_forward(model, CPU, torch.float32), PackedForward)
    monkeypatch.setattr(model.config.encoder, "hidden_act", "gelu_new")
    assert isinstance(choose_forward(model, CPU, torch.float32), PaddedForward)


@pytest.mark.integration
@needs_cuda
@pytest.mark.parametrize(("dtype", "limit"), [("float32", 2e-3), ("bfloat16", 0.12)])
@pytest.mark.parametrize("compiled_from", [1, 1 << 30])
def test_gpu_and_cpu_vectors_agree(
    dtype: str, limit: float, compiled_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With compiled layers or without, with batches in flight, within the dtype's error."""
    monkeypatch.setattr(forward_module, "_COMPILED_FROM", compiled_from)
    gpu = MilcoEncoder.from_pretrained(GOLDEN / "ckpt_distillation", "cuda", dtype)
    gpu._runner.token_budget = 300
    wanted = dense(encoder("distillation").encode(TEXTS, 512).batch)
    np.testing.assert_allclose(dense(gpu.encode(TEXTS * 3, 512).batch), np.tile(wanted, (3, 1)), atol=limit)
