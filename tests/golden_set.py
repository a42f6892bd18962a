"""Golden set (data/golden/README.md): results of the authors' code, and modified copies of its checkpoints."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.sparse import SparseBatch

GOLDEN = Path(__file__).parent / "data" / "golden"
CHECKPOINTS = ("alignment", "distillation")
TEXTS: list[str] = json.loads((GOLDEN / "inputs.json").read_text(encoding="utf-8"))["TEXTS"]
EMPTY = TEXTS.index("")
# Tolerances of the set's README.
EXACT = {"atol": 2e-5, "rtol": 1e-5}
Tensors = dict[str, Tensor]


@functools.cache
def expected() -> dict[str, np.ndarray]:
    """Return the arrays of expected.npz."""
    with np.load(GOLDEN / "expected.npz") as arrays:
        return dict(arrays)


@functools.cache
def encoder(checkpoint: str, dtype: str = "float32") -> MilcoEncoder:
    """Load one of the two checkpoints once."""
    return MilcoEncoder.from_pretrained(GOLDEN / f"ckpt_{checkpoint}", device="cpu", dtype=dtype)


def dense(batch: SparseBatch, width: int = 935) -> np.ndarray:
    """Return the vectors as dense rows, float32 [B, width]."""
    rows = np.zeros((len(batch), width), np.float32)
    rows[batch.row_numbers(), batch.columns] = batch.weights
    return rows


def expected_rows(name: str) -> np.ndarray:
    """Return the authors' vectors of that name in expected.npz as dense rows."""
    arrays = expected()
    rows = np.zeros((len(TEXTS), 935), np.float32)
    rows[arrays[f"{name}.rows"], arrays[f"{name}.cols"]] = arrays[f"{name}.vals"]
    return rows


def tensors(checkpoint: str) -> Tensors:
    """Return the checkpoint's tensors by the authors' names."""
    return torch.load(GOLDEN / f"ckpt_{checkpoint}" / "pytorch_model.bin", weights_only=True)


def save_safetensors(path: Path, values: Tensors) -> None:
    """Write a safetensors file; shared storage is copied, as the format requires."""
    save_file({name: tensor.clone().contiguous() for name, tensor in values.items()}, path)


def bent(parent: Path, checkpoint: str, change: Callable[[Tensors], Tensors] | None = None) -> Path:
    """Return a copy of a checkpoint below parent, with its sub-models next to it; change replaces its tensors."""
    for sub_model in ("m_encoder", "en_lsr"):
        shutil.copytree(GOLDEN / sub_model, parent / sub_model)
    directory = parent / "checkpoint"
    directory.mkdir()
    shutil.copy(GOLDEN / f"ckpt_{checkpoint}" / "config.json", directory)
    values = tensors(checkpoint)
    torch.save(change(values) if change else values, directory / "pytorch_model.bin")
    return directory


def make_reranker(path: Path, labels: int = 1) -> Path:
    """Save a tiny cross-encoder with random weights and this number of logits; return its directory."""
    from transformers import AutoTokenizer, XLMRobertaConfig, XLMRobertaForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(GOLDEN / "m_encoder")
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=66,
        type_vocab_size=1,
        num_labels=labels,
        initializer_range=0.5,
    )
    XLMRobertaForSequenceClassification(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
