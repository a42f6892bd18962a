"""Measure what skipping blocks of documents, and reordering documents, could gain at best in an exact search.

python benchmarks/skipping.py --documents 200000

Block-max pruning (WAND, BMP) skips a block of documents if the sum of the largest contributions of all query terms in
it is below the k-th best score. MaxScore reads the postings of some terms, and of the others only those of documents
that may still reach the k-th best score, one by one: such a lookup costs as much as LOOKUP postings read in a row. Here
both know the final k-th best score from the beginning, and MaxScore the best division of the terms, so no search skips
more. The documents are those of topical_vectors.py with both views, in random order and grouped by topic, which is
better than any reordering finds. Shares of what has to be read are means over queries. Then Lucene indexes of both
orders are built, and their size and the time of a query, by turns and by the median over queries and rounds, tell what
reordering gains without skipping.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, vstack
from topical_vectors import (
    DOCUMENT_VIEWS,
    PART,
    QUERY_VIEWS,
    nearest_topics,
    topical_batch,
    topical_queries,
    vocabulary,
)

from milco_pyserini.cli.parser import run_command
from milco_pyserini.eval import ReportTable, render
from milco_pyserini.index import Index
from milco_pyserini.io.files import size_on_disk
from milco_pyserini.options import option
from milco_pyserini.sparse import SparseBatch

LOOKUP = 12
_ROUNDS = 5


@dataclass(frozen=True)
class SkippingOptions:
    """Measure what block-max pruning and reordering of documents could gain at best."""

    documents: int = option(200_000, minimum=PART, metavar="N", help="documents, in parts of 2,000")
    queries: int = option(20, minimum=1, metavar="N", help="queries of about 38 terms")
    blocks: tuple[int, ...] = option((32, 64, 128), minimum=1, metavar="N", help="documents per block")
    k: tuple[int, ...] = option((10, 100, 1000), minimum=1, help="documents that are wanted")


def command(options: SkippingOptions) -> None:
    """Print a row per order and block size, and one per order for its Lucene index."""
    batches = [
        topical_batch(np.random.default_rng((0, number)), PART, *DOCUMENT_VIEWS)
        for number in range(options.documents // PART)
    ]
    documents = csr_array(vstack([batch.to_scipy() for batch in batches]))
    topics = np.concatenate([nearest_topics(batch) for batch in batches])
    queries = csr_array(topical_batch(np.random.default_rng((2, 0)), options.queries, *QUERY_VIEWS).to_scipy())
    lines = []
    orders = {"random": documents, "by topic": documents[np.argsort(topics, kind="stable")]}
    for order, matrix in orders.items():
        postings = csc_array(matrix)
        for size in options.blocks:
            shares = [
                blocks_to_read(postings, query.indices, query.data, size, options.k)
                for query in (queries[[row]] for row in range(options.queries))
            ]
            lines.append([order, f"blocks of {size}", *np.mean(shares, axis=0)])
        costs = [
            maxscore(postings, query.indices, query.data, options.k)
            for query in (queries[[row]] for row in range(options.queries))
        ]
        lines.append([order, "MaxScore", *np.mean(costs, axis=0)])
    heads = [f"k={k}" for k in options.k]
    notes = (f"share of blocks, or of postings, to read; {documents.shape[0]:,} documents, {options.queries} queries",)
    table = ReportTable(("order", "method"), heads, lines, [3] * len(heads), notes)
    sys.stdout.write(render(table, "text"))
    columns = ["MB", *(f"ms, k={k}" for k in options.k)]
    lucene = [[order, *figures] for order, figures in lucene_figures(orders, options).items()]
    sys.stdout.write("\n" + render(ReportTable(("Lucene index",), columns, lucene, [1] * len(columns)), "text"))


def lucene_figures(orders: dict[str, csr_array], options: SkippingOptions) -> dict[str, list[float]]:
    """Return the MB of the Lucene index of each order of the documents, and the ms of a query for each k."""
    with tempfile.TemporaryDirectory() as root:
        figures, searchers = {}, {}
        for order, matrix in orders.items():
            batch = SparseBatch.from_scipy(matrix, vocabulary(both_views=True))
            index = Index.build(batch, Path(root) / order, "lucene", ids=[f"doc{row}" for row in range(len(batch))])
            figures[order] = [size_on_disk(index.path) / 1e6]
            searchers[order] = index.searcher()
        queries = topical_queries(options.queries, both_views=True)
        for k in options.k:
            milliseconds: dict[str, list[float]] = {order: [] for order in orders}
            # The first round warms up.
            for warm in range(_ROUNDS + 1):
                for query in queries:
                    for order, searcher in searchers.items():
                        started = time.perf_counter()
                        searcher.search([query], k)
                        milliseconds[order] += [1000 * (time.perf_counter() - started)] if warm else []
            for order, taken in milliseconds.items():
                figures[order].append(statistics.median(taken))
    return figures


def blocks_to_read(
    postings: csc_array, terms: NDArray[np.int32], weights: NDArray[np.float32], size: int, hits: Sequence[int]
) -> list[float]:
    """Return the share of blocks of so many documents whose bound reaches the k-th best score, for each k."""
    documents = postings.shape[0]
    scores = np.zeros(documents)
    bounds = np.zeros(-(-documents // size))
    for term, weight in zip(terms, weights, strict=True):
        found = slice(postings.indptr[term], postings.indptr[term + 1])
        contributions = weight * postings.data[found].astype(np.float64)
        scores[postings.indices[found]] += contributions
        largest = np.zeros(len(bounds))
        np.maximum.at(largest, postings.indices[found] // size, contributions)
        bounds += largest
    best = np.sort(scores)[::-1]
    return [float((bounds >= best[min(k, documents) - 1]).mean()) for k in hits]


def maxscore(
    postings: csc_array, terms: NDArray[np.int32], weights: NDArray[np.float32], hits: Sequence[int]
) -> list[float]:
    """Return the cost of MaxScore as a share of reading all postings, for each k."""
    found = {term: slice(postings.indptr[term], postings.indptr[term + 1]) for term in terms}
    sizes = np.array([found[term].stop - found[term].start for term in terms])
    scores = np.zeros((2, postings.shape[0]))
    largest = np.zeros(len(terms))
    for number, (term, weight) in enumerate(zip(terms, weights, strict=True)):
        scores[0, postings.indices[found[term]]] += weight * postings.data[found[term]].astype(np.float64)
        largest[number] = weight * postings.data[found[term]].max(initial=0)
    ranked = np.sort(scores[0])[::-1]
    best = [float(ranked[min(k, len(ranked)) - 1]) for k in hits]
    # Terms that contribute most per posting are read first; scores[1] are sums over those.
    order = np.argsort(-largest / np.maximum(sizes, 1))
    costs = np.full(len(hits), float(sizes.sum()))
    read = 0
    for place, number in enumerate(order):
        term, others = terms[number], order[place + 1 :]
        scores[1, postings.indices[found[term]]] += weights[number] * postings.data[found[term]].astype(np.float64)
        read += sizes[number]
        for column, least in enumerate(best):
            if (bound := largest[others].sum()) < least:
                candidates = np.count_nonzero(scores[1] + bound >= least)
                costs[column] = min(costs[column], read + np.minimum(sizes[others], LOOKUP * candidates).sum())
    return (costs / sizes.sum()).tolist()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("skipping.py", SkippingOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
