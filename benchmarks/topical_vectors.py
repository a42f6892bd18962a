"""Generate synthetic vectors with topics, of a pivot view's size or of both views, for measurements of engines.

Seismic groups documents that share many terms and skips groups. Documents with independently drawn terms share only
frequent terms, so no index could group them, unlike documents of a real collection. Here a document draws half of its
terms from the 300 terms of one topic (the strongest ones most often), a sixth from a second topic, and the rest from
the vocabulary. Term frequencies follow Zipf's law with Mandelbrot's offset, in the vocabulary and in topics: as in
vectors of learned sparse models, the most frequent terms are in many documents but not in all.

Weights are gamma distributed as those of such models: many small ones, few above 3, with means of .9 for the first
topic, .7 for the second and .3 for the rest. Lengths vary: a document drops up to 60 % of its 200 draws and keeps each
term once, which leaves 120 terms on average. A query is drawn like a short document, with 60 draws.

Both views have the lengths and weights of the sample's vectors (milco-mini): a document has 159 pivot and 61 source
terms on average, a query 27 and 11. Each text has one of LANGUAGES languages, and a source term for every pivot term in
each: half of a text's source terms are from its topic, the rest from the vocabulary of its language.

Vectors of milco-mini 4 (mini_batch) have 206 terms a passage, the 96 strongest of the pivot view and 110 source terms,
and 48 a query, 32 and 16: its limits, for passages of 100 tokens or more. Their weights have the quantiles of those of
the sample; a source weight is the idf of its term, as in the model, so the terms of many documents weigh least.

Long documents, for pruning, are drawn in the same way, but drop only up to 30 % of more draws. They have 290 to 440
terms, 264 of them in the pivot view on average. There the 30 strongest have .33 of the weight and 100 have .71; in the
sample's pivot view, of 135 terms on average, .48 and .93.

The number of topics does not depend on the number of documents. Documents are drawn in parts of PART, each with its own
seed, so that a large collection begins with the documents of a small one.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from milco_pyserini.io.files import checksum, write_json
from milco_pyserini.io.manifest import write_checked
from milco_pyserini.sparse import SparseBatch, Vocabulary
from milco_pyserini.sparse.pruning import PruningRule
from milco_pyserini.sparse.quantization import quantize
from milco_pyserini.sparse.store import FORMAT_VERSION, write_parquet

TERMS = 30_522
TOPICS = 2_000
TOPIC_TERMS = 300
DOCUMENT_DRAWS = 200
QUERY_DRAWS = 60
PART = 2_000
SCALE = 100.0
LANGUAGES = 13
# Draws of pivot and of source terms where there are both views, and the size of weights next to those of one view.
DOCUMENT_VIEWS, QUERY_VIEWS = (262, 92), (40, 17)
_PIVOT_SIZE = 0.66
LONG_VIEWS, LONG_DROPPED = (400, 140), 0.3
# Draws of vectors of milco-mini 4, its limits of pivot terms, and the size of its weights.
MINI_DOCUMENT, MINI_QUERY = (200, 144, 96), (76, 19, 32)
_MINI_SIZE, _IDF_SIZE, _LEAST_IDF = 0.4, 0.045, 4.0

_OFFSET = 20
# Above 1: the first terms of a topic are drawn more often than its last.
_SKEW = 1.7
_MAX_DROPPED = 0.6
# Seeds of the three collections; each part adds its number.
_DOCUMENTS, _TOPICS, _QUERIES = range(3)


def write_topical_store(path: Path, documents: int, both_views: bool = False, rounded: bool = False) -> None:
    """Write a vector store of synthetic documents: doc0, doc1, ...

    Args:
        rounded: weights are impact / SCALE, as in the JSONL that milco encode writes by default.
    """
    draws = DOCUMENT_VIEWS if both_views else (DOCUMENT_DRAWS, 0)

    def draw(random: np.random.Generator) -> SparseBatch:
        batch = topical_batch(random, PART, *draws)
        if rounded:
            batch, impacts = quantize(batch, SCALE)
            batch = replace(batch, weights=impacts.astype(np.float32) / np.float32(SCALE))
        return batch

    _write_stores({path: None}, documents, "doc", _DOCUMENTS, both_views, draw)


def write_pruned_stores(stores: Mapping[Path, int | None], documents: int, both_views: bool = False) -> None:
    """Write vector stores of the same long documents: with all their terms (None) or only the strongest.

    Args:
        both_views: whether they have both views, or the pivot view of these documents only.
    """

    def draw(random: np.random.Generator) -> SparseBatch:
        batch = topical_batch(random, PART, *LONG_VIEWS, dropped=LONG_DROPPED)
        return batch if both_views else batch.where(batch.columns < TERMS)

    _write_stores(stores, documents, "doc", _DOCUMENTS, both_views, draw)


def write_topics_store(path: Path, topics: int) -> None:
    """Write a vector store of topics for tuning, which differ from topical_queries()."""
    _write_stores({path: None}, topics, "topic", _TOPICS, False, lambda one: topical_batch(one, PART, QUERY_DRAWS))


def topical_queries(count: int, both_views: bool = False) -> list[dict[str, float]]:
    """Return synthetic queries as {term: weight}."""
    draws = QUERY_VIEWS if both_views else (QUERY_DRAWS,)
    batch = topical_batch(np.random.default_rng((_QUERIES, 0)), count, *draws)
    return batch.to_dicts(vocabulary(both_views))


def topical_batch(
    random: np.random.Generator, documents: int, draws: int, source_draws: int = 0, dropped: float = _MAX_DROPPED
) -> SparseBatch:
    """Return vectors of documents with at most `draws` pivot terms and `source_draws` source terms each.

    Args:
        dropped: share of the draws that a document drops at most.
    """
    language, topics = _language()
    first, second = draws // 2, draws // 6
    rest = draws - first - second
    ranks = _topic_ranks(random, documents, first)
    topic = random.integers(TOPICS, size=(documents, 1))
    columns = [
        topics[topic, ranks],
        topics[random.integers(TOPICS, size=(documents, 1)), _topic_ranks(random, documents, second)],
        np.searchsorted(language, random.random((documents, rest))),
    ]
    weights = [
        random.gamma(2.2, 0.42, (documents, first)) * (1.15 - ranks / (4 / 3 * TOPIC_TERMS)),
        random.gamma(2.0, 0.35, (documents, second)),
        random.gamma(1.2, 0.22, (documents, rest)),
    ]
    if source_draws:
        half = source_draws // 2
        words = [
            topics[topic, _topic_ranks(random, documents, half)],
            np.searchsorted(language, random.random((documents, source_draws - half))),
        ]
        columns.append(TERMS * (1 + random.integers(LANGUAGES, size=(documents, 1))) + np.concatenate(words, 1))
        weights = [_PIVOT_SIZE * view for view in weights] + [random.gamma(5.5, 0.14, (documents, source_draws))]
    kept = random.random((documents, draws + source_draws)) >= dropped * random.random((documents, 1))
    return _as_batch(np.concatenate(columns, 1), np.concatenate(weights, 1), kept)


def mini_batch(random: np.random.Generator, documents: int, draws: int, source_draws: int, limit: int) -> SparseBatch:
    """Return vectors of the size and weights of milco-mini 4: the `limit` strongest pivot terms, and source terms."""
    batch = topical_batch(random, documents, draws, source_draws, dropped=LONG_DROPPED)
    batch = PruningRule("top-k", limit, "pivot")(replace(batch, english_size=TERMS))
    shares = np.diff(_language()[0], prepend=0)[batch.columns % TERMS]
    weights = np.where(batch.columns < TERMS, _MINI_SIZE * batch.weights, -_IDF_SIZE * (np.log(shares) + _LEAST_IDF))
    return replace(batch, weights=weights.astype(np.float32))


def nearest_topics(batch: SparseBatch) -> NDArray[np.int64]:
    """Return the topic with most of a document's terms, for each document."""
    _, topics = _language()
    members = csr_array(
        (np.ones(topics.size, np.float32), topics.ravel(), np.arange(TOPICS + 1) * TOPIC_TERMS), shape=(TOPICS, TERMS)
    )
    terms = batch.to_scipy()[:, :TERMS] > 0
    return (terms.astype(np.float32) @ members.T).toarray().argmax(axis=1)


