"""The piece table as embeddings: a low-dimensional source code and decoder whose product is the table.

Random codes are the start: every English piece has a random unit vector, a source piece is the sum of those it
stands for. That product has noise of the size of weak entries, so both sides are then fitted. What has to hold is
little: the weighted entries must have their value, every other logit must only be negative. (A truncated SVD fails
here: a dictionary is nearly a permutation and has no small rank; the one-sided condition is what makes it fit.)
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional

from milco_pyserini.console import say
from milco_pyserini.train.losses import sparse_mean_squared_error

_ROWS, _COLUMNS = 1024, 3500
_MARGIN = 0.3
_BIAS, _GAIN = -1.7, 0.35
# Dimensions in which no English piece is written at first: a piece that stands for little points there.
_QUIET = 16


class Codes(NamedTuple):
    """source: float32 [V_m, c], rows of mean 0 and norm sqrt(c). decoder: [V_e, c]. bias: [V_e]."""

    source: Tensor
    decoder: Tensor
    bias: Tensor


def unit_rows(raw: Tensor) -> Tensor:
    """Rows with mean 0 and norm sqrt(c): what LayerNorm leaves as it is."""
    return functional.layer_norm(raw, raw.shape[1:])


def random_codes(table: sp.csr_matrix, size: int, seed: int) -> Codes:
    """Start: decoder rows random, source rows the sum of their English pieces' codes, quiet where that is small."""
    generator = torch.Generator().manual_seed(seed)
    decoder = torch.randn(table.shape[1], size, generator=generator)
    decoder[:, -_QUIET:] = 0
    decoder = functional.normalize(decoder - decoder.mean(dim=1, keepdim=True), dim=1)
    logits = table.copy()
    logits.data = np.expm1(logits.data)
    source = torch.from_numpy(np.asarray(logits @ decoder.numpy(), np.float32))
    room = (size / (_GAIN**2 * size) - source.square().sum(dim=1)).clamp_(min=0)
    sign = torch.tensor([1.0, -1.0]).repeat(_QUIET // 2)
    source[:, -_QUIET:] += (room / _QUIET).sqrt().unsqueeze(1) * sign
    return Codes(unit_rows(source), decoder * _GAIN, torch.full((table.shape[1],), _BIAS))


def fit_codes(table: sp.csr_matrix, size: int, epochs: int, seed: int) -> Codes:
    """Codes of a table [V_m, V_e] of LogSat weights: logit(i, j) = source_i . decoder_j + bias_j.

    Blocks of source rows are parameters of their own, so that a step moves only the rows it has seen.
    """
    start = random_codes(table, size, seed)
    order = np.random.default_rng(seed).permutation(table.shape[0])
    blocks = [order[i : i + _ROWS] for i in range(0, len(order), _ROWS)]
    targets = [_logits(table[block]) for block in blocks]
    rows = [start.source[torch.from_numpy(block)].requires_grad_() for block in blocks]
    decoder, bias = start.decoder.requires_grad_(), start.bias.requires_grad_()
    groups = [{"params": rows, "lr": 0.05}, {"params": [decoder], "lr": 0.006}, {"params": [bias], "lr": 0.003}]
    optimiser = torch.optim.Adam(groups, betas=(0.8, 0.99))
    steps = epochs * len(blocks)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: max(0.02, 1 - step / steps))
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        losses = []
        for k in torch.randperm(len(blocks), generator=generator).tolist():
            loss = code_loss(unit_rows(rows[k]), decoder, bias, targets[k])
            loss.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            schedule.step()
            losses.append(loss.item())
        say(f"codes: epoch {epoch + 1} of {epochs}, loss {np.mean(losses):.4f}")
    source = torch.empty_like(start.source)
    for block, row in zip(blocks, rows, strict=True):
        source[torch.from_numpy(block)] = unit_rows(row.detach())
    return Codes(source, decoder.detach(), bias.detach())


def code_loss(states: Tensor, decoder: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """sparse_mean_squared_error() of states @ decoder.T + bias, by way of the coordinates alone that it is about.

    states: float [B, c]. decoder: [V_e, c], bias: [V_e]. targets: sparse COO [B, V_e], logits > 0. Which coordinates
    are active is found in bfloat16: one at the very edge, whose error is next to nothing, may be missed.
    """
    held = targets.indices()
    with torch.no_grad():
        parts = zip(decoder.bfloat16().split(_COLUMNS), bias.bfloat16().split(_COLUMNS), strict=True)
        active = torch.cat([functional.linear(states.bfloat16(), *part) > -_MARGIN for part in parts], dim=1)
        active[held[0], held[1]] = False
        others = active.nonzero().T
    row, column = torch.cat([held, others], dim=1)
    student = (states[row] * decoder[column]).sum(dim=1) + bias[column]
    teacher = torch.cat([targets.values(), student.new_zeros(others.shape[1])])
    return sparse_mean_squared_error(student, teacher, _MARGIN, "teacher")


def _logits(weights: sp.csr_matrix) -> Tensor:
    """LogSat weights as the logits that give them, sparse COO."""
    entries = weights.tocoo()
    places = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    logits = torch.from_numpy(np.expm1(entries.data))
    return torch.sparse_coo_tensor(places, logits, weights.shape, check_invariants=True).coalesce()
