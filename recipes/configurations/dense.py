"""The two dense baselines: one vector a text, distilled from the same scores as the sparse configurations.

A text's vector is the L2-normalised mean of the encoder's hidden states over its tokens, <s> and </s> included.
(BGE-M3 takes the first token's state. The compact encoder begins by passing everything through, so that its first
token says nothing.) Alignment is Reimers and Gurevych's (2020): the vectors of a sentence and of its translation both
go to a frozen model's vector of the translation. The paper's frozen model is thenlper/gte-base; here it is the start
itself, for want of an English one.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.model import MilcoModel
from milco_pyserini.train import losses
from milco_pyserini.train.batches import Texts
from milco_pyserini.train.data.bitext import BitextPair

Batch = dict[str, Tensor]

_TEXTS_AT_A_TIME = 64


def dense_vectors(encoder: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """input_ids, attention_mask: int64 [B, S]. Returns float32 [B, D_m], each row of norm 1."""
    hidden = encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
    mask = attention_mask.unsqueeze(-1)
    return functional.normalize((hidden * mask).sum(dim=1) / mask.sum(dim=1), dim=1)


class DenseAlignment(nn.Module):
    """Squared distance of both sides of a pair to where the frozen start has the English side, mean over the pairs."""

    frozen: nn.Module

    def __init__(self, model: MilcoModel) -> None:
        """model: still as it was before training."""
        super().__init__()
        self.model = model
        # Not a sub-module: it has no gradient, and no place in a checkpoint.
        object.__setattr__(self, "frozen", copy.deepcopy(model.encoder).eval().requires_grad_(False))

    def forward(self, text: Batch, english: Batch) -> dict:
        """text, english: "input_ids" and "attention_mask". Returns what the trainer asks of an objective."""
        goal = dense_vectors(self.frozen.to(english["input_ids"].device), **english)
        parts = {
            name: (dense_vectors(self.model.encoder, **side) - goal).square().sum(dim=1).mean()
            for name, side in (("text", text), ("english", english))
        }
        return {"loss": parts["text"] + parts["english"], "parts": parts, "sides": {}, "grounded": None}


class DenseDistillation(nn.Module):
    """KL divergence of the cosines, divided by temperature, from a teacher's scores of each query's passages."""

    def __init__(self, model: MilcoModel, temperature: float) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature

    def forward(self, query: Batch, passage: Batch, scores: Tensor) -> dict:
        """query: int64 [B, S]. passage: [B x G, S'], each query's group in a row. scores: float [B, G]."""
        queries, passages = (dense_vectors(self.model.encoder, **side) for side in (query, passage))
        found = torch.einsum("bd,bgd->bg", queries, passages.unflatten(0, scores.shape)) / self.temperature
        loss = losses.kl_distillation(found, scores)
        return {"loss": loss, "parts": {"kd": loss}, "sides": {}, "grounded": None}


def pair_collator(texts: Texts, max_length: int) -> Callable[[list[BitextPair]], dict]:
    """Pairs to the arguments of DenseAlignment.forward(), and "languages", which the trainer takes out."""

    def collate(pairs: list[BitextPair]) -> dict:
        sides = {"text": [pair.text for pair in pairs], "english": [pair.english for pair in pairs]}
        return {**{name: texts(side, max_length) for name, side in sides.items()}, "languages": {}}

    return collate


@torch.inference_mode()
def encode(encoder: MilcoEncoder, texts: Sequence[str], max_length: int) -> NDArray[np.float32]:
    """Dense vectors of texts in their order: float32 [B, D_m]."""
    tokens = Texts(encoder.tokenizer, encoder.model.config.encoder.pad_token_id)
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    vectors = np.empty((len(texts), encoder.model.config.encoder.hidden_size), np.float32)
    for start in range(0, len(order), _TEXTS_AT_A_TIME):
        numbers = order[start : start + _TEXTS_AT_A_TIME]
        batch = tokens([texts[number] for number in numbers], max_length)
        on_device = {name: tensor.to(encoder.device) for name, tensor in batch.items()}
        vectors[numbers] = dense_vectors(encoder.model.encoder, **on_device).cpu().numpy()
    return vectors
