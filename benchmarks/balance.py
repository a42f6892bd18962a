"""Measure what balancing languages does in collections whose languages are of uneven size.

python benchmarks/balance.py
python benchmarks/balance.py --data flores

A collection has all texts of one language, a tenth of those of two others, and a hundredth of those of the rest; it
begins with each of --dominant in turn. Relevant are all texts on the subject of the query, whatever their language. The
embedded sample has queries and passages. --data is a directory of LANG-en.tsv files with id, sentence and English
translation: queries are sentences of every language, relevant are their translations, and a sentence is not a document
of its own query. The score of a document is q . d - strength x q . mean of its language, as with --balance.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from crosslingual import find_files, read_pairs
from tabulate import tabulate

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_corpus, open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import validate_name
from milco_pyserini.eval import evaluate
from milco_pyserini.eval.fairness import OWN_LANGUAGE, evaluate_fairness
from milco_pyserini.io.qrels import Qrels
from milco_pyserini.io.runs import Run
from milco_pyserini.options import option
from milco_pyserini.sparse import SparseBatch

ENGLISH = "en"
MEASURE = "nDCG@10"
HITS = 10
HEADERS = ("collection", "strength", MEASURE, "queries of the largest", "other queries", OWN_LANGUAGE)


@dataclass(frozen=True)
class BalanceOptions:
    """Measure nDCG@10 and the share of the query's own language, plain and balanced, in uneven collections."""

    data: Path | None = option(None, metavar="DIR", help="directory of LANG-en.tsv files (default: the sample)")
    languages: tuple[str, ...] = option(
        (ENGLISH, "de", "ar", "zh", "sw"), metavar="LANG", help="at least three of them"
    )
    dominant: tuple[str, ...] = option((ENGLISH, "zh"), metavar="LANG", help="largest languages")
    strengths: tuple[float, ...] = option((0.0, 0.5, 1.0), minimum=0, metavar="X", help="strengths of the balance")
    queries: int = option(
        300, minimum=1, metavar="N", help="sentences of --data that are queries, or of small languages"
    )
    draws: int = option(5, minimum=1, metavar="N", help="random choices of the documents, whose results are averaged")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")


def command(options: BalanceOptions) -> None:
    """Print a row per collection and strength. Raises MilcoError if the data or the encoder cannot be read."""
    from milco_pyserini.encode.encoder import MilcoEncoder

    for language in options.dominant:
        validate_name("language", language, options.languages)
    documents, queries = read_sample(options) if options.data is None else read_sentences(options.data, options)
    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    texts = documents | queries
    encoded = encoder.encode(list(texts.values()), show_progress=True)
    vectors = Vectors(encoded, {name: number for number, name in enumerate(texts)})
    rows = []
    for language in options.dominant:
        place = options.languages.index(language)
        languages = [*options.languages[place:], *options.languages[:place]]
        rows += measure_collection(languages, list(documents), list(queries), vectors, options)
    sys.stdout.write(tabulate(rows, HEADERS, floatfmt=".3f") + "\n")


class Vectors(NamedTuple):
    """Vectors by the names of their texts."""

    batch: SparseBatch
    rows: dict[str, int]

    def of(self, names: Sequence[str]) -> SparseBatch:
        """Return the vectors of texts."""
        return self.batch[[self.rows[name] for name in names]]


def read_sample(options: BalanceOptions) -> tuple[dict[str, str], dict[str, str]]:
    """Return passages and queries of the sample: LANGUAGE-SUBJECT and LANGUAGE-qSUBJECT -> text."""
    documents = {document.id: document.contents for document in open_corpus("sample")}
    queries = {query.id: query.text for query in open_topics("sample")}
    return tuple(  # type: ignore[return-value]
        {name: text for name, text in texts.items() if language_of(name) in options.languages}
        for texts in (documents, queries)
    )


