"""The steps of a pipeline as calls: each does what the command of its name does, with the same arguments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from milco_pyserini.console import Progress
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.runs import read_run, write_hits

# Documents per topic with max_passage, as milco search has it by default.
MAX_PASSAGE_HITS = 100


def encode(
    output: Path, corpus: str | None = None, topics: str | None = None, device: str = "auto", **settings: Any
) -> None:
    """Encode a corpus or topics into a vector store. settings: fields of EncodePlan."""
    from milco_pyserini.corpora import open_corpus, open_topics
    from milco_pyserini.encode import EncodePlan, encode_corpus

    records = open_topics(topics) if topics is not None else open_corpus(corpus or "")
    encode_corpus(records, output, EncodePlan(**settings), device=device)


def index(
    output: Path,
    vectors: Path | None = None,
    corpus: str | None = None,
    engine: str = "lucene",
    prune: tuple[str, ...] = (),
    language: str | None = None,
    tokenizer: str | None = None,
    threads: int = 1,
) -> None:
    """Index a vector store, or a corpus with BM25."""
    from milco_pyserini.index import Index

    source = vectors or corpus
    Index.build(source, output, engine, prune=prune, language=language, tokenizer=tokenizer, threads=threads)


def search(
    index: Path,
    topics: str,
    hits: int,
    output: Path,
    max_passage: bool = False,
    alpha: float | None = None,
    remove_query: bool = False,
    device: str = "auto",
    threads: int = 1,
) -> None:
    """Search topics and write a run. With max_passage, hits counts passages, and the run has 100 documents."""
    from milco_pyserini.search.searcher import Searcher
    from milco_pyserini.search.topics import read_topics

    searcher = Searcher.open(index, device=device, alpha=alpha)
    queries = read_topics(topics, searcher.index)
    passages, k = (hits, MAX_PASSAGE_HITS) if max_passage else (None, hits)
    found = searcher.search_topics(queries, k, threads=threads, passages=passages, remove_query=remove_query)
    progress = Progress("queries", len(queries.ids))
    with atomic_file(output, "w") as file:
        for topic, _, best in found:
            write_hits(file, topic, best, "trec", f"milco-{searcher.index.engine.name}")
            progress.add(1, hits=len(best))
    progress.close(f"Searched {index} for {topics}")


def fuse(runs: tuple[Path, ...], method: str, output: Path) -> None:
    """Fuse runs into one."""
    from milco_pyserini.search.fusion import fuse as fuse_runs

    with atomic_file(output, "w") as file:
        for topic, best in fuse_runs([read_run(run) for run in runs], method):
            write_hits(file, topic, best, "trec", f"milco-{method}")


def judge(topics: str, corpus: str, run: tuple[Path, ...], depth: int, output: Path) -> None:
    """Judge the passages of runs by the topics' answers, and write qrels."""
    from experiments.judge import judge_runs, write_qrels

    write_qrels(output, judge_runs(topics, run, corpus, depth))


def evaluate(
    run: tuple[Path],
    qrels: tuple[str],
    measures: tuple[str, ...],
    format: str,
    output: Path,
    fairness: bool = False,
    corpus: tuple[str, ...] = (),
) -> None:
    """Evaluate a run and write the measures as JSON. corpus: has the languages of documents, for fairness."""
    from milco_pyserini.corpora import open_qrels
    from milco_pyserini.eval import compare_evaluations
    from milco_pyserini.eval import evaluate as evaluate_run
    from milco_pyserini.eval.fairness import document_languages, evaluate_fairness

    found, judged = read_run(run[0]), open_qrels(qrels[0])
    evaluation = evaluate_run(found, judged, measures)
    if fairness:
        languages = document_languages([found], judged, corpus)
        evaluation = evaluate_fairness(found, judged, languages).added_to(evaluation)
    with atomic_file(output, "w") as file:
        file.write(compare_evaluations({run[0].stem: {qrels[0]: evaluation}}).to_json())


def latency(
    vectors: Path,
    topics: str,
    qrels: str,
    engines: tuple[str, ...],
    views: tuple[str, ...],
    prune: tuple[str, ...],
    output: Path,
    dense: tuple[str, ...] = (),
    threads: int = 1,
) -> None:
    """Time engines, pruning rules and dense encoders on one core."""
    from experiments.latency import measure_latency
    from milco_pyserini.analysis.experiment import open_task

    task = open_task(vectors, topics, qrels, views=views)
    measure_latency(task, output, prune=prune, engines=engines, dense=dense, threads=threads)


def statistics(vectors: Path, corpus: str, format: str, output: Path) -> None:
    """Describe the sparsity of a vector store and write it as JSON."""
    from milco_pyserini.analysis.statistics import compute_statistics

    with atomic_file(output, "w") as file:
        file.write(compute_statistics(vectors, corpus).to_json())


ACTIONS: dict[str, Callable[..., None]] = {
    "encode": encode,
    "index": index,
    "search": search,
    "search fuse": fuse,
    "experiments.judge": judge,
    "eval": evaluate,
    "experiments.latency": latency,
    "analyze statistics": statistics,
}
