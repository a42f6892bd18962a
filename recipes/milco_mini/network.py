"""A MILCO model that starts as the token table.

A post-LN encoder whose output projections are zero is the identity on rows that LayerNorm does not change, and
GELU(x + 4) is nearly x + 4: embeddings pass through encoder and connector (the head's LayerNorm removes the 4), and the
model computes what codes.py fitted. Training starts from there.

The hidden state has three parts: the token's code, two dimensions for its LexEcho weight, 32 for its position.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import XLMRobertaConfig

from milco_pyserini.model import MilcoConfig, MilcoModel

from .codes import Codes

ECHO_SIZE = 2
# The second LexEcho dimension has the error of rounding the first to 4 bits (export.py), enlarged.
ECHO_ENLARGED = 4.0
_POSITION_SIZE = 32
_POSITIONS = 512
_HEAD_SIZE = 64
_ECHO_RANGE = 3.0
_LIFT, _SHRINK = 4.0, 0.5
# Relative positions that the first heads of every layer attend to, and how sharply.
_OFFSETS = (-1, 1, -2)
_SHARPNESS = 1.9


def code_size(hidden: int) -> int:
    """Return the number of dimensions of the hidden state for the code."""
    return hidden - ECHO_SIZE - _POSITION_SIZE


def echo_dimensions(hidden: int) -> slice:
    """Return the dimensions of the hidden state for the LexEcho weight."""
    return slice(code_size(hidden), code_size(hidden) + ECHO_SIZE)


def initial_model(codes: Codes, echo: NDArray[np.float32], hidden: int, layers: int, seed: int) -> MilcoModel:
    """Return a model that computes the fitted table. echo: [V_m], source view weight of every token."""
    torch.manual_seed(seed)
    encoder = XLMRobertaConfig(
        vocab_size=len(codes.source),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // _HEAD_SIZE,
        intermediate_size=4 * hidden,
        max_position_embeddings=_POSITIONS + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    config = MilcoConfig(
        encoder=encoder,
        english_hidden_size=hidden,
        english_vocab_size=len(codes.decoder),
        echo=True,
        source_pool="max",
        pivot_top_k=300,
        source_top_k=200,
        source_drop_special=True,
        # Every processor prints the figures of the documentation.
        cpu_dtype="float32",
    )
    model = MilcoModel(config)
    with torch.no_grad():
        set_embeddings(model, codes, echo)
        for layer in model.encoder.encoder.layer:
            set_layer(layer, hidden)
        code = torch.zeros(hidden)
        code[: code_size(hidden)] = 1
        model.connector.projector.weight.copy_(_SHRINK * torch.diag(code))
        model.connector.projector.bias.fill_(_LIFT)
        model.connector.dense.weight.copy_(torch.eye(hidden))
        model.connector.dense.bias.zero_()
        model.decoder.weight.zero_()
        model.decoder.weight[:, : code_size(hidden)] = codes.decoder
        model.decoder.bias.copy_(codes.bias)
        # Codes leave the connector too small: LayerNorm divides the norm among all parts of the hidden state.
        sample = torch.arange(4, len(codes.source), max(1, len(codes.source) // 1000))
        token = sample.unsqueeze(1)
        states = model.encoder(input_ids=token, attention_mask=torch.ones_like(token)).last_hidden_state
        found = model.connector(states)[:, 0, : codes.source.shape[1]]
        model.decoder.weight.mul_((found * codes.source[sample]).sum() / found.square().sum())
    return model.eval()


def set_embeddings(model: MilcoModel, codes: Codes, echo: NDArray[np.float32]) -> None:
    """Set token embeddings to codes and LexEcho weights, position embeddings to waves of equal norm."""
    table = model.encoder.embeddings
    hidden = table.word_embeddings.weight.shape[1]
    words = torch.zeros_like(table.word_embeddings.weight)
    words[:, : code_size(hidden)] = codes.source
    words[:, echo_dimensions(hidden).start] = embedded_echo(echo)
    table.word_embeddings.weight.copy_(words)
    table.token_type_embeddings.weight.zero_()
    table.position_embeddings.weight.zero_()
    # Sine and cosine of every frequency, interleaved.
    angles = torch.arange(_POSITIONS).unsqueeze(1) * _frequencies()
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    table.position_embeddings.weight[2:, -_POSITION_SIZE:] = waves


@torch.no_grad()
def set_echo(model: MilcoModel, weights: NDArray[np.float32]) -> None:
    """Write LexEcho weights, float32 [V_m], to the dimensions for them, which layers then keep and no term reads."""
    words = model.encoder.embeddings.word_embeddings.weight
    echo = echo_dimensions(words.shape[1])
    words[:, echo] = 0
    words[:, echo.start] = embedded_echo(weights)
    for layer in model.encoder.encoder.layer:
        for linear in (layer.attention.output.dense, layer.output.dense):
            linear.weight[echo] = 0
            linear.bias[echo] = 0
    model.connector.projector.weight[:, echo] = 0


def embedded_echo(weights: NDArray[np.float32]) -> Tensor:
    """Return the values of the first LexEcho dimension for token weights, float32 [V_m]."""
    return torch.from_numpy(weights / weights.max()) * _ECHO_RANGE - _ECHO_RANGE / 2


def _frequencies() -> Tensor:
    """Return angular frequencies from about one period in two positions to one in 512."""
    count = _POSITION_SIZE // 2
    frequencies = math.pi * (1 / 256) ** (torch.arange(count) / (count - 1))
    frequencies[0] = 2.6  # pi would not distinguish the next position from the previous one
    return frequencies


def set_layer(layer: Any, hidden: int) -> None:
    """Set random values and inner states, zero output projections, and first heads that attend to neighbors."""
    attention = layer.attention.self
    for linear in (attention.value, layer.intermediate.dense):
        nn.init.normal_(linear.weight, std=hidden**-0.5)
    for linear in (attention.query, attention.key):
        nn.init.normal_(linear.weight, std=0.03)
    for linear in (layer.attention.output.dense, layer.output.dense):
        linear.weight.zero_()
    for head, offset in enumerate(_OFFSETS):
        rows = slice(head * _HEAD_SIZE, head * _HEAD_SIZE + _POSITION_SIZE)
        for linear in (attention.query, attention.key):
            linear.weight[head * _HEAD_SIZE : (head + 1) * _HEAD_SIZE].zero_()
        attention.key.weight[rows, -_POSITION_SIZE:] = _SHARPNESS * torch.eye(_POSITION_SIZE)
        attention.query.weight[rows, -_POSITION_SIZE:] = _SHARPNESS * relative_position(offset)


def relative_position(offset: int) -> Tensor:
    """Return the rotation from the waves of position t to those of position t + offset: [32, 32]."""
    rotation = torch.zeros(_POSITION_SIZE, _POSITION_SIZE)
    for k, angle in enumerate((_frequencies() * offset).tolist()):
        sine, cosine = math.sin(angle), math.cos(angle)
        rotation[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = torch.tensor([[cosine, sine], [-sine, cosine]])
    return rotation
