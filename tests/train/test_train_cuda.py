"""The CUDA path of a training step, without a GPU: devices of all tensors (fake_cuda.py).

torch's own backward pass needs a GPU's driver, so here only the project's part of it runs.
"""

import json
from typing import Any

import pytest
import torch
from fake_cuda import fake_cuda, is_on_card
from golden_set import GOLDEN, encoder

from milco_pyserini.corpora.bitext import BitextPair
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.train.batches import TextCollator
from milco_pyserini.train.config import AlignmentOptions, ContrastOptions
from milco_pyserini.train.monitor import CollapseMonitor
from milco_pyserini.train.objectives import AlignmentLoss, ContrastiveLoss
from milco_pyserini.train.teachers import MaskedLanguageModelTeacher

INPUTS = json.loads((GOLDEN / "inputs.json").read_text(encoding="utf-8"))
PASSAGES = [passage for group in INPUTS["PASSAGES"] for passage in group]
# Values that the CPU reads: no padding in a batch, no gradients, and the length of a part of a batch.
# No other function may wait for the card.
READS = {"transformers": False, "_MaxLogits.backward": 0, "encode_by_length": 8}


def on_card(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: on_card(part) if isinstance(part, dict) else part.to("cuda") for name, part in batch.items()}


@pytest.fixture
def model() -> MilcoModel:
    return MilcoModel.from_pretrained(GOLDEN / "ckpt_distillation").train()


@pytest.fixture(scope="module")
def texts() -> TextCollator:
    return TextCollator(encoder("distillation").tokenizer, pad_id=1)


@pytest.mark.parametrize("step", ["alignment", "kd", "infonce", "translations"])
def test_a_step_runs_on_the_card(model: MilcoModel, texts: TextCollator, step: str) -> None:
    """Networks, losses and alarms of every objective; the loss is float32, whatever the dtype of the network."""
    teacher, monitor = MaskedLanguageModelTeacher.from_pretrained(GOLDEN / "en_lsr"), CollapseMonitor()
    english, foreign = zip(*INPUTS["BITEXT"], strict=True)
    prepared = teacher.prepare([BitextPair("de", *sides) for sides in zip(foreign, english, strict=True)])
    with fake_cuda(READS) as card:
        if step == "alignment":
            teacher.to("cuda")
            objective: Any = AlignmentLoss(model, teacher, AlignmentOptions(), torch.bfloat16)
            batch = {"text": texts(foreign, 64), "english": texts(english, 64), "teacher": prepared}
        elif step == "translations":
            objective, numbers = ContrastiveLoss(model, ContrastOptions()), torch.arange(len(PASSAGES))
            batch = {"text": texts(PASSAGES, 64), "meaning": numbers // 2, "is_query": numbers < 3}
        else:
            objective = ContrastiveLoss(model, ContrastOptions(loss=step), torch.bfloat16, [0, 2])
            scores = torch.tensor(INPUTS["TEACHER_SCORES"])
            batch = {"query": texts(INPUTS["QUERIES"], 64), "passage": texts(PASSAGES, 64), "scores": scores}
        output = objective.to("cuda")(**on_card(batch))
        for kind, (pivot, source) in output.get("sides", {}).items():
            monitor.update(kind, ["de"] * len(pivot), pivot, source_terms=source)
        assert is_on_card(output["loss"]) and output["loss"].dtype == torch.float32
        assert not card.hazards


def test_gradients_of_the_head_are_on_the_card(model: MilcoModel, texts: TextCollator) -> None:
    """The backward pass is the project's own, for the logits with a gradient only."""
    with fake_cuda(READS):
        model.to("cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits: Any = model(**on_card(texts(PASSAGES, 64))).logits
        gradients = logits.grad_fn.apply(torch.ones_like(logits))
        assert all(is_on_card(gradient) for gradient in gradients if gradient is not None)
