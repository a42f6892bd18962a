"""Retrieval within one language: each view alone, both together, and BM25 beside them and fused with both.

python benchmarks/same_language.py --data cmrc2018 cacm --encoder mini --bm25

Each directory of --data holds corpus.LANG.jsonl.gz, queries.LANG.tsv and qrels.LANG.txt. Documents are encoded once,
with both views, and indexed by the exact engine; a query that has one view's terms alone is scored by that view
alone. --alpha weighs the views of "both", as search --alpha does. BM25 is index --engine bm25's, with its
analyzer for LANG.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import Evaluation, compare_evaluations, evaluate, render
from milco_pyserini.io.runs import Run
from milco_pyserini.options import option
from milco_pyserini.sparse import PIVOT, SOURCE, open_store

VIEWS = {"pivot": (PIVOT,), "source": (SOURCE,), "both": (PIVOT, SOURCE)}
FORMATS = ("text", "markdown", "latex", "csv", "json")
MEASURES = ("nDCG@10", "R@100")
HITS = 1000


@dataclass(frozen=True)
class Options:
    """Search collections in their own language: nDCG@10 and R@100 of pivot, source and both views, and of BM25."""

    data: tuple[Path, ...] = option(help="directories with corpus.LANG.jsonl.gz, queries.LANG.tsv, qrels.LANG.txt")
    encoder: str = option(MINI, help="checkpoint: hub name, directory, or mini (embedded)")
    views: tuple[str, ...] = option(tuple(VIEWS), choices=tuple(VIEWS), help="rows of the table")
    alpha: float | None = option(None, help="both: alpha x pivot + (1 - alpha) x source (default: as encoded)")
    prune: tuple[str, ...] = option((), help="prune the documents, as encode --prune, such as pivot:top-k:300")
    bm25: bool = option(
        False, help="Pyserini's BM25 too, as the baseline of the test of significance, and its fusion (RRF) with both"
    )
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16")
    format: str = option("text", choices=FORMATS, help="of the table")


@dataclass(frozen=True)
class Collection:
    """The files of one collection. language: as in their names, LANG."""

    name: str
    language: str
    corpus: str
    topics: str
    qrels: str


def command(options: Options) -> None:
    """Encode, index, search, print. Raises MilcoError if the data or the encoder cannot be read."""
    collections = [find_collection(path) for path in options.data]
    results: dict[str, dict[str, Evaluation]] = {}
    for collection in collections:
        qrels = open_qrels(collection.qrels)
        runs = ({"BM25": bm25_run(collection)} if options.bm25 else {}) | view_runs(collection, options)
        if {"BM25", "both"} <= runs.keys():
            runs["both + BM25"] = fused([runs["both"], runs["BM25"]])
        for name, run in runs.items():
            results.setdefault(name, {})[collection.name] = evaluate(run, qrels, MEASURES)
    comparison = compare_evaluations(results, test="t" if options.bm25 else "none")
    if options.format == "json":
        sys.stdout.write(comparison.to_json())
    else:
        shown = comparison.to_table()
        shown = replace(shown, notes=(*shown.notes, _how(options)))
        sys.stdout.write(render(shown, options.format))


def _how(options: Options) -> str:
    parts = [f"encoder {options.encoder}"]
    if options.alpha is not None:
        parts.append(f"alpha {options.alpha} in both")
    return ", ".join([*parts, *options.prune])


def find_collection(directory: Path) -> Collection:
    """The collection in a directory. Raises MilcoError if it does not hold one file of each kind."""
    found = {}
    for kind in ("corpus", "queries", "qrels"):
        files = sorted(directory.glob(f"{kind}.*"))
        if len(files) != 1:
            raise MilcoError(f"{directory} holds {len(files)} files {kind}.*, where one is needed")
        found[kind] = files[0]
    paths = {kind: str(path) for kind, path in found.items()}
    language = found["corpus"].name.split(".")[1]
    return Collection(directory.resolve().name, language, paths["corpus"], paths["queries"], paths["qrels"])


def view_runs(collection: Collection, options: Options) -> dict[str, Run]:
    """A run for each view that is asked for, over one exact index of the vectors."""
    from milco_pyserini.encode import EncodePlan, encode_corpus, open_query_encoder
    from milco_pyserini.index import build_index, find_engine

    topics = list(open_topics(collection.topics))
    with tempfile.TemporaryDirectory() as directory:
        vectors = Path(directory) / "vectors"
        plan = EncodePlan(options.encoder, dtype=options.dtype, format="parquet", prune=options.prune)
        encode_corpus(collection.corpus, vectors, plan, device=options.device)
        store = open_store(vectors)
        searcher = build_index(store, find_engine("exact"), Path(directory) / "index").searcher()
        encoder = open_query_encoder(store.manifest, device=options.device, dtype=options.dtype).encoder
        encoder.resolve_views([part for view in options.views for part in VIEWS[view]])
        queries = encoder.encode_query([topic.text for topic in topics], options.alpha)
        runs: dict[str, Run] = {}
        for view in options.views:
            hits = searcher.search(queries.view(*VIEWS[view]).to_dicts(encoder.vocabulary), HITS)
            runs[view] = {
                topic.id: dict(zip(found.docids, found.scores.tolist(), strict=True))
                for topic, found in zip(topics, hits, strict=True)
            }
    return runs


def bm25_run(collection: Collection) -> Run:
    """Pyserini's BM25, with the analyzer that it has for the collection's language."""
    from milco_pyserini.demo.evaluation import build_bm25, search_bm25

    with tempfile.TemporaryDirectory() as directory:
        build_bm25(open_corpus(collection.corpus), collection.language, Path(directory))
        return search_bm25(open_topics(collection.topics), collection.language, Path(directory), HITS)


def fused(runs: Sequence[Run]) -> Run:
    """One run of several, by reciprocal ranks (k = 60), as search fuse makes it."""
    from milco_pyserini.search.fusion import FusionMethod, fuse

    return {
        topic: dict(zip(hits.docids, hits.scores.tolist(), strict=True))
        for topic, hits in fuse(runs, FusionMethod(), HITS)
    }


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("benchmarks/same_language.py", Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
