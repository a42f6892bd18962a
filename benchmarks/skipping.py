"""Measure how many blocks of documents an exact search could skip if it knew the largest weight of each term in each.

python benchmarks/skipping.py --documents 200000

MaxScore, WAND and block-max pruning (Lucene, BMP) skip a block of documents if the sum of the largest contributions of
all query terms in it is below the k-th best score. Here every block is compared with the final k-th best score, which a
search knows only at its end: none can skip more. The documents are those of topical_vectors.py with both views, in
random order and grouped by topic, which is better than any reordering finds. The share of blocks that have to be read
is a mean over queries.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, vstack
from topical_vectors import DOCUMENT_VIEWS, PART, QUERY_VIEWS, nearest_topics, topical_batch

from milco_pyserini.cli.parser import run_command
from milco_pyserini.eval import ReportTable, render
from milco_pyserini.options import option


@dataclass(frozen=True)
class SkippingOptions:
    """Measure which share of a collection's blocks block-max pruning would have to read."""

    documents: int = option(200_000, minimum=PART, metavar="N", help="documents, in parts of 2,000")
    queries: int = option(20, minimum=1, metavar="N", help="queries of about 38 terms")
    blocks: tuple[int, ...] = option((32, 64, 128), minimum=1, metavar="N", help="documents per block")
    hits: tuple[int, ...] = option((10, 100, 1000), minimum=1, metavar="K", help="documents that are wanted")


def command(options: SkippingOptions) -> None:
    """Print a row per order and block size."""
    batches = [
        topical_batch(np.random.default_rng((0, number)), PART, *DOCUMENT_VIEWS)
        for number in range(options.documents // PART)
    ]
    documents = csr_array(vstack([batch.to_scipy() for batch in batches]))
    topics = np.concatenate([nearest_topics(batch) for batch in batches])
    queries = csr_array(topical_batch(np.random.default_rng((2, 0)), options.queries, *QUERY_VIEWS).to_scipy())
    lines = []
    for order, matrix in (("random", documents), ("by topic", documents[np.argsort(topics, kind="stable")])):
        postings = csc_array(matrix)
        for size in options.blocks:
            shares = [
                blocks_to_read(postings, query.indices, query.data, size, options.hits)
                for query in (queries[[row]] for row in range(options.queries))
            ]
            lines.append([order, f"{size}", *np.mean(shares, axis=0)])
    heads = [f"k={k}" for k in options.hits]
    notes = (f"share of blocks to read; {documents.shape[0]:,} documents, {options.queries} queries",)
    table = ReportTable(("order", "documents per block"), heads, lines, [3] * len(heads), notes)
    sys.stdout.write(render(table, "text"))


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("skipping.py", SkippingOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
