"""Measure what pruning costs and saves: effectiveness, size and latency of pruned indexes."""

from collections.abc import Sequence
from pathlib import Path

from milco_pyserini.analysis.experiment import UNPRUNED, IndexVariant, RetrievalTask, parse_variants
from milco_pyserini.analysis.timing import time_searches
from milco_pyserini.analysis.workbench import IndexMeasurement, Workbench
from milco_pyserini.console import log
from milco_pyserini.io.files import size_on_disk
from milco_pyserini.io.manifest import RECALL

# The rules of the paper's two pruning tables, and of its latency table.
PAPER_RULES = (
    UNPRUNED,
    *(f"top-k:{k}" for k in (10, 20, 50, 100, 200, 300, 500, 700, 1000)),
    *(f"percentile:{percent}" for percent in (10, 20, 50, 70, 80, 85, 90, 95, 97, 99)),
    *(f"mass:{percent}" for percent in (10, 30, 50, 60)),
)
# Bytes of indexes that are open, and timed in turn, at once.
MAX_OPEN_BYTES = 4_000_000_000


def sweep(
    task: RetrievalTask,
    output: str | Path,
    *,
    prune: Sequence[str] | None = None,
    engines: Sequence[str] = ("lucene", "exact"),
    rounds: int = 5,
    threads: int = 1,
) -> list[IndexMeasurement]:
    """Measure every pruning with every engine. Interrupted, the same call resumes.

    Args:
        task: See open_task().
        output: Directory for sweep.csv, sweep.json, sweep.png, runs and indexes. Measurements there are not repeated.
        prune: See parse_variants() (default: the paper's rules that change these vectors).
        engines: Engines, with settings.
        rounds: How often each topic is timed; the median counts.
        threads: Threads that build indexes. A search is always timed on one core.

    Raises:
        MilcoError: A rule or an engine is invalid, before anything is built.
    """
    from milco_pyserini.analysis.pictures import draw_sweep

    variants = parse_variants(prune or PAPER_RULES, engines)
    if not prune:
        variants = _without_equals(task, variants)
    workbench = Workbench(Path(output), task, variants, rounds, threads)
    known = {variant: workbench.recorded(variant) for variant in variants}
    indexes = {variant: workbench.index(variant) for variant in variants if known[variant] is None}
    groups: list[list[IndexVariant]] = [[]]
    opened = 0
    for variant, index in indexes.items():
        size = size_on_disk(index.path, without=RECALL)
        if groups[-1] and opened + size > MAX_OPEN_BYTES:
            groups.append([])
            opened = 0
        groups[-1].append(variant)
        opened += size
    for group in filter(None, groups):
        searches = {variant.name: workbench.open(variant, indexes[variant]) for variant in group}
        timed = time_searches(searches, len(task.ids), rounds)
        for variant in group:
            known[variant] = measurement = workbench.measure(variant, indexes[variant], timed[variant.name])
            workbench.record(variant, measurement)
    measurements = workbench.report([measurement for measurement in known.values() if measurement is not None], "sweep")
    draw_sweep(Path(output) / "sweep.png", measurements)
    return measurements


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
