"""Adapt a model to one's own documents, and measure on a held-out part of them whether that has helped.

Modules in the order of the recipe: queries (from the documents themselves), preset (of the training), run (the
stages), report (both models next to each other).
"""

from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.defaults import MINI
from milco_pyserini.eval.evaluation import HELD_OUT
from milco_pyserini.options import DeviceOptions, option


@dataclass(frozen=True, kw_only=True)
class AdaptOptions(DeviceOptions):
    """Adapt a model to your own documents, and measure on a held-out part of them whether that has helped.

    The queries to train on come from the documents: titles, headings, sentences, terms. The report compares both
    models on documents that were held out. Without a significant gain, there is a report but no model, unless
    --keep-rejected asks for it. The same command resumes an interrupted run.

      python -m recipes.adapt docs.jsonl --output my-model
    """

    documents: str = option(positional=True, metavar="DOCS", help="corpus: a file, a directory, or a name")
    output: Path = option(metavar="DIR", help="directory of the model and its report")
    encoder: str = option(MINI, metavar="CHECKPOINT", help="MILCO checkpoint to adapt: directory, hub name, or mini")
    parallel: tuple[str, ...] = option(
        (), metavar="SOURCE", help="translations: LANG-en.tsv, LANG-en.jsonl, directories"
    )
    teacher: str | None = option(
        None,
        metavar="CHECKPOINT",
        help="encoder or cross-encoder whose scores are distilled, in addition to the model's own terms",
    )
    held_out: float = option(
        HELD_OUT, metavar="SHARE", above=0, maximum=0.5, help="share of the documents to measure on"
    )
    steps: int = option(600, minimum=1, help="training steps")
    batch_size: int = option(16, minimum=2, help="queries of a step")
    seed: int = option(1, minimum=0, help="random seed")
    keep_rejected: bool = option(False, help="write a model that has not gained, too, to DIR/rejected")
    overwrite: bool = option(False, help="start over if --output has something else, which is removed first")
