"""What the source view (LexEcho) adds to the pivot view, topic by topic of the embedded sample.

python benchmarks/lexecho.py --encoder mini

Every language's queries rank that language's own passages, once by the pivot view and once by both views; a topic's
figures are means over the languages. A topic is named if its English query holds a word that the English vocabulary
has no piece of its own for (Borobudur, kimjang, taarab): the pivot view can only spell it.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_corpus, open_topics
from milco_pyserini.corpora.catalog import BENCHMARKS
from milco_pyserini.corpora.records import encoded_text
from milco_pyserini.defaults import MINI
from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.options import option
from milco_pyserini.sparse import PIVOT

_SHORTEST_NAME = 3


@dataclass(frozen=True)
class Options:
    """Gain of both views over the pivot view alone: nDCG@10 within each language of the sample, per topic."""

    encoder: str = option(MINI, help="checkpoint: hub name, directory, or mini (embedded)")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16")
    topics: int = option(15, help="rows of the table; the means are of all topics")


@dataclass(frozen=True)
class Gain:
    """One topic, its words that are no English piece, and its figures, means over the languages."""

    query: str
    names: list[str]
    pivot: float
    both: float


def command(options: Options) -> None:
    """Encode the sample, rank, print."""
    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    encoder.resolve_views(("pivot", "source"))
    languages = BENCHMARKS["sample"].languages
    figures = np.mean([_figures(encoder, language) for language in languages], axis=0)
    english = [topic.text for topic in open_topics("sample-en")]
    gains = [
        Gain(query, unspelled(encoder, query), *means) for query, means in zip(english, figures.tolist(), strict=True)
    ]
    gains.sort(key=lambda gain: gain.pivot - gain.both)
    groups = {
        "named": [gain for gain in gains if gain.names],
        "others": [gain for gain in gains if not gain.names],
        "all": gains,
    }
    lines = [
        f"nDCG@10 within a language, means over {len(languages)} languages; encoder {options.encoder}",
        f"{'pivot':>6} {'both':>6} {'gain':>6}  topic (words without an English piece of their own)",
        *(_row(gain.pivot, gain.both, _title(gain)) for gain in gains[: options.topics]),
        *(_row(*_means(kept), f"mean of {name}: {len(kept)} topics") for name, kept in groups.items() if kept),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def unspelled(encoder: MilcoEncoder, query: str) -> list[str]:
    """Words of an English query that are no piece of the English vocabulary."""
    words = ("".join(filter(str.isalpha, word.removesuffix("'s"))) for word in query.split())
    encode = encoder.english_tokenizer.encode
    return [
        word for word in words if len(word) >= _SHORTEST_NAME and len(encode(word, add_special_tokens=False).ids) > 1
    ]


def _figures(encoder: MilcoEncoder, language: str) -> list[tuple[float, float]]:
    """nDCG@10 of each topic in one language, by the pivot view and by both; topic q07's passage is the one of 07."""
    topics, passages = list(open_topics(f"sample-{language}")), list(open_corpus(f"sample-{language}"))
    queries = encoder.encode_query([topic.text for topic in topics])
    documents = encoder.encode_document([encoded_text(passage) for passage in passages])
    place = {passage.id.partition("-")[2]: number for number, passage in enumerate(passages)}
    own = [place[topic.id.partition("-q")[2]] for topic in topics]
    pairs = ((queries.view(PIVOT), documents.view(PIVOT)), (queries, documents))
    pivot, both = (_gains(asked.dot(found), own) for asked, found in pairs)
    return list(zip(pivot, both, strict=True))


def _gains(scores: np.ndarray, own: list[int]) -> list[float]:
    """1 / log2(rank + 1) of each query's one passage, 0 beyond rank 10 or without a common term."""
    mine = scores[np.arange(len(own)), own]
    ranks = 1 + (scores > mine[:, None]).sum(axis=1)
    return np.where((ranks <= 10) & (mine > 0), 1 / np.log2(ranks + 1), 0.0).tolist()


def _means(gains: list[Gain]) -> tuple[float, float]:
    pivot, both = np.mean([(gain.pivot, gain.both) for gain in gains], axis=0)
    return float(pivot), float(both)


def _title(gain: Gain) -> str:
    return f"{gain.query} ({', '.join(gain.names)})" if gain.names else gain.query


def _row(pivot: float, both: float, text: str) -> str:
    return f"{pivot:6.3f} {both:6.3f} {both - pivot:+6.3f}  {text}"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("benchmarks/lexecho.py", Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
