"""The two dense baselines: one vector per text, distilled from the same scores as the sparse configurations.

A vector is the L2-normalized mean of the encoder's hidden states over all tokens, <s> and </s> included. (BGE-M3 takes
the first token's state. The compact encoder starts as an identity, whose first token knows nothing of the others.)
Alignment follows Reimers and Gurevych (2020): the vectors of a sentence and of its translation are both fitted to a
frozen model's vector of the translation. The paper's frozen model is thenlper/gte-base; here it is the starting
checkpoint, because there is no English one without a download.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.train import losses
from milco_pyserini.train.batches import TextCollator

Batch = dict[str, Tensor]

_TEXTS_AT_A_TIME = 64


def dense_vectors(encoder: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Return L2-normalized float32 [B, D_m] of input_ids and attention_mask, int64 [B, S]."""
    hidden = encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
    mask = attention_mask.unsqueeze(-1)
    return functional.normalize((hidden * mask).sum(dim=1) / mask.sum(dim=1), dim=1)


class DenseAlignment(nn.Module):
    """Mean squared distance of both sides of a pair to the frozen start's vector of the English side."""

    frozen: nn.Module

    def __init__(self, model: MilcoModel) -> None:
        """model: not trained yet."""
        super().__init__()
        self.model = model
        # Not a submodule: it has no gradients and does not belong in checkpoints.
        object.__setattr__(self, "frozen", copy.deepcopy(model.encoder).eval().requires_grad_(False))

    def forward(self, text: Batch, english: Batch, teacher: Batch | None = None) -> dict:
        """Compute the loss of a batch of pairs, as Alignment.forward() does; the teacher of terms is not used."""
        goal = dense_vectors(self.frozen.to(english["input_ids"].device), **english)
        parts = {
            name: (dense_vectors(self.model.encoder, **side) - goal).square().sum(dim=1).mean()
            for name, side in (("text", text), ("english", english))
        }
        return {"loss": parts["text"] + parts["english"], "parts": parts, "sides": {}, "grounded": None}


class DenseDistillation(nn.Module):
    """KL divergence between cosines divided by a temperature and a teacher's scores of each query's passages."""

    def __init__(self, model: MilcoModel, temperature: float) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature

    def forward(self, query: Batch, passage: Batch, scores: Tensor) -> dict:
        """Compute the loss of a batch of groups. scores: float [B, G]; the others as in Contrast.forward()."""
        queries, passages = (dense_vectors(self.model.encoder, **side) for side in (query, passage))
        found = torch.einsum("bd,bgd->bg", queries, passages.unflatten(0, scores.shape)) / self.temperature
        loss = losses.kl_distillation(found, scores)
        return {"loss": loss, "parts": {"kd": loss}, "sides": {}, "grounded": None}


@torch.inference_mode()
def encode(encoder: MilcoEncoder, texts: Sequence[str], max_length: int) -> NDArray[np.float32]:
    """Encode texts to float32 [B, D_m]."""
    tokens = TextCollator(encoder.tokenizer, encoder.model.config.encoder.pad_token_id)
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    vectors = np.empty((len(texts), encoder.model.config.encoder.hidden_size), np.float32)
    for start in range(0, len(order), _TEXTS_AT_A_TIME):
        numbers = order[start : start + _TEXTS_AT_A_TIME]
        batch = tokens([texts[number] for number in numbers], max_length)
        on_device = {name: tensor.to(encoder.device) for name, tensor in batch.items()}
        vectors[numbers] = dense_vectors(encoder.model.encoder, **on_device).cpu().numpy()
    return vectors
