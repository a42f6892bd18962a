"""python -m experiments.reproduce miracl --lang ar: the paper's tables, measured next to published."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli import program
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import MAX_THREADS, option

if TYPE_CHECKING:
    from experiments.steps import Pipeline
    from experiments.tables import TablePlan

PROG = "python -m experiments.reproduce"
FIGURES = "figures.json"
NOTHING_MEASURED = 1


@dataclass(frozen=True)
class ReproduceOptions:
    """Reproduce the paper's tables: every figure by its pipeline of encode, index, search and eval.

      python -m experiments.reproduce miracl --lang ar         MILCO and BM25 on Arabic MIRACL
      python -m experiments.reproduce sample --encoder mini    similar tables on the embedded sample, offline
      python -m experiments.reproduce --all                    every table of the paper

    Tables: sample, limit, miracl, miracl-hn (MTEB's hard negatives), alpha, pruning-top-k, pruning-mass, coverage,
    lengths, mteb-v2, mldr, mkqa, neuclir, beir, latency.

    An interrupted run resumes: existing vectors, indexes and runs in --output are used. A figure whose data cannot be
    downloaded is marked, the others are measured. At the end, --output has a page of all tables, index.html.

    A figure is "reproduced" up to 0.5 points from the published one, "near" up to 2, "differs" beyond. The rest of the
    paper's table is quoted. Pruning, alpha, latency, lengths and coverage are analyses of milco.

    The exit code is 0 if at least one figure was measured, 1 if none could be.
    """

    tables: tuple[str, ...] = option((), positional=True, metavar="TABLE", help="tables to reproduce")
    all: bool = option(False, help="all tables of the paper")
    lang: tuple[str, ...] = option(
        (), metavar="COLUMN", help="only these columns: languages, datasets of beir, tasks of mteb-v2"
    )
    systems: tuple[str, ...] = option(
        (),
        help="rows: milco bm25 bm25-pieces milco+bm25 m3-sparse m3-dense qwen3 splade opensearch 2 3 4 5 6 "
        "milco-dense milco-dense-aligned (default: milco bm25, for the sample their fusion too)",
    )
    encoder: str = option(DEFAULT_ENCODER, help="MILCO's checkpoint: hub name, directory, or mini (embedded)")
    checkpoints: tuple[str, ...] = option(
        (),
        metavar="NAME=PATH",
        help="checkpoints of systems 2 to 6, milco-dense, milco-dense-aligned; others than the published ones of m3, "
        "qwen3, splade, opensearch",
    )
    local: tuple[str, ...] = option(
        (), metavar="NAME=PATH", help="local copies of a benchmark's files (limit=copies/LIMIT), or of one corpus'"
    )
    output: Path = option(
        Path("reproduction"), metavar="DIR", help="directory of vectors, indexes, runs, records and the page"
    )
    device: str = option("auto", metavar="DEVICE", help="encoders' device: auto, cpu, cuda or cuda:N")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that index and search")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if nothing could be measured, 2 for bad input, 130 for Ctrl-C."""
    interrupted = "finished steps are kept, the same command resumes"
    return run_command(PROG, ReproduceOptions, reproduce_command, argv, interrupted)


def reproduce_command(options: ReproduceOptions) -> int:
    """Measure, print the tables and write the page; return the exit code.

    Raises MilcoError before anything is written for an unknown name, and for a local copy that no table reads.
    """
    from experiments.actions import ACTIONS
    from experiments.conditions import find_table
    from experiments.page import reproduction_text, write_page
    from experiments.records import DONE
    from experiments.runner import Runner, assemble, claim_directory
    from experiments.tables import Combination, plan_all, plan_tables
    from milco_pyserini.io.files import write_json

    pipeline = _open_pipeline(options)
    plans = plan_all(pipeline, options.systems, options.lang) if options.all else []
    for name in dict.fromkeys(options.tables):
        plans += plan_tables(find_table(name), pipeline, options.systems, options.lang)
    _validate_copies(options.local, plans)
    encoder = claim_directory(pipeline, plans)
    runner = Runner(options.output, ACTIONS)
    # Means and differences are counted as on the page; they follow from the others.
    cells = {cell.key: cell for plan in plans for cell in plan.cells if not cell.is_quoted}
    results = [
        runner.measure(cell, f"[{number}/{len(cells)}]")
        for number, cell in enumerate(cells.values(), 1)
        if not isinstance(cell.source, Combination)
    ]
    measured = sum(result.status == DONE for result in results)
    lacking = f"; {len(results) - measured:,} could not be measured" if measured < len(results) else ""
    log(f"{counted(len(cells), 'cell')} of {counted(len(plans), 'table')}{lacking}")
    reproduction = assemble(pipeline, runner, plans, encoder)
    write_json(options.output / FIGURES, reproduction.to_json())
    page = write_page(reproduction, options.output)
    sys.stdout.write(reproduction_text(reproduction, [plan.name for plan in plans]))
    log(f"Wrote {page} (vectors/ and indexes/ next to it may be removed)")
    return 0 if measured else NOTHING_MEASURED


def _open_pipeline(options: ReproduceOptions) -> "Pipeline":
    """Raises MilcoError for options that do not fit together, unknown names and missing paths."""
    from experiments.conditions import resolve_checkpoints
    from experiments.steps import Pipeline
    from milco_pyserini.corpora.catalog import BENCHMARKS, CORPORA, TOPICS, has_copies
    from milco_pyserini.defaults import MINI, check_local_name
    from milco_pyserini.encode.devices import validate_devices
    from milco_pyserini.errors import unknown_name

    if options.all and options.tables:
        raise MilcoError("--all selects every table: omit the others")
    if not (options.all or options.tables):
        raise MilcoError("no table is given: name one, such as miracl, or pass --all")
    validate_devices(options.device)
    checkpoints = resolve_checkpoints(options.encoder, _pairs("--checkpoints", options.checkpoints, "2=models/pivot"))
    for name in checkpoints.values():
        if name != MINI:
            check_local_name(name)
    copies = _pairs("--local", options.local, "limit=copies/LIMIT")
    for name, path in copies.items():
        if name not in BENCHMARKS and name not in CORPORA and name not in TOPICS:
            raise unknown_name("benchmark", name, BENCHMARKS, "A name of a corpus or of topics is valid, too.")
        if not Path(path).exists():
            raise MilcoError(f"--local {name}={path}: the path does not exist")
        if not has_copies(name):
            raise MilcoError(
                f"--local {name}={path}: {name} is not read from a copy",
                f"Set IR_DATASETS_HOME={path} for a copy of ir_datasets' directory.",
            )
    return Pipeline(options.output, checkpoints, copies, options.device, options.threads)


def _pairs(option: str, values: Sequence[str], example: str) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, _, path = value.partition("=")
        if not (name and path):
            raise MilcoError(f"{option} expects NAME=PATH, such as {example}, got {value!r}")
        pairs[name] = path
    return pairs


def _validate_copies(copies: Sequence[str], plans: "Sequence[TablePlan]") -> None:
    """Raise MilcoError for a copy that nothing reads: figures would be of other files than the user meant."""
    from milco_pyserini.corpora.catalog import BENCHMARKS

    read = {each.name for plan in plans for cell in plan.cells for step in cell.steps for each in step.requires}
    for text in copies:
        name, _, path = text.partition("=")
        benchmark = BENCHMARKS.get(name)
        names = (name, *benchmark.corpora, *benchmark.topics) if benchmark else (name,)
        if read and read.isdisjoint(f"{each}@{path}" for each in names):
            raise MilcoError(f"--local {text}: none of the tables reads {name}")


if __name__ == "__main__":
    raise SystemExit(program.start(main, PROG))
