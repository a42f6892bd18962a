"""Compare the sum of contributions with the engine's score for every hit, with lucene and exact.

python benchmarks/explained.py --queries 200 --k 10

The embedded sample is encoded and indexed by both engines; the queries alternate between its languages. Sums are
rounded as the engines round their scores. Expected differences: 0 for lucene (integers), at most 1e-6 for exact.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option
from milco_pyserini.request import SearchRequest

if TYPE_CHECKING:
    from milco_pyserini.index import Index

CORPUS = "sample"
ENGINES = ("lucene", "exact")


@dataclass(frozen=True)
class ExplainedOptions:
    """Compare the sum of contributions with the engine's score for every hit."""

    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    queries: int = option(200, minimum=1, metavar="N", help="queries, spread over all languages")
    k: int = option(10, minimum=1, help="hits per query")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")


def command(options: ExplainedOptions) -> None:
    """Encode and index the sample, and print hits and the largest difference per engine."""
    from milco_pyserini.encode.corpus import encode_corpus
    from milco_pyserini.encode.plan import EncodePlan
    from milco_pyserini.index import build_index, find_engine
    from milco_pyserini.sparse import open_store

    texts = [query.text for query in open_topics(CORPUS)]
    if options.queries > len(texts):
        raise MilcoError(f"--queries {options.queries}: the sample has only {len(texts)}")
    queries = texts[:: len(texts) // options.queries][: options.queries]
    with tempfile.TemporaryDirectory() as directory:
        vectors = Path(directory) / "vectors"
        encode_corpus(CORPUS, vectors, EncodePlan(options.encoder), device=options.device)
        for name in ENGINES:
            index = build_index(open_store(vectors), find_engine(name), Path(directory) / name)
            hits, largest = differences(index, queries, options.k)
            sys.stdout.write(f"{name}: {len(queries)} queries, {hits:,} hits, largest difference {largest:g}\n")


def differences(index: "Index", queries: Sequence[str], k: int) -> tuple[int, float]:
    """Return the number of hits and the largest difference between a score and the sum of its contributions."""
    from milco_pyserini.encode.contract import open_query_encoder
    from milco_pyserini.explain.explainer import Explainer
    from milco_pyserini.explain.terms import sum_scores

    encoder = open_query_encoder(index.vectors)
    explainer, searcher = Explainer(index, encoder), index.searcher()
    hits, largest = 0, 0.0
    for query in queries:
        found = searcher.search(encoder.encode_batch([query]), k)[0]
        explanations = explainer.explain(query, request=SearchRequest(k))
        if [one.docid for one in explanations] != found.docids:
            raise MilcoError(f"{index.path}: {query!r} has other hits when it is explained")
        sums = np.array([sum_scores(one.contributions) for one in explanations], found.scores.dtype).tolist()
        pairs = zip(sums, found.scores.tolist(), strict=True)
        largest = max([largest, *(abs(total - score) for total, score in pairs)])
        hits += len(found)
    return hits, largest


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/explained.py", ExplainedOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
