"""Measure how integer impacts change the ranking: Lucene against exact float scores of the same vectors.

python benchmarks/quantization.py --corpus sample --topics sample --encoder mini

The corpus is encoded once with float weights and searched exactly, then indexed by Lucene at each scale
(impact = round(weight x scale), documents and queries). overlap@K is the share of the exact top K documents that Lucene
finds, mean over queries; the goal is at least .99 for K = 10 at scale 100. identical is the share of queries with the
same top K documents. impacts is the mean number of impacts per document that do not round to zero.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from msgspec import structs

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.eval import ReportTable, render
from milco_pyserini.options import option
from milco_pyserini.sparse import VectorStore, open_store
from milco_pyserini.sparse.quantization import quantize

FORMATS = ("text", "markdown", "latex", "csv")


@dataclass(frozen=True)
class QuantizationOptions:
    """Compare Lucene's ranking at several scales with the exact float ranking of the same vectors."""

    corpus: str = option("sample", metavar="NAME|PATH", help="documents, as for milco encode")
    topics: str = option("sample", metavar="NAME|PATH", help="queries, as for milco search")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    scales: tuple[float, ...] = option(
        (10.0, 100.0, 1000.0), above=0, metavar="X", help="impact = round(weight x scale)"
    )
    k: int = option(10, minimum=1, help="top documents that are compared")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")
    format: str = option("text", choices=FORMATS, help="format of the table")


def command(options: QuantizationOptions) -> None:
    """Print a row per scale. Raises MilcoError if the data or the encoder cannot be read."""
    from milco_pyserini.encode.contract import open_query_encoder
    from milco_pyserini.encode.corpus import encode_corpus
    from milco_pyserini.encode.plan import EncodePlan

    texts = [topic.text for topic in open_topics(options.topics)]
    with tempfile.TemporaryDirectory() as directory:
        vectors = Path(directory) / "vectors"
        plan = EncodePlan(options.encoder, dtype=options.dtype, format="parquet")
        encode_corpus(options.corpus, vectors, plan, device=options.device)
        store = open_store(vectors)
        assert isinstance(store, VectorStore)
        queries = open_query_encoder(store.manifest, device=options.device, dtype=options.dtype).encode_batch(texts)
        exact = search(store, "exact", queries, options.k)
        rows = [compare_scale(rescaled(store, scale), queries, exact, options.k) for scale in options.scales]
    heads = (f"overlap@{options.k}", "identical", "impacts")
    note = f"encoder {options.encoder}; {len(store):,} documents of {options.corpus}; {len(texts):,} queries"
    sys.stdout.write(render(ReportTable(("scale",), heads, rows, notes=(note,)), options.format))


def rescaled(store: VectorStore, scale: float) -> VectorStore:
    """Return the store with another scale for its impacts; the float weights stay."""
    return replace(store, manifest=structs.replace(store.manifest, scale=scale))


def search(store: VectorStore, engine: str, queries: Sequence[dict[str, float]], k: int) -> list[set[str]]:
    """Return the top documents of each query in an index of the store."""
    from milco_pyserini.index import build_index, find_engine

    with tempfile.TemporaryDirectory() as directory:
        searcher = build_index(store, find_engine(engine), Path(directory) / "index").searcher()
        return [set(found.docids) for found in searcher.search(queries, k)]


def compare_scale(
    store: VectorStore, queries: Sequence[dict[str, float]], exact: Sequence[set[str]], k: int
) -> tuple[str, float, float, float]:
    """Return the row of one scale, over the queries that find something exactly."""
    lucene = search(store, "lucene", queries, k)
    pairs = [(one, other) for one, other in zip(exact, lucene, strict=True) if one]
    overlap = np.mean([len(one & other) / len(one) for one, other in pairs])
    identical = np.mean([one == other for one, other in pairs])
    impacts = sum(len(quantize(batch, store.manifest.scale)[1]) for _, batch in store.batches()) / len(store)
    return f"{store.manifest.scale:g}", float(overlap), float(identical), impacts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/quantization.py", QuantizationOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
