"""Store writing, indexes and searches beside their peers, on made-up documents.

Lucene is measured on those of lucene_indexing.py, of VOCABULARY terms, as both views have together. The engines stand
side by side on those of topical_vectors.py: they have the size of a pivot view, for Seismic's build grows with the
square of the vocabulary, and topics, for without them no approximate index has anything to go by. Seismic answers
twice: with its own query_cut and heap_factor, and with those that `milco_pyserini.index tune` finds for RECALL, on
topics that are asked in no other place.
"""

import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import lucene_search
import numpy as np
from lucene_indexing import (
    PART,
    SCALE,
    VOCABULARY,
    in_fresh_process,
    index_ours,
    index_pyserini,
    synthetic_batch,
    write_collection,
)
from table_rows import Row, compared, interleaved, with_peak
from topical_vectors import topical_queries, write_topical_store, write_topics_store

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import SparseBatch, Vocabulary
from milco_pyserini.sparse.store import write_jsonl, write_parquet

if TYPE_CHECKING:
    from milco_pyserini.analysis.timing import SearchQuery
    from milco_pyserini.index.protocol import EngineSearcher, Hits

OURS = "milco_pyserini"
ANSERINI = "Anserini IndexCollection"
SEARCHER = "Pyserini LuceneImpactSearcher"
SEISMIC = "seismic"
ENGINES = ("exact", "lucene", SEISMIC)
HITS = 10
# A hundredth more than is promised: other queries than those of the tuning may find a little less.
RECALL = 0.96
TUNING_TOPICS = 300
INDEX_STEP = "index a pivot view"
SEARCH_STEP = f"search a pivot view, k={HITS}"
TUNE_STEP = f"tune to recall@{HITS} {RECALL:g}"


@dataclass(frozen=True)
class Sizes:
    """threads: of the builds; searches take one."""

    documents: int
    queries: int
    threads: tuple[int, ...]
    rounds: int


def store_rows(sizes: Sizes) -> list[Row]:
    """Writing vectors: JSONL beside a loop over terms, and Parquet."""
    documents = min(sizes.documents, PART)
    batch = synthetic_batch(np.random.default_rng(0), documents)
    vocabulary = Vocabulary([f"t{number}" for number in range(VOCABULARY)], [])
    ids = [f"doc{row}" for row in range(documents)]
    terms = vocabulary.terms.tolist()
    writers: dict[str, Callable[[IO[bytes]], None]] = {
        f"{OURS}, JSONL": lambda handle: write_jsonl(handle, ids, batch, vocabulary, SCALE),
        "a loop over arrays, JSONL": lambda handle: write_by_loop(handle, ids, batch, terms),
        "a loop over a sparse tensor, JSONL": lambda handle: write_by_entry(handle, ids, batch, terms),
        f"{OURS}, Parquet": lambda handle: write_parquet(handle, ids, batch),
    }
    seconds = interleaved({name: _into_file(write) for name, write in writers.items()}, sizes.rounds + 1)
    later = {name: taken[1:] for name, taken in seconds.items()}
    return compared("write vectors", later, lambda _, taken: {"documents/s": documents / taken, "s": taken})


def write_by_loop(handle: IO[bytes], ids: Sequence[str], batch: SparseBatch, terms: Sequence[str]) -> None:
    """What write_jsonl() writes, one term after the other, as Pyserini's encoders make dictionaries of vectors."""
    for name, (columns, weights) in zip(ids, batch.rows(), strict=True):
        vector = {}
        for column, weight in zip(list(columns), list(weights), strict=True):
            impact = round(weight * np.float32(SCALE))
            if impact > 0:
                vector[terms[column]] = impact
        handle.write(json.dumps({"id": name, "contents": "", "vector": vector}).encode() + b"\n")


def write_by_entry(handle: IO[bytes], ids: Sequence[str], batch: SparseBatch, terms: Sequence[str]) -> None:
    """The same from the tensor that a network gives, entry by entry, as a first version of an encoder does it."""
    import torch

    entries = torch.from_numpy(np.stack([batch.row_numbers(), batch.columns]))
    weights = torch.from_numpy(batch.weights)
    vectors: list[dict[str, int]] = [{} for _ in ids]
    for number in range(len(weights)):
        impact = round(weights[number].item() * SCALE)
        if impact > 0:
            vectors[entries[0, number].item()][terms[entries[1, number].item()]] = impact  # type: ignore[index]
    for name, vector in zip(ids, vectors, strict=True):
        handle.write(json.dumps({"id": name, "contents": "", "vector": vector}).encode() + b"\n")


def _into_file(write: Callable[[IO[bytes]], None]) -> Callable[[], None]:
    def action() -> None:
        with tempfile.TemporaryFile() as handle:
            write(handle)

    return action


