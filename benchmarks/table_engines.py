"""Compare writing of stores, indexing and searching with peers on synthetic documents.

Lucene is measured on documents of lucene_indexing.py, whose VOCABULARY has the size of both views together. The engines
are compared on documents of topical_vectors.py: these have the size of a pivot view, because Seismic's build time grows
with the square of the vocabulary, and topics, without which approximate indexes cannot group documents. Seismic
searches twice: with its default query_cut and heap_factor, and with those that `milco index tune` finds for RECALL on
topics that are used nowhere else.
"""

import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import lucene_search
import numpy as np
import repository  # noqa: F401
from lucene_indexing import (
    PART,
    SCALE,
    VOCABULARY,
    in_fresh_process,
    index_milco,
    index_pyserini,
    synthetic_batch,
    write_collection,
)
from table_rows import Row, compared, interleaved, with_peak
from topical_vectors import topical_queries, write_topical_store, write_topics_store

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import size_on_disk
from milco_pyserini.sparse import SparseBatch, Vocabulary
from milco_pyserini.sparse.store import write_jsonl, write_parquet

if TYPE_CHECKING:
    from experiments.timing import SearchQuery
    from milco_pyserini.index.hits import Hits
    from milco_pyserini.index.protocol import EngineSearcher

MILCO = "milco_pyserini"
ANSERINI = "Anserini IndexCollection"
SEARCHER = "Pyserini LuceneImpactSearcher"
SEISMIC = "seismic"
ENGINES = ("exact", "lucene", "qdrant", SEISMIC)
# Their modules, if they are optional.
PACKAGES = {SEISMIC: "seismic", "qdrant": "qdrant_edge"}
HITS = 10
# A hundredth above the goal, because other queries than those of the tuning may find a little less.
RECALL = 0.96
TUNING_TOPICS = 300
INDEX_STEP = "index a pivot view"
SEARCH_STEP = f"search a pivot view, k={HITS}"
TUNE_STEP = f"tune to recall@{HITS} {RECALL:g}"


@dataclass(frozen=True)
class EngineSizes:
    """Sizes of the measurement; threads are those of builds, searches run on one."""

    documents: int
    queries: int
    threads: tuple[int, ...]
    rounds: int


def store_rows(sizes: EngineSizes) -> list[Row]:
    """Return the rows of writing vectors: JSONL, loops over terms for comparison, and Parquet."""
    documents = min(sizes.documents, PART)
    batch = synthetic_batch(np.random.default_rng(0), documents)
    vocabulary = Vocabulary([f"t{number}" for number in range(VOCABULARY)], [])
    ids = [f"doc{row}" for row in range(documents)]
    terms = vocabulary.terms.tolist()
    writers: dict[str, Callable[[IO[bytes]], Any]] = {
        f"{MILCO}, JSONL": lambda handle: write_jsonl(handle, ids, batch, vocabulary, SCALE),
        "a loop over arrays, JSONL": lambda handle: write_by_loop(handle, ids, batch, terms),
        "a loop over a sparse tensor, JSONL": lambda handle: write_by_entry(handle, ids, batch, terms),
        f"{MILCO}, Parquet": lambda handle: write_parquet(handle, ids, batch),
    }
    seconds = interleaved({name: _into_file(write) for name, write in writers.items()}, sizes.rounds + 1)
    later = {name: taken[1:] for name, taken in seconds.items()}
    return compared("write vectors", later, lambda _, taken: {"documents/s": documents / taken, "s": taken})


def write_by_loop(handle: IO[bytes], ids: Sequence[str], batch: SparseBatch, terms: Sequence[str]) -> None:
    """Write what write_jsonl() writes, term by term, as Pyserini's encoders convert vectors to dictionaries."""
    for name, (columns, weights) in zip(ids, batch.rows(), strict=True):
        vector = {}
        for column, weight in zip(list(columns), list(weights), strict=True):
            impact = round(weight * np.float32(SCALE))
            if impact > 0:
                vector[terms[column]] = impact
        handle.write(json.dumps({"id": name, "contents": "", "vector": vector}).encode() + b"\n")


def write_by_entry(handle: IO[bytes], ids: Sequence[str], batch: SparseBatch, terms: Sequence[str]) -> None:
    """Write the same from a sparse tensor, element by element, as in the authors' code."""
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


def _into_file(write: Callable[[IO[bytes]], Any]) -> Callable[[], None]:
    def action() -> None:
        with tempfile.TemporaryFile() as handle:
            write(handle)

    return action


