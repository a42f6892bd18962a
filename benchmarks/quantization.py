"""What whole-number impacts cost: Lucene against exact float scores of the same vectors and the same queries.

python benchmarks/quantization.py --corpus sample --topics sample --encoder mini

The corpus is encoded once, as float weights, and searched exactly; then it is indexed by Lucene at each scale
(impact = round(weight x scale), documents and queries). overlap@K: how many of the exact K best documents of a query
are among Lucene's, mean over the queries; the project promises at least .99 for K = 10 at scale 100. identical: the
share of queries whose K best are the same documents. impacts: those of a document that do not round to zero.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import ReportTable, render
from milco_pyserini.options import option
from milco_pyserini.sparse import VectorStore, open_store
from milco_pyserini.sparse.quantization import quantize

FORMATS = ("text", "markdown", "latex", "csv")


@dataclass(frozen=True)
class Options:
    """Compare Lucene's ranking at several scales with the exact float ranking of the same vectors."""

    corpus: str = option("sample", help="documents: a name or a path, as for milco_pyserini.encode")
    topics: str = option("sample", help="queries: a name or a path")
    encoder: str = option(MINI, help="checkpoint: hub name, directory, or mini (embedded)")
    scales: tuple[float, ...] = option((10.0, 100.0, 1000.0), help="impact = round(weight x scale)")
    hits: int = option(10, help="K: documents of a query that are compared")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16")
    format: str = option("text", choices=FORMATS, help="of the table")


def command(options: Options) -> None:
    """Encode, index, search, print. Raises MilcoError if the data or the encoder cannot be read."""
    from milco_pyserini.encode import EncodePlan, encode_corpus, open_query_encoder

    if options.hits < 1 or min(options.scales) <= 0:
        raise MilcoError("--hits must be at least 1, and --scales above 0")
    texts = [topic.text for topic in open_topics(options.topics)]
    with tempfile.TemporaryDirectory() as directory:
        vectors = Path(directory) / "vectors"
        plan = EncodePlan(options.encoder, dtype=options.dtype, format="parquet")
        encode_corpus(options.corpus, vectors, plan, device=options.device)
        store = open_store(vectors)
        if not isinstance(store, VectorStore):
            raise MilcoError(f"{vectors} is no vector store of ours")
        queries = open_query_encoder(store.manifest, device=options.device, dtype=options.dtype).encode_batch(texts)
        exact = search(store, "exact", queries, options.hits)
        rows = [compare_scale(rescaled(store, scale), queries, exact, options.hits) for scale in options.scales]
    heads = (f"overlap@{options.hits}", "identical", "impacts")
    note = f"encoder {options.encoder}; {len(store):,} documents of {options.corpus}; {len(texts):,} queries"
    sys.stdout.write(render(ReportTable(("scale",), heads, rows, notes=(note,)), options.format))


def rescaled(store: VectorStore, scale: float) -> VectorStore:
    """The same float weights with another scale for their impacts."""
    return replace(store, manifest=store.manifest | {"scale": scale})


def search(store: VectorStore, engine: str, queries: Sequence[dict[str, float]], hits: int) -> list[set[str]]:
    """The best documents of each query in an index of the store."""
    from milco_pyserini.index import build_index, find_engine

    with tempfile.TemporaryDirectory() as directory:
        searcher = build_index(store, find_engine(engine), Path(directory) / "index").searcher()
        return [set(found.docids) for found in searcher.search(queries, hits)]


def compare_scale(
    store: VectorStore, queries: Sequence[dict[str, float]], exact: Sequence[set[str]], hits: int
) -> tuple[str, float, float, float]:
    """One scale's row; queries that find nothing exactly count for nothing."""
    lucene = search(store, "lucene", queries, hits)
    pairs = [(one, other) for one, other in zip(exact, lucene, strict=True) if one]
    overlap = np.mean([len(one & other) / len(one) for one, other in pairs])
    identical = np.mean([one == other for one, other in pairs])
    impacts = sum(len(quantize(batch, store.scale)[1]) for _, batch in store.batches()) / len(store)
    return f"{store.scale:g}", float(overlap), float(identical), impacts


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("benchmarks/quantization.py", Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
