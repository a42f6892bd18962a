"""Weights that the authors of a checkpoint print: whether it is read as they read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublishedText:
    """A text and the weights of some pieces of each view; no view but these is encoded."""

    text: str
    pivot: Mapping[str, float]
    source: Mapping[str, float] = field(default_factory=dict)


# Name of a repository, without its owner -> what its model card and the README of thongnt99/milco print.
PUBLISHED = {
    "milco-650m": (
        PublishedText(
            "Baltimore : La plus grande ville d'Amérique",
            {"baltimore": 1.8021222352981567, "maryland": 1.2527629137039185, "city": 1.202409029006958},
        ),
        PublishedText(
            "巴尔的摩：美国最伟大的城市",
            {"baltimore": 1.6522579193115234, "city": 1.322, "greatest": 1.119, "usa": 0.929},
            {"</s>": 2.094, "伟大的": 0.777, "美国": 0.684},
        ),
    )
}
# The authors print bfloat16, which has 8 binary digits: the last rounding moves a logit by at most 2^-8 of it, and its
# weight log1p(logit) by less than .004. The layers round, too. On milco-mini's 12 layers, the strongest weights of
# float32 and bfloat16 differ by up to .029; such errors add up like a random walk, so 24 layers give sqrt(2) x .029 =
# .041. Source weights are not log1p(): above 1, their error grows with them. A wrong head, activation or layer changes
# weights by far more.
_TOLERANCE = 0.05


def is_close(weight: float, published: float) -> bool:
    """Return whether a weight differs from a published one by no more than bfloat16 explains."""
    return abs(weight - published) <= _TOLERANCE * max(1.0, published)
