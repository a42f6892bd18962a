"""Compare opening and searching an index with Pyserini's LuceneImpactSearcher, at equal results.

python benchmarks/lucene_search.py --documents 20000 --queries 300 --k 10 1000 --repeats 3

Each round is a fresh process with one JVM, in which both systems open the same index and search the same queries one
by one, in turn: first all queries with one, then all with the other. Pyserini searches a query on one thread, and so
does this project, unless there are more --threads. Both take {term: impact} or {term: weight} and return docids and
scores. All results are compared: the same docids in the same order, with the same scores. Scores are integers here;
Anserini subtracts a millionth for each tie with a hit above, so Pyserini's are rounded before the comparison.

Opening is timed from a started JVM with all modules imported; start_java() has loaded Lucene's formats by then. This
project's searcher opens first and loads the other classes that both need, so each opens the index a second time. A
query's latency is the median of its passes in a round. The table has the medians of the rounds, and the ratios of
elapsed time and of the calling thread's CPU time, which depends less on other load (it leaves out more --threads).
The documents are those of lucene_indexing.py; a query has 40 terms as frequent as theirs and 25 of one topic.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lucene_indexing import (
    SCALE,
    VOCABULARY,
    in_fresh_process,
    synthetic_terms,
    synthetic_weights,
    write_collection,
)
from numpy.typing import NDArray

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option
from milco_pyserini.sparse import open_store

Query = dict[str, float]
Answers = list[tuple[list[str], NDArray[np.float32]]]
# Elapsed seconds and CPU seconds of the thread.
Clock = tuple[float, float]


@dataclass(frozen=True)
class LuceneSearchOptions:
    """Compare opening and searching an index with Pyserini's LuceneImpactSearcher."""

    documents: int = option(20_000, minimum=1, metavar="N", help="documents in the collection")
    queries: int = option(300, minimum=1, metavar="N", help="queries of up to 65 terms")
    k: tuple[int, ...] = option((10, 1000), minimum=1, help="hits per query; a row per value")
    passes: int = option(3, minimum=1, metavar="N", help="timed passes over the queries per round, after one untimed")
    repeats: int = option(3, minimum=1, metavar="N", help="rounds; medians are printed")
    threads: int = option(1, minimum=1, metavar="N", help="threads of milco for one query; Pyserini has one")


@dataclass(frozen=True)
class Latencies:
    """Elapsed and CPU seconds of n queries in both systems; milco and pyserini are [2, n]."""

    name: str
    milco: NDArray[np.float64]
    pyserini: NDArray[np.float64]


