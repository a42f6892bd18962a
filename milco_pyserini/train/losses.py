"""Losses of both training stages (MILCO, ICLR 2026: SAP, SCT): tensors to a scalar."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from milco_pyserini.errors import unknown_name

if TYPE_CHECKING:
    from torch import Tensor

MEANS = ("active", "teacher")
DIRECTIONS = ("teacher-student", "student-teacher")


def sparse_mean_squared_error(
    student: "Tensor", teacher: "Tensor", margin: float = 0.0, mean: str = "active"
) -> "Tensor":
    """Compute SMSE: the squared error over coordinates that are active on either side, flattened over the batch.

    Args:
        student, teacher: float [B, V_e], logits before LogSat.
        margin: distance below 0 at which a student's logit still counts as active; coordinates without a teacher's
            term are pushed that low. With 0 (the paper) the pressure ends at the edge of the relu: thousands of
            coordinates settle there, and the smallest shift activates them.
        mean: divide by the number of "active" coordinates (the paper), or of the "teacher"'s. With a lexical teacher's
            few terms, the mean over active ones can be lowered by activating more.

    Returns:
        A scalar; 0 if nothing is active.
    """
    import torch

    if mean not in MEANS:
        raise unknown_name("mean", mean, MEANS)
    held = teacher > 0
    active = held | (student > -margin)
    goal = torch.where(held, teacher, teacher.clamp(max=-margin))
    error = torch.where(active, student - goal, 0.0).square().sum()
    return error / (held if mean == "teacher" else active).sum().clamp(min=1)


def kl_distillation(student: "Tensor", teacher: "Tensor", direction: str = DIRECTIONS[0]) -> "Tensor":
    """Compute the KL divergence of two distributions over each query's passages, averaged over queries.

    Args:
        student, teacher: scores, float [B, G].
        direction: "teacher-student" is KL(P_teacher || P_student), as in the authors' code; "student-teacher" is the
            paper's formula.
    """
    from torch.nn import functional

    if direction not in DIRECTIONS:
        raise unknown_name("direction", direction, DIRECTIONS)
    inputs, targets = functional.log_softmax(student, dim=1), functional.log_softmax(teacher, dim=1)
    if direction == "student-teacher":
        inputs, targets = targets, inputs
    return functional.kl_div(inputs, targets, reduction="batchmean", log_target=True)


def margin_mean_squared_error(student: "Tensor", teacher: "Tensor") -> "Tensor":
    """Compute MarginMSE: the squared error of margins between positive and negatives, averaged over all negatives.

    (Hofstätter et al., Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge Distillation, 2020.)

    student, teacher: scores, float [B, G], of each query's passages, its positive first; G of 2 or more.
    """
    margins, goal = (scores[:, :1] - scores[:, 1:] for scores in (student, teacher))
    return (margins - goal).square().mean()


def info_nce(scores: "Tensor", positives: "Tensor") -> "Tensor":
    """Compute InfoNCE: cross entropy of each query's positive among the passages of the batch.

    scores: float [B, P]. positives: int64 [B], column of each query's positive passage.
    """
    from torch.nn import functional

    return functional.cross_entropy(scores, positives)


def info_nce_of_many(scores: "Tensor", same: "Tensor", own: "Tensor") -> "Tensor":
    """Compute InfoNCE with several positives: the cross entropy of each one among itself and all negatives, averaged.

    (Khosla et al., Supervised Contrastive Learning, 2020, with other positives left out of the denominator.)

    Args:
        scores: float [B, N], of queries and all texts of the batch.
        same: bool [B, N], positives and the query itself; all other texts are negatives.
        own: int64 [B], column of each query.

    Returns:
        A scalar, the mean over queries that have a positive; 0 if none has one.
    """
    import torch
    from torch.nn import functional

    negatives = scores.masked_fill(same, -torch.inf).logsumexp(dim=1, keepdim=True)
    positive = same.scatter(1, own.unsqueeze(1), False)
    entropies = torch.where(positive, functional.softplus(negatives - scores), 0.0).sum(dim=1)
    counts = positive.sum(dim=1)
    return (entropies / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(min=1)


def l1(weights: "Tensor") -> "Tensor":
    """Average the L1 norms of vectors. weights: float [B, V], >= 0."""
    return weights.sum(dim=1).mean()


def flops(weights: "Tensor") -> "Tensor":
    """Sum the squared mean weights of terms (Paria et al., 2020). weights: float [B, V], >= 0."""
    return weights.mean(dim=0).square().sum()


class ContrastLoss(NamedTuple):
    """A loss of contrastive training, and what it needs.

    function: of scores of each query's passages and the teacher's, float [B, G], positives first, if needs_scores; else
        of scores of queries and all passages of the batch, float [B, B x G], and columns of positives, int64 [B].
    group_size: the least number of passages per query. options: of ContrastOptions, which the function takes.
    """

    help: str
    function: Callable[..., "Tensor"]
    needs_scores: bool = False
    group_size: int = 1
    options: tuple[str, ...] = ()


# The choices of --loss; torch is imported by the functions, because a help page needs the names only.
LOSSES = {
    "kd": ContrastLoss("distills scores", kl_distillation, needs_scores=True, group_size=2, options=("direction",)),
    "marginmse": ContrastLoss("distills margins", margin_mean_squared_error, needs_scores=True, group_size=2),
    "infonce": ContrastLoss("contrasts with the positive", info_nce),
}
