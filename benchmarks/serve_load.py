"""Load milco serve with several numbers of clients, and compare its scores with those of milco search.

python benchmarks/serve_load.py --clients 1 8 64 --requests 2000

The embedded sample is encoded, indexed with its documents, and served by a process of its own; clients in this process
send its queries over connections that stay open, one request after the other. Memory is what the server has resident
after a tenth of a row's requests and after all of them; its processor time for each request depends less on what else
the machine does. The row "library" has the same queries in a loop of Searcher.search(), before the server starts.
"""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import orjson
from tabulate import tabulate

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.search.searcher import Searcher

CORPUS = "sample"
LATENCY = ("clients", "requests", "queries/s", "p50 ms", "p99 ms", "CPU ms each")
HEADERS = (*LATENCY, "refused", "MB after a tenth", "MB at the end")


@dataclass(frozen=True)
class ServeLoadOptions:
    """Load milco serve with several numbers of clients, and compare its scores with those of milco search."""

    index: Path | None = option(None, metavar="DIR", help="index to serve (default: the sample, encoded by --encoder)")
    encoder: str = option(MINI, help="checkpoint for the sample: name on the Hub, directory, or mini (embedded)")
    engine: str = option("lucene", help="engine for the sample")
    clients: tuple[int, ...] = option((1, 8, 64), minimum=1, metavar="N", help="numbers of clients")
    requests: int = option(2000, minimum=1, metavar="N", help="requests for each number of clients")
    k: int = option(10, minimum=1, maximum=100, metavar="K", help="documents per request")
    threads: int = option(2, minimum=1, metavar="N", help="threads of the server that search")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")


def command(options: ServeLoadOptions) -> None:
    """Serve, load, and print a row for each number of clients, memory and the comparison."""
    from milco_pyserini.search.searcher import Searcher

    queries = [query.text for query in open_topics(CORPUS)]
    with tempfile.TemporaryDirectory() as directory:
        path = options.index or sample_index(options, Path(directory))
        with Searcher.open(path, device=options.device) as searcher:
            expected = searcher.search_batch(queries, options.k)
            loop = measure_loop(searcher, queries, options)
        with Server(path, options) as server:
            answers = Answers(queries, expected)

            def run(clients: int, requests: int) -> tuple:
                return asyncio.run(load(server, queries, options.k, clients, requests, answers))

            run(8, len(queries))
            rows = [loop, *(run(clients, options.requests) for clients in options.clients)]
    sys.stdout.write(tabulate(rows, HEADERS, floatfmt=".1f", intfmt=",") + f"\n{answers.report()}\n")


class Answers:
    """Compares answers with the hits of a searcher: integers exactly, floats up to the rounding of other batches.

    Args:
        queries, expected: as many texts as hits.
    """

    def __init__(self, queries: Sequence[str], expected: Sequence[Any]) -> None:
        self._expected = dict(zip(queries, expected, strict=True))
        self._tolerance = 0.0 if all((hits.scores % 1 == 0).all() for hits in expected) else 1e-5
        self._different: set[str] = set()
        self._count = 0

    def add(self, query: str, answer: dict[str, Any]) -> None:
        """Compare one answer."""
        self._count += 1
        hits, scores = self._expected[query], np.array([hit["score"] for hit in answer["hits"]])
        is_equal = len(scores) == len(hits) and np.allclose(scores, hits.scores, rtol=self._tolerance, atol=0)
        # Rounding may change the order of nearly equal scores.
        if not self._tolerance:
            is_equal = is_equal and [hit["docid"] for hit in answer["hits"]] == hits.docids
        if not is_equal:
            self._different.add(query)

    def report(self) -> str:
        """Return one line on all answers."""
        count = len(self._expected)
        what = f"scores (within {self._tolerance:g})" if self._tolerance else "docids and scores"
        found = f"{count - len(self._different)} of {count} queries have the {what} of milco search"
        return f"{found} in all of {self._count:,} answers"


class Server:
    """milco serve as a process of its own. url: its address."""

    def __init__(self, index: Path, options: ServeLoadOptions) -> None:
        program = [sys.executable, "-m", "milco_pyserini", "serve", "--port", "0", "--device", options.device]
        arguments = ["--index", str(index), "--threads", str(options.threads), "--queue", "1000"]
        self._process = subprocess.Popen([*program, *arguments], stderr=subprocess.PIPE, encoding="utf-8")
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if found := re.search(r"http://[\d.:]+/", line):
                self.url = found[0]
                return
        raise MilcoError(f"milco serve failed: {' '.join(lines)}")

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def memory(self) -> float:
        """Return resident MB."""
        return resident_memory(str(self._process.pid))

    def cpu_seconds(self) -> float:
        """Return the processor time of all its threads until now."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def resident_memory(process: str = "self") -> float:
    """Return the MB that a process has resident."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000


def sample_index(options: ServeLoadOptions, directory: Path) -> Path:
    """Encode and index the sample with its documents."""
    from milco_pyserini.encode.corpus import encode_corpus
    from milco_pyserini.encode.plan import EncodePlan
    from milco_pyserini.index import Index

    encode_corpus(CORPUS, directory / "vectors", EncodePlan(options.encoder), device=options.device)
    return Index.build(directory / "vectors", directory / "index", options.engine, store_documents=True).path


def measure_loop(searcher: "Searcher", queries: Sequence[str], options: ServeLoadOptions) -> tuple:
    """Search one query after the other, as a program does; return a row of LATENCY."""
    seconds, begun = [], time.process_time()
    for number in range(options.requests):
        started = time.perf_counter()
        searcher.search(queries[number % len(queries)], k=options.k)
        seconds.append(time.perf_counter() - started)
    cpu = 1000 * (time.process_time() - begun) / options.requests
    return "library", options.requests, options.requests / sum(seconds), *percentiles(seconds), cpu


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p99 in milliseconds."""
    p50, p99 = np.percentile(seconds, (50, 99)) * 1000
    return p50, p99


async def load(
    server: Server, queries: Sequence[str], k: int, clients: int, requests: int, answers: Answers
) -> tuple[int, int, float, float, float, float, int, float, float]:
    """Send requests from several clients; return a row of HEADERS."""
    seconds: list[float] = []
    refused = 0
    numbers = iter(range(requests))
    memory = 0.0
    address = urlsplit(server.url)

    async def client() -> None:
        nonlocal refused, memory
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for number in numbers:
            if number == requests // 10:
                memory = server.memory()
            query = queries[number % len(queries)]
            path = f"/search?{urlencode({'q': query, 'k': k})}"
            started = time.perf_counter()
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            size = int(head.lower().partition("content-length:")[2].split()[0])
            body = await reader.readexactly(size)
            seconds.append(time.perf_counter() - started)
            if head.split()[1] == "200":
                answers.add(query, orjson.loads(body))
            else:
                refused += 1
        writer.close()

    begun, cpu_begun = time.perf_counter(), server.cpu_seconds()
    await asyncio.gather(*(client() for _ in range(clients)))
    rate = requests / (time.perf_counter() - begun)
    cpu = 1000 * (server.cpu_seconds() - cpu_begun) / requests
    return clients, requests, rate, *percentiles(seconds), cpu, refused, memory, server.memory()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/serve_load.py", ServeLoadOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
