"""The eight configurations with the paper's results (MILCO, ICLR 2026: MIRACL table, average column)."""

from dataclasses import dataclass

from milco_pyserini.sparse import PIVOT, VIEWS

PIVOT_HEAD, MULTILINGUAL_HEAD, DENSE = "English head", "multilingual head", "dense"


@dataclass(frozen=True)
class Configuration:
    """One way to train.

    paper: nDCG@10 on MIRACL, mean of 18 languages. aligned: trained on sentence pairs first (SAP, or dense alignment).
    contrast: loss of the second stage, "kd" or "infonce"; None without one. views: of sparse outputs. output:
    PIVOT_HEAD, MULTILINGUAL_HEAD or DENSE.
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