def _topic_ranks(random: np.random.Generator, documents: int, draws: int) -> NDArray[np.int64]:
    """Draw ranks of terms within a topic, int64 [documents, draws]."""
    return (TOPIC_TERMS * random.random((documents, draws)) ** _SKEW).astype(np.int64)


def _as_batch(columns: NDArray[np.int64], weights: NDArray[np.float64], kept: NDArray[np.bool_]) -> SparseBatch:
    """Return the kept entries with the highest weight of each term; all arguments are [documents, draws]."""
    rows = np.nonzero(kept)[0]
    width = TERMS if columns.max() < TERMS else TERMS * (1 + LANGUAGES)
    entries, heights = rows * width + columns[kept], weights[kept].astype(np.float32) + np.float32(0.01)
    order = np.lexsort((-heights, entries))
    entries, first = np.unique(entries[order], return_index=True)
    indptr = np.searchsorted(entries, np.arange(len(columns) + 1) * width)
    return SparseBatch(indptr, (entries % width).astype(np.int32), heights[order][first], width)


@cache
def _language() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return cumulative term frequencies, [TERMS], and the terms of each topic by strength, [TOPICS, TOPIC_TERMS]."""
    random = np.random.default_rng(7)
    shares = random.permutation(1 / np.arange(_OFFSET, TERMS + _OFFSET))
    shares /= shares.sum()
    topics = [random.choice(TERMS, TOPIC_TERMS, replace=False, p=shares) for _ in range(TOPICS)]
    sums = np.cumsum(shares)
    # Rounding may leave it slightly below 1, and a draw above it would be beyond the vocabulary.
    sums[-1] = 1
    return sums, np.array(topics)


def vocabulary(both_views: bool) -> Vocabulary:
    """Return the terms of synthetic vectors: t0, t1, ... and, with both views, source terms s0, s1, ..."""
    return _vocabulary(LANGUAGES if both_views else 0)


@cache
def _vocabulary(languages: int) -> Vocabulary:
    source = [f"s{number}" for number in range(TERMS * languages)]
    return Vocabulary([f"t{number}" for number in range(TERMS)], source)


def _write_stores(
    stores: Mapping[Path, int | None],
    documents: int,
    name: str,
    seed: int,
    both_views: bool,
    draw: Callable[[np.random.Generator], SparseBatch],
) -> None:
    """Write the same documents to every store, with so many of their strongest terms (None: all)."""
    # Most terms first: each store prunes the vectors of the one before, which is faster than all terms.
    ordered = sorted(stores.items(), key=lambda item: item[1] or inf, reverse=True)
    parts: dict[Path, list[dict]] = {path: [] for path in stores}
    for path in stores:
        (path / "parts").mkdir(parents=True)
    for number, start in enumerate(range(0, documents, PART)):
        rows = range(start, min(start + PART, documents))
        batch = draw(np.random.default_rng((seed, number))).take(np.arange(len(rows)))
        for path, terms in ordered:
            batch = PruningRule("top-k", terms)(batch) if terms else batch
            file = path / "parts" / f"part-{number:05d}.parquet"
            with file.open("wb") as handle:
                write_parquet(handle, [f"{name}{row}" for row in rows], batch)
            about = {"file": f"parts/{file.name}", "bytes": file.stat().st_size, "checksum": checksum(file)}
            parts[path].append(about | {"documents": len(rows)})
    for path in stores:
        manifest = {"format_version": FORMAT_VERSION, "documents": documents, "scale": SCALE, "parts": parts[path]}
        write_json(path / "vocabulary.json", vocabulary(both_views).to_json())
        write_checked(path / "manifest.json", manifest)