def index_rows(sizes: Sizes) -> list[Row]:
    """Our Lucene writer beside Anserini's, a step for each number of threads, every build in a process of its own."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_collection(root, sizes.documents)
        for threads in sizes.threads:
            seconds: dict[str, list[float]] = {OURS: [], ANSERINI: []}
            peaks: dict[str, list[float]] = {OURS: [], ANSERINI: []}
            for number in range(sizes.rounds):
                for who, index in ((OURS, index_ours), (ANSERINI, index_pyserini)):
                    output = root / f"{len(rows)}-{len(peaks[who])}-{who}-{number}"
                    taken, peak = in_fresh_process(with_peak, index, root, output, threads)
                    seconds[who].append(taken)
                    peaks[who].append(peak)
            step = f"index into Lucene, threads {threads}"
            rows += compared(step, seconds, _built(sizes.documents, peaks))
    return rows


def _built(documents: int, peaks: Mapping[str, Sequence[float]]) -> Callable[[str, float], dict]:
    def figures(name: str, taken: float) -> dict:
        return {"documents/s": documents / taken, "s": taken, "MB": statistics.median(peaks[name])}

    return figures


def search_rows(sizes: Sizes) -> list[Row]:
    """Opening and searching a Lucene index, ours beside Pyserini's; results are equal, or it is an error."""
    options = lucene_search.Options(documents=sizes.documents, queries=sizes.queries)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_collection(root, sizes.documents)
        in_fresh_process(lucene_search.build, root)
        rounds = [in_fresh_process(lucene_search.measure, root, options) for _ in range(sizes.rounds)]
    rows = []
    for place, one in enumerate(rounds[0]):
        clocks = {
            OURS: [timed[place].ours[0] for timed in rounds],
            SEARCHER: [timed[place].theirs[0] for timed in rounds],
        }
        p95s = {who: [np.quantile(seconds, 0.95) for seconds in taken] for who, taken in clocks.items()}
        step = "Lucene: " + one.name
        means = {who: [float(seconds.mean()) for seconds in taken] for who, taken in clocks.items()}
        rows += compared(step, means, _latency(p95s if one.ours.shape[1] > 1 else {}))
    return rows


def _latency(p95s: Mapping[str, Sequence[float]]) -> Callable[[str, float], dict]:
    def figures(name: str, taken: float) -> dict:
        p95 = {"p95 ms": 1e3 * float(statistics.median(p95s[name]))} if p95s else {}
        return {"ms": 1e3 * taken} | p95

    return figures


def engine_rows(sizes: Sizes) -> list[Row]:
    """All engines over a pivot view: each is built once, with all threads; then they answer in turn, on one core."""
    rows: list[Row] = []
    absent = [] if importlib.util.find_spec("seismic") else [SEISMIC]
    present = [engine for engine in ENGINES if engine not in absent]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_topical_store(root / "store", sizes.documents)
        write_topics_store(root / "topics", TUNING_TOPICS)
        for engine in present:
            log(f"  {engine}")
            output = root / engine
            taken, peak = in_fresh_process(with_peak, index_ours, root, output, max(sizes.threads), engine)
            figures = {"documents/s": sizes.documents / taken, "s": taken, "MB": peak, "disk MB": megabytes(output)}
            rows.append(Row(INDEX_STEP, engine, figures))
        if SEISMIC in present:
            rows += tuned_rows(root)
        rows += in_fresh_process(ask_engines, root, present, sizes)
    return rows + [Row(step, f"{engine} (not installed)") for step in (INDEX_STEP, SEARCH_STEP) for engine in absent]


