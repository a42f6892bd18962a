"""Measure how a search in OpenSearch grows with the passages: time, and CPU of the server, exact and in two steps.

python benchmarks/cluster_curve.py --url http://localhost:9200

Each size is an index of its own, of one shard, which begins as a clone of the next smaller one; the same index is split
into four shards. All are merged into one segment a shard. The vectors are those of topical_vectors.py with the sizes of
milco-mini 4: 206 terms a passage, 48 a query. Indexes that exist are used, so that a fill can be a run of its own
(--fill); --delete deletes them at the end.

A search in two steps asks for the strong terms of a query, those of at least RATIO of the strongest, and rescores the
best WINDOW documents of each shard with the other terms: the scores of its hits are exact. Queries are sent one after
another. Ways take turns, in blocks of queries, and the CPU time of the server's processes is read between the blocks
(GET _nodes/stats/process), so other work on the machine adds to the times, but not to the CPU.
"""

import itertools
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tabulate import tabulate
from topical_vectors import MINI_DOCUMENT, MINI_QUERY, PART, SCALE, mini_batch, vocabulary

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import Progress
from milco_pyserini.errors import MilcoError, ParameterError
from milco_pyserini.export.access import Access
from milco_pyserini.export.elasticsearch_answers import DOCID
from milco_pyserini.export.opensearch import OpenSearchTarget
from milco_pyserini.export.protocol import Collection, ImpactDocument, Steps
from milco_pyserini.options import option
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.quantization import quantize

STATEMENT = "cluster_curve"
# Documents of a request; queries of a block, and the seconds that a node keeps its statistics.
SENT, BLOCK, STATISTICS = 500, 100, 1.2


@dataclass(frozen=True)
class CurveOptions:
    """Measure time and CPU of a search in OpenSearch by passages and shards, exact and in two steps."""

    url: str = option(metavar="URL", help="running OpenSearch, of which nobody else asks anything")
    documents: tuple[int, ...] = option((100_000, 1_000_000), minimum=1, metavar="N", help="passages of each index")
    shards: tuple[int, ...] = option((1, 4), minimum=1, metavar="N", help="shards; 1 is always filled")
    k: tuple[int, ...] = option((10, 1_000), minimum=1, maximum=10_000, metavar="K", help="hits of a query")
    ratios: tuple[float, ...] = option((0.35,), metavar="RATIO", help="weights of strong terms, next to the strongest")
    windows: tuple[int, ...] = option((200,), minimum=1, metavar="WINDOW", help="documents that are rescored")
    queries: int = option(200, minimum=1, metavar="N", help="queries of a round")
    rounds: int = option(2, minimum=1, metavar="N", help="rounds that count, after the first one")
    fill: bool = option(False, help="fill the indexes only")
    delete: bool = option(False, help="delete the indexes at the end")


@dataclass
class Way:
    """A way to search: exact, or in two steps with a ratio and a window; and what it took."""

    ratio: float = 0.0
    window: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0
    recalls: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"two steps, {self.ratio:g}, {self.window:,}" if self.ratio else "exact"

    def body(self, query: ImpactDocument, k: int) -> dict[str, Any]:
        """Return the request for the k best documents of a query."""
        steps = Steps(self.ratio, self.window) if self.ratio else None
        body = OpenSearchTarget().search_request(query, "", k, steps).body
        return body | {"stored_fields": "_none_", "docvalue_fields": [DOCID], "track_total_hits": False}


