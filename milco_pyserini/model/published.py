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
# A wrong head, activation or layer changes weights by far more, another precision of the products by less.
TOLERANCE = 0.01