def read_sentences(data: Path, options: BalanceOptions) -> tuple[dict[str, str], dict[str, str]]:
    """Return documents and queries: LANGUAGE-ID -> sentence."""
    sentences: dict[str, dict[str, str]] = {ENGLISH: {}}
    for language, path in find_files(data, [name for name in options.languages if name != ENGLISH]).items():
        pairs = read_pairs(path)
        sentences[language] = dict(zip(pairs.ids, pairs.sentences, strict=True))
        english = [pairs.english[number] for number in pairs.targets]
        sentences[ENGLISH] |= dict(zip(pairs.ids, english, strict=True))
    ids = sorted(set.intersection(*map(set, sentences.values())))
    np.random.default_rng(0).shuffle(ids)

    def named(languages: Sequence[str], chosen: Sequence[str]) -> dict[str, str]:
        return {f"{language}-{name}": sentences[language][name] for language in languages for name in chosen}

    queries = named(options.languages, ids[: options.queries])
    return queries | named(options.dominant, ids), queries


def language_of(name: str) -> str:
    """Return the language of a text."""
    return name.partition("-")[0]


def subject_of(name: str) -> str:
    """Return what a text is about, as its translations are."""
    return name.partition("-")[2].removeprefix("q")


def measure_collection(
    languages: Sequence[str], documents: Sequence[str], topics: Sequence[str], vectors: Vectors, options: BalanceOptions
) -> list[tuple]:
    """Return a row of HEADERS per strength. languages: the largest first, then two of which a tenth is included."""
    owned = {language: [name for name in documents if language_of(name) == language] for language in languages}
    largest, medium, total = languages[0], languages[1:3], len(owned[languages[0]])
    sizes = {name: max(total // (10 if name in medium else 100), 1) for name in languages} | {largest: total}
    queries = vectors.of(topics)
    values: dict[float, list[list[float]]] = {strength: [] for strength in options.strengths}
    for draw in range(options.draws):
        rng = np.random.default_rng(draw)
        pools = owned | {language: owned[language][: options.queries] for language in languages[1:]}
        docids = [name for language, size in sizes.items() for name in rng.permutation(pools[language])[:size].tolist()]
        spoken = {docid: language_of(docid) for docid in docids}
        on_subject: dict[str, list[str]] = {}
        for docid in docids:
            on_subject.setdefault(subject_of(docid), []).append(docid)
        relevant = {topic: {*on_subject.get(subject_of(topic), ())} - {topic} for topic in topics}
        qrels = {topic: dict.fromkeys(found, 1) for topic, found in relevant.items() if found}
        scores = queries.dot(vectors.of(docids))
        means = np.empty_like(scores)
        for language in languages:
            columns = np.array([spoken[docid] == language for docid in docids])
            means[:, columns] = scores[:, columns].mean(axis=1, keepdims=True)
        for strength, found in values.items():
            run = {}
            for topic, balanced in zip(topics, scores - strength * means, strict=True):
                # One more than are measured, because the query itself may be among them.
                best = np.argsort(-balanced, kind="stable")[: HITS + 1]
                run[topic] = {docids[number]: float(balanced[number]) for number in best if docids[number] != topic}
            found.append(figures({topic: run[topic] for topic in qrels}, qrels, spoken, largest))
    collection = ", ".join(f"{language} {size:,}" for language, size in sizes.items())
    return [(collection, strength, *map(fmean, zip(*found, strict=True))) for strength, found in values.items()]


def figures(run: Run, qrels: Qrels, languages: dict[str, str], largest: str) -> list[float]:
    """Return the figures of HEADERS for a run. languages: docid -> language."""
    per_query = evaluate(run, qrels, [MEASURE]).per_query[MEASURE]
    own = [value for topic, value in per_query.items() if language_of(topic) == largest]
    others = [value for topic, value in per_query.items() if language_of(topic) != largest]
    spoken = {topic: language_of(topic) for topic in run}
    shares = evaluate_fairness(run, qrels, languages, spoken)[OWN_LANGUAGE]
    return [fmean(per_query.values()), fmean(own), fmean(others), fmean(shares.values())]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/balance.py", BalanceOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
