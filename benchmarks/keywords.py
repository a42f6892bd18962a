"""Measure English keywords of queries in other languages, in a BM25 index of English texts that Anserini builds.

python benchmarks/keywords.py --data DATA --encoder mini --sentences 30

The sample's queries in twelve languages search its English passages (nDCG@10), and FLORES's sentences, of 21 languages,
all its English ones for their translations (R@1). The rows are the words of the query, probabilistic structured
queries (each word's translations in the wordnets and in Wiktionary, with equal shares as boosts), 10 keywords and all,
MILCO's vectors on both sides, and the query translated by hand. The second table has the share of the strongest
keywords of FLORES's sentences that are in their translation, or are neighbors of its words, as for reasons.py.
"""

import gzip
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import crosslingual
import numpy as np
import repository  # noqa: F401
from reasons import grounding
from same_language import FORMATS, as_run

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.eval import ReportTable, evaluate, render
from milco_pyserini.index import Hits
from milco_pyserini.keywords import EnglishIndex, keywords
from milco_pyserini.options import option
from recipes.milco_mini.grounding import LEXICONS, english_words, read_neighbors

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

Words = list[tuple[str, float]]

ENGLISH = "en"
MEASURE = "nDCG@10"
COUNTED = (5, 10)
# Languages without spaces between words, whose words are looked up by their letters.
UNSPACED = ("ja", "th", "zh")
LONGEST = 12


@dataclass(frozen=True)
class KeywordsBenchmarkOptions:
    """Measure keywords as queries of BM25, and how many of them are in the translation of a sentence."""

    data: Path = option(metavar="DIR", help="directory with eval/flores and lexicon/")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    sentences: int = option(30, minimum=1, metavar="N", help="FLORES sentences of each language")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")
    format: str = option("text", choices=FORMATS[:-1], help="format of the tables")


@dataclass(frozen=True)
class Task:
    """Texts that search English documents, and what they should find.

    documents: by id. texts, languages: of the queries. english: each query in English, by hand.
    """

    documents: dict[str, str]
    ids: list[str]
    texts: list[str]
    languages: list[str]
    english: list[str]


def command(options: KeywordsBenchmarkOptions) -> None:
    """Print both tables. Raises MilcoError if the data or the encoder cannot be read."""
    from milco_pyserini.encode.encoder import MilcoEncoder

    sample, flores = sample_task(), flores_task(options.data / "eval" / "flores", options.sentences)
    lexicon, neighbors = options.data / "lexicon", read_neighbors(options.data / "lexicon")
    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    rows = [
        [name, ndcg(sample, hits), first(flores, others)]
        for (name, hits), (_, others) in zip(
            systems(encoder, sample, lexicon), systems(encoder, flores, lexicon), strict=True
        )
    ]
    note = f"{len(sample.texts):,} queries, {len(flores.texts):,} sentences, encoder {options.encoder}"
    table = ReportTable(["queries"], [f"sample {MEASURE}", "FLORES R@1"], rows, (3, 3), (note,))
    sys.stdout.write(render(table, options.format))
    found = keywords(encoder, flores.texts, None)
    shares = [[f"{count} strongest", *share_of(found, flores.english, count, neighbors)] for count in COUNTED]
    table = ReportTable(["keywords"], ["word", "neighbor", "nonsense"], shares, (3, 3, 3))
    sys.stdout.write("\n" + render(table, options.format))


def sample_task() -> Task:
    """Return the sample's queries that are not English, and its English passages."""
    english = {topic.id.partition("-")[2]: topic.text for topic in open_topics(f"sample-{ENGLISH}")}
    topics = [topic for topic in open_topics("sample") if not topic.id.startswith(f"{ENGLISH}-")]
    languages, numbers = zip(*(topic.id.split("-") for topic in topics), strict=True)
    documents = {document.id: document.contents for document in open_corpus(f"sample-{ENGLISH}")}
    texts, ids = [topic.text for topic in topics], [topic.id for topic in topics]
    return Task(documents, ids, texts, list(languages), [english[number] for number in numbers])


def flores_task(directory: Path, count: int) -> Task:
    """Return sentences of each language, and all English ones. An id is that of the translation, then the language."""
    task, numbers = Task({}, [], [], [], []), dict[str, str]()
    for language, path in crosslingual.find_files(directory).items():
        pairs = crosslingual.read_pairs(path)
        for text in pairs.english:
            task.documents[numbers.setdefault(text, f"s{len(numbers)}")] = text
        for place in random.Random(language).sample(range(len(pairs.ids)), min(count, len(pairs.ids))):
            text = pairs.english[pairs.targets[place]]
            task.ids.append(f"{numbers[text]} {language}")
            task.texts.append(pairs.sentences[place])
            task.languages.append(language)
            task.english.append(text)
    return task


