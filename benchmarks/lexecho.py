"""Measure what the source view (LexEcho) adds to the pivot view, topic by topic of the embedded sample.

python benchmarks/lexecho.py --encoder mini

The queries of each language search that language's passages, with the pivot view and with both views; a topic's
nDCG@10 is the mean over languages. Topics are split by whether their English query has a word that is not in the
English vocabulary (Borobudur, kimjang, taarab), which the pivot view can only represent by pieces.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted
from milco_pyserini.corpora import open_corpus, open_topics
from milco_pyserini.corpora.catalog import BENCHMARKS
from milco_pyserini.corpora.records import encoded_text
from milco_pyserini.defaults import MINI
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.options import option
from milco_pyserini.sparse import PIVOT

LANGUAGES = BENCHMARKS["sample"].languages
_MIN_WORD_LENGTH = 3


@dataclass(frozen=True)
class LexEchoOptions:
    """Compare nDCG@10 of both views with that of the pivot view per topic, within each language of the sample."""

    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    languages: tuple[str, ...] = option((), choices=LANGUAGES, metavar="CODE", help="languages (default: all)")
    topics: int = option(15, minimum=1, metavar="N", help="rows of the table; means are over all topics")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")


@dataclass(frozen=True)
class TopicGain:
    """An English query, its words outside the English vocabulary, and its mean nDCG@10 over languages."""

    query: str
    rare_words: list[str]
    pivot: float
    both: float


def command(options: LexEchoOptions) -> None:
    """Print the topics with the largest gains, then the means."""
    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    encoder.network.resolve_views(("pivot", "source"))
    languages = options.languages or LANGUAGES
    means = np.mean([evaluate_topics(encoder, language) for language in languages], axis=0).tolist()
    queries = [topic.text for topic in open_topics("sample-en")]
    gains = [TopicGain(query, rare_words(encoder, query), *ndcg) for query, ndcg in zip(queries, means, strict=True)]
    gains.sort(key=lambda gain: gain.pivot - gain.both)
    groups = {
        "topics with such words": [gain for gain in gains if gain.rare_words],
        "other topics": [gain for gain in gains if not gain.rare_words],
        "topics": gains,
    }
    lines = [
        f"nDCG@10 within a language, means over {counted(len(languages), 'language')}; encoder {options.encoder}",
        f"{'pivot':>6} {'both':>6} {'gain':>6}  topic (words that are not in the English vocabulary)",
    ]
    for gain in gains[: options.topics]:
        words = f" ({', '.join(gain.rare_words)})" if gain.rare_words else ""
        lines.append(_row(gain.pivot, gain.both, gain.query + words))
    for name, group in groups.items():
        if group:
            pivot, both = (float(np.mean([getattr(gain, view) for gain in group])) for view in ("pivot", "both"))
            lines.append(_row(pivot, both, f"mean of {len(group)} {name}"))
    sys.stdout.write("\n".join(lines) + "\n")


def rare_words(encoder: MilcoEncoder, query: str) -> list[str]:
    """Return the words of an English query that are not in the English vocabulary."""
    words = ("".join(filter(str.isalpha, word.removesuffix("'s"))) for word in query.split())
    encode = encoder.english_tokenizer.encode
    return [
        word for word in words if len(word) >= _MIN_WORD_LENGTH and len(encode(word, add_special_tokens=False).ids) > 1
    ]


def evaluate_topics(encoder: MilcoEncoder, language: str) -> list[tuple[float, float]]:
    """Return nDCG@10 of each topic in one language, by the pivot view and by both; topic q07 has passage 07."""
    topics, passages = list(open_topics(f"sample-{language}")), list(open_corpus(f"sample-{language}"))
    queries = encoder.encode_query([topic.text for topic in topics])
    documents = encoder.encode_document([encoded_text(passage) for passage in passages])
    rows = {passage.id.partition("-")[2]: row for row, passage in enumerate(passages)}
    relevant = [rows[topic.id.partition("-q")[2]] for topic in topics]
    pivot = _ndcg(queries.view(PIVOT).dot(documents.view(PIVOT)), relevant)
    return list(zip(pivot, _ndcg(queries.dot(documents), relevant), strict=True))


def _ndcg(scores: np.ndarray, relevant: list[int]) -> list[float]:
    """Return nDCG@10 of queries with one relevant passage each; 0 if they have no term in common."""
    own = scores[np.arange(len(relevant)), relevant]
    ranks = 1 + (scores > own[:, None]).sum(axis=1)
    return np.where((ranks <= 10) & (own > 0), 1 / np.log2(ranks + 1), 0.0).tolist()


def _row(pivot: float, both: float, text: str) -> str:
    return f"{pivot:6.3f} {both:6.3f} {both - pivot:+6.3f}  {text}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/lexecho.py", LexEchoOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
