"""PaddedForward and choose_forward equal the reference forward pass on every device."""

import pytest
import torch
from golden_set import TEXTS, encoder
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException

from milco_pyserini.model.forward import PaddedForward, choose_forward
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.model.packed import PackedForward

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16)


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


def test_layers_of_one_kind_are_one_graph(model: MilcoModel) -> None:
    """All layers and sizes of batches share it; batches without padding, whose attention is another, have their own.

    A small batch and a single text are not compiled, and the logits are the same.
    """
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = PaddedForward(model, CPU, torch.float32, compiled_from=30, backend=backend)
    for lengths, count in (
        ([3], 0),
        ([400], 0),
        ([20, 30, 40], 1),
        ([3, 64], 1),
        ([70, 80, 90, 100], 1),
        ([60] * 3, 2),
        ([33] * 7, 2),
        ([5, 5, 100, 200], 2),
    ):
        rows = [[0, *range(3, length + 1), 2] for length in lengths]
        logits = compiled(rows)[0]
        assert len(graphs) == count
        torch.testing.assert_close(logits, reference(model, rows, torch.float32)[0], atol=1e-5, rtol=1e-5)


def test_falls_back_to_eager_if_compile_fails(
    model: MilcoModel, rows: list[list[int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """One line reports it, once."""

    def fail(layer: torch.nn.Module, **_: object) -> None:
        raise TorchDynamoException("cannot find Triton\nSet TORCHDYNAMO_VERBOSE=1")

    monkeypatch.setattr(torch.nn.Module, "compile", fail)
    compiled, expected = PaddedForward(model, CPU, torch.float32, 30), PaddedForward(model, CPU, torch.float32)(rows)
    for _ in range(2):
        torch.testing.assert_close(compiled(rows)[0], expected[0], atol=1e-5, rtol=1e-5)
    assert capsys.readouterr().err == "torch.compile failed, encoding continues without it: cannot find Triton\n"


def test_the_cpu_uses_the_packed_forward_if_supported(model: MilcoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """PaddedForward for encoders that it does not support."""
    assert isinstance(choose_forward(model, CPU, torch.float32), PackedForward)
    monkeypatch.setattr(model.config.encoder, "hidden_act", "gelu_new")
    assert isinstance(choose_forward(model, CPU, torch.float32), PaddedForward)
