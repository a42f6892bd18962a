"""Measure what another spelling of the queries costs: without marks, in capitals, with typing errors.

python benchmarks/spelling.py --data DATA --encoder mini

The queries of the sample search its passages in all languages, and FLORES's sentences their English translations among
all English sentences. Each kind of recipes/milco_mini/spelling.py is applied to the queries that it changes; the table
has their nDCG@10 before, after, and the loss. Texts that are searched stay as they are.
"""

import random
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import crosslingual
import numpy as np
from numpy.typing import NDArray
from same_language import FORMATS

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.eval.report import ReportTable, render
from milco_pyserini.options import option
from milco_pyserini.sparse import SparseBatch

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

DEPTH = 10
GERMAN = "de"
DISCOUNTS = 1 / np.log2(np.arange(DEPTH) + 2)


@dataclass(frozen=True)
class SpellingOptions:
    """Measure nDCG@10 of the sample's and FLORES's queries in other spellings, by kind."""

    data: Path = option(metavar="DIR", help="directory with eval/flores, as for crosslingual.py")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    sentences: int = option(50, minimum=1, metavar="N", help="FLORES sentences per language that search")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")
    seed: int = option(1, minimum=0, help="seed of typing errors")
    format: str = option("text", choices=FORMATS[:-1], help="format of the table")


@dataclass(frozen=True)
class Searches:
    """Queries in several languages, and the texts that they search.

    gains: float [Q, D], what a text is worth to a query.
    """

    name: str
    texts: list[str]
    languages: list[str]
    searched: list[str]
    gains: NDArray[np.float32]


def command(options: SpellingOptions) -> None:
    """Print a row per kind. Raises MilcoError if the data or the encoder cannot be read."""
    from milco_pyserini.encode.encoder import MilcoEncoder

    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    collections = [sample(), flores(options.data / "eval" / "flores", options.sentences)]
    rows: dict[str, list[float | None]] = {}
    for collection in collections:
        documents = encoder.encode_document(collection.searched)
        plain = ndcg(encoder, collection, range(len(collection.texts)), collection.texts, documents)
        for kind, changed in respelled(collection, options.seed).items():
            cells: list[float | None] = [0, None, None, None]
            if changed:
                before = float(plain[list(changed)].mean())
                after = float(ndcg(encoder, collection, changed.keys(), list(changed.values()), documents).mean())
                cells = [len(changed), before, after, before - after]
            rows.setdefault(kind, []).extend(cells)
    losses = {kind: [cell for cell in cells[3::4] if cell is not None] for kind, cells in rows.items()}
    means = {kind: fmean(found) for kind, found in losses.items() if found}
    worst = max(means, key=means.__getitem__)
    notes = [
        f"encoder {options.encoder}; mean loss {fmean(means.values()):.3f}, worst kind {worst} {means[worst]:.3f}, as "
        "means of both collections"
    ]
    headers = [f"{one.name}, {what}" for one in collections for what in ("queries", "as written", "spelled", "loss")]
    table = ReportTable(["kind"], headers, [[kind, *cells] for kind, cells in rows.items()], [0, 3, 3, 3] * 2, notes)
    sys.stdout.write(render(table, options.format))


def sample() -> Searches:
    """Return the sample's topics and passages, in all languages at once."""
    topics, documents, qrels = list(open_topics("sample")), list(open_corpus("sample")), open_qrels("sample")
    gains = np.array([[qrels[t.id].get(document.id, 0) for document in documents] for t in topics], np.float32)
    languages = [topic.id.partition("-")[0] for topic in topics]
    return Searches("sample", [topic.text for topic in topics], languages, [one.contents for one in documents], gains)


def flores(directory: Path, sentences: int) -> Searches:
    """Return the first sentences of every language, and their English translations."""
    texts: list[str] = []
    languages: list[str] = []
    targets: list[int] = []
    english: dict[str, int] = {}
    for language, path in crosslingual.find_files(directory).items():
        pairs = crosslingual.read_pairs(path)
        numbers = [english.setdefault(text, len(english)) for text in pairs.english]
        texts += pairs.sentences[:sentences]
        languages += [language] * len(pairs.sentences[:sentences])
        targets += [numbers[place] for place in pairs.targets[:sentences]]
    gains = np.zeros((len(texts), len(english)), np.float32)
    gains[np.arange(len(texts)), targets] = 1
    return Searches("FLORES", texts, languages, list(english), gains)


def respelled(searches: Searches, seed: int) -> dict[str, dict[int, str]]:
    """Return, for each kind of spelling, the queries that it changes: number -> text."""
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from recipes.milco_mini.spelling import KINDS

    found: dict[str, dict[int, str]] = {}
    for kind, spell in KINDS.items():
        found[kind] = {}
        for number, (text, language) in enumerate(zip(searches.texts, searches.languages, strict=True)):
            other = spell(text, random.Random(f"{seed} {number}"))
            if other != text and (kind != "ue" or language == GERMAN):
                found[kind][number] = other
    return found


def ndcg(
    encoder: "MilcoEncoder", collection: Searches, numbers: Collection[int], texts: list[str], documents: SparseBatch
) -> NDArray[np.float64]:
    """Return nDCG@10 of texts in place of the queries of those numbers, [Q]."""
    scores = encoder.encode_query(texts).dot(documents)
    gains = collection.gains[list(numbers)]
    best = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    found = np.take_along_axis(gains, best, axis=1) * (np.take_along_axis(scores, best, axis=1) > 0)
    ideal = -np.sort(-gains, axis=1)[:, :DEPTH]
    return found @ DISCOUNTS[: found.shape[1]] / (ideal @ DISCOUNTS[: ideal.shape[1]])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/spelling.py", SpellingOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
