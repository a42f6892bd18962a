"""The eight configurations with the paper's results (MILCO, ICLR 2026: MIRACL table, average column), and options."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.options import option
from milco_pyserini.sparse import PIVOT, VIEWS

from .. import RecipeOptions

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


@dataclass(frozen=True, kw_only=True)
class ConfigurationsOptions(RecipeOptions):
    """Train the paper's configurations small, and print a table next to the paper's results.

    Configurations: 1 SAP + SCT-KD + LexEcho, 2 the same without LexEcho, 3 as 1 with InfoNCE, 4 SAP only, 5 SCT-KD
    only, 6 noMILCO (multilingual head), 7 dense with alignment, 8 dense without.
    """

    data: Path = option(metavar="DIR", help="directory with bitext/, retrieval/ and optionally lexicon/")
    probe: Path = option(metavar="DIR", help="held-out sentence pairs (LANG-en.tsv): are terms grounded?")
    start: str = option("mini", metavar="CHECKPOINT", help="checkpoint whose encoder and English head all start from")
    configurations: tuple[int, ...] = option(tuple(range(1, 9)), minimum=1, maximum=8, help="which to train")
    sap_steps: int = option(1000, minimum=1, help="steps of alignment")
    sct_steps: int = option(250, minimum=1, help="steps of contrastive training")
    sap_batch: int = option(32, minimum=1, help="sentence pairs per step")
    sct_batch: int = option(16, minimum=1, help="queries per step, 4 passages each")
    train_queries: int = option(600, minimum=1, help="training queries of each set, at most")
    queries: int = option(200, minimum=1, help="test queries of each set, at most")
    passages: int = option(1000, minimum=1, help="passages of each test collection")

    def conflicts(self) -> Iterator[str]:
        """Yield which directories are missing."""
        for directory in (self.data / "bitext", self.data / "retrieval", self.probe):
            if not directory.is_dir():
                yield f"{directory} does not exist: see --help for --data and --probe"
