"""Recall and speed of an approximate index: recall@k over queries whose best documents are known."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Progress, counted, log
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.documents import SparseDocuments
from milco_pyserini.index.hits import Hits
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.io.manifest import RECALL, intact, read_checked, write_checked
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.pruning import PruningRule

# Recall is known up to half of them: a tie at the last position may have as many documents again.
DEPTH = 200
MAX_RECALL_DEPTH = DEPTH // 2
# Terms of a query that is made of a document.
_SAMPLE_TERMS = 32
_CHUNK = 4096
_SAMPLE_DOCUMENTS = 200
_SAMPLE_TOPICS = 500
_PASSES = 3


@dataclass(frozen=True)
class GroundTruth:
    """Queries, the best documents of each by exact search, and a description of the queries."""

    queries: list[dict[str, float]]
    best: list[Hits]
    what: str


@dataclass(frozen=True)
class RecallPoint:
    """Mean share of the k best documents that are found, 0 to 1, and mean milliseconds of a query on one thread."""

    recall: float
    milliseconds: float


def measure_recall(searcher: EngineSearcher, truth: GroundTruth, k: int, passes: int = _PASSES) -> RecallPoint:
    """Search every query passes times, one at a time; the fastest pass counts.

    A document counts as found if its exact score is that of position k or higher, so that ties may go either way.
    """
    seconds, request = [], SearchRequest(k, approximate=True)
    for _ in range(passes):
        started = time.perf_counter()
        rankings = [searcher.rank([query], request)[0] for query in truth.queries]
        seconds.append(time.perf_counter() - started)
    shares = []
    for hits, best in zip(rankings, truth.best, strict=True):
        wanted = min(k, len(best))
        good = np.count_nonzero(best.scores >= best.scores[wanted - 1])
        shares.append(len(set(hits.docids) & set(best.docids[:good])) / wanted)
    return RecallPoint(float(np.mean(shares)), min(seconds) / len(truth.queries) * 1000)


def report_recall(searcher: EngineSearcher, truth: GroundTruth) -> dict:
    """Measure recall@10, recall@100 and milliseconds, for the manifest of the index, and log them."""
    points = {k: measure_recall(searcher, truth, k, passes) for k, passes in ((10, _PASSES), (MAX_RECALL_DEPTH, 1))}
    recalls = {f"recall@{k}": round(point.recall, 4) for k, point in points.items()}
    milliseconds = round(points[10].milliseconds, 4)
    values = ", ".join(f"{name} {value:.3f}" for name, value in recalls.items())
    log(f"{values} against exact search, {milliseconds:.2f} ms a query ({truth.what})")
    return {"queries": truth.what, **recalls, "milliseconds": milliseconds}


def write_ground_truth(directory: Path, truth: GroundTruth) -> None:
    """Store it in an index, so that settings can be tried without the vectors."""
    best = [[hits.docids, hits.scores.tolist()] for hits in truth.best]
    write_checked(directory / RECALL, {"what": truth.what, "queries": truth.queries, "best": best}, indent=False)


def read_ground_truth(directory: Path) -> GroundTruth:
    """Read what write_ground_truth() wrote. Raises MilcoError if it is missing or damaged."""
    stored = read_checked(directory / RECALL)
    with intact(directory, RECALL):
        best = [Hits(docids, np.asarray(scores)) for docids, scores in stored["best"]]
        return GroundTruth(stored["queries"], best, stored["what"])


def find_ground_truth(documents: SparseDocuments, topics: SparseDocuments | None, count: int) -> GroundTruth:
    """Search documents exactly for topics (a sample of very many), or for the strongest terms of sampled documents.

    count: number of documents that have a term. Queries without hits are left out; MilcoError if none has a hit.
    """
    queries: list[dict[str, float]] = []
    if topics is not None:
        queries, what = _sample_topics(topics)
    else:
        prune = PruningRule("top-k", _SAMPLE_TERMS)
        for batch, rows in _sample_rows(documents, count):
            queries += _as_queries(prune(batch.take(rows)), documents.terms)
        what = f"the {_SAMPLE_TERMS} strongest terms of {counted(len(queries), 'sampled document')}"
    # All terms are known: the documents have been read before.
    columns = {term: column for column, term in enumerate(documents.terms)}
    known = [{term: query[term] for term in query.keys() & columns.keys()} for query in queries]
    wanted = SparseBatch.from_columns(known, columns, len(columns))
    scored = (
        (names[start : start + _CHUNK], wanted.dot(batch.take(range(start, min(start + _CHUNK, len(names))))))
        for names, batch in documents.batches()
        for start in range(0, len(names), _CHUNK)
    )
    return _with_hits(queries, _best_documents(documents, len(queries), scored), what, documents.path)


def search_ground_truth(searcher: EngineSearcher, topics: SparseDocuments) -> GroundTruth:
    """Search an index exactly for topics, as find_ground_truth() does."""
    queries, what = _sample_topics(topics)
    return _with_hits(queries, searcher.search(queries, DEPTH), what, searcher.path)


def _sample_topics(topics: SparseDocuments) -> tuple[list[dict[str, float]], str]:
    """Return all topics, or some that are evenly spaced among very many, and what they are."""
    queries = [query for _, batch in topics.batches() for query in _as_queries(batch, topics.terms)]
    places = np.linspace(0, len(queries) - 1, min(len(queries), _SAMPLE_TOPICS)).astype(int)
    queries = [queries[place] for place in np.unique(places)]
    return queries, f"{counted(len(queries), 'topic')} of {topics.path}"


def _with_hits(queries: list[dict[str, float]], best: list[Hits], what: str, path: Path) -> GroundTruth:
    pairs = [(query, hits) for query, hits in zip(queries, best, strict=True) if len(hits)]
    if not pairs:
        raise MilcoError(f"{what}: {path} has none of their terms, recall cannot be measured")
    return GroundTruth([query for query, _ in pairs], [hits for _, hits in pairs], what)


def _as_queries(batch: SparseBatch, terms: list[str]) -> list[dict[str, float]]:
    return [
        dict(zip([terms[column] for column in columns.tolist()], weights.tolist(), strict=True))
        for columns, weights in batch.rows()
    ]


def _sample_rows(documents: SparseDocuments, count: int) -> Iterator[tuple[SparseBatch, NDArray[np.int64]]]:
    """Yield the batches of documents, each with the rows whose vectors replace topics; always the same for a count.

    count: number of documents that have a term.
    """
    sample = np.sort(np.random.default_rng(0).choice(count, min(_SAMPLE_DOCUMENTS, count), replace=False))
    before = 0
    for _, batch in documents.batches():
        filled = np.flatnonzero(batch.lengths())
        yield batch, filled[sample[(sample >= before) & (sample < before + len(filled))] - before]
        before += len(filled)


def _best_documents(
    documents: SparseDocuments, queries: int, scored: Iterable[tuple[Sequence[str], NDArray[np.float32]]]
) -> list[Hits]:
    """Return the DEPTH best documents of each query in one pass, whatever their number: best first, ties by docid.

    scored: docids and scores [queries, docids] of some documents at a time.
    """
    scores = np.zeros((queries, DEPTH), np.float32)
    docids = np.full((queries, DEPTH), "", object)
    progress = Progress("documents", documents.manifest.documents or None)
    for names, more in scored:
        scores = np.concatenate([scores, more], 1)
        docids = np.concatenate([docids, np.broadcast_to(np.asarray(names, object), more.shape)], 1)
        places = np.argpartition(-scores, DEPTH - 1, axis=1)[:, :DEPTH]
        scores, docids = np.take_along_axis(scores, places, 1), np.take_along_axis(docids, places, 1)
        progress.add(len(names))
    progress.close(f"Compared with {counted(queries, 'query', 'queries')}")
    best = []
    for pairs in zip(scores.tolist(), docids.tolist(), strict=True):
        ordered = sorted((-score, docid) for score, docid in zip(*pairs, strict=True) if score > 0)
        best.append(Hits([docid for _, docid in ordered], np.asarray([-score for score, _ in ordered])))
    return best
