"""Compare the milliseconds a query of milco search in a filled OpenSearch with those of a raw _msearch.

python benchmarks/remote_search.py --url http://localhost:9200

Both send the same 64 queries in one request, in turn: the raw one is search_request() of an application, whose hits
have an _id; the other asks for one hit more, for ties, and returns hits in order. All scores are compared. The index is
filled by milco export, and deleted. Vectors are synthetic, of both views, with 217 terms on average; a query has the 40
strongest terms of a document.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from tabulate import tabulate
from topical_vectors import write_topical_store

from milco_pyserini.cli.parser import run_command
from milco_pyserini.errors import MilcoError
from milco_pyserini.export import ExportJob
from milco_pyserini.export.access import Access
from milco_pyserini.export.opensearch import OpenSearchTarget
from milco_pyserini.export.protocol import ImpactDocument, ImpactStore
from milco_pyserini.export.remote import export_index
from milco_pyserini.export.server import client
from milco_pyserini.index import open_index
from milco_pyserini.options import option

INDEX, QUERIES, TERMS = "milco_search", 64, 40


@dataclass(frozen=True)
class RemoteSearchOptions:
    """Compare milliseconds a query of milco search and of a raw _msearch."""

    url: str = option(metavar="URL", help="running OpenSearch")
    vectors: Path | None = option(None, metavar="DIR", help="vector store (default: synthetic vectors)")
    documents: int = option(20_000, minimum=1, metavar="N", help="documents of the synthetic store")
    repeats: int = option(5, minimum=1, metavar="N", help="rounds after the first one; medians are printed")


def command(options: RemoteSearchOptions) -> None:
    """Print the medians of both, and that of the rounds' ratios, for each k."""
    target, rows = OpenSearchTarget(), []
    server = client("opensearchpy", "opensearch").OpenSearch(options.url, timeout=120)
    if server.indices.exists(index=INDEX):
        raise MilcoError(f"{INDEX} exists at `url`, and would be deleted: delete it")
    with tempfile.TemporaryDirectory() as name:
        path, index = options.vectors or Path(name) / "vectors", Path(name) / "index"
        if options.vectors is None:
            write_topical_store(path, options.documents, both_views=True)
        vectors = ImpactStore.open(path)
        documents = (vector for vector in vectors if vector.terms)
        queries = [strongest(vector) for vector in islice(documents, QUERIES)]
        weights = [{term: impact / vectors.about.scale for term, impact in one.weights.items()} for one in queries]
        try:
            export_index(ExportJob(vectors, INDEX), target, Access((options.url,)), index)
            with open_index(index).searcher() as searcher:
                for k in (10, 100, 1000):
                    bodies = [target.search_request(query, INDEX, k).body for query in queries]
                    lines = [line for body in bodies for line in ({"index": INDEX}, body)]
                    times = []
                    for _ in range(1 + options.repeats):
                        started = time.perf_counter()
                        answers = server.msearch(body=lines)["responses"]
                        between = time.perf_counter()
                        found = searcher.search(weights, k)
                        times.append((between - started, time.perf_counter() - between))
                    for query, answer, hits in zip(queries, answers, found, strict=True):
                        scores = [target.score(query, hit["_score"]) for hit in answer["hits"]["hits"]]
                        if len(scores) != len(hits) or not np.allclose(scores, hits.scores, rtol=1e-6, atol=0):
                            raise MilcoError(f"scores of {options.url} and of milco search differ")
                    raw, mine = (1000 * statistics.median(part) / len(queries) for part in zip(*times[1:], strict=True))
                    ratio = statistics.median(mine / raw for raw, mine in times[1:])
                    rows.append((f"k={k}", f"{raw:.1f} ms", f"{mine:.1f} ms", f"{ratio:.2f}"))
        finally:
            server.indices.delete(index=INDEX, ignore_unavailable=True)
    sys.stdout.write(tabulate(rows, ("", "raw _msearch", "milco search", "ratio"), tablefmt="plain") + "\n")


def strongest(vector: ImpactDocument) -> ImpactDocument:
    """Return the strongest terms of a document as a query."""
    best = sorted(zip(vector.impacts, vector.columns, vector.terms, strict=True), reverse=True)[:TERMS]
    impacts, columns, terms = map(list, zip(*best, strict=True))
    return ImpactDocument("", terms, columns, impacts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("remote_search.py", RemoteSearchOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
