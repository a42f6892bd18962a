"""The CUDA path of encoding, without a GPU: devices, streams and memory of every batch; see fake_cuda.py."""

import pytest
import torch
from fake_cuda import fake_cuda
from golden_set import CHECKPOINTS, GOLDEN, TEXTS

from milco_pyserini.encode.batches import BatchRunner
from milco_pyserini.encode.csr import CopyStream
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.model.forward import PaddedForward
from milco_pyserini.model.modeling import MilcoConfig, MilcoModel
from milco_pyserini.sparse import VIEWS
from recipes.dense.encoder import DenseEncoder

CUDA = torch.device("cuda")


def runner(width: int, dtype: torch.dtype) -> BatchRunner:
    """Return the batches of a network of two layers on the card, with the published number of English pieces."""
    encoder = {"model_type": "xlm-roberta", "vocab_size": 4000, "hidden_size": width, "intermediate_size": 4 * width}
    encoder |= {"num_hidden_layers": 2, "num_attention_heads": width // 64, "max_position_embeddings": 8194}
    with CUDA:
        model = MilcoModel(MilcoConfig(encoder=encoder | {"type_vocab_size": 1})).eval()
    forward = PaddedForward(model, CUDA, dtype, compiled_from=1 << 30)
    return BatchRunner(forward, CUDA, model.config.english_vocab_size, 4000, "sum", [])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_batches_read_what_is_computed(checkpoint: str, dtype: str) -> None:
    """While the next batch is computed, the entries of the last are copied: neither too early nor from freed memory."""
    encoder = MilcoEncoder.from_pretrained(GOLDEN / f"ckpt_{checkpoint}", "cpu", dtype)
    batches: list[int] = []
    with fake_cuda({"transformers": False}) as card:
        encoder.to("cuda")
        encoder.network.runner.token_budget = 300
        rows = [row.ids for row in encoder.tokenizer.tokenize(TEXTS, 100)]
        vectors = encoder.network.encode(rows, encoder.views, report=lambda texts, _: batches.append(texts))
    assert len(vectors) == len(TEXTS) and len(batches) > 3
    assert not card.hazards


@pytest.mark.parametrize("name", ["xpu:0", "mps:0"])
def test_other_devices_run_eager_layers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the batch, without streams, and with the vectors on the CPU in the end."""
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **__: pytest.fail("compiled"))
    model, device = MilcoModel.from_pretrained(GOLDEN / "ckpt_distillation"), torch.device(name)
    with fake_cuda({"transformers": False}) as card:
        forward = PaddedForward(model.to(device), device, torch.float32)
        run = BatchRunner(forward, device, model.config.english_vocab_size, 577, "sum", [])
        assert sum(map(len, run.run([[0] * 64] * 600, VIEWS, 512))) == 600
    assert not card.hazards


def test_other_encoders_run_on_the_card() -> None:
    """A masked language model, and dense vectors of every pooling."""
    splade = load_encoder(str(GOLDEN / "en_lsr"), "cpu")
    with fake_cuda({"transformers": False}) as card:
        assert len(splade.to("cuda").encode_document(TEXTS)) == len(TEXTS)
        assert not card.hazards
    for pooling in ("cls", "mean", "last"):
        encoder = DenseEncoder(GOLDEN / "ckpt_distillation", pooling, "cpu")
        with fake_cuda({"transformers": False}) as card:
            encoder.device = CUDA
            assert encoder.encode_document(TEXTS).shape == (len(TEXTS), encoder.dimensions)
        assert not card.hazards


@pytest.mark.parametrize(("width", "dtype"), [(1024, torch.bfloat16), (256, torch.float32)])
def test_the_memory_of_a_batch_is_estimated(width: int, dtype: torch.dtype) -> None:
    """Never too low, at most twice too high: for short texts, long ones and many, while the last batch is read."""
    with fake_cuda({"transformers": False}) as card:
        run = runner(width, dtype)
        weights = card.allocated
        for texts, length in ((512, 32), (128, 512), (4, 8192)):
            card.peak = weights
            list(run.run([[0] * length] * (2 * texts), VIEWS, texts))
            assert 1 <= run.forward.memory(texts, length) / (card.peak - weights) < 2


def test_batches_fit_the_memory_of_the_card(capsys: pytest.CaptureFixture) -> None:
    """The token budget is halved before the first batch, which one line reports; a single text is tried in any case."""
    rows = [[0] * 512] * 100
    with fake_cuda({"transformers": False}) as card:
        run = runner(1024, torch.bfloat16)
        weights = card.allocated
        assert sum(map(len, run.run(rows, VIEWS, 512))) == 100
        assert run.token_budget == 65536 and not capsys.readouterr().err
        card.free, card.peak = 1_000_000_000, weights
        assert sum(map(len, run.run(rows, VIEWS, 512))) == 100
        assert card.peak - weights < card.free and run.token_budget == 16384
        assert capsys.readouterr().err == (
            "cuda has 1.0 GB of free memory: batches have 16,384 tokens instead of 65,536\n"
        )
        card.free = 0
        assert sum(map(len, run.run([[0] * 8000] * 3, VIEWS, 512))) == 3 and run.token_budget == 4096


def test_mistakes_with_streams_are_found() -> None:
    """The fake card records what a real one does not report."""
    with fake_cuda({}) as card:
        stream, copy = CopyStream(CUDA), torch.empty(3)
        event = stream.event()
        late = torch.ones(3, device=CUDA)
        with stream.after(event, late):
            late.exp()
        unnamed = torch.ones(3, device=CUDA)
        with stream.after(stream.event()):
            unnamed.exp()
        copy.copy_(unnamed, non_blocking=True)
        copy.numpy()
    assert [hazard.split(" ", 1)[1] for hazard in card.hazards] == [
        "reads too early",
        "reads memory that may be reused",
        "copy is read while it is under way",
    ]


def test_mistakes_with_devices_are_found() -> None:
    """Operands on two devices, and values that the CPU reads, are errors."""
    with fake_cuda({}), pytest.raises(RuntimeError, match="to be on the same device"):
        torch.ones(3, device=CUDA) + torch.ones(3)
    with fake_cuda({}), pytest.raises(KeyError, match="test_mistakes_with_devices_are_found"):
        bool(torch.ones(3, device=CUDA).all())
