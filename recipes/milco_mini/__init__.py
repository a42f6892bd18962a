"""milco-mini: a compact MILCO checkpoint made from open data on a small machine.

Modules in the order of the recipe: pieces (tokenizers), alignment (word translations from sentence pairs and
dictionaries), table (English weights of every source token), codes (that table as low-dimensional embeddings), echo
(weights of the source view), network (a MILCO model that starts as the table), training (SAP from there),
calibration (weights that are comparable between languages), training again (SCT across languages), sounds (terms by
which names match across scripts), training once more (SCT of the LexEcho head), export (the quantized checkpoint).
words is the translation table as a model, which the network has to match; packed moves what training needs to another
machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.options import option

from .. import RecipeOptions


@dataclass(frozen=True, kw_only=True)
class MiniOptions(RecipeOptions):
    """Train milco-mini: tokenizers, word alignment, token table, codes, network, checkpoint."""

    data: Path | None = option(None, metavar="DIR", help="directory with bitext/, lexicon/ and retrieval/")
    packed: Path | None = option(
        None, metavar="FILE", help="file written by --pack, in place of --data; unpacked into --work"
    )
    start: str | None = option(
        None, metavar="CHECKPOINT", help="trained checkpoint without sound terms, in place of all stages up to SCT"
    )
    output: Path | None = option(None, metavar="DIR", help="directory of the checkpoint; replaced")
    pack: Path | None = option(None, metavar="FILE", help="file to write for --packed, in place of training")
    megabytes: float = option(60.0, above=0, help="size limit of --pack in 1e6 bytes; pairs beyond it are sampled")
    source_pieces: int = option(100_000, minimum=1, help="size of the multilingual vocabulary")
    english_pieces: int = option(14_000, minimum=1, help="size of the English vocabulary: the pivot terms")
    hidden: int = option(256, minimum=192, help="hidden size of encoder and connector, 64 for each attention head")
    layers: int = option(3, minimum=1, help="encoder layers; identities until they are trained")
    epochs: int = option(12, minimum=1, help="passes over the token table to fit its codes")
    sap_steps: int | None = option(None, minimum=1, help="steps of SAP (default: of configuration mini-sap)")
    sct_steps: int | None = option(None, minimum=1, help="steps of each SCT (default: of its configuration)")
    sound_steps: int = option(3_700, minimum=1, help="steps in which the layers learn sound terms")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with combinations of options."""
        if (self.data is None) == (self.packed is None):
            yield "give --data DIR or --packed FILE"
        if self.output is None and self.pack is None:
            yield "give --output DIR to train, or --pack FILE to train on another machine"
        if self.start is not None and self.pack is not None:
            yield "--start: the stages before it are those that --pack needs"
        if self.data is not None and not (self.data / "bitext").is_dir():
            yield f"--data {self.data}: it has no bitext/"