def index_rows(sizes: EngineSizes) -> list[Row]:
    """Return the rows of this project's Lucene writer and of Anserini's, a step per number of threads."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_collection(root, sizes.documents)
        for threads in sizes.threads:
            seconds: dict[str, list[float]] = {MILCO: [], ANSERINI: []}
            peaks: dict[str, list[float]] = {MILCO: [], ANSERINI: []}
            for number in range(sizes.rounds):
                for system, index in ((MILCO, index_milco), (ANSERINI, index_pyserini)):
                    output = root / f"{len(rows)}-{len(peaks[system])}-{system}-{number}"
                    taken, peak = in_fresh_process(with_peak, index, root, output, threads)
                    seconds[system].append(taken)
                    peaks[system].append(peak)
            step = f"index into Lucene, threads {threads}"
            rows += compared(step, seconds, _built(sizes.documents, peaks))
    return rows


def _built(documents: int, peaks: Mapping[str, Sequence[float]]) -> Callable[[str, float], dict]:
    def figures(name: str, taken: float) -> dict:
        return {"documents/s": documents / taken, "s": taken, "MB": statistics.median(peaks[name])}

    return figures


def search_rows(sizes: EngineSizes) -> list[Row]:
    """Return the rows of opening and searching a Lucene index; raise MilcoError if Pyserini's results differ."""
    options = lucene_search.LuceneSearchOptions(documents=sizes.documents, queries=sizes.queries)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_collection(root, sizes.documents)
        in_fresh_process(lucene_search.build, root)
        rounds = [in_fresh_process(lucene_search.measure, root, options) for _ in range(sizes.rounds)]
    rows = []
    for number, one in enumerate(rounds[0]):
        clocks = {
            MILCO: [timed[number].milco[0] for timed in rounds],
            SEARCHER: [timed[number].pyserini[0] for timed in rounds],
        }
        p95s = {system: [np.quantile(seconds, 0.95) for seconds in taken] for system, taken in clocks.items()}
        step = "Lucene: " + one.name
        means = {system: [float(seconds.mean()) for seconds in taken] for system, taken in clocks.items()}
        rows += compared(step, means, _latency(p95s if one.milco.shape[1] > 1 else {}))
    return rows


def _latency(p95s: Mapping[str, Sequence[float]]) -> Callable[[str, float], dict]:
    def figures(name: str, taken: float) -> dict:
        p95 = {"p95 ms": 1e3 * float(statistics.median(p95s[name]))} if p95s else {}
        return {"ms": 1e3 * taken} | p95

    return figures


def engine_rows(sizes: EngineSizes) -> list[Row]:
    """Return the rows of all engines on a pivot view: each is built once with all threads, then searched on one."""
    rows: list[Row] = []
    installed = [engine for engine in ENGINES if is_installed(engine)]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_topical_store(root / "store", sizes.documents)
        write_topics_store(root / "topics", TUNING_TOPICS)
        for engine in installed:
            log(f"  {engine}")
            output = root / engine
            taken, peak = in_fresh_process(with_peak, index_milco, root, output, max(sizes.threads), engine)
            figures = {
                "documents/s": sizes.documents / taken,
                "s": taken,
                "MB": peak,
                "disk MB": size_on_disk(output) / 1e6,
            }
            rows.append(Row(INDEX_STEP, engine, figures))
        if SEISMIC in installed:
            rows += tuned_rows(root)
        rows += in_fresh_process(time_engines, root, installed, sizes)
    missing = [engine for engine in ENGINES if engine not in installed]
    return rows + [Row(step, f"{engine} (not installed)") for step in (INDEX_STEP, SEARCH_STEP) for engine in missing]


def is_installed(engine: str) -> bool:
    """Return whether an engine of ENGINES can be used here; Java is."""
    return engine not in PACKAGES or importlib.util.find_spec(PACKAGES[engine]) is not None


def tuned_rows(root: Path) -> list[Row]:
    """Return the row of tuning, or none, with a message, if no setting reaches RECALL."""
    log(f"  {TUNE_STEP}")
    try:
        taken, peak = in_fresh_process(with_peak, tune, root)
    except MilcoError as error:
        log(f"  not tuned: {error}")
        return []
    return [Row(TUNE_STEP, SEISMIC, {"s": taken, "MB": peak})]


def tune(root: Path) -> float:
    """Return the seconds of `milco index tune` on the topics."""
    from milco_pyserini.index import Index
    from milco_pyserini.index.tuning import tune_index

    started = time.perf_counter()
    tune_index(Index.open(root / SEISMIC), RECALL, HITS, topics=root / "topics", vectors=root / "store")
    return time.perf_counter() - started


