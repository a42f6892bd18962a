"""Measure a new process from its start to its first vector and to its first hit: seconds and peak memory.

python benchmarks/first_hit.py --repeats 3

An index of a corpus is built for each engine in a temporary directory. Each row is a process of its own, and the median
of its runs; next to it is bm25s, which has no model, if it is installed.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

QUERY = "Who invented paper?"
_VECTOR = """
import sys
from milco_pyserini import MilcoEncoder
encoder = MilcoEncoder.from_pretrained(sys.argv[1], device="cpu")
print(encoder.decode(encoder.encode_query(sys.argv[2]), top_k=1))
"""
_BM25S = """
import sys
import bm25s
from milco_pyserini import open_corpus
texts = [document.text for document in open_corpus(sys.argv[1])]
index = bm25s.BM25()
index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
print(index.retrieve(bm25s.tokenize(sys.argv[2], show_progress=False), k=1, show_progress=False))
"""


@dataclass(frozen=True)
class FirstHitOptions:
    """Time new processes to their first vector, and to their first hit with each engine."""

    corpus: str = option("sample", metavar="NAME|PATH", help="documents of the indexes")
    encoder: str = option(MINI, metavar="NAME|DIR", help="encoder of the vectors")
    query_encoder: str = option("", metavar="NAME|DIR", help="encoder of the queries, such as mini-query")
    engines: tuple[str, ...] = option(("exact", "lucene"), metavar="ENGINE", help="engines")
    repeats: int = option(3, minimum=1, metavar="N", help="timed runs of each process, after one that fills caches")


def command(options: FirstHitOptions) -> None:
    """Print a row for each process."""
    milco = [sys.executable, "-m", "milco_pyserini"]
    with tempfile.TemporaryDirectory() as directory:
        vectors = str(Path(directory) / "vectors")
        run_process([*milco, "encode", "--corpus", options.corpus, "--encoder", options.encoder, "--output", vectors])
        rows = [("first vector", [sys.executable, "-c", _VECTOR, options.encoder, QUERY])]
        for engine in options.engines:
            index = str(Path(directory) / engine)
            run_process([*milco, "index", "--vectors", vectors, "--engine", engine, "--output", index])
            search = [*milco, "search", "--index", index, "--query", QUERY]
            if options.query_encoder:
                search += ["--query-encoder", options.query_encoder]
            rows.append((f"first hit, {engine}", search))
        if importlib.util.find_spec("bm25s"):
            rows.append(("first hit, bm25s", [sys.executable, "-c", _BM25S, options.corpus, QUERY]))
        sys.stdout.write(f"{'':<20} {'s':>6} {'CPU s':>6} {'MB':>6}\n")
        for name, arguments in rows:
            sys.stdout.write(f"{name:<20} {' '.join(measured(arguments, options.repeats))}\n")
            sys.stdout.flush()


def measured(arguments: list[str], repeats: int) -> Iterator[str]:
    """Yield seconds, seconds of processors, and megabytes at the peak: medians of runs after a first one."""
    run_process(arguments)
    runs = zip(*(run_process(arguments) for _ in range(repeats)), strict=True)
    for values, digits in zip(runs, (2, 2, 0), strict=True):
        yield f"{median(values):6.{digits}f}"


def run_process(arguments: list[str]) -> tuple[float, float, float]:
    """Return seconds, seconds of processors and the peak of memory in MB of a process. Raises MilcoError if it fails.

    The peak includes this process's memory, which loads neither torch nor Java.
    """
    started = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - started
        if process.returncode:
            output.seek(0)
            lines = output.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise MilcoError(f"{' '.join(arguments[:4])} failed: {lines[-1]}")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/first_hit.py", FirstHitOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