def systems(encoder: "MilcoEncoder", task: Task, lexicon: Path) -> Iterator[tuple[str, list[Hits]]]:
    """Yield the name of each row and the hits of all queries."""
    with (
        tempfile.TemporaryDirectory() as directory,
        EnglishIndex(build(Path(directory) / "index", task.documents)) as index,
    ):
        yield "words of the query", [index.search(plain_words(text)) for text in task.texts]
        yield "structured queries (lexicons)", [index.search(words) for words in translated(task, lexicon)]
        found = keywords(encoder, task.texts, None)
        for count in (10, None):
            yield f"{count or 'all'} keywords", [index.search(words[:count]) for words in found]
        yield "MILCO on both sides", milco(encoder, task)
        yield "translated by hand", [index.search(plain_words(text)) for text in task.english]


def build(directory: Path, documents: Mapping[str, str]) -> Path:
    """Let Anserini index English texts; return the directory."""
    from milco_pyserini import jvm

    jvm.start()
    from jnius import autoclass

    make = autoclass("io.anserini.collection.JsonCollection$Document").fromFields
    arguments = ["-input", "", "-collection", "JsonCollection", "-index", str(directory), "-threads", "1"]
    indexer: Any = autoclass("io.anserini.index.SimpleIndexer")(arguments)
    indexer.addJsonDocuments([make(docid, text) for docid, text in documents.items()])
    indexer.close()
    return directory


def plain_words(text: str) -> Words:
    """Return the words of a text, all of the same weight."""
    return [(word, 1.0) for word in re.findall(r"\w+", text.lower())]


def translated(task: Task, directory: Path) -> Iterator[Words]:
    """Yield the English words that the lexicons have for each word of a query; the word itself if they have none."""
    known: dict[str, dict[str, list[str]]] = {}
    for text, language in zip(task.texts, task.languages, strict=True):
        if language not in known:
            known[language] = read_lexicon(directory, language)
        words = []
        for word in split(text.lower(), language, known[language]):
            english = known[language].get(word, [word])
            words += [(other, 1 / len(english)) for other in english]
        yield words


def read_lexicon(directory: Path, language: str) -> dict[str, list[str]]:
    """Return the English words that translate each word of a language; none if there is no lexicon of it."""
    translations: dict[str, list[str]] = {}
    for path in (directory / name / f"{language}-{ENGLISH}.tsv.gz" for name in LEXICONS):
        if path.is_file():
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for line in lines:
                    word, _, english = line.rstrip("\n").lower().partition("\t")
                    if english not in translations.setdefault(word, []):
                        translations[word].append(english)
    return translations


def split(text: str, language: str, known: Mapping[str, object]) -> Iterator[str]:
    """Yield the words of a text; without spaces, the longest that a lexicon has, or a letter."""
    for word in re.findall(r"\w+", text):
        while language in UNSPACED and word:
            size = next((size for size in range(min(LONGEST, len(word)), 1, -1) if word[:size] in known), 1)
            yield word[:size]
            word = word[size:]
        if word:
            yield word


def milco(encoder: "MilcoEncoder", task: Task) -> list[Hits]:
    """Return the hits of MILCO's own vectors."""
    docids = np.array(list(task.documents))
    scores = encoder.encode_query(task.texts).dot(encoder.encode_document(list(task.documents.values())))
    best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    return [Hits(docids[order].tolist(), row[order]) for row, order in zip(scores, best, strict=True)]


def ndcg(task: Task, hits: Sequence[Hits]) -> float:
    """Return nDCG@10 of the sample's English passages."""
    qrels = {
        topic: {docid: gain for docid, gain in judged.items() if docid in task.documents}
        for topic, judged in open_qrels("sample").items()
        if topic in set(task.ids)
    }
    return evaluate(as_run(zip(task.ids, hits, strict=True)), qrels, [MEASURE]).mean[MEASURE]


def first(task: Task, hits: Sequence[Hits]) -> float:
    """Return the share of sentences whose translation is the first hit."""
    wanted = (name.partition(" ")[0] for name in task.ids)
    return fmean(bool(found.docids) and found.docids[0] == docid for docid, found in zip(wanted, hits, strict=True))


def share_of(found: Sequence[Words], english: Sequence[str], count: int, neighbors: dict[str, set[str]]) -> list[float]:
    """Return the shares of the strongest keywords that are words of the translation, neighbors of these, and others."""
    kinds = [
        grounding(word, known, neighbors)
        for words, known in zip(found, map(english_words, english), strict=True)
        for word, _ in words[:count]
    ]
    return [kinds.count(kind) / max(1, len(kinds)) for kind in ("word", "neighbor", "nonsense")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/keywords.py", KeywordsBenchmarkOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
