"""Encode, index, search and serve for an hour under kills and full disks in random order.

python benchmarks/endurance.py --minutes 60

Each fault is one of faults.py: a command is killed before a random file operation or at a random moment, finds a disk
that is full from a random operation on, or for files above a size. The same command then has to succeed with the bytes
of a run without faults. Meanwhile milco serve answers a client without a pause; it is killed now and then, too, and has
to answer as before once it is started again. Every answer is compared with milco search. Memory is what this process
and the server have resident after a tenth of the time and at the end; the exit code is 1 if a fault was not handled.
"""

import asyncio
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from faults import (
    CASES,
    SEED,
    FaultCase,
    Reference,
    Trial,
    after_full,
    after_kill,
    find_reference,
    inject,
    killing,
    preload,
    without_space,
    write_inputs,
)
from serve_load import CORPUS, Answers, ServeLoadOptions, Server, load, resident_memory, sample_index
from tabulate import tabulate

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import Progress, log
from milco_pyserini.corpora import open_topics
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

# Requests between two looks at the clock and at the server's memory.
REQUESTS = 100
_SIZES = 0.95
KILL, MOMENT, FULL, LARGE, SERVER = (
    "killed before a file operation",
    "killed at a moment",
    "disk full from an operation on",
    "disk full for large files",
    "server killed",
)
_COMMAND_FAULTS = (KILL, MOMENT, FULL, LARGE)


@dataclass(frozen=True)
class EnduranceOptions:
    """Encode, index, search and serve under random faults, and count those that are not handled."""

    minutes: float = option(60.0, above=0, help="time of the faults; inputs are prepared first")
    case: tuple[str, ...] = option(
        ("encode", "index lucene", "index exact --overwrite", "search"),
        choices=tuple(case.name for case in CASES),
        metavar="NAME",
        help="commands, such as 'index seismic'",
    )
    server_kills: float = option(10.0, above=0, metavar="MINUTES", help="time between two kills of the server")
    seed: int = option(SEED, help="of the random numbers")


class Served(NamedTuple):
    """Observations of the client of milco serve: a sentence on all answers, refused requests, kills, and the server's
    MB."""

    answers: str
    refused: int
    kills: int
    memory: list[float]


def serve_and_ask(directory: Path, interval: float, ready: Any, ended: Any, results: Any) -> None:
    """Index the sample, serve it, and send requests until ended is set; kill and start the server now and then.

    It runs in a process of its own: forked commands must not inherit Java, threads of torch, or locks.

    Args:
        interval: seconds between two kills.
        ready, ended: events.
        results: a queue for one Served.
    """
    from milco_pyserini.search.searcher import Searcher

    texts = [query.text for query in open_topics(CORPUS)]
    index = sample_index(ServeLoadOptions(), directory)
    answers = Answers(texts, Searcher.open(index).search_batch(texts, 10))
    refused, kills = 0, 0
    memory: list[float] = []
    ready.set()
    while not ended.is_set():
        with Server(index, ServeLoadOptions()) as server:
            started = time.monotonic()
            while not ended.is_set() and time.monotonic() - started < interval:
                row = asyncio.run(load(server, texts, 10, 2, REQUESTS, answers))
                refused += row[-3]
                memory.append(row[-1])
            if not ended.is_set():
                server.kill()
                kills += 1
    results.put(Served(answers.report(), refused, kills, memory))


def random_fault(kind: str, references: dict[FaultCase, Reference], draw: random.Random) -> Trial:
    """Inject a fault of a kind at a random place."""
    case, reference = draw.choice(list(references.items()))
    operation = draw.randint(1, max(1, reference.operations))
    if kind == KILL:
        return inject(case, reference, f"{kind}: {case.name}, {operation}", after_kill, fault=killing(operation))
    if kind == MOMENT:
        moment = draw.uniform(0.05, 1) * reference.seconds
        return inject(case, reference, f"{kind}: {case.name}, {moment:.2f} s", after_kill, moment=moment)
    if kind == FULL:
        return inject(case, reference, f"{kind}: {case.name}, {operation}", after_full, fault=without_space(operation))
    largest = max(len(content or b"") for content in reference.tree.values())
    limit = int(draw.uniform(0, _SIZES) * largest)
    return inject(case, reference, f"{kind}: {case.name}, {limit:,} bytes", after_full, limit=limit)


def command(options: EnduranceOptions) -> list[Trial]:
    """Inject faults until the time is over, and print counts. Raises MilcoError if a command fails without a fault."""
    preload()
    draw = random.Random(options.seed)
    trials: dict[str, list[Trial]] = {kind: [] for kind in _COMMAND_FAULTS}
    memory = []
    context = multiprocessing.get_context("spawn")
    ready, ended, results = context.Event(), context.Event(), context.Queue()
    with tempfile.TemporaryDirectory(prefix="milco-endurance-") as directory:
        inputs = Path(directory) / "inputs"
        write_inputs(inputs)
        references = {case: find_reference(case, inputs) for case in CASES if case.name in options.case}
        served = Path(directory) / "served"
        served.mkdir()
        arguments = served, 60 * options.server_kills, ready, ended, results
        client = context.Process(target=serve_and_ask, args=arguments)
        client.start()
        while not ready.wait(1):
            if not client.is_alive():
                raise MilcoError("the sample could not be indexed: see above")
        seconds = 60 * options.minutes
        progress, started = Progress("faults"), time.monotonic()
        while time.monotonic() - started < seconds:
            kind = draw.choice(_COMMAND_FAULTS)
            trial = random_fault(kind, references, draw)
            trials[kind].append(trial)
            progress.add(1)
            if trial.problem:
                log(f"{trial.fault}: {trial.problem}")
            if not client.is_alive():
                raise MilcoError("the client of milco serve failed: see above")
            memory.append((time.monotonic() - started, resident_memory()))
        progress.close("Injected")
        ended.set()
        found: Served = results.get()
        client.join()
    rows = []
    for kind, handled in trials.items():
        bad = sum(bool(trial.problem) for trial in handled)
        rows.append((kind, len(handled), len(handled) - bad, bad))
    sys.stdout.write(tabulate([*rows, (SERVER, found.kills, found.kills, 0)], ("fault", "number", "handled", "not")))
    early = [use for second, use in memory if second <= seconds / 10] or [memory[0][1]]
    sys.stdout.write(
        f"\n{found.answers}, {found.refused:,} refused\n"
        f"MB after a tenth of the time and at the end: these commands {early[-1]:.0f}, {memory[-1][1]:.0f}; server "
        f"{found.memory[len(found.memory) // 10]:.0f}, {found.memory[-1]:.0f}, at most {max(found.memory):.0f}\n"
    )
    return [trial for handled in trials.values() for trial in handled]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 1 if a fault was not handled."""
    trials: list[Trial] = []
    code = run_command(
        "benchmarks/endurance.py", EnduranceOptions, lambda options: trials.extend(command(options)), argv
    )
    return code or int(any(trial.problem for trial in trials))


if __name__ == "__main__":
    sys.exit(main())
