"""milco_pyserini.eval sweep: what pruning costs and what it saves, for a list of rules and engines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milco_pyserini.analysis.task import Task, TaskOptions, open_task
from milco_pyserini.console import say
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.analysis.systems import Cut, System
    from milco_pyserini.analysis.workbench import Point, Workbench
    from milco_pyserini.index.directory import Index

# The paper's: its two pruning tables, and the masses of its latency table.
PAPER = (
    "none",
    *(f"top-k:{k}" for k in (10, 20, 50, 100, 200, 300, 500, 700, 1000)),
    *(f"percentile:{percent}" for percent in (10, 20, 50, 70, 80, 85, 90, 95, 97, 99)),
    *(f"mass:{percent}" for percent in (10, 30, 50, 60)),
)
# Bytes of indexes that are open at once.
TOGETHER = 4_000_000_000


@dataclass(frozen=True)
class SweepOptions(TaskOptions):
    """Effectiveness against terms per document, index size and latency: every pruning rule with every engine,
    without encoding again. A curve for each kind of rule, as PNG; the numbers as CSV, JSON and on stdout.

    Latency is that of a search, on one core, its query already encoded. Interrupted, the same command goes on where
    it stopped; with more rules or engines it measures those alone.
    """

    prune: tuple[str, ...] = option(
        (),
        metavar="RULE",
        help="none, top-k:K, percentile:P, mass:P or threshold:T, over one view alone as pivot:top-k:K; two rules, one "
        "after the other, as RULE+RULE (default: the paper's, as far as they change these vectors)",
    )


def sweep_command(options: SweepOptions) -> None:
    """Measure what is not measured yet, then write figures. Raises MilcoError before anything is built."""
    from milco_pyserini.analysis.measured import write_report
    from milco_pyserini.analysis.sweep_figure import draw
    from milco_pyserini.analysis.systems import check_available, read_systems
    from milco_pyserini.analysis.workbench import Workbench, refuse_foreign

    systems = read_systems(options.prune or PAPER, options.engines)
    check_available(systems)
    refuse_foreign(options.directory)
    task = open_task(options)
    if not options.prune:
        systems = _that_differ(task, systems)
    workbench = Workbench(options.directory, task)
    workbench.open(systems)
    points = _measure(workbench, systems, options)
    rows = [(point, workbench.evaluation(point).mean) for point in points]
    write_report(options, task, rows, "sweep")
    picture = options.directory / "sweep.png"
    draw(picture, systems, rows)
    say(f"figures in {picture}, sweep.csv and sweep.json beside it; indexes/ there may be removed")


def _measure(workbench: "Workbench", systems: "Sequence[System]", options: SweepOptions) -> "list[Point]":
    """The point of each system; those not recorded yet are built first, and timed when all are there."""
    from milco_pyserini.analysis.timing import ask_in_turn

    known = {system: workbench.recorded(system, options.rounds) for system in systems}
    indexes = {system: workbench.index(system, options.threads) for system in systems if known[system] is None}
    for group in _groups(indexes):
        asks = {system.name: workbench.ask(system, indexes[system]) for system in group}
        timed = ask_in_turn(asks, len(workbench.task.ids), options.rounds)
        for system in group:
            known[system] = workbench.record(system, indexes[system], timed[system.name])
    return [point for point in known.values() if point is not None]


def _groups(indexes: "Mapping[System, Index]") -> "Iterator[list[System]]":
    """Systems that are open at once and timed in turn: as many as fit into memory."""
    from milco_pyserini.analysis.workbench import size_on_disk

    group: list[System] = []
    room = TOGETHER
    for system, index in indexes.items():
        size = size_on_disk(index.path)
        if group and size > room:
            yield group
            group, room = [], TOGETHER
        group.append(system)
        room -= size
    if group:
        yield group


def _that_differ(task: Task, systems: "Sequence[System]") -> "list[System]":
    """Without the rules that leave as many terms as no rule does: short documents have no thousand terms."""
    cuts = list(dict.fromkeys(system.cut for system in systems))
    terms = _count_terms(task, cuts)
    same = [cut for cut in cuts if cut.rules and terms[cut] == terms[cuts[0]]]
    if same:
        say(f"left out, as no document has so many terms: {', '.join(map(str, same))}")
    return [system for system in systems if system.cut not in same]


def _count_terms(task: Task, cuts: "Sequence[Cut]") -> "dict[Cut, int]":
    """Terms of all documents under each cut, in one pass."""
    totals = dict.fromkeys(cuts, 0)
    views = task.views
    for _, batch in task.store.batches():
        whole = batch.view(*views) if views else batch
        for cut in cuts:
            pruned = whole
            for rule in cut.rules:
                pruned = rule(pruned)
            totals[cut] += len(pruned.columns)
    return totals
