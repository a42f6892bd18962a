"""Token states to view weights (MILCO, ICLR 2026: Pivot View, LexEcho). Tensors in, tensors out."""

import torch
from torch import Tensor
from torch.nn import functional

# Logits stand in memory for a block of texts and one chunk of the vocabulary at a time: 16 MB in float32.
VOCABULARY_CHUNK = 4096
_BLOCK_LOGITS = 1 << 22


def pivot_view(projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """LogSat of each English piece's highest logit over a text's tokens, chunk by chunk.

    projected: float [B, S, D_e], the connector's output. mask: bool [B, S]. weight: [V_e, D_e], bias: [V_e].
    Returns float32 [B, V_e], log1p scale, >= 0. The tensor [B, S, V_e] is never built; the maximum comes before
    log1p(relu()), which is monotone. Raises ValueError if a row has no unmasked token.
    """
    if not bool(mask.any(dim=1).all()):
        raise ValueError("a row without an unmasked token has no pivot view: mask at least <s>")
    # A padded position becomes a copy of the row's first real token, which the maximum already holds.
    first = mask.int().argmax(dim=1)
    real = projected[torch.arange(len(projected), device=projected.device), first].unsqueeze(1)
    projected = torch.where(mask.unsqueeze(-1), projected, real)
    texts, tokens, _ = projected.shape
    pooled = torch.empty(texts, weight.shape[0], dtype=torch.float32, device=projected.device)
    rows = max(1, _BLOCK_LOGITS // (tokens * VOCABULARY_CHUNK))
    for start in range(0, weight.shape[0], VOCABULARY_CHUNK):
        chunk = slice(start, start + VOCABULARY_CHUNK)
        for top in range(0, texts, rows):
            block = slice(top, top + rows)
            pooled[block, chunk] = functional.linear(projected[block], weight[chunk], bias[chunk]).amax(dim=1)
    return pooled.clamp_(min=0).log1p_()


def pivot_view_reference(projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same in one expression, with all the logits in memory: what pivot_view() is held against."""
    logits = functional.linear(projected, weight, bias).masked_fill(~mask.unsqueeze(-1), float("-inf"))
    return torch.log1p(torch.relu(logits)).amax(dim=1)
