"""The eight configurations and what the paper has for each (MILCO, ICLR 2026: table of MIRACL, column of averages)."""

from dataclasses import dataclass

from milco_pyserini.sparse import PIVOT, VIEWS

PIVOT_HEAD, MULTILINGUAL_HEAD, DENSE = "English head", "multilingual head", "dense"


@dataclass(frozen=True)
class Configuration:
    """One way to train. paper: its nDCG@10 on MIRACL, mean of 18 languages.

    output: what a text becomes, PIVOT_HEAD, MULTILINGUAL_HEAD or DENSE. aligned: sentence pairs come first (SAP, or
    the dense alignment). contrast: the second stage's loss, "kd" or "infonce", None for none. views: of a sparse one.
    """

    number: int
    name: str
    paper: float
    aligned: bool
    contrast: str | None
    views: tuple[str, ...] = (PIVOT,)
    output: str = PIVOT_HEAD


CONFIGURATIONS = (
    Configuration(1, "SAP + SCT-KD + LexEcho", 0.723, True, "kd", VIEWS),
    Configuration(2, "SAP + SCT-KD", 0.694, True, "kd"),
    Configuration(3, "SAP + SCT-InfoNCE + LexEcho", 0.701, True, "infonce", VIEWS),
    Configuration(4, "SAP", 0.545, True, None),
    Configuration(5, "SCT-KD", 0.592, False, "kd"),
    Configuration(6, "noMILCO: SCT-KD, multilingual head", 0.507, False, "kd", output=MULTILINGUAL_HEAD),
    Configuration(7, "dense: align + distill", 0.679, True, "kd", output=DENSE),
    Configuration(8, "dense: distill", 0.709, False, "kd", output=DENSE),
)
NUMBERS = tuple(configuration.number for configuration in CONFIGURATIONS)
