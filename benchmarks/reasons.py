"""Measure whether the reasons of a hit make sense: are the strongest matched terms in the English translation?

python benchmarks/reasons.py --data DATA --encoder mini
python benchmarks/reasons.py --read 20 > reasons.md

A text in one language matches its counterpart in another: FLORES's sentences, and the sample's queries with a relevant
passage. The five matched pivot terms with the largest products are looked for in the English side of both texts: the
word itself or an inflection of it; or else a neighbor of one of its words, which translates at least two of the same
words of other languages in the wordnets and in Wiktionary. All others are counted as nonsense, so some related terms
are, too: the measure compares checkpoints, and a reader who goes through explanations finds less. --read prints
explanations of the sample for that reader: the pair of words of each term, and its share of the score.
"""

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import crosslingual
import numpy as np
import repository  # noqa: F401
from same_language import FORMATS

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.report import ReportTable, render
from milco_pyserini.explain.explainer import explain_texts
from milco_pyserini.explain.explanation import pair_of_words
from milco_pyserini.options import option
from milco_pyserini.sparse import PIVOT
from recipes.milco_mini.grounding import english_words, is_inflection, read_neighbors

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

STRONGEST = 5
ENGLISH = "en"
EXAMPLES = 30


@dataclass(frozen=True)
class ReasonsOptions:
    """Count how many of the five strongest matched terms are in the English translation, or are its neighbors."""

    data: Path | None = option(None, metavar="DIR", help="directory with eval/flores and lexicon/")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    read: int | None = option(None, minimum=1, metavar="N", help="print N explanations of the sample as Markdown")
    sentences: int = option(60, minimum=1, metavar="N", help="FLORES sentences per language")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")
    seed: int = option(1, minimum=0, help="seed of the pairs")
    format: str = option("text", choices=FORMATS[:-1], help="format of the table")


class Match(NamedTuple):
    """A text, a counterpart in another language, and the English side of both."""

    query: str
    document: str
    english: str


def command(options: ReasonsOptions) -> None:
    """Print a row per collection. Raises MilcoError if the data or the encoder cannot be read."""
    from milco_pyserini.encode.encoder import MilcoEncoder

    if (options.data is None) == (options.read is None):
        raise MilcoError("give --data to count, or --read to print explanations")
    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    rng = random.Random(options.seed)
    if options.data is None:
        pairs = list(sample_matches(rng))
        sys.stdout.write(render(explained(encoder, rng.sample(pairs, min(options.read or 0, len(pairs)))), "markdown"))
        return
    matches = {
        "FLORES": list(flores_matches(options.data / "eval" / "flores", options.sentences, rng)),
        "sample": list(sample_matches(rng)),
    }
    neighbors = read_neighbors(options.data / "lexicon")
    rows, nonsense = [], Counter[str]()
    for name, pairs in matches.items():
        counts = Counter[str]()
        for terms, match in zip(strongest_terms(encoder, pairs), pairs, strict=True):
            words = english_words(match.english)
            for term in terms:
                kind = grounding(term, words, neighbors)
                counts[kind] += 1
                if kind == "nonsense":
                    nonsense[term] += 1
        total = counts.total()
        rows.append([name, len(pairs), *(counts[kind] / total for kind in ("word", "neighbor", "nonsense"))])
    often = ", ".join(f"{term} {count}" for term, count in nonsense.most_common(EXAMPLES))
    headers = ["matches", "in the English text", "neighbors", "nonsense"]
    notes = [f"encoder {options.encoder}; often nonsense: {often}"]
    sys.stdout.write(render(ReportTable(["collection"], headers, rows, [0, 3, 3, 3], notes), options.format))


def flores_matches(directory: Path, sentences: int, rng: random.Random) -> Iterator[Match]:
    """Yield sentences of every language, each with its translation in another one, not English."""
    pairs = {language: crosslingual.read_pairs(path) for language, path in crosslingual.find_files(directory).items()}
    texts = {language: dict(zip(one.ids, one.sentences, strict=True)) for language, one in pairs.items()}
    for language, one in pairs.items():
        for place in range(min(sentences, len(one.ids))):
            others = [other for other in texts if other != language and one.ids[place] in texts[other]]
            if others:
                other = texts[rng.choice(others)][one.ids[place]]
                yield Match(one.sentences[place], other, one.english[one.targets[place]])


def sample_matches(rng: random.Random) -> Iterator[Match]:
    """Yield the sample's queries, each with a relevant passage in another language."""
    qrels = open_qrels("sample")
    documents = {document.id: document.contents for document in open_corpus("sample")}
    topics = {topic.id: topic.text for topic in open_topics("sample")}
    for topic, text in topics.items():
        language, _, number = topic.partition("-")
        relevant = sorted(docid for docid, gain in qrels[topic].items() if gain > 0)
        others = [docid for docid in relevant if docid.partition("-")[0] not in (language, ENGLISH)]
        english = [documents[docid] for docid in relevant if docid.startswith(f"{ENGLISH}-")]
        if others and english and language != ENGLISH:
            sides = [topics.get(f"{ENGLISH}-{number}", ""), *english]
            yield Match(text, documents[rng.choice(others)], " ".join(sides))


def explained(encoder: "MilcoEncoder", pairs: Sequence[Match]) -> ReportTable:
    """Return a row per match: query, beginning of the passage, and the strongest terms with their words and shares."""
    rows = []
    for pair in pairs:
        (one,) = explain_texts(encoder, pair.query, [pair.document])
        terms = [
            f"{pair_of_words(match.term, one.query, one.document)} {match.score / one.total:.0%}"
            for match in one.strongest[:STRONGEST]
        ]
        rows.append([pair.query, pair.document[:80], *terms, *[""] * (STRONGEST - len(terms))])
    return ReportTable(["query", "passage", *map(str, range(1, STRONGEST + 1))], (), rows)


def strongest_terms(encoder: "MilcoEncoder", pairs: Sequence[Match]) -> Iterator[list[str]]:
    """Yield the pivot terms of each match with the largest products of weights, the largest first."""
    queries = encoder.encode_query([pair.query for pair in pairs]).view(PIVOT)
    documents = encoder.encode_document([pair.document for pair in pairs]).view(PIVOT)
    for row in range(len(pairs)):
        (columns, weights), (others, more) = queries.row(row), documents.row(row)
        shared, left, right = np.intersect1d(columns, others, assume_unique=True, return_indices=True)
        order = np.argsort(-weights[left] * more[right], kind="stable")[:STRONGEST]
        yield [encoder.english_tokenizer.id_to_token(int(column)) or "" for column in shared[order]]


def grounding(term: str, words: set[str], neighbors: dict[str, set[str]]) -> str:
    """Return "word", "neighbor" or "nonsense". A part of a word (##) is a word if one of the words contains it."""
    if term.startswith("##"):
        return "word" if any(term[2:] in word for word in words if len(term) > 3) else "nonsense"
    if not any(map(str.isalnum, term)):
        return "nonsense"
    if any(is_inflection(term, word) for word in words):
        return "word"
    near = neighbors.get(term, set())
    return "neighbor" if any(is_inflection(other, word) for other in near for word in words) else "nonsense"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/reasons.py", ReasonsOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
