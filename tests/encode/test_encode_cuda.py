"""The CUDA path of encoding, without a GPU: devices, streams and waits of every batch; see fake_cuda.py."""

from collections.abc import Callable

import pytest
import torch
from fake_cuda import fake_cuda
from golden_set import CHECKPOINTS, GOLDEN, TEXTS

from milco_pyserini.encode import DenseEncoder, MilcoEncoder
from milco_pyserini.encode.csr import CopyStream

CUDA = torch.device("cuda")


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_a_batch_waits_for_the_card_three_times(checkpoint: str, dtype: str, padded: bool) -> None:
    """For transformers, which looks for padding; for the number of entries; and for the vectors."""
    encoder = MilcoEncoder.from_pretrained(GOLDEN / f"ckpt_{checkpoint}", "cpu", dtype)
    rows = [row.ids for row in encoder.tokenizer.tokenize(TEXTS, 100)]
    batches: list[int] = []
    with fake_cuda({"transformers": not padded}) as card:
        encoder.to("cuda").encode(TEXTS)
        card.syncs.clear()
        encoder.runner.token_budget = 300
        vectors = encoder.encode_rows(rows, encoder.views, report=lambda texts, _: batches.append(texts))
    assert len(vectors) == len(TEXTS) and len(batches) > 3
    waits = len(batches) - rows.count([])
    # transformers 5 does not look into fake tensors.
    assert card.syncs.pop("transformers", waits) == waits
    assert card.syncs == {"positive_entries": waits, "CopyStream.to_host": waits}
    assert not card.hazards


def test_dense_vectors_come_from_the_card() -> None:
    """Of every text, whatever their pooling."""
    for pooling in ("cls", "mean", "last"):
        encoder = DenseEncoder(GOLDEN / "ckpt_distillation", pooling, "cpu")
        with fake_cuda({"transformers": False}) as card:
            encoder.device = CUDA
            assert encoder.encode_document(TEXTS).shape == (len(TEXTS), encoder.dimensions)
        assert not card.hazards


def early() -> None:
    """Read what is computed after the event."""
    stream = CopyStream(CUDA)
    event = stream.event()
    late = torch.ones(3, device=CUDA)
    with stream.after(event, late):
        late.exp()


def unknown() -> None:
    """Read a tensor of the main stream that was not named."""
    stream, tensor = CopyStream(CUDA), torch.ones(3, device=CUDA)
    with stream.after(stream.event()):
        tensor.exp()


def under_way() -> None:
    """Read a copy without waiting for it."""
    copy = torch.empty(3, pin_memory=True)
    copy.copy_(torch.ones(3, device=CUDA), non_blocking=True)
    copy.numpy()


@pytest.mark.parametrize(
    ("mistake", "hazard"), [(early, "too early"), (unknown, "may be reused"), (under_way, "under way")]
)
def test_mistakes_with_streams_are_found(mistake: Callable[[], None], hazard: str) -> None:
    """The fake card records what a real one does not report."""
    with fake_cuda({}) as card:
        mistake()
    assert len(card.hazards) == 1 and hazard in card.hazards[0]


def test_mistakes_with_devices_are_found() -> None:
    """Operands on two devices, and values that the CPU reads, are errors."""
    with fake_cuda({}), pytest.raises(RuntimeError, match="to be on the same device"):
        torch.ones(3, device=CUDA) + torch.ones(3)
    with fake_cuda({}) as card, pytest.raises(KeyError, match="test_mistakes_with_devices_are_found"):
        bool(torch.ones(3, device=CUDA).all())
    assert sum(card.syncs.values()) == 1
