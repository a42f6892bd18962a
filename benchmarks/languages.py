"""Measure a checkpoint language by language: translations, search within and across languages, other spellings.

python benchmarks/languages.py --data DATA --encoder mini

A row for each language of FLORES and of the sample. "R@1" is FLORES's: how often a sentence finds its English
translation. "all", "own" and "other" are nDCG@10 of the sample's questions in that language, among the passages of all
languages at once, of their own, and of one other language at a time. "spelled" is the nDCG@10 that another spelling
costs: the mean over the kinds of spelling.py that change texts of the language, in the sample and in FLORES.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import crosslingual
import numpy as np
import spelling
from same_language import FORMATS

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_corpus
from milco_pyserini.defaults import MINI
from milco_pyserini.eval.report import ReportTable, render
from milco_pyserini.options import option
from milco_pyserini.sparse import SparseBatch

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

COLUMNS = ("R@1", "all", "own", "other", "spelled")


@dataclass(frozen=True)
class LanguagesOptions:
    """Measure every language of FLORES and of the sample."""

    data: Path = option(metavar="DIR", help="directory with eval/flores, as for crosslingual.py")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    sentences: int = option(50, minimum=1, metavar="N", help="FLORES sentences per language that are spelled otherwise")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")
    seed: int = option(1, minimum=0, help="seed of typing errors")
    format: str = option("text", choices=FORMATS[:-1], help="format of the table")


def command(options: LanguagesOptions) -> None:
    """Print a row per language. Raises MilcoError if the data or the encoder cannot be read."""
    from milco_pyserini.encode.encoder import MilcoEncoder

    flores = options.data / "eval" / "flores"
    pairs = {language: crosslingual.read_pairs(path) for language, path in crosslingual.find_files(flores).items()}
    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    rows: dict[str, dict[str, float]] = {}
    for language, one in crosslingual.evaluate_all(encoder, pairs, ("both",)).items():
        rows.setdefault(language, {})["R@1"] = one.mean["R@1"]
    losses: dict[str, list[float]] = {}
    for searches in (spelling.sample(), spelling.flores(flores, options.sentences)):
        documents = encoder.encode_document(searches.searched)
        for language in dict.fromkeys(searches.languages):
            chosen = of_language(searches, language)
            if searches.name == "sample":
                rows.setdefault(language, {}).update(sample_figures(encoder, chosen, documents, language))
            losses.setdefault(language, []).extend(spelling_losses(encoder, chosen, documents, options.seed))
    for language, found in losses.items():
        if found:
            rows[language]["spelled"] = fmean(found)
    table = ReportTable(
        ["language"],
        list(COLUMNS),
        [[language, *(rows[language].get(column) for column in COLUMNS)] for language in sorted(rows)],
        [3] * len(COLUMNS),
        [f"encoder {options.encoder}, both views"],
    )
    sys.stdout.write(render(table, options.format))


def of_language(searches: spelling.Searches, language: str) -> spelling.Searches:
    """Return the queries of one language, with all texts that they search."""
    places = [place for place, one in enumerate(searches.languages) if one == language]
    texts = [searches.texts[place] for place in places]
    return replace(searches, texts=texts, languages=[language] * len(texts), gains=searches.gains[places])


def sample_figures(
    encoder: "MilcoEncoder", searches: spelling.Searches, documents: SparseBatch, language: str
) -> dict[str, float]:
    """Return nDCG@10 among all passages, those of the language, and those of one other language at a time."""
    of_passages = np.array([document.id.partition("-")[0] for document in open_corpus("sample")])
    found: dict[str, float] = {}
    for one in np.unique(of_passages):
        chosen = np.flatnonzero(of_passages == one)
        part = replace(searches, gains=searches.gains[:, chosen])
        found[one] = mean_ndcg(encoder, part, searches.texts, documents[chosen])
    own = found.pop(language)
    every = mean_ndcg(encoder, searches, searches.texts, documents)
    return {"all": every, "own": own, "other": fmean(found.values())}


def spelling_losses(
    encoder: "MilcoEncoder", searches: spelling.Searches, documents: SparseBatch, seed: int
) -> list[float]:
    """Return what each kind of other spelling costs the queries that it changes."""
    losses = []
    for changed in spelling.respelled(searches, seed).values():
        if changed:
            part = replace(searches, gains=searches.gains[list(changed)])
            before = mean_ndcg(encoder, part, [searches.texts[number] for number in changed], documents)
            losses.append(before - mean_ndcg(encoder, part, list(changed.values()), documents))
    return losses


def mean_ndcg(encoder: "MilcoEncoder", searches: spelling.Searches, texts: list[str], documents: SparseBatch) -> float:
    """Return the mean nDCG@10 of texts in place of the queries."""
    return float(spelling.ndcg(encoder, searches, range(len(texts)), texts, documents).mean())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/languages.py", LanguagesOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
