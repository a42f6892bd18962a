"""How many times faster our searcher opens an index and answers than Pyserini's LuceneImpactSearcher, at equal results.

    python benchmarks/lucene_search.py [--documents 20000] [--queries 300] [--hits 10 1000] [--repeats 3]

Each round is a fresh process with one Java, in which both open the same index and answer the same queries on one
thread, in turn: all queries by one, then all by the other. Both are given {term: impact} or {term: weight} and give
back docids and scores. Every answer is compared: the same docids in the same order, and the same scores. Scores are
whole numbers here; Anserini takes a millionth from each hit for every hit above that it ties with, so Pyserini's are
rounded again before they are compared.

Opening is timed from a started Java, all modules imported; jvm.start() has Lucene's formats loaded meanwhile. Ours
comes first, and so pays for loading the other classes that both need: each therefore opens the index once again. A
query's latency is the median of its passes in a round. The table on stdout has the medians of the rounds, and the
ratios in time and in the processor time of the thread that searches, which knows less of what else the machine does.
The documents are those of lucene_indexing.py; a query has 40 words as common as theirs and 25 of one topic.
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
from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option
from milco_pyserini.sparse import open_store

Query = dict[str, float]
Answers = list[tuple[list[str], NDArray[np.float32]]]
# Elapsed seconds and the thread's own.
Clock = tuple[float, float]


@dataclass(frozen=True)
class Options:
    """Compare opening and searching of milco_pyserini and of Pyserini's LuceneImpactSearcher."""

    documents: int = option(20_000, help="documents in the collection")
    queries: int = option(300, help="queries of 65 terms")
    hits: tuple[int, ...] = option((10, 1000), help="documents for each query: a row of the table each")
    passes: int = option(3, help="times that a round asks every query of both, after a first that is not timed")
    repeats: int = option(3, help="rounds")


@dataclass(frozen=True)
class Timed:
    """What took how long: ours and theirs are [2, n], seconds elapsed and of the thread, for each of n queries."""

    name: str
    ours: NDArray[np.float64]
    theirs: NDArray[np.float64]


def compare(options: Options) -> None:
    """Measure, and print the table. Raises MilcoError if an answer differs."""
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
    """Index root/store into root/index; returns the number of its terms."""
    from milco_pyserini.index import build_index, find_engine

    store = open_store(root / "store")
    build_index(store, find_engine("lucene"), root / "index")
    return len({term for _, vector in store.vectors() for term in vector})


def measure(root: Path, options: Options) -> list[Timed]:
    """One round: opening, then searching at each k. Raises MilcoError if an answer differs."""
    from milco_pyserini.index import jvm

    jvm.start()
    from pyserini.search.lucene import LuceneImpactSearcher

    from milco_pyserini.index import open_index
    from milco_pyserini.sparse.quantization import quantize_vector

    queries = synthetic_queries(options.queries)
    impacts = [quantize_vector(query, SCALE) for query in queries]
    index = open_index(root / "index")
    rows = []
    for name in ("open, the first time", "open, again"):
        opened, ours = _timed(index.searcher)
        # Below 0, or a term that is in every document would be dropped.
        their_opened, theirs = _timed(lambda: LuceneImpactSearcher(str(index.path), Encoded(impacts), min_idf=-1))
        rows.append(Timed(name, np.array(opened)[:, None], np.array(their_opened)[:, None]))

    def search_ours(number: int, k: int) -> tuple[list[str], NDArray[np.floating]]:
        (hits,) = ours.search([queries[number]], k)
        return hits.docids, hits.scores

    def search_theirs(number: int, k: int) -> tuple[list[str], NDArray[np.floating]]:
        hits = theirs.search(str(number), k)
        return [hit.docid for hit in hits], np.array([hit.score for hit in hits], np.float32)

    numbers = range(len(queries))
    for k in options.hits:
        for number in numbers:
            check_equal(number, search_ours(number, k), search_theirs(number, k))
        times: dict[str, list[list[Clock]]] = {"ours": [], "theirs": []}
        for _ in range(options.passes):
            for who, search in (("ours", search_ours), ("theirs", search_theirs)):
                times[who].append([_timed(lambda: search(number, k))[0] for number in numbers])  # noqa: B023
        medians = {who: np.median(np.array(passes), axis=0).T for who, passes in times.items()}
        rows.append(Timed(f"search, k={k}", medians["ours"], medians["theirs"]))
    return rows


