"""Sparse alignment loss with an exact sparse gradient (MILCO, ICLR 2026: sparse alignment pretraining).

The loss touches only the coordinates that student or teacher holds, and the maximum over tokens sends each of
them to one token: so the maximum is taken without autograd, chunk by chunk, and only the touched logits are
computed again with it. Same loss and gradient as the dense form, without a tensor [B, S, V_e].
"""

import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional

_CHUNK = 3500
# A logit counts as active from here on. With 0 the pressure ends at the very edge of the relu, thousands of
# coordinates settle just below it, and the smallest shift brings all of them up.
MARGIN = 0.3


def sparse_alignment_loss(
    projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, targets: sp.csr_matrix
) -> Tensor:
    """Squared error of the logits over the active coordinates, by the number of the teacher's terms.

    projected: float [B, S, D]. mask: bool [B, S]. weight: [V_e, D], bias: [V_e]. targets: float [B, V_e], logits
    > 0 where the teacher holds a term. Where it holds none the student is to fall to -MARGIN.
    """
    wanted = torch.from_numpy(targets.toarray()).to(projected.device)
    highest, token = _highest_logits(projected, mask, weight, bias)
    row, column = ((highest > -MARGIN) | (wanted > 0)).nonzero(as_tuple=True)
    states = projected[row, token[row, column].long()]
    logits = (states * weight[column]).sum(dim=-1) + bias[column]
    goal = wanted[row, column]
    goal = torch.where(goal > 0, goal, -MARGIN)
    return (logits - goal).square().sum() / (wanted > 0).sum().clamp(min=1)


@torch.no_grad()
def _highest_logits(projected: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Largest logit [B, V_e] over a text's tokens and the token that has it."""
    texts, tokens, size = projected.shape
    # Padding repeats the first token, which the maximum already holds.
    states = torch.where(mask.unsqueeze(-1), projected, projected[:, :1]).bfloat16().view(-1, size)
    weight, bias = weight.bfloat16(), bias.bfloat16()
    best, where = [], []
    for start in range(0, len(weight), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        logits = functional.linear(states, weight[chunk], bias[chunk]).view(texts, tokens, -1)
        value, index = logits.max(dim=1) if tokens > 1 else (logits[:, 0], torch.zeros_like(logits[:, 0]).int())
        best.append(value.float())
        where.append(index.int())
    return torch.cat(best, dim=1), torch.cat(where, dim=1)
