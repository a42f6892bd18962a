"""Compare this project's writer of Lucene impact indexes with Pyserini's command, on the same documents and threads.

python benchmarks/lucene_indexing.py --documents 20000 --threads 1 2 --repeats 3

Both run in fresh processes, in turn, and are timed from a started JVM to a closed index. The table has the medians of
the rounds and of the rounds' ratios. The documents are synthetic: 400 of 280,000 terms, some frequent, some of the
document's topic, with impacts of about 75 (MILCO's weights at a scale of 100). Anserini's threads take one file at a
time, so there are enough files for all.
"""

import multiprocessing
import os
import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.io.files import checksum, write_json
from milco_pyserini.io.manifest import write_checked
from milco_pyserini.options import option
from milco_pyserini.request import BuildRequest
from milco_pyserini.sparse import SparseBatch, Vocabulary, open_store
from milco_pyserini.sparse.store import FORMAT_VERSION, write_jsonl

VOCABULARY = 280_000
TOPICS = 400
PART = 2048
SCALE = 100.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class LuceneIndexingOptions:
    """Compare documents per second of milco index and pyserini.index.lucene."""

    documents: int = option(20_000, minimum=1, metavar="N", help="documents in the collection")
    threads: tuple[int, ...] = option((1, 2), minimum=1, metavar="N", help="threads of both; a row per value")
    repeats: int = option(3, minimum=1, metavar="N", help="rounds; medians are printed")


def command(options: LuceneIndexingOptions) -> None:
    """Print a row per number of threads."""
    rates: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        terms = write_collection(root, options.documents)
        log(f"{options.documents:,} documents, {terms:.0f} terms each")
        for number in range(options.repeats):
            for threads in options.threads:
                for system, index in (("milco", index_milco), ("pyserini", index_pyserini)):
                    output = root / f"{system}-{threads}-{number}"
                    rate = options.documents / in_fresh_process(index, root, output, threads)
                    rates.setdefault((system, threads), []).append(rate)
                    log(f"round {number + 1}, threads {threads}: {system} {rate:,.0f} documents/s")
    print(f"{'threads':>7}  {'milco':>6}  {'pyserini':>8}  {'ratio':>5}  of rounds")  # noqa: T201
    for threads in options.threads:
        milco, pyserini = rates["milco", threads], rates["pyserini", threads]
        ratios = [one / other for one, other in zip(milco, pyserini, strict=True)]
        print(  # noqa: T201
            f"{threads:>7}  {statistics.median(milco):>6,.0f}  {statistics.median(pyserini):>8,.0f}  "
            f"{statistics.median(ratios):>5.1f}  {min(ratios):.1f} to {max(ratios):.1f}"
        )
    print(f"documents/s, {options.documents:,} documents of {terms:.0f} terms")  # noqa: T201


def write_collection(root: Path, documents: int, terms: int = VOCABULARY) -> float:
    """Write a vector store to root/store and hard links of its parts to root/parts.

    Args:
        terms: size of the vocabulary.

    Returns:
        The mean number of terms per document.
    """
    random = np.random.default_rng(0)
    vocabulary = Vocabulary([f"t{number}" for number in range(terms)], [])
    (root / "store").mkdir()
    (root / "parts").mkdir()
    parts: list[dict] = []
    entries = 0
    for start in range(0, documents, PART):
        rows = range(start, min(start + PART, documents))
        batch = synthetic_batch(random, len(rows), terms)
        path = root / "store" / f"part-{len(parts):05d}.jsonl"
        with path.open("wb") as handle:
            write_jsonl(handle, [f"doc{row}" for row in rows], batch, vocabulary, SCALE)
        (root / "parts" / path.name).hardlink_to(path)
        size = path.stat().st_size
        parts.append({"file": path.name, "bytes": size, "checksum": checksum(path), "documents": len(rows)})
        entries += len(batch.weights)
    manifest = {"format_version": FORMAT_VERSION, "documents": documents, "scale": SCALE, "parts": parts}
    write_json(root / "store" / "vocabulary.json", vocabulary.to_json())
    write_checked(root / "store" / "manifest.json", manifest)
    return entries / documents


def synthetic_batch(random: np.random.Generator, documents: int, terms: int = VOCABULARY) -> SparseBatch:
    """Return vectors of synthetic documents over a vocabulary of `terms`."""
    columns = [synthetic_terms(random, 260, 190, terms) for _ in range(documents)]
    indptr = np.cumsum([0, *map(len, columns)])
    return SparseBatch(indptr, np.concatenate(columns), synthetic_weights(random, indptr[-1]), terms)


def synthetic_terms(
    random: np.random.Generator, common: int, special: int, terms: int = VOCABULARY
) -> NDArray[np.int32]:
    """Return the ascending columns of a text: `common` draws by Zipf's law and `special` draws from one topic."""
    frequencies, topics = _language(terms)
    drawn = np.searchsorted(frequencies, random.random(common) * frequencies[-1])
    return np.unique(np.append(drawn, random.choice(topics[random.integers(TOPICS)], special))).astype(np.int32)


def synthetic_weights(random: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Return weights of MILCO's size: .75 on average, few above 3."""
    return (random.gamma(1.5, 0.5, count) + 0.01).astype(np.float32)


@cache
def _language(terms: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    frequencies = np.cumsum(1 / np.arange(1, terms + 1) ** 0.9)
    return frequencies, np.random.default_rng(2).integers(0, terms, (TOPICS, 600))


def in_fresh_process(work: Callable[..., Result], *arguments: Any) -> Result:
    """Return what work(*arguments) returns in a new process with its own JVM; its output is discarded."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply(_quietly, (work, arguments))
        # The process exits by itself and is not killed, so it frees its system resources.
        pool.close()
        pool.join()
    return result


def _quietly(work: Callable[..., Result], arguments: Sequence[Any]) -> Result:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    return work(*arguments)


def index_milco(root: Path, output: Path, threads: int, name: str = "lucene") -> float:
    """Return the seconds of build_index() with an engine."""
    from milco_pyserini.index import build_index, find_engine

    engine = find_engine(name)
    engine.available()
    store = open_store(root / "store")
    started = time.perf_counter()
    build_index(store, engine, output, BuildRequest(threads=threads))
    return time.perf_counter() - started


def index_pyserini(root: Path, output: Path, threads: int) -> float:
    """Return the seconds of python -m pyserini.index.lucene without its imports."""
    from milco_pyserini import jvm

    jvm.start()
    import pyserini.index.lucene

    arguments = "--collection JsonVectorCollection --generator DefaultLuceneDocumentGenerator --impact --pretokenized"
    sys.argv = ["index", *arguments.split(), "--threads", str(threads)]
    sys.argv += ["--input", str(root / "parts"), "--index", str(output)]
    started = time.perf_counter()
    runpy.run_module(f"{pyserini.index.lucene.__name__}.__main__", run_name="__main__")
    return time.perf_counter() - started


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("lucene_indexing.py", LuceneIndexingOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