def time_engines(root: Path, engines: Sequence[str], sizes: EngineSizes) -> list[Row]:
    """Return latency and recall of the engines and their peers on one thread; runs in its own process."""
    from experiments.timing import time_searches

    queries = topical_queries(sizes.queries)
    searchers: dict[str, Any] = {}
    for engine in engines:
        searchers |= open_searchers(root / engine)
    systems: dict[str, SearchQuery] = {
        name: partial(_search_one, searcher, queries) for name, searcher in searchers.items()
    }
    peer = pyserini_search(root / "lucene", queries)
    systems |= {
        SEARCHER: lambda number: peer(number, HITS),
        "scipy, sparse product": scipy_search(searchers["exact"], queries),
        "numpy, sum of postings": numpy_search(searchers["exact"], queries),
    }
    timed = time_searches(systems, sizes.queries, sizes.rounds)
    rounds = {name: (one.seconds.mean(axis=1)).tolist() for name, one in timed.items()}

    def figures(name: str, _: float) -> dict:
        found = recall(timed["exact"].hits, timed[name].hits)
        return {"ms": timed[name].mean_ms, "p95 ms": timed[name].p95_ms, "recall@10": found}

    return compared(SEARCH_STEP, rounds, figures)


def open_searchers(path: Path) -> "dict[str, EngineSearcher]":
    """Return the searchers of an index with default settings and, if it is tuned, with its own, by display name."""
    from milco_pyserini.index import find_engine, open_index
    from milco_pyserini.index.protocol import SEARCH

    index = open_index(path)
    name = index.engine.name
    own, tuned = find_engine(name).settings(SEARCH), index.manifest.search_settings
    searchers = {_display_name(name, own): index.searcher(own)}
    if tuned != own:
        searchers[_display_name(f"{name}, tuned", tuned)] = index.searcher()
    return searchers


def _display_name(name: str, settings: Mapping[str, float]) -> str:
    return ", ".join([name, *(f"{setting} {value:g}" for setting, value in settings.items())])


def _search_one(searcher: Any, queries: Sequence[lucene_search.Query], number: int) -> "Hits":
    return searcher.search([queries[number]], HITS)[0]


def pyserini_search(index: Path, queries: Sequence[lucene_search.Query]) -> "Callable[[int, int], Hits]":
    """Return a search function, of a query's number and k, of Pyserini's searcher on this project's Lucene index."""
    from milco_pyserini.integrations.pyserini import start_java

    start_java()
    from pyserini.search.lucene import LuceneImpactSearcher

    from milco_pyserini.index.hits import Hits
    from milco_pyserini.sparse.quantization import quantize_vector

    impacts = [quantize_vector(query, SCALE) for query in queries]
    # A negative min_idf keeps terms that are in every document.
    searcher = LuceneImpactSearcher(str(index), lucene_search.Encoded(impacts), min_idf=-1)

    def search(number: int, k: int) -> Hits:
        hits = searcher.search(str(number), k)
        return Hits([hit.docid for hit in hits], np.array([hit.score for hit in hits], np.float32))

    return search


def scipy_search(exact: Any, queries: Sequence[lucene_search.Query]) -> "SearchQuery":
    """Return a search function that multiplies a sparse query by the sparse matrix of terms and documents."""
    from scipy.sparse import csr_array

    by_term = csr_array(exact.matrix().T)

    def search(number: int) -> "Hits":
        columns, weights = _query_vector(exact, queries[number])
        row = csr_array((weights, columns, [0, len(columns)]), shape=(1, by_term.shape[0]))
        scores = row @ by_term
        return _top_hits(exact, scores.indices, scores.data)

    return search


def numpy_search(exact: Any, queries: Sequence[lucene_search.Query]) -> "SearchQuery":
    """Return a search function that adds the postings of every query term to the scores of all documents."""
    by_term = exact.matrix()

    def search(number: int) -> "Hits":
        scores = np.zeros(by_term.shape[0], np.float32)
        for column, weight in zip(*_query_vector(exact, queries[number]), strict=True):
            postings = slice(by_term.indptr[column], by_term.indptr[column + 1])
            scores[by_term.indices[postings]] += weight * by_term.data[postings]
        rows = np.flatnonzero(scores)
        return _top_hits(exact, rows, scores[rows])

    return search


def _query_vector(exact: Any, query: lucene_search.Query) -> tuple[np.ndarray, np.ndarray]:
    known = sorted((exact.columns[term], weight) for term, weight in query.items() if term in exact.columns)
    return np.array([column for column, _ in known], np.int32), np.array([weight for _, weight in known], np.float32)


def _top_hits(exact: Any, rows: np.ndarray, scores: np.ndarray) -> "Hits":
    from milco_pyserini.index.hits import Hits

    kept = np.argpartition(-scores, HITS - 1)[:HITS] if len(scores) > HITS else np.arange(len(scores))
    order = kept[np.lexsort((rows[kept], -scores[kept]))]
    return Hits(exact.ids.take(rows[order]), scores[order])


def recall(best: "Sequence[Hits]", found: "Sequence[Hits]") -> float:
    """Return the share of the best documents that were found, over all queries."""
    shared = sum(len(set(one.docids) & set(other.docids)) for one, other in zip(best, found, strict=True))
    return shared / max(sum(map(len, best)), 1)
