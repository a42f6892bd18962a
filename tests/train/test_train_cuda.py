"""The CUDA path of a training step, without a GPU: devices of all tensors, what the CPU waits for (fake_cuda.py).

torch's own backward pass needs a GPU's driver, so here only the project's part of it runs.
"""

import json
from collections import Counter
from typing import Any

import pytest
import torch
from fake_cuda import FakeCard, fake_cuda, is_on_card
from golden_set import GOLDEN, encoder

from milco_pyserini.model import MilcoModel
from milco_pyserini.train.batches import TextCollator
from milco_pyserini.train.config import SapConfig, SctConfig
from milco_pyserini.train.data.bitext import BitextPair
from milco_pyserini.train.monitor import CollapseMonitor
from milco_pyserini.train.objectives import Alignment, Contrast
from milco_pyserini.train.teachers import MaskedLanguageModelTeacher

INPUTS = json.loads((GOLDEN / "inputs.json").read_text(encoding="utf-8"))
PASSAGES = [passage for group in INPUTS["PASSAGES"] for passage in group]
# What the CPU reads: no padding in a batch, rows with tokens, no gradients, and the length of a part of a batch.
READS = {"transformers": False, "max_logits": True, "_MaxLogits.backward": 0, "encode_by_length": 8}


def on_card(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: on_card(part) if isinstance(part, dict) else part.to("cuda") for name, part in batch.items()}


def syncs(card: FakeCard) -> Counter:
    """Return the waits since the last call, without those of transformers 5, which does not look into fake tensors."""
    found, card.syncs = card.syncs, Counter()
    found.pop("transformers", 0)
    return found


@pytest.fixture
def model() -> MilcoModel:
    return MilcoModel.from_pretrained(GOLDEN / "ckpt_distillation").train()


@pytest.fixture(scope="module")
def texts() -> TextCollator:
    return TextCollator(encoder("distillation").tokenizer, pad_id=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_alignment_waits_once_for_each_forward_pass(model: MilcoModel, texts: TextCollator, dtype: torch.dtype) -> None:
    """Of texts, English sides and the teacher's, to validate their masks; the alarms do not wait."""
    teacher, monitor = MaskedLanguageModelTeacher.from_pretrained(GOLDEN / "en_lsr"), CollapseMonitor()
    english, foreign = zip(*INPUTS["BITEXT"], strict=True)
    prepared = teacher.prepare([BitextPair("de", *sides) for sides in zip(foreign, english, strict=True)])
    with fake_cuda(READS) as card:
        model.to("cuda"), teacher.to("cuda")
        objective = Alignment(model, teacher, SapConfig(config=""), dtype)
        batch = on_card({"text": texts(foreign, 64), "english": texts(english, 64), "teacher": prepared})
        syncs(card)
        output = objective(**batch)
        for kind, (pivot, source) in output["sides"].items():
            monitor.update(kind, ["de", "fr"] * (len(pivot) // 2) + ["de"] * (len(pivot) % 2), pivot, source=source)
        assert is_on_card(output["loss"]) and output["loss"].dtype == torch.float32
        assert syncs(card) == {"max_logits": 3} and not card.hazards


def test_the_backward_pass_of_the_head_waits_twice(model: MilcoModel, texts: TextCollator) -> None:
    """For the coordinates with a gradient, and for their number in each text; the optimizer does not wait."""
    with fake_cuda(READS) as card:
        model.to("cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
        with torch.autocast("cuda", torch.bfloat16):
            logits: Any = model(**on_card(texts(PASSAGES, 64))).logits
        syncs(card)
        gradients = logits.grad_fn.apply(torch.ones_like(logits))
        assert all(is_on_card(gradient) for gradient in gradients if gradient is not None)
        assert syncs(card) == {"_MaxLogits.backward": 2}
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert not syncs(card)


@pytest.mark.parametrize("loss", ["kd", "infonce"])
def test_contrast_of_passages_waits_for_lengths_masks_and_tokens(
    model: MilcoModel, texts: TextCollator, loss: str
) -> None:
    """Once for all lengths of a side, once for each forward pass, and once for the tokens of the batch."""
    monitor = CollapseMonitor()
    with fake_cuda(READS) as card:
        objective = Contrast(model, SctConfig(config="", loss=loss), torch.bfloat16, [0, 2]).to("cuda")
        scores = torch.tensor(INPUTS["TEACHER_SCORES"])
        batch = on_card({"query": texts(INPUTS["QUERIES"], 64), "passage": texts(PASSAGES, 64), "scores": scores})
        syncs(card)
        output = objective(**batch)
        for kind, (pivot, source) in output["sides"].items():
            monitor.update(kind, ["de"] * len(pivot), pivot, source=source)
        assert is_on_card(output["loss"]) and not card.hazards
        assert syncs(card) == {"encode_by_length": 2, "max_logits": 2, "Contrast.encode": 1}


def test_contrast_of_translations_waits_for_its_queries_once(model: MilcoModel, texts: TextCollator) -> None:
    """In addition to what contrast of passages waits for."""
    numbers = torch.arange(len(PASSAGES))
    with fake_cuda(READS) as card:
        objective = Contrast(model, SctConfig(config="")).to("cuda")
        batch = on_card({"text": texts(PASSAGES, 64), "meaning": numbers // 2, "is_query": numbers < 3})
        syncs(card)
        assert is_on_card(objective(**batch)["loss"])
        waits = {"encode_by_length": 1, "max_logits": 1, "Contrast.encode": 1, "Contrast.contrast_translations": 1}
        assert syncs(card) == waits
