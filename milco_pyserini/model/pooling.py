"""Pool the logits of a text's tokens into pivot weights (MILCO, ICLR 2026: Pivot View), and weigh its own tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Logits are in memory for a block of texts and one chunk of the vocabulary at a time: 16 MB in float32. On a GPU,
# enough that computing them takes longer than launching the next kernel: 64 MB in bfloat16.
VOCABULARY_CHUNK = 4096
BLOCK_LOGITS = 1 << 22
GPU_BLOCK_LOGITS = 1 << 25
# Epsilon of the connector's LayerNorm.
CONNECTOR_EPS = 1e-12


def log_saturation(logits: Tensor) -> Tensor:
    """Return LogSat, log(1 + relu(x)): the weights of terms with these logits. Any shape and float dtype."""
    return torch.log1p(torch.relu(logits))


def echo_weights(
    tokens: Tensor, hidden: Tensor, projected: Tensor, variant: str, weight: Tensor, bias: Tensor, scale: Tensor
) -> Tensor:
    """Return the source weight of each token (paper: LexEcho).

    Args:
        tokens: int64 [...], ids, which "token" reads.
        hidden: [..., D_m], the encoder's states, which "linear" reads.
        projected: [..., D_e], the connector's output, which "paper" reads.
        variant: of the LexEcho head, see NetworkConfig.
        weight: [1, N], the head's; N is D_m, D_e or the number of tokens, V_m.
        bias, scale: [1], the head's.

    Returns:
        float32 [...], >= 0 unless the head's scale is negative, which pooling treats as 0.
    """
    if variant == "token":
        return torch.relu(weight[0, tokens] + bias) * scale
    # Sums of products, not a matrix product: autocast would round that to bfloat16, and duplicates add up.
    states = projected if variant == "paper" else hidden
    weights = torch.relu((states.float() * weight).sum(dim=-1) + bias)
    return torch.log1p(weights) if variant == "paper" else weights * scale


def max_logits(projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the highest logit of each English piece over a text's tokens.

    Neither forward nor backward builds [B, S, V_e]: the decoder is applied to chunks of the vocabulary, and a loss
    without a gradient at most coordinates costs next to nothing backwards. LogSat is monotone, so it can follow the
    maximum. Matrix products are in autocast's dtype if it is enabled.

    Args:
        projected: float [B, S, D_e], the connector's output.
        mask: bool [B, S].
        weight, bias: [V_e, D_e] and [V_e], the decoder's.

    Returns:
        float32 [B, V_e]. On a GPU, which the CPU does not wait for, a row without an unmasked token is NaN.

    Raises:
        ValueError: on the CPU, a row has no unmasked token.
    """
    if mask.device.type == "cpu" and not bool(mask.any(dim=1).all()):
        raise ValueError("a row has no unmasked token, so it has no logits: unmask at least <s>")
    return _MaxLogits.apply(projected, mask, weight, bias)


def block_maximum(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the highest logit over the tokens, [B, V], for states [B, S, D], weight [V, D] and bias [V]."""
    return functional.linear(states, weight, bias).amax(dim=1)


def highest_logits(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    block_logits: int = BLOCK_LOGITS,
    vocabulary_chunk: int = VOCABULARY_CHUNK,
    maximum: Callable[[Tensor, Tensor, Tensor], Tensor] = block_maximum,
) -> Tensor:
    """Return the maximum of the logits over the tokens, for a block of texts and a chunk of pieces at a time.

    Args:
        states: [B, S, D_e], without padding positions; the products are in their dtype.
        weight, bias: [V_e, D_e] and [V_e], the decoder's.
        block_logits: the most logits in memory at a time.
        vocabulary_chunk: the pieces of a chunk.
        maximum: block_maximum, or what torch.compile makes of it.

    Returns:
        float32 [B, V_e], without gradients.
    """
    texts, tokens, _ = states.shape
    highest = torch.empty(texts, len(weight), dtype=torch.float32, device=states.device)
    rows = max(1, block_logits // (tokens * vocabulary_chunk))
    for start in range(0, len(weight), vocabulary_chunk):
        chunk = slice(start, start + vocabulary_chunk)
        decoder = weight[chunk].to(states.dtype), bias[chunk].to(states.dtype)
        for top in range(0, texts, rows):
            block = slice(top, top + rows)
            highest[block, chunk] = maximum(states[block], *decoder)
    return highest


class _MaxLogits(torch.autograd.Function):
    """Each coordinate's gradient goes to the token of its maximum, which is computed again."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        device = projected.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else projected.dtype
        ctx.save_for_backward(projected, mask, weight)
        ctx.dtype = dtype
        # A padded position becomes a copy of the row's first real token, which the maximum already includes.
        first = mask.int().argmax(dim=1)
        real = projected[torch.arange(len(projected), device=projected.device), first].unsqueeze(1)
        states = torch.where(mask.unsqueeze(-1), projected, real).to(dtype)
        if device == "cpu":
            return highest_logits(states, weight, bias)
        highest = highest_logits(states, weight, bias, GPU_BLOCK_LOGITS)
        return highest.masked_fill_(~mask.any(dim=1, keepdim=True), torch.nan)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, Tensor | None, Tensor]:
        projected, mask, weight = ctx.saved_tensors
        (gradient,) = gradients
        backward = sparse_gradients if gradient.device.type == "cpu" else dense_gradients
        # The decoder may be frozen.
        states, decoder = backward(gradient, projected, mask, weight, ctx.dtype, ctx.needs_input_grad[2])
        decoder = None if decoder is None else decoder.to(weight.dtype)
        return states.to(projected.dtype), None, decoder, gradient.sum(dim=0)


