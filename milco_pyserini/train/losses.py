"""The losses of both training stages (MILCO, ICLR 2026: SAP, SCT). Tensors in, a scalar out."""

import torch
from torch import Tensor
from torch.nn import functional

from milco_pyserini.errors import unknown_name

MEANS = ("active", "teacher")
DIRECTIONS = ("teacher-student", "student-teacher")
REGULARIZERS = ("l1", "flops")


def sparse_mean_squared_error(student: Tensor, teacher: Tensor, margin: float = 0.0, mean: str = "active") -> Tensor:
    """SMSE: squared error over the coordinates that are active on either side, flattened over the batch.

    student, teacher: float [B, V_e], logits before LogSat. margin: how far below 0 a student's logit still counts as
    active; a coordinate that the teacher does not hold is to fall that low. With 0 (the paper) the pressure ends at
    the edge of the relu, thousands of coordinates settle there, and the smallest shift brings them up. mean: divide by
    the number of "active" coordinates (the paper), or of the "teacher"'s: a lexical teacher holds few terms, and the
    mean over active ones can be made small by activating more. 0 where nothing is active.
    """
    if mean not in MEANS:
        raise unknown_name("mean", mean, MEANS)
    held = teacher > 0
    active = held | (student > -margin)
    goal = torch.where(held, teacher, teacher.clamp(max=-margin))
    error = torch.where(active, student - goal, 0.0).square().sum()
    return error / (held if mean == "teacher" else active).sum().clamp(min=1)


def kl_distillation(student: Tensor, teacher: Tensor, direction: str = DIRECTIONS[0]) -> Tensor:
    """KL divergence of two distributions over each query's passages, mean over the queries.

    student, teacher: float [B, G], scores. direction: "teacher-student" is KL(P_teacher || P_student), as the authors'
    code has it; "student-teacher" is the paper's formula.
    """
    if direction not in DIRECTIONS:
        raise unknown_name("direction", direction, DIRECTIONS)
    ours, theirs = functional.log_softmax(student, dim=1), functional.log_softmax(teacher, dim=1)
    if direction == "student-teacher":
        ours, theirs = theirs, ours
    return functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def info_nce(scores: Tensor, positives: Tensor) -> Tensor:
    """InfoNCE: cross entropy of each query's positive among all the passages of the batch.

    scores: float [B, P]. positives: int64 [B], column of each query's positive passage.
    """
    return functional.cross_entropy(scores, positives)


def l1(weights: Tensor) -> Tensor:
    """Mean over the batch of the vectors' L1 norms. weights: float [B, V], >= 0."""
    return weights.sum(dim=1).mean()


def flops(weights: Tensor) -> Tensor:
    """Sum over the terms of the squared mean weight (Paria et al., 2020). weights: float [B, V], >= 0."""
    return weights.mean(dim=0).square().sum()
