"""Measure what pruning costs and saves: effectiveness, size and search time of pruned indexes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milco_pyserini.analysis.experiment import UNPRUNED, IndexVariant, RetrievalTask, parse_variants
from milco_pyserini.console import log
from milco_pyserini.eval.evaluation import evaluate
from milco_pyserini.eval.report import DIGITS, ReportTable
from milco_pyserini.index.directory import Index
from milco_pyserini.index.protocol import BUILD, SEARCH
from milco_pyserini.io.files import size_on_disk
from milco_pyserini.io.manifest import RECALL
from milco_pyserini.io.runs import decreasing_scores

# The rules of the paper's two pruning tables, and of its latency table.
PAPER_RULES = (
    UNPRUNED,
    *(f"top-k:{k}" for k in (10, 20, 50, 100, 200, 300, 500, 700, 1000)),
    *(f"percentile:{percent}" for percent in (10, 20, 50, 70, 80, 85, 90, 95, 97, 99)),
    *(f"mass:{percent}" for percent in (10, 30, 50, 60)),
)


@dataclass(frozen=True)
class SweepPoint:
    """Effectiveness, size and search time of one index.

    Args:
        vectors: The pruning.
        index: The engine with the settings that were given.
        ms: Mean milliseconds per query on one thread. A latency table needs more care.
        measures: Measure -> mean over the queries.
        size: Bytes on disk.
        terms: Mean terms per document.
    """

    vectors: str
    index: str
    ms: float
    measures: dict[str, float]
    size: int
    terms: float


def sweep(
    task: RetrievalTask,
    output: str | Path,
    *,
    prune: Sequence[str] = (),
    engines: Sequence[str] = ("lucene", "exact"),
    threads: int = 1,
    overwrite: bool = False,
) -> list[SweepPoint]:
    """Measure every pruning with every engine.

    Args:
        task: See open_task().
        output: Directory for the indexes. Indexes of the same vectors are reused.
        prune: See parse_variants() (default: the paper's rules that change these vectors).
        engines: Engines, with settings.
        threads: Threads that build indexes. A search has one thread.
        overwrite: Replace indexes, also those of other vectors.

    Raises:
        MilcoError: A rule or an engine is invalid, before anything is built.
    """
    variants = parse_variants(prune or PAPER_RULES, engines)
    for variant in variants:
        # Raises for a rule of a view that the store does not have.
        task.pruned(variant.rules)
    built: dict[str, Index] = {}
    points = []
    for variant in variants if prune else _without_equals(task, variants):
        name = variant.directory_name(task.views)
        if name not in built:
            rules = [str(rule) for rule in variant.rules]
            # The size of an index is that of its postings.
            options: dict[str, Any] = {"threads": threads, "overwrite": overwrite, "store_documents": False}
            options |= {"views": task.views, "prune": rules}
            built[name] = Index.build(task.store, Path(output) / name, variant.engine, **options)
        points.append(_measure(task, variant, built[name]))
    return points


def sweep_table(points: Sequence[SweepPoint]) -> ReportTable:
    """Tabulate points, a row for each."""
    measures = list(points[0].measures)
    rows = [
        (point.vectors, point.index, point.ms, *point.measures.values(), point.size / 1e6, point.terms)
        for point in points
    ]
    return ReportTable(
        ("vectors", "index"), ("ms", *measures, "MB", "terms"), rows, (3, *[DIGITS] * len(measures), 2, 1)
    )


def _measure(task: RetrievalTask, variant: IndexVariant, index: Index) -> SweepPoint:
    with index.searcher(variant.engine.settings(SEARCH)) as searcher:
        # The first pass warms up.
        found = searcher.search(task.vectors, task.k)
        started = time.perf_counter()
        for query in task.vectors:
            searcher.search([query], task.k)
        seconds = time.perf_counter() - started
    run = {
        topic: dict(zip(hits.docids, map(float, decreasing_scores(hits.scores)), strict=True))
        for topic, hits in zip(task.ids, found, strict=True)
    }
    return SweepPoint(
        vectors=variant.pruning,
        index=variant.label(BUILD, SEARCH),
        ms=1000 * seconds / len(task.ids),
        measures=evaluate(run, task.grades, task.measures).mean,
        size=size_on_disk(index.path, without=RECALL),
        terms=index.manifest.postings / (index.manifest.documents + index.manifest.empty_documents),
    )


def _without_equals(task: RetrievalTask, variants: list[IndexVariant]) -> list[IndexVariant]:
    """Drop rules that keep all terms: short documents do not have a thousand. One pass over the vectors."""
    prunings = list(dict.fromkeys(variant.rules for variant in variants))
    terms = dict.fromkeys(prunings, 0)
    for _, batch in task.store.batches():
        viewed = batch.view(*task.views) if task.views else batch
        for rules in prunings:
            pruned = viewed
            for rule in rules:
                pruned = rule(pruned)
            terms[rules] += len(pruned.columns)
    equal = [rules for rules in prunings if rules and terms[rules] == terms[()]]
    if equal:
        names = ", ".join(str(rule) for rules in equal for rule in rules)
        log(f"Skipped rules that prune nothing: {names}")
    return [variant for variant in variants if variant.rules not in equal]
