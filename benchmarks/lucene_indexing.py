"""How many times faster our Lucene writer indexes than Pyserini's command, on one thread and the same documents.

    python benchmarks/lucene_indexing.py [--documents 20000] [--repeats 3]

Both run in fresh processes, in turn, and are timed from a started Java to a closed index; the line on stdout has
the medians and the median of the rounds' ratios. The documents are made up: 400 terms of 280,000, some common, some
of the document's topic, impacts of about 75 (what a scale of 100 makes of MILCO's weights).
"""

import multiprocessing
import os
import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from milco_pyserini.console import say
from milco_pyserini.files import write_json
from milco_pyserini.options import option, run_command
from milco_pyserini.sparse import SparseBatch, Vocabulary, open_store
from milco_pyserini.sparse.store import FORMAT_VERSION, write_jsonl

VOCABULARY = 280_000
TOPICS = 400
PART = 8192


@dataclass(frozen=True)
class Options:
    """Compare documents per second of milco_pyserini.index and pyserini.index.lucene."""

    documents: int = option(20_000, help="documents in the collection")
    repeats: int = option(3, help="rounds; each measures both")


def compare(options: Options) -> None:
    """Measure, and print one line."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        terms = write_collection(root, options.documents)
        say(f"{options.documents:,} documents, {terms:.0f} terms each")
        rates: dict[str, list[float]] = {"ours": [], "pyserini": []}
        for number in range(options.repeats):
            for who, index in (("ours", index_ours), ("pyserini", index_pyserini)):
                rate = options.documents / in_fresh_process(index, root, f"{who}-{number}")
                rates[who].append(rate)
                say(f"round {number + 1}: {who} {rate:,.0f} documents/s")
    ratios = [ours / theirs for ours, theirs in zip(rates["ours"], rates["pyserini"], strict=True)]
    ours, theirs = statistics.median(rates["ours"]), statistics.median(rates["pyserini"])
    spread = f"{min(ratios):.1f} to {max(ratios):.1f} in {len(ratios)} rounds"
    print(  # noqa: T201
        f"ratio {statistics.median(ratios):.1f} ({spread}): milco_pyserini.index {ours:,.0f} documents/s, "
        f"pyserini.index.lucene {theirs:,.0f} documents/s, one thread each"
    )


def write_collection(root: Path, documents: int) -> float:
    """A vector store in root/store, its parts alone in root/parts; returns the mean number of terms."""
    random = np.random.default_rng(0)
    frequencies = np.cumsum(1 / np.arange(1, VOCABULARY + 1) ** 0.9)
    topics = random.integers(0, VOCABULARY, (TOPICS, 600))
    vocabulary = Vocabulary([f"t{number}" for number in range(VOCABULARY)], [])
    (root / "store").mkdir()
    (root / "parts").mkdir()
    parts: list[dict] = []
    entries = 0
    for start in range(0, documents, PART):
        rows = range(start, min(start + PART, documents))
        columns = []
        for _ in rows:
            common = np.searchsorted(frequencies, random.random(260) * frequencies[-1])
            columns.append(np.unique(np.append(common, random.choice(topics[random.integers(TOPICS)], 190))))
        indptr = np.cumsum([0, *map(len, columns)])
        weights = (random.gamma(1.5, 0.5, indptr[-1]) + 0.01).astype(np.float32)
        batch = SparseBatch(indptr, np.concatenate(columns).astype(np.int32), weights, VOCABULARY)
        path = root / "store" / f"part-{len(parts):05d}.jsonl"
        with path.open("wb") as handle:
            write_jsonl(handle, [f"doc{row}" for row in rows], batch, vocabulary, 100.0)
        (root / "parts" / path.name).hardlink_to(path)
        parts.append({"file": path.name, "bytes": path.stat().st_size, "documents": len(rows)})
        entries += len(weights)
    manifest = {"format_version": FORMAT_VERSION, "documents": documents, "scale": 100.0, "parts": parts}
    write_json(root / "store" / "manifest.json", manifest)
    return entries / documents


def in_fresh_process(index: Callable[[Path, str], float], root: Path, name: str) -> float:
    """Seconds that index() took in a process, and a Java, of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_quietly, (index, root, name))


def _quietly(index: Callable[[Path, str], float], root: Path, name: str) -> float:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    return index(root, name)


def index_ours(root: Path, name: str) -> float:
    """Seconds of build_index()."""
    from milco_pyserini.index import build_index, find_engine

    engine = find_engine("lucene")
    engine.available()
    store = open_store(root / "store")
    started = time.perf_counter()
    build_index(store, engine, root / name)
    return time.perf_counter() - started


def index_pyserini(root: Path, name: str) -> float:
    """Seconds of python -m pyserini.index.lucene, without its imports."""
    from milco_pyserini import jvm

    jvm.start()
    import pyserini.index.lucene

    arguments = "--collection JsonVectorCollection --generator DefaultLuceneDocumentGenerator --threads 1 --impact"
    sys.argv = ["index", *arguments.split(), "--pretokenized", "--input", str(root / "parts")]
    sys.argv += ["--index", str(root / name)]
    started = time.perf_counter()
    runpy.run_module(f"{pyserini.index.lucene.__name__}.__main__", run_name="__main__")
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(run_command("lucene_indexing.py", Options, compare, None))