def sparse_gradients(
    gradient: Tensor, projected: Tensor, mask: Tensor, weight: Tensor, dtype: torch.dtype, is_trained: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of max_logits() by states and by weight, text by text, for coordinates with a gradient.

    Args:
        gradient: float32 [B, V_e], of the result.
        projected, mask, weight: as for max_logits().
        dtype: of the matrix products.
        is_trained: whether the weight has a gradient.

    Returns:
        float32 [B, S, D_e], and float32 [V_e, D_e] or None.
    """
    states_gradient = torch.zeros_like(projected, dtype=torch.float32)
    weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if is_trained else None
    text, column = gradient.nonzero(as_tuple=True)
    share = gradient[text, column].unsqueeze(1)
    counts = gradient.count_nonzero(dim=1).tolist()
    for number, (columns, shares) in enumerate(zip(column.split(counts), share.split(counts), strict=True)):
        states, decoder = projected[number].float(), weight[columns]
        logits = (states.to(dtype) @ decoder.to(dtype).T).masked_fill(~mask[number].unsqueeze(1), -torch.inf)
        token = logits.argmax(dim=0)
        states_gradient[number].index_add_(0, token, shares * decoder)
        if weight_gradient is not None:
            weight_gradient.index_add_(0, columns, shares * states[token])
    return states_gradient, weight_gradient


def dense_gradients(
    gradient: Tensor, projected: Tensor, mask: Tensor, weight: Tensor, dtype: torch.dtype, is_trained: bool
) -> tuple[Tensor, Tensor | None]:
    """Return what sparse_gradients() returns, by products over all coordinates: a GPU computes them without waiting."""
    states, hidden = projected.to(dtype), ~mask.unsqueeze(-1)
    states_gradient = torch.zeros_like(projected, dtype=torch.float32)
    weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if is_trained else None
    rows = max(1, GPU_BLOCK_LOGITS // (states.shape[1] * VOCABULARY_CHUNK))
    for start in range(0, len(weight), VOCABULARY_CHUNK):
        chunk = slice(start, start + VOCABULARY_CHUNK)
        decoder = weight[chunk].to(dtype)
        for top in range(0, len(states), rows):
            block = slice(top, top + rows)
            logits = (states[block] @ decoder.T).masked_fill_(hidden[block], -torch.inf)
            token = logits.argmax(dim=1, keepdim=True)
            shares = logits.zero_().scatter_(1, token, gradient[block, None, chunk].to(dtype))
            states_gradient[block] += shares @ decoder
            if weight_gradient is not None:
                weight_gradient[chunk] += shares.flatten(0, 1).T @ states[block].flatten(0, 1)
    return states_gradient, weight_gradient


def max_logits_reference(projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return what max_logits() returns, by one expression with autograd through all logits: its reference."""
    logits = functional.linear(projected, weight, bias).masked_fill(~mask.unsqueeze(-1), float("-inf"))
    return logits.max(dim=1).values