class Encoded:
    """What LuceneImpactSearcher takes for a query encoder: the query is a number, its vector is there already."""

    def __init__(self, impacts: Sequence[dict[str, int]]) -> None:
        self._impacts = impacts

    def encode(self, number: str) -> dict[str, int]:
        return self._impacts[int(number)]


def _timed(work: Callable[[], Any]) -> tuple[Clock, Any]:
    own, started = time.thread_time(), time.perf_counter()
    result = work()
    return (time.perf_counter() - started, time.thread_time() - own), result


def check_equal(
    number: int, ours: tuple[list[str], NDArray[np.floating]], theirs: tuple[list[str], NDArray[np.floating]]
) -> None:
    """Raise MilcoError unless docids, their order and scores are the same, the tie adjustment apart."""
    if ours[0] != theirs[0]:
        raise MilcoError(f"query {number}: {_difference(ours[0], theirs[0])} in the docids")
    if ours[1].tolist() != np.rint(theirs[1]).tolist():
        raise MilcoError(f"query {number}: {_difference(ours[1].tolist(), theirs[1].tolist())} in the scores")


def _difference(ours: Sequence[object], theirs: Sequence[object]) -> str:
    if len(ours) != len(theirs):
        return f"{len(ours)} hits, Pyserini has {len(theirs)}: a difference"
    rank, one, other = next((rank, a, b) for rank, (a, b) in enumerate(zip(ours, theirs, strict=True), 1) if a != b)
    return f"rank {rank} has {one}, Pyserini's has {other}: a difference"


def synthetic_queries(count: int, terms: int = VOCABULARY) -> list[Query]:
    """Queries of up to 65 of so many terms, as {term: weight}: 40 drawn as common words are, 25 of one topic."""
    random = np.random.default_rng(1)
    queries = []
    for _ in range(count):
        columns = synthetic_terms(random, 40, 25, terms)
        queries.append(
            {f"t{c}": float(w) for c, w in zip(columns, synthetic_weights(random, len(columns)), strict=True)}
        )
    return queries


def print_table(options: Options, terms: int, rounds: Sequence[Sequence[Timed]]) -> None:
    """A row for opening and for each k: medians over the rounds, in milliseconds."""
    head = ("", "ours", "p95", "pyserini", "p95", "ratio", "of rounds", "ratio, thread")
    rows = [head, *(_row([one[place] for one in rounds]) for place in range(len(rounds[0])))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]))  # noqa: T201
    answers = options.queries * len(options.hits) * options.repeats
    print(  # noqa: T201
        f"ms, means and 95th percentiles over {options.queries:,} queries on one thread, {options.documents:,} "
        f"documents, {terms:,} terms; docids and scores are equal in all of {answers:,} answers"
    )


def _row(rounds: Sequence[Timed]) -> tuple[str, ...]:
    def ms(figure: Callable[[NDArray[np.float64]], float], of: str) -> str:
        return f"{1e3 * statistics.median(figure(getattr(one, of)[0]) for one in rounds):.2f}"

    ratios = [_ratio(one, 0) for one in rounds]
    p95s = [ms(_p95, "ours"), ms(_p95, "theirs")] if rounds[0].ours.shape[1] > 1 else ["", ""]
    return (
        rounds[0].name,
        ms(np.mean, "ours"),
        p95s[0],
        ms(np.mean, "theirs"),
        p95s[1],
        f"{statistics.median(ratios):.1f}",
        f"{min(ratios):.1f} to {max(ratios):.1f}",
        f"{statistics.median(_ratio(one, 1) for one in rounds):.1f}",
    )


def _p95(seconds: NDArray[np.float64]) -> float:
    return float(np.quantile(seconds, 0.95))


def _ratio(one: Timed, clock: int) -> float:
    return float(one.theirs[clock].mean() / one.ours[clock].mean())


def _line(one: Timed) -> str:
    ours, theirs = 1e3 * one.ours[0].mean(), 1e3 * one.theirs[0].mean()
    return f"{one.name} {ours:.2f} : {theirs:.2f} ms ({_ratio(one, 0):.1f}, thread {_ratio(one, 1):.1f})"


def main(argv: Sequence[str] | None = None) -> int:
    """The program; returns its exit code."""
    return run_command("lucene_search.py", Options, compare, argv)


if __name__ == "__main__":
    sys.exit(main())
