"""The token table as embeddings: low-dimensional source codes and a decoder whose product is the table.

They start as random codes: every English token has a random unit vector, a source token the weighted sum of its English
tokens' vectors. That product has noise of the size of weak entries, so both sides are then fitted. Only the weighted
entries must have their value; all other logits must merely be negative. (A truncated SVD fails here: a dictionary is
nearly a permutation and has no low rank. The one-sided condition makes it fit.)
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional

from milco_pyserini.console import log
from milco_pyserini.train.losses import sparse_mean_squared_error

_ROWS, _COLUMNS = 1024, 3500
_MARGIN = 0.3
_BIAS, _GAIN = -1.7, 0.35
# Dimensions that English tokens do not use at first: source tokens with little weight point there.
_QUIET = 16


class Codes(NamedTuple):
    """source: float32 [V_m, c], rows of mean 0 and norm sqrt(c). decoder: [V_e, c]. bias: [V_e]."""

    source: Tensor
    decoder: Tensor
    bias: Tensor


def unit_rows(raw: Tensor) -> Tensor:
    """Normalize rows to mean 0 and norm sqrt(c), which LayerNorm does not change."""
    return functional.layer_norm(raw, raw.shape[1:])


def random_codes(table: sp.csr_matrix, size: int, seed: int) -> Codes:
    """Return random decoder rows, and source rows that are sums of their English tokens' codes."""
    generator = torch.Generator().manual_seed(seed)
    decoder = torch.randn(table.shape[1], size, generator=generator)
    decoder[:, -_QUIET:] = 0
    decoder = functional.normalize(decoder - decoder.mean(dim=1, keepdim=True), dim=1)
    logits = table.copy()
    logits.data = np.expm1(logits.data)
    source = torch.from_numpy(np.asarray(logits @ decoder.numpy(), np.float32))
    rest = (size / (_GAIN**2 * size) - source.square().sum(dim=1)).clamp_(min=0)
    sign = torch.tensor([1.0, -1.0]).repeat(_QUIET // 2)
    source[:, -_QUIET:] += (rest / _QUIET).sqrt().unsqueeze(1) * sign
    return Codes(unit_rows(source), decoder * _GAIN, torch.full((table.shape[1],), _BIAS))


def fit_codes(table: sp.csr_matrix, size: int, epochs: int, seed: int) -> Codes:
    """Fit codes to a table [V_m, V_e] of LogSat weights: logit(i, j) = source_i . decoder_j + bias_j.

    Blocks of source rows are separate parameters, so a step moves only its own rows.
    """
    start = random_codes(table, size, seed)
    order = np.random.default_rng(seed).permutation(table.shape[0])
    blocks = [order[i : i + _ROWS] for i in range(0, len(order), _ROWS)]
    targets = [sparse_logits(table[block]) for block in blocks]
    rows = [start.source[torch.from_numpy(block)].requires_grad_() for block in blocks]
    decoder, bias = start.decoder.requires_grad_(), start.bias.requires_grad_()
    groups = [{"params": rows, "lr": 0.05}, {"params": [decoder], "lr": 0.006}, {"params": [bias], "lr": 0.003}]
    optimizer = torch.optim.Adam(groups, betas=(0.8, 0.99))
    steps = epochs * len(blocks)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.02, 1 - step / steps))
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        losses = []
        for k in torch.randperm(len(blocks), generator=generator).tolist():
            loss = code_loss(unit_rows(rows[k]), decoder, bias, targets[k])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            losses.append(loss.item())
        log(f"codes: epoch {epoch + 1} of {epochs}, loss {np.mean(losses):.4f}")
    source = torch.empty_like(start.source)
    for block, row in zip(blocks, rows, strict=True):
        source[torch.from_numpy(block)] = unit_rows(row.detach())
    return Codes(source, decoder.detach(), bias.detach())


def code_loss(states: Tensor, decoder: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Compute sparse_mean_squared_error() of states @ decoder.T + bias from the active coordinates only.

    Active coordinates are found in bfloat16: one close to the margin, whose error is negligible, may be missed.

    Args:
        states: float [B, c].
        decoder, bias: [V_e, c] and [V_e].
        targets: sparse COO [B, V_e], logits > 0.
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


def sparse_logits(weights: sp.csr_matrix) -> Tensor:
    """Return the logits of LogSat weights, sparse COO."""
    entries = weights.tocoo()
    places = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    logits = torch.from_numpy(np.expm1(entries.data))
    return torch.sparse_coo_tensor(places, logits, weights.shape, check_invariants=True).coalesce()
