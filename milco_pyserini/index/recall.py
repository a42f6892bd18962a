"""What an approximate index finds of the exact ranking, and how fast: recall@k over queries whose best are known."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Progress, counted, say
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.protocol import Hits, Searcher, Store
from milco_pyserini.io.manifest import RECALL, intact, read_checked, write_checked
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.pruning import PruningRule

APPROXIMATE = "approximate"
# Recall is known up to half of them: a tie at the last place may be of as many documents again.
DEPTH = 200
DEEPEST = DEPTH // 2
_SAMPLE = 200
_SAMPLE_TERMS = 32
_MOST_TOPICS = 500
_CHUNK = 4096
_PASSES = 3


@dataclass(frozen=True)
class Truth:
    """Queries as the engine takes them, the DEPTH best documents of each by exact search, and what the queries are."""

    queries: list[Any]
    best: list[Hits]
    what: str


@dataclass(frozen=True)
class Measured:
    """Mean share of the k best that is found, 0 to 1, and milliseconds of a query, alone, on one thread."""

    recall: float
    milliseconds: float


def measure(searcher: Searcher, truth: Truth, k: int, passes: int = _PASSES) -> Measured:
    """Search every query passes times, one at a time; the quickest pass counts.

    A document counts as found if it is as good as the one in place k, so that ties may go either way.
    """
    seconds = []
    for _ in range(passes):
        started = time.perf_counter()
        found = [searcher.search([query], k)[0] for query in truth.queries]
        seconds.append(time.perf_counter() - started)
    shares = [_share(hits, best, k) for hits, best in zip(found, truth.best, strict=True)]
    return Measured(float(np.mean(shares)), min(seconds) / len(truth.queries) * 1000)


def _share(hits: Hits, best: Hits, k: int) -> float:
    wanted = min(k, len(best))
    good = np.count_nonzero(best.scores >= best.scores[wanted - 1])
    return len(set(hits.docids) & set(best.docids[:good])) / wanted


def find_truth(store: Store, queries: Sequence[dict[str, float]], what: str) -> Truth:
    """The best documents by one pass over the store, whatever its size: float scores, ties by docid.

    Queries that find nothing are left out. The store must have been read to its end before, so that it has all terms.
    Raises MilcoError if no query finds anything.
    """
    wanted = _as_batch(queries, store.terms)
    scores = np.zeros((len(queries), DEPTH), np.float32)
    docids = np.full((len(queries), DEPTH), "", object)
    progress = Progress("documents", store.manifest.get("documents"))
    for names, chunk in _chunks(store):
        scores, docids = best_of(
            np.concatenate([scores, wanted.dot(chunk)], 1),
            np.concatenate([docids, np.broadcast_to(np.asarray(names, object), (len(queries), len(names)))], 1),
        )
        progress.add(len(names))
    progress.close(f"compared with {counted(len(queries), 'query', 'queries')}")
    ranked = [ranking(*one, above=0) for one in zip(scores, docids, strict=True)]
    answered = [(query, hits) for query, hits in zip(queries, ranked, strict=True) if len(hits)]
    if not answered:
        raise MilcoError(f"{what}: none of their terms is in {store.path}, recall cannot be measured")
    return Truth([query for query, _ in answered], [hits for _, hits in answered], what)


def best_of(scores: NDArray[np.float32], docids: NDArray[np.object_]) -> tuple[NDArray, NDArray]:
    """The DEPTH highest scores of each row with their docids, in no order. scores, docids: [queries, documents]."""
    places = np.argpartition(-scores, DEPTH - 1, axis=1)[:, :DEPTH]
    return np.take_along_axis(scores, places, 1), np.take_along_axis(docids, places, 1)


def ranking(scores: NDArray[np.float32], docids: NDArray[np.object_], above: float) -> Hits:
    """The hits with scores above a bound, best first, ties by docid. scores, docids: of one query, in any order."""
    pairs = zip(scores.tolist(), docids.tolist(), strict=True)
    found = sorted((-score, name) for score, name in pairs if score > above)
    return Hits([name for _, name in found], np.asarray([-score for score, _ in found]))


def _chunks(store: Store) -> Iterator[tuple[list[str], SparseBatch]]:
    for names, batch in store.batches():
        for start in range(0, len(names), _CHUNK):
            rows = range(start, min(start + _CHUNK, len(names)))
            yield names[rows.start : rows.stop], batch.take(rows)


def _as_batch(queries: Sequence[dict[str, float]], terms: Sequence[str]) -> SparseBatch:
    columns = {term: column for column, term in enumerate(terms)}
    known = [sorted((columns[term], weight) for term, weight in query.items() if term in columns) for query in queries]
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in known])]).astype(np.int64)
    flat = [pair for one in known for pair in one]
    weights = np.asarray([weight for _, weight in flat], np.float32)
    return SparseBatch(indptr, np.asarray([column for column, _ in flat], np.int32), weights, len(columns))


def drawn_rows(documents: int) -> NDArray[np.int64]:
    """Documents that stand in for topics, in ascending order; always the same of so many documents."""
    return np.sort(np.random.default_rng(0).choice(documents, min(_SAMPLE, documents), replace=False))


def chosen_topics(topics: int) -> NDArray[np.int64]:
    """All of so many topics; of very many, some that lie evenly among them."""
    return np.unique(np.linspace(0, topics - 1, min(topics, _MOST_TOPICS)).astype(int))


def truth_of_documents(store: Store, documents: int) -> Truth:
    """Where there are no topics: the strongest terms of drawn documents. documents: how many there are with terms."""
    drawn = drawn_rows(documents)
    queries = []
    before = 0
    for _, batch in store.batches():
        filled = np.flatnonzero(batch.lengths())
        rows = filled[drawn[(drawn >= before) & (drawn < before + len(filled))] - before]
        strongest = PruningRule("top-k", _SAMPLE_TERMS)(batch.take(rows))
        terms = store.terms
        for columns, weights in strongest.rows():
            queries.append(dict(zip([terms[column] for column in columns.tolist()], weights.tolist(), strict=True)))
        before += len(filled)
    return find_truth(store, queries, f"the {_SAMPLE_TERMS} strongest terms of {counted(len(drawn), 'drawn document')}")


def truth_of_topics(store: Store, topics: Store) -> Truth:
    """For the vectors of topics; of very many, some that lie evenly among them."""
    queries = []
    for _, batch in topics.batches():
        terms = topics.terms
        for columns, weights in batch.rows():
            queries.append(dict(zip([terms[column] for column in columns.tolist()], weights.tolist(), strict=True)))
    chosen = chosen_topics(len(queries))
    return find_truth(store, [queries[place] for place in chosen], f"{counted(len(chosen), 'topic')} of {topics.path}")


def write_truth(directory: Path, truth: Truth) -> None:
    """Keep it in an index, so that settings can be tried without the vectors."""
    best = [[hits.docids, hits.scores.tolist()] for hits in truth.best]
    write_checked(directory / RECALL, {"what": truth.what, "queries": truth.queries, "best": best}, indent=False)


def read_truth(directory: Path) -> Truth:
    """What write_truth() kept. Raises MilcoError if it is not there or damaged."""
    kept = read_checked(directory / RECALL)
    with intact(directory, RECALL):
        best = [Hits(docids, np.asarray(scores)) for docids, scores in kept["best"]]
        return Truth(kept["queries"], best, kept["what"])


def report(searcher: Searcher, truth: Truth) -> dict:
    """What a manifest says of an approximate index: recall@10 and deeper, milliseconds; and says it."""
    depths = {k: measure(searcher, truth, k, passes) for k, passes in ((10, _PASSES), (DEEPEST, 1))}
    recalls = {f"recall@{k}": round(measured.recall, 4) for k, measured in depths.items()}
    milliseconds = round(depths[10].milliseconds, 4)
    figures = ", ".join(f"{name} {value:.3f}" for name, value in recalls.items())
    say(f"{figures} against exact search, {milliseconds:.2f} ms a query ({truth.what})")
    return {"queries": truth.what, **recalls, "milliseconds": milliseconds}
