"""Measure seconds and peak memory of encode, index and search on increasing numbers of documents.

The documents are the short ones of encode_memory.py. Every step runs in its own process, whose peak is reported; for
indexing into Seismic this is its builder, which holds all vectors in memory. The queries are the vectors of the first
QUERIES documents, the same at every size. Seismic searches with its defaults; its recall is not part of the curve.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import encode_memory
from lucene_indexing import in_fresh_process, index_milco
from table_engines import ENGINES, is_installed
from table_rows import Row, with_peak

from milco_pyserini.console import log
from milco_pyserini.sparse import open_store

QUERIES = 100
HITS = 10
_PASSES = 3

Queries = list[dict[str, float]]


def curve_rows(counts: Sequence[int], encoder: str) -> list[Row]:
    """Return the rows of every number of documents in ascending order."""
    options = encode_memory.EncodeMemoryOptions(encoder=encoder)
    engines = [engine for engine in ENGINES if is_installed(engine)]
    rows: list[Row] = []
    queries: Queries = []
    for count in sorted(set(counts)):
        log(f"  {count:,} documents")
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            peak, taken = encode_memory.encode(root, count, options)
            rows.append(_row("encode", encoder, count, taken, peak))
            queries = queries or first_vectors(root / "store")
            for engine in engines:
                taken, peak = in_fresh_process(with_peak, index_milco, root, root / engine, 1, engine)
                rows.append(_row("index", engine, count, taken, peak))
                taken, peak = in_fresh_process(with_peak, search, root / engine, queries)
                rows.append(Row(_step("search", count), engine, {"ms": 1e3 * taken, "MB": peak}, documents=count))
    return rows


def first_vectors(store: Path) -> Queries:
    """Return the first vectors of a store as queries."""
    vectors = itertools.islice(open_store(store).vectors(), QUERIES)
    return [{term: impact / 100 for term, impact in vector.items()} for _, vector in vectors]


def search(path: Path, queries: Queries) -> float:
    """Return the mean seconds per query, one at a time: median of several passes after a warm-up pass."""
    from milco_pyserini.index import open_index

    searcher = open_index(path).searcher()
    passes = []
    for _ in range(_PASSES + 1):
        started = time.perf_counter()
        for query in queries:
            searcher.search([query], HITS)
        passes.append((time.perf_counter() - started) / len(queries))
    return statistics.median(passes[1:])


def _row(step: str, system: str, count: int, taken: float, peak: float) -> Row:
    return Row(_step(step, count), system, {"documents/s": count / taken, "s": taken, "MB": peak}, documents=count)


def _step(step: str, count: int) -> str:
    return f"{step} {count:,} documents"