def command(options: LuceneSearchOptions) -> None:
    """Print the table. Raises MilcoError if results differ."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_collection(root, options.documents)
        terms = in_fresh_process(build, root)
        log(f"{options.documents:,} documents, {terms:,} terms in the index")
        rounds = []
        for number in range(options.repeats):
            rounds.append(in_fresh_process(measure, root, options))
            log(f"round {number + 1}: " + "; ".join(_line(one) for one in rounds[-1]))
    print_table(options, terms, rounds)


def build(root: Path) -> int:
    """Index root/store into root/index and return the number of its terms."""
    from milco_pyserini.index import build_index, find_engine

    store = open_store(root / "store")
    build_index(store, find_engine("lucene"), root / "index")
    return len({term for _, vector in store.vectors() for term in vector})


def measure(root: Path, options: LuceneSearchOptions) -> list[Latencies]:
    """Measure one round: opening, then searching at each k. Raises MilcoError if results differ."""
    from milco_pyserini.integrations.pyserini import start_java

    start_java()
    from pyserini.search.lucene import LuceneImpactSearcher

    from milco_pyserini.index import open_index
    from milco_pyserini.sparse.quantization import quantize_vector

    queries = synthetic_queries(options.queries)
    impacts = [quantize_vector(query, SCALE) for query in queries]
    index = open_index(root / "index")
    rows = []
    for name in ("open, first", "open, again"):
        opened, milco = _timed(index.searcher)
        # A negative min_idf keeps terms that are in every document.
        pyserini_opened, pyserini = _timed(lambda: LuceneImpactSearcher(str(index.path), Encoded(impacts), min_idf=-1))
        rows.append(Latencies(name, np.array(opened)[:, None], np.array(pyserini_opened)[:, None]))

    def search_milco(number: int, k: int) -> tuple[list[str], NDArray[np.floating]]:
        (hits,) = milco.search([queries[number]], k, threads=options.threads)
        return hits.docids, hits.scores

    def search_pyserini(number: int, k: int) -> tuple[list[str], NDArray[np.floating]]:
        hits = pyserini.search(str(number), k)
        return [hit.docid for hit in hits], np.array([hit.score for hit in hits], np.float32)

    numbers = range(len(queries))
    for k in options.k:
        for number in numbers:
            validate_equal(number, search_milco(number, k), search_pyserini(number, k))
        times: dict[str, list[list[Clock]]] = {"milco": [], "pyserini": []}
        for _ in range(options.passes):
            for system, search in (("milco", search_milco), ("pyserini", search_pyserini)):
                times[system].append([_timed(lambda: search(number, k))[0] for number in numbers])  # noqa: B023
        medians = {system: np.median(np.array(passes), axis=0).T for system, passes in times.items()}
        rows.append(Latencies(f"search, k={k}", medians["milco"], medians["pyserini"]))
    return rows


class Encoded:
    """Query encoder for LuceneImpactSearcher that looks up vectors: a query is the number of its vector."""

    def __init__(self, impacts: Sequence[dict[str, int]]) -> None:
        self._impacts = impacts

    def encode(self, number: str) -> dict[str, int]:
        return self._impacts[int(number)]


def _timed(work: Callable[[], Any]) -> tuple[Clock, Any]:
    own, started = time.thread_time(), time.perf_counter()
    result = work()
    return (time.perf_counter() - started, time.thread_time() - own), result


def validate_equal(
    number: int, milco: tuple[list[str], NDArray[np.floating]], pyserini: tuple[list[str], NDArray[np.floating]]
) -> None:
    """Raise MilcoError unless docids, their order and scores are equal, except for the tie adjustment."""
    if milco[0] != pyserini[0]:
        raise MilcoError(f"query {number}: docids differ: {_difference(milco[0], pyserini[0])}")
    if milco[1].tolist() != np.rint(pyserini[1]).tolist():
        raise MilcoError(f"query {number}: scores differ: {_difference(milco[1].tolist(), pyserini[1].tolist())}")


def _difference(milco: Sequence[object], pyserini: Sequence[object]) -> str:
    if len(milco) != len(pyserini):
        return f"{len(milco)} hits, {len(pyserini)} with Pyserini"
    rank, one, other = next((rank, a, b) for rank, (a, b) in enumerate(zip(milco, pyserini, strict=True), 1) if a != b)
    return f"rank {rank} has {one}, {other} with Pyserini"


def synthetic_queries(count: int, terms: int = VOCABULARY) -> list[Query]:
    """Return queries as {term: weight}, with up to 65 of `terms` terms: 40 frequent ones and 25 of one topic."""
    random = np.random.default_rng(1)
    queries = []
    for _ in range(count):
        columns = synthetic_terms(random, 40, 25, terms)
        queries.append(
            {f"t{c}": float(w) for c, w in zip(columns, synthetic_weights(random, len(columns)), strict=True)}
        )
    return queries


def print_table(options: LuceneSearchOptions, terms: int, rounds: Sequence[Sequence[Latencies]]) -> None:
    """Print a row for opening and for each k, with medians of the rounds in milliseconds."""
    head = ("", "milco", "p95", "pyserini", "p95", "ratio", "of rounds", "ratio, thread")
    rows = [head, *(_row([one[place] for one in rounds]) for place in range(len(rounds[0])))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]))  # noqa: T201
    searches = options.queries * len(options.k) * options.repeats
    print(  # noqa: T201
        f"ms, means and 95th percentiles over {options.queries:,} queries on {counted(options.threads, 'thread')} "
        f"(Pyserini: 1), {options.documents:,} documents, {terms:,} terms; docids and scores are equal for all of "
        f"{searches:,} searches"
    )


def _row(rounds: Sequence[Latencies]) -> tuple[str, ...]:
    def ms(figure: Callable[[NDArray[np.float64]], float], of: str) -> str:
        return f"{1e3 * statistics.median(figure(getattr(one, of)[0]) for one in rounds):.2f}"

    ratios = [_ratio(one, 0) for one in rounds]
    p95s = [ms(_p95, "milco"), ms(_p95, "pyserini")] if rounds[0].milco.shape[1] > 1 else ["", ""]
    return (
        rounds[0].name,
        ms(np.mean, "milco"),
        p95s[0],
        ms(np.mean, "pyserini"),
        p95s[1],
        f"{statistics.median(ratios):.1f}",
        f"{min(ratios):.1f} to {max(ratios):.1f}",
        f"{statistics.median(_ratio(one, 1) for one in rounds):.1f}",
    )


def _p95(seconds: NDArray[np.float64]) -> float:
    return float(np.quantile(seconds, 0.95))


def _ratio(one: Latencies, clock: int) -> float:
    return float(one.pyserini[clock].mean() / one.milco[clock].mean())


def _line(one: Latencies) -> str:
    milco, pyserini = 1e3 * one.milco[0].mean(), 1e3 * one.pyserini[0].mean()
    return f"{one.name} {milco:.2f} : {pyserini:.2f} ms ({_ratio(one, 0):.1f}, thread {_ratio(one, 1):.1f})"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("lucene_search.py", LuceneSearchOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
