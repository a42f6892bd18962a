"""Measure retrieval within a language: each view, both views, BM25, and the fusion of both views with BM25.

python benchmarks/same_language.py --data cmrc2018 cacm --encoder mini --bm25

Each directory of --data holds corpus.LANG.jsonl.gz, queries.LANG.tsv and qrels.LANG.txt. Documents are encoded once
with both views and indexed by the exact engine; the queries of a view have only its terms. --alpha weights the views of
"both", as in milco search. BM25 is encoder bm25 with Lucene's analyzer for LANG (see bm25.py), "BM25, tokens" is
Anserini's on the tokens of the encoder.
"""

import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import repository  # noqa: F401

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import Evaluation, compare_evaluations, evaluate, render
from milco_pyserini.eval.evaluation import QrelsMapping
from milco_pyserini.index.hits import Hits
from milco_pyserini.io.runs import Run, decreasing_scores
from milco_pyserini.options import option
from milco_pyserini.sparse import PIVOT, SOURCE, open_store

VIEWS = {"pivot": (PIVOT,), "source": (SOURCE,), "both": (PIVOT, SOURCE)}
FORMATS = ("text", "markdown", "latex", "csv", "json")
MEASURES = ("nDCG@10", "R@100")
HITS = 1000


@dataclass(frozen=True)
class SameLanguageOptions:
    """Measure nDCG@10 and R@100 of the pivot view, the source view, both, and BM25 within a language."""

    data: tuple[Path, ...] = option(
        metavar="DIR", help="directories with corpus.LANG.jsonl.gz, queries.LANG.tsv and qrels.LANG.txt"
    )
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    views: tuple[str, ...] = option(tuple(VIEWS), choices=tuple(VIEWS), help="rows of the table")
    alpha: float | None = option(
        None, minimum=0, maximum=1, help="both: alpha x pivot + (1 - alpha) x source (default: as encoded)"
    )
    prune: tuple[str, ...] = option((), metavar="RULE", help="pruning of the documents, such as pivot:top-k:300")
    bm25: bool = option(False, help="BM25, baseline of the significance test, and its fusion with both (RRF)")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")
    format: str = option("text", choices=FORMATS, help="format of the table")


@dataclass(frozen=True)
class CollectionFiles:
    """The files of a collection, with the language of its documents."""

    name: str
    language: str
    corpus: str
    topics: str
    qrels: str


def command(options: SameLanguageOptions) -> None:
    """Print a row per run. Raises MilcoError if the data or the encoder cannot be read."""
    collections = [find_collection(path) for path in options.data]
    results: dict[str, dict[str, Evaluation]] = {}
    for collection in collections:
        qrels = open_qrels(collection.qrels)
        for name, run in all_runs(collection, options).items():
            results.setdefault(name, {})[collection.name] = evaluate_view(run, qrels, MEASURES)
    comparison = compare_evaluations(results, test="t" if options.bm25 else "none")
    if options.format == "json":
        sys.stdout.write(comparison.to_json())
        return
    table = comparison.to_table()
    alpha = [] if options.alpha is None else [f"alpha {options.alpha} in both"]
    note = ", ".join([f"encoder {options.encoder}", *alpha, *options.prune])
    sys.stdout.write(render(replace(table, notes=(*table.notes, note)), options.format))


def evaluate_view(run: Run, qrels: QrelsMapping, measures: Sequence[str]) -> Evaluation:
    """Evaluate a run; 0 for one without hits: the source view of Vaswani's queries, which are in capitals."""
    if any(run.values()):
        return evaluate(run, qrels, measures)
    return Evaluation(dict.fromkeys(measures, 0.0), {name: dict.fromkeys(qrels, 0.0) for name in measures})


def find_collection(directory: Path) -> CollectionFiles:
    """Return the collection in a directory. Raises MilcoError if it does not hold one file of each kind."""
    paths = {}
    for kind in ("corpus", "queries", "qrels"):
        files = sorted(directory.glob(f"{kind}.*"))
        if len(files) != 1:
            raise MilcoError(f"{directory} holds {len(files)} files {kind}.*: one is needed")
        paths[kind] = str(files[0])
    language = Path(paths["corpus"]).name.split(".")[1]
    return CollectionFiles(directory.resolve().name, language, paths["corpus"], paths["queries"], paths["qrels"])


def all_runs(collection: CollectionFiles, options: SameLanguageOptions) -> dict[str, Run]:
    """Return the runs of the table by name: if selected BM25 and its fusion with both views, and each view."""
    runs: dict[str, Run] = {}
    if options.bm25:
        words = SameLanguageOptions((), f"bm25:{collection.language}", ("source",))
        runs = {"BM25": view_runs(collection, words)["source"], "BM25, tokens": token_run(collection, options.encoder)}
    runs |= view_runs(collection, options)
    if {"BM25", "both"} <= runs.keys():
        from milco_pyserini.search.fusion import fuse

        runs["both + BM25"] = as_run(fuse([runs["both"], runs["BM25"]], depth=HITS))
    return runs


def view_runs(collection: CollectionFiles, options: SameLanguageOptions) -> dict[str, Run]:
    """Return a run per view, over one exact index of the vectors."""
    from milco_pyserini.encode.contract import open_query_encoder
    from milco_pyserini.encode.corpus import encode_corpus
    from milco_pyserini.encode.plan import EncodePlan
    from milco_pyserini.index import build_index, find_engine

    topics = list(open_topics(collection.topics))
    with tempfile.TemporaryDirectory() as directory:
        vectors = Path(directory) / "vectors"
        plan = EncodePlan(options.encoder, dtype=options.dtype, format="parquet", prune=options.prune)
        encode_corpus(collection.corpus, vectors, plan, device=options.device)
        store = open_store(vectors)
        searcher = build_index(store, find_engine("exact"), Path(directory) / "index").searcher()
        encoder = open_query_encoder(store.manifest, device=options.device, dtype=options.dtype).encoder
        encoder.network.resolve_views([part for view in options.views for part in VIEWS[view]])
        queries = encoder.encode_query([topic.text for topic in topics], alpha=options.alpha)
        runs: dict[str, Run] = {}
        for view in options.views:
            hits = searcher.search(queries.view(*VIEWS[view]).to_dicts(encoder.vocabulary), HITS)
            runs[view] = as_run(zip((topic.id for topic in topics), hits, strict=True))
    return runs


def token_run(collection: CollectionFiles, tokenizer: str) -> Run:
    """Return the run of Anserini's BM25 on the tokens of a checkpoint."""
    from experiments.bm25 import Words, bm25_hits

    topics = list(open_topics(collection.topics))
    texts, words = [topic.text for topic in topics], Words(None, tokenizer)
    hits = bm25_hits(open_corpus(collection.corpus), texts, words, HITS)
    return as_run(zip((topic.id for topic in topics), hits, strict=True))


def as_run(found: Iterable[tuple[str, Hits]]) -> Run:
    """Return the hits of every topic as milco search writes them: no two documents of a topic have one score."""
    return {
        topic: dict(zip(hits.docids, map(float, decreasing_scores(hits.scores)), strict=True)) for topic, hits in found
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/same_language.py", SameLanguageOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