class Curve:
    """The indexes of a server, by passages and shards."""

    def __init__(self, url: str) -> None:
        self._terms = np.asarray([*vocabulary(True).english, *vocabulary(True).source], object)
        self._access, self._target = Access((url,)), OpenSearchTarget()
        self.rest = self._server("_").client

    def fill(self, documents: int, smaller: int = 0) -> str:
        """Return the index of one shard, which is made if it does not exist: a clone of a smaller one, and more."""
        name = f"curve_{documents}"
        server = self._server(name)
        stated = server.stated()
        if stated == STATEMENT and server.count() == documents:
            return name
        if stated is not None:
            raise MilcoError(f"{name} is incomplete: delete it")
        if smaller:
            self._copy("_clone", f"curve_{smaller}", name, 1)
            server.state(f">{STATEMENT}")
        else:
            server.shards, server.replicas = 1, 0
            server.create(f">{STATEMENT}")
        progress, pending = Progress("passages", documents - smaller), deque[Future[None]]()
        with ThreadPoolExecutor(server.writers) as pool:
            for part in range(smaller, documents, PART):
                batch = mini_batch(np.random.default_rng((0, part // PART)), PART, *MINI_DOCUMENT)
                vectors = list(self._vectors(batch, f"doc{part}_"))[: documents - part]
                for start in range(0, len(vectors), SENT):
                    if len(pending) > server.writers:
                        pending.popleft().result()
                    pending.append(pool.submit(server.write, vectors[start : start + SENT]))
                progress.add(len(vectors))
            for sent in pending:
                sent.result()
        progress.close()
        if server.finish() != documents:
            raise MilcoError(f"{name} does not hold {documents:,} passages: delete it")
        server.state(STATEMENT)
        self._merge(name)
        return name

    def split(self, name: str, shards: int) -> str:
        """Return the index with the documents of another in so many shards."""
        if shards == 1:
            return name
        other = f"{name}_{shards}"
        if self.rest.find(f"/{other}", Any) is None:
            self._copy("_split", name, other, shards)
            self._merge(other)
        return other

    def _copy(self, how: str, name: str, other: str, shards: int) -> None:
        self.rest.request("PUT", f"/{name}/_settings", Any, {"index.blocks.write": True})
        settings = {"index.number_of_shards": shards, "index.blocks.write": None}
        self.rest.request("POST", f"/{name}/{how}/{other}?wait_for_active_shards=all", Any, {"settings": settings})

    def _merge(self, name: str) -> None:
        path = f"/{name}/_forcemerge?max_num_segments=1&wait_for_completion=false"
        task = self.rest.request("POST", path, str, at=("task",))
        while not self.rest.request("GET", f"/_tasks/{task}", bool, at=("completed",)):
            time.sleep(1)
        self.rest.request("POST", f"/{name}/_refresh", Any)

    def bytes(self, name: str) -> int:
        """Return what an index takes on disk."""
        return self.rest.request("GET", f"/{name}/_stats/store", int, at=("_all", "total", "store", "size_in_bytes"))

    def queries(self, count: int) -> list[ImpactDocument]:
        """Return synthetic queries."""
        return list(self._vectors(mini_batch(np.random.default_rng((2, 0)), count, *MINI_QUERY), "query"))

    def measure(self, path: str, queries: Sequence[ImpactDocument], k: int, ways: Sequence[Way], rounds: int) -> None:
        """Search with each way in turn; the first round does not count."""
        for number in range(1 + rounds):
            for start in range(0, len(queries), BLOCK):
                exact: list[np.ndarray] = []
                for way in ways:
                    before, rankings = self._cpu(), []
                    for query in queries[start : start + BLOCK]:
                        body = way.body(query, k)
                        started = time.perf_counter()
                        hits = self.rest.request("POST", path, list[dict], body, at=("hits", "hits"))
                        seconds = time.perf_counter() - started
                        rankings.append(np.asarray([hit["_score"] for hit in hits]))
                        if number:
                            way.seconds.append(seconds)
                    if number:
                        way.cpu += self._cpu() - before
                    exact = exact or rankings
                    way.recalls += [
                        np.mean(found[: len(best)] >= best[-1]) for found, best in zip(rankings, exact, strict=False)
                    ]

    def _cpu(self) -> float:
        """Return the seconds of CPU that the server's processes have taken."""
        time.sleep(STATISTICS)
        nodes = self.rest.request("GET", "/_nodes/stats/process", dict[str, dict], at=("nodes",))
        return sum(node["process"]["cpu"]["total_in_millis"] for node in nodes.values()) / 1000

    def _server(self, name: str) -> Any:
        return self._target.connect(self._access, Collection(name, len(self._terms)))

    def _vectors(self, batch: SparseBatch, name: str) -> Iterator[ImpactDocument]:
        batch, impacts = quantize(batch, SCALE)
        for row, (start, stop) in enumerate(itertools.pairwise(batch.indptr.tolist())):
            columns = batch.columns[start:stop]
            yield ImpactDocument(
                f"{name}{row}", self._terms[columns].tolist(), columns.tolist(), impacts[start:stop].tolist()
            )


def command(options: CurveOptions) -> None:
    """Fill what is missing, then print a row for each size, number of shards, k and way."""
    *smaller, _ = sorted(set(options.documents))
    if odd := [documents for documents in smaller if documents % PART]:
        raise ParameterError("documents", odd, f"all sizes but the largest must be multiples of {PART:,}")
    curve, rows, names = Curve(options.url), [], []
    for before, documents in itertools.pairwise((0, *sorted(set(options.documents)))):
        filled = curve.fill(documents, before)
        names += [(documents, shards, curve.split(filled, shards)) for shards in options.shards]
    queries = curve.queries(options.queries)
    searched = [(documents, str(shards), 1, name, f"/{name}/_search") for documents, shards, name in names]
    # A shard is an index of its own, so that a split index is another size, too.
    searched += [
        (documents // shards, f"1 of {shards}", shards, name, f"/{name}/_search?preference=_shards:0")
        for documents, shards, name in names
        if shards > 1
    ]
    for searched_index, k in itertools.product(() if options.fill else sorted(searched), options.k):
        documents, shards, parts, name, path = searched_index
        ways = [Way(), *itertools.starmap(Way, itertools.product(options.ratios, options.windows))]
        curve.measure(path, queries, k, ways, options.rounds)
        for way in ways:
            milliseconds = 1000 * np.asarray(way.seconds)
            p50, p95 = np.percentile(milliseconds, (50, 95))
            cpu, recall = 1000 * way.cpu / len(milliseconds), statistics.mean(way.recalls)
            size = curve.bytes(name) // 10**6 // parts
            rows.append((f"{documents:,}", shards, f"{k:,}", way, recall, p50, p95, cpu, size))
    if options.delete:
        for _, _, name in names:
            curve.rest.request("DELETE", f"/{name}", Any)
    titles = ("passages", "shards", "hits", "search", "recall", "p50 ms", "p95 ms", "CPU ms", "MB")
    formats = ("", "", "", "", ".4f", ".1f", ".1f", ".1f", "")
    if rows:
        sys.stdout.write(tabulate(rows, titles, floatfmt=formats) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("cluster_curve.py", CurveOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
