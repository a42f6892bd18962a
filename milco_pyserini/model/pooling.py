"""Token states to view weights (MILCO, ICLR 2026: Pivot View, LexEcho). Tensors in, tensors out."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Logits stand in memory for a block of texts and one chunk of the vocabulary at a time: 16 MB in float32.
VOCABULARY_CHUNK = 4096
_BLOCK_LOGITS = 1 << 22


def log_saturation(logits: Tensor) -> Tensor:
    """LogSat: log(1 + relu(x)), the weight of a term with that logit. Any shape and float dtype."""
    return torch.log1p(torch.relu(logits))


def max_logits(projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Each English piece's highest logit over a text's tokens, chunk by chunk of the vocabulary.

    The maximum comes before LogSat, which is monotone.

    projected: float [B, S, D_e], the connector's output. mask: bool [B, S]. weight: [V_e, D_e], bias: [V_e].
    Returns float32 [B, V_e]; matrix products are in autocast's dtype where it is on. Neither forward nor backward
    builds [B, S, V_e]: a loss that has no gradient at most coordinates costs next to nothing backwards. Raises
    ValueError if a row has no unmasked token.
    """
    if not bool(mask.any(dim=1).all()):
        raise ValueError("a row without an unmasked token has no logits: mask at least <s>")
    return _MaxLogits.apply(projected, mask, weight, bias)


def highest_logits(states: Tensor, weight: Tensor, bias: Tensor, block_logits: int) -> Tensor:
    """The maximum over the second dimension of the logits, a block of texts and a chunk of pieces at a time.

    states: [B, S, D_e], all of them real; the products are in their dtype. weight: [V_e, D_e], bias: [V_e].
    block_logits: how many logits may stand in memory. Returns float32 [B, V_e]. No gradients.
    """
    texts, tokens, _ = states.shape
    highest = torch.empty(texts, len(weight), dtype=torch.float32, device=states.device)
    rows = max(1, block_logits // (tokens * VOCABULARY_CHUNK))
    for start in range(0, len(weight), VOCABULARY_CHUNK):
        chunk = slice(start, start + VOCABULARY_CHUNK)
        decoder = weight[chunk].to(states.dtype), bias[chunk].to(states.dtype)
        for top in range(0, texts, rows):
            block = slice(top, top + rows)
            highest[block, chunk] = functional.linear(states[block], *decoder).amax(dim=1)
    return highest


class _MaxLogits(torch.autograd.Function):
    """The maximum sends each coordinate's gradient to one token, which is found again for those that have one."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        device = projected.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else projected.dtype
        ctx.save_for_backward(projected, mask, weight)
        ctx.dtype = dtype
        # A padded position becomes a copy of the row's first real token, which the maximum already holds.
        first = mask.int().argmax(dim=1)
        real = projected[torch.arange(len(projected), device=projected.device), first].unsqueeze(1)
        states = torch.where(mask.unsqueeze(-1), projected, real).to(dtype)
        return highest_logits(states, weight, bias, _BLOCK_LOGITS)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        projected, mask, weight = ctx.saved_tensors
        (gradient,) = gradients
        states_gradient = torch.zeros_like(projected, dtype=torch.float32)
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
        text, column = gradient.nonzero(as_tuple=True)
        share = gradient[text, column].unsqueeze(1)
        counts = torch.bincount(text, minlength=len(projected)).tolist()
        for number, (columns, shares) in enumerate(zip(column.split(counts), share.split(counts), strict=True)):
            states, decoder = projected[number].float(), weight[columns]
            logits = (states.to(ctx.dtype) @ decoder.to(ctx.dtype).T).masked_fill(
                ~mask[number].unsqueeze(1), -torch.inf
            )
            token = logits.argmax(dim=0)
            states_gradient[number].index_add_(0, token, shares * decoder)
            weight_gradient.index_add_(0, columns, shares * states[token])
        bias_gradient = gradient.sum(dim=0)
        return states_gradient.to(projected.dtype), None, weight_gradient.to(weight.dtype), bias_gradient


def max_logits_reference(projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max_logits() in one expression, with autograd through all the logits."""
    logits = functional.linear(projected, weight, bias).masked_fill(~mask.unsqueeze(-1), float("-inf"))
    return logits.max(dim=1).values
