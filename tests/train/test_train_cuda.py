"""The CUDA path of a training step, without a GPU: devices of all tensors (fake_cuda.py).

torch's own backward pass needs a GPU's driver, so here only the project's part of it runs.
"""

import json
from typing import Any

import pytest
import torch
from accelerate.utils import send_to_device
from fake_cuda import fake_cuda, is_on_card
from golden_set import GOLDEN, encoder

from milco_pyserini.corpora.bitext import BitextPair
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.train.batches import TextCollator, add_known
from milco_pyserini.train.config import AlignmentOptions, ContrastOptions
from milco_pyserini.train.monitor import CollapseMonitor
from milco_pyserini.train.objectives import AlignmentLoss, ContrastiveLoss
from milco_pyserini.train.teachers import MaskedLanguageModelTeacher

INPUTS = json.loads((GOLDEN / "inputs.json").read_text(encoding="utf-8"))
PASSAGES = [passage for group in INPUTS["PASSAGES"] for passage in group]
# Values that the CPU reads: whether a batch has padding. No other function may wait for the card.
READS = {"transformers": False}


def on_card(batch: dict[str, Any]) -> dict[str, Any]:
    return send_to_device(batch, torch.device("cuda"))


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
    numbers = torch.arange(len(PASSAGES))
    others: dict[str, Any] = {}
    if step == "alignment":
        sides = {"text": texts(foreign, 64), "english": texts(english, 64)}
        others["teacher"] = teacher.prepare([BitextPair("de", *pair) for pair in zip(foreign, english, strict=True)])
    elif step == "translations":
        sides = {"text": texts(PASSAGES, 64)}
        others = {"meaning": numbers // 2, "is_query": numbers < 3}
    else:
        sides = {"query": texts(INPUTS["QUERIES"], 64), "passage": texts(PASSAGES, 64)}
        others = {"scores": torch.tensor(INPUTS["TEACHER_SCORES"])}
    batch = sides | others if step == "alignment" else add_known(sides | others)
    with fake_cuda(READS) as card:
        if step == "alignment":
            teacher.to("cuda")
            objective: Any = AlignmentLoss(model, teacher, AlignmentOptions(), torch.bfloat16)
        elif step == "translations":
            objective = ContrastiveLoss(model, ContrastOptions())
        else:
            objective = ContrastiveLoss(model, ContrastOptions(loss=step), torch.bfloat16, [0, 2])
        output = objective.to("cuda")(**on_card(batch))
        for kind, (pivot, source) in output.get("sides", {}).items():
            monitor.update(kind, ["de"] * len(pivot), pivot, source_terms=source)
        assert is_on_card(output["loss"]) and output["loss"].dtype == torch.float32
        assert not card.hazards


def test_gradients_of_the_head_are_on_the_card(model: MilcoModel, texts: TextCollator) -> None:
    """The backward pass is the project's own, and the CPU waits for nothing of it."""
    with fake_cuda(READS):
        model.to("cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits: Any = model(**on_card(texts(PASSAGES, 64))).logits
        gradients = logits.grad_fn.apply(torch.ones_like(logits))
        assert all(is_on_card(gradient) for gradient in gradients if gradient is not None)