def megabytes(directory: Path) -> float:
    """What the files of a directory take, in MB (10**6 bytes)."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6


def tuned_rows(root: Path) -> list[Row]:
    """What tuning costs; none where RECALL is out of reach, which is said."""
    log(f"  {TUNE_STEP}")
    try:
        taken, peak = in_fresh_process(with_peak, tune, root)
    except MilcoError as error:
        log(f"  not tuned: {error}")
        return []
    return [Row(TUNE_STEP, SEISMIC, {"s": taken, "MB": peak})]


def tune(root: Path) -> float:
    """Seconds of `milco_pyserini.index tune` on the topics."""
    from milco_pyserini.index import Index
    from milco_pyserini.index.tuning import tune_index

    started = time.perf_counter()
    tune_index(Index.open(root / SEISMIC), RECALL, HITS, topics=root / "topics", vectors=root / "store")
    return time.perf_counter() - started


def ask_engines(root: Path, engines: Sequence[str], sizes: Sizes) -> list[Row]:
    """Latency and recall of the engines and of their peers, on one core. For a process of its own, with one Java."""
    from milco_pyserini.analysis.timing import time_searches

    queries = topical_queries(sizes.queries)
    searchers: dict[str, Any] = {}
    for engine in engines:
        searchers |= open_searchers(root / engine)
    systems: dict[str, SearchQuery] = {name: _ask(searcher, queries) for name, searcher in searchers.items()}
    systems |= {
        SEARCHER: pyserini_ask(root, queries),
        "scipy, sparse product": scipy_ask(searchers["exact"], queries),
        "numpy, postings added up": numpy_ask(searchers["exact"], queries),
    }
    timed = time_searches(systems, sizes.queries, sizes.rounds)
    rounds = {name: (one.seconds.mean(axis=1)).tolist() for name, one in timed.items()}

    def figures(name: str, _: float) -> dict:
        found = recall(timed["exact"].hits, timed[name].hits)
        return {"ms": timed[name].mean_ms, "p95 ms": timed[name].p95_ms, "recall@10": found}

    return compared(SEARCH_STEP, rounds, figures)


def open_searchers(path: Path) -> "dict[str, EngineSearcher]":
    """An index with its engine's own settings, and with those that it was tuned to; each by what it is called."""
    from milco_pyserini.index import find_engine, open_index
    from milco_pyserini.index.protocol import SEARCH

    index = open_index(path)
    name = index.engine.name
    own, tuned = find_engine(name).settings(SEARCH), index.manifest["search_settings"]
    searchers = {_called(name, own): index.searcher(own)}
    if tuned != own:
        searchers[_called(f"{name}, tuned", tuned)] = index.searcher()
    return searchers


def _called(name: str, settings: Mapping[str, float]) -> str:
    return ", ".join([name, *(f"{setting} {value:g}" for setting, value in settings.items())])


def _ask(searcher: Any, queries: Sequence[lucene_search.Query]) -> "SearchQuery":
    return lambda number: searcher.search([queries[number]], HITS)[0]


def pyserini_ask(root: Path, queries: Sequence[lucene_search.Query]) -> "SearchQuery":
    """Pyserini's searcher over our Lucene index."""
    from pyserini.search.lucene import LuceneImpactSearcher

    from milco_pyserini.index.protocol import Hits
    from milco_pyserini.sparse.quantization import quantize_vector

    impacts = [quantize_vector(query, SCALE) for query in queries]
    # Below 0, or a term that is in every document would be dropped.
    searcher = LuceneImpactSearcher(str(root / "lucene"), lucene_search.Encoded(impacts), min_idf=-1)

    def ask(number: int) -> Hits:
        hits = searcher.search(str(number), HITS)
        return Hits([hit.docid for hit in hits], np.array([hit.score for hit in hits]))

    return ask


def scipy_ask(exact: Any, queries: Sequence[lucene_search.Query]) -> "SearchQuery":
    """A query's row times the matrix of terms and documents, both of them sparse."""
    from scipy.sparse import csr_array

    by_term = csr_array(exact.matrix().T)

    def ask(number: int) -> "Hits":
        columns, weights = _vector(exact, queries[number])
        row = csr_array((weights, columns, [0, len(columns)]), shape=(1, by_term.shape[0]))
        scores = row @ by_term
        return _best(exact, scores.indices, scores.data)

    return ask


def numpy_ask(exact: Any, queries: Sequence[lucene_search.Query]) -> "SearchQuery":
    """Every term's postings added to the scores of all documents."""
    by_term = exact.matrix()

    def ask(number: int) -> "Hits":
        scores = np.zeros(by_term.shape[0], np.float32)
        for column, weight in zip(*_vector(exact, queries[number]), strict=True):
            postings = slice(by_term.indptr[column], by_term.indptr[column + 1])
            scores[by_term.indices[postings]] += weight * by_term.data[postings]
        rows = np.flatnonzero(scores)
        return _best(exact, rows, scores[rows])

    return ask


def _vector(exact: Any, query: lucene_search.Query) -> tuple[np.ndarray, np.ndarray]:
    known = sorted((exact.columns[term], weight) for term, weight in query.items() if term in exact.columns)
    return np.array([column for column, _ in known], np.int32), np.array([weight for _, weight in known], np.float32)


def _best(exact: Any, rows: np.ndarray, scores: np.ndarray) -> "Hits":
    from milco_pyserini.index.protocol import Hits

    kept = np.argpartition(-scores, HITS - 1)[:HITS] if len(scores) > HITS else np.arange(len(scores))
    order = kept[np.lexsort((rows[kept], -scores[kept]))]
    return Hits(exact.ids.take(rows[order]), scores[order])


def recall(best: "Sequence[Hits]", found: "Sequence[Hits]") -> float:
    """Share of the best documents that were found, over all queries."""
    shared = sum(len(set(one.docids) & set(other.docids)) for one, other in zip(best, found, strict=True))
    return shared / max(sum(map(len, best)), 1)
