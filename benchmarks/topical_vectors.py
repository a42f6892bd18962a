"""Made-up vectors with topics, of a pivot view's size: what the approximate engine can be measured on.

Seismic keeps documents together that have many terms in common, and skips them together. Documents whose terms are
drawn independently of one another have nothing in common but what is frequent, and no index can find groups among
them; those of a collection are about something. So a document here has half of its draws from the 300 terms of one
topic (the strongest terms of a topic are drawn most), a sixth from those of another, and the rest from the whole
language. Terms, in the language and in the topics, are as frequent as Zipf's law says, with Mandelbrot's offset:
as in the vectors of learned sparse models the most frequent are in a good part of the documents, not in all.

Weights are gamma distributed, as those models' are: many small, few above 3; on average .9 for what the document is
about, .7 for the second topic and .3 for the rest. Lengths differ: a document loses up to 60 % of its 200 draws, and
what is drawn twice counts once, which leaves 120 terms on average. A query is drawn like a short document, of 60.

The number of topics does not depend on that of the documents, so a larger collection has more to say on each of them;
documents are drawn PART by PART, each from its number, so that the first documents of a large collection are those of
a small one.
"""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.io.files import write_json
from milco_pyserini.sparse import SparseBatch, Vocabulary
from milco_pyserini.sparse.store import FORMAT_VERSION, write_parquet

TERMS = 30_522
TOPICS = 2_000
TOPIC_TERMS = 300
DOCUMENT_DRAWS = 200
QUERY_DRAWS = 60
PART = 2_000
SCALE = 100.0

_OFFSET = 20
# Above 1: the first terms of a topic are drawn more often than its last.
_FAVOUR = 1.7
_MOST_LOST = 0.6
# Seeds of the three collections, each with the number of the part behind it.
_DOCUMENTS, _TOPICS, _QUERIES = range(3)


def write_topical_store(path: Path, documents: int) -> None:
    """A vector store of so many documents: doc0, doc1, ..."""
    _write_store(path, documents, "doc", DOCUMENT_DRAWS, _DOCUMENTS)


def write_topics_store(path: Path, topics: int) -> None:
    """A vector store of so many queries, to tune settings on: others than those of topical_queries()."""
    _write_store(path, topics, "topic", QUERY_DRAWS, _TOPICS)


def topical_queries(count: int) -> list[dict[str, float]]:
    """So many queries, as {term: weight}."""
    batch = topical_batch(np.random.default_rng((_QUERIES, 0)), count, QUERY_DRAWS)
    return batch.to_dicts(_vocabulary())


def topical_batch(random: np.random.Generator, documents: int, draws: int) -> SparseBatch:
    """Vectors of so many documents, of at most so many draws each."""
    language, topics = _language()
    first, second = draws // 2, draws // 6
    rest = draws - first - second
    places = _places(random, documents, first)
    columns = [
        topics[random.integers(TOPICS, size=(documents, 1)), places],
        topics[random.integers(TOPICS, size=(documents, 1)), _places(random, documents, second)],
        np.searchsorted(language, random.random((documents, rest))),
    ]
    weights = [
        random.gamma(2.2, 0.42, (documents, first)) * (1.15 - places / (4 / 3 * TOPIC_TERMS)),
        random.gamma(2.0, 0.35, (documents, second)),
        random.gamma(1.2, 0.22, (documents, rest)),
    ]
    kept = random.random((documents, draws)) >= _MOST_LOST * random.random((documents, 1))
    return _as_batch(np.concatenate(columns, 1), np.concatenate(weights, 1), kept)


def _places(random: np.random.Generator, documents: int, draws: int) -> NDArray[np.int64]:
    """Places in a topic: int64 [documents, draws]."""
    return (TOPIC_TERMS * random.random((documents, draws)) ** _FAVOUR).astype(np.int64)


def _as_batch(columns: NDArray[np.int64], weights: NDArray[np.float64], kept: NDArray[np.bool_]) -> SparseBatch:
    """The entries that are kept, each term of a document once: with its highest weight. All: [documents, draws]."""
    rows = np.nonzero(kept)[0]
    entries, heights = rows * TERMS + columns[kept], weights[kept].astype(np.float32) + np.float32(0.01)
    order = np.lexsort((-heights, entries))
    entries, first = np.unique(entries[order], return_index=True)
    indptr = np.searchsorted(entries, np.arange(len(columns) + 1) * TERMS)
    return SparseBatch(indptr, (entries % TERMS).astype(np.int32), heights[order][first], TERMS)


@cache
def _language() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """How often each term is drawn, summed up: [TERMS]; the terms of each topic, strongest first."""
    random = np.random.default_rng(7)
    shares = random.permutation(1 / np.arange(_OFFSET, TERMS + _OFFSET))
    shares /= shares.sum()
    topics = [random.choice(TERMS, TOPIC_TERMS, replace=False, p=shares) for _ in range(TOPICS)]
    sums = np.cumsum(shares)
    # Rounding may leave it a little below 1, and a draw above it would be a term that there is not.
    sums[-1] = 1
    return sums, np.array(topics)


@cache
def _vocabulary() -> Vocabulary:
    return Vocabulary([f"t{number}" for number in range(TERMS)], [])


def _write_store(path: Path, documents: int, name: str, draws: int, seed: int) -> None:
    (path / "parts").mkdir(parents=True)
    parts: list[dict] = []
    for start in range(0, documents, PART):
        rows = range(start, min(start + PART, documents))
        batch = topical_batch(np.random.default_rng((seed, len(parts))), PART, draws).take(np.arange(len(rows)))
        file = path / "parts" / f"part-{len(parts):05d}.parquet"
        with file.open("wb") as handle:
            write_parquet(handle, [f"{name}{row}" for row in rows], batch)
        parts.append({"file": f"parts/{file.name}", "bytes": file.stat().st_size, "documents": len(rows)})
    manifest = {"format_version": FORMAT_VERSION, "documents": documents, "scale": SCALE, "parts": parts}
    write_json(path / "vocabulary.json", _vocabulary().to_json())
    write_json(path / "manifest.json", manifest)
