"""python -m experiments.reproduce miracl --lang ar: the paper's tables, measured next to published."""

import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from experiments.cells import Cell, Key, plan_all, plan_table, quoted_cells
from experiments.report import Result, Results, draw_sizes, page_text, table_text
from experiments.steps import (
    ALWAYS,
    ANSWERS,
    AUTHORS,
    CORPUS,
    ENCODER,
    NEVER,
    QRELS,
    TOPICS,
    Pipeline,
    Source,
    Step,
    run,
)
from experiments.tables import MILCO, Table, find_table, paper
from milco_pyserini.cli import program
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.errors import MilcoError, Unreachable, unknown_name, validate_name
from milco_pyserini.io.files import (
    atomic_file,
    is_json_with,
    read_json,
    remove_directory,
    validate_output_directory,
    write_json,
)
from milco_pyserini.io.hub import only_cached
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.options import MAX_THREADS, option

PROG = "python -m experiments.reproduce"
NOTHING_MEASURED = 1
PAGE = "tables.md"
SIZES = "sizes.png"
# The checkpoints and copies that a directory's figures are of.
CLAIM = "reproduction.json"
# Bytes of a MILCO document of 130 tokens, by the paper's tables 572 terms: as JSONL 13.3 bytes a term (measured), in
# Lucene about 3. A dense vector: 1,024 float32. Other sparse encoders need less.
VECTOR_BYTES, INDEX_BYTES, DENSE_BYTES = 7600, 1800, 4100
# The hub's library retries for half a minute. After a failure it is asked again only after this time, in seconds: a
# long run should not give up everything that follows because the network was down for a moment.
RETRY_AFTER = 600.0


@dataclass(frozen=True)
class ReproduceOptions:
    """Reproduce the paper's tables: every figure by its pipeline of encode, index, search and eval.

      python -m experiments.reproduce miracl --lang ar         MILCO and BM25 on Arabic MIRACL
      python -m experiments.reproduce sample --encoder mini    similar tables on the embedded sample, offline
      python -m experiments.reproduce --all                    every table of the paper

    Tables: sample, limit, miracl, miracl-hn (MTEB's hard negatives), alpha, pruning-top-k, pruning-mass, coverage,
    lengths, mteb-v2, mldr, mkqa, neuclir, beir, latency.

    An interrupted run resumes: existing vectors, indexes and runs in --output are used. A figure whose data cannot be
    downloaded is left out with the reason, the others are measured. At the end, --output has all of them in tables.md,
    with the commands that made them. Pruning, alpha, latency, lengths and coverage are analyses of milco.

    The exit code is 0 if at least one figure was measured, 1 if none could be.
    """

    tables: tuple[str, ...] = option((), positional=True, metavar="TABLE", help="tables to reproduce")
    all: bool = option(False, help="all tables of the paper")
    lang: tuple[str, ...] = option(
        (), metavar="COLUMN", help="only these columns: languages, datasets of beir, tasks of mteb-v2"
    )
    systems: tuple[str, ...] = option(
        (),
        help="rows to measure: milco bm25 bm25-pieces milco+bm25 m3-sparse m3-dense m3-dense+sparse qwen3 splade "
        "opensearch 2 3 4 5 6 milco-dense milco-dense-aligned (default: milco bm25, for the sample their fusion too)",
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
    output: Path = option(Path("reproduction"), metavar="DIR", help="directory of vectors, indexes, runs and tables.md")
    lowercase: str = option(
        AUTHORS,
        choices=(AUTHORS, ALWAYS, NEVER),
        help="datasets lowercased for MILCO: authors (MIRACL's hard negatives, which their code lowercases), "
        "always or never",
    )
    drop_vectors: bool = option(False, help="remove the vectors of a corpus as soon as no figure needs them")
    device: str = option("auto", metavar="DEVICE", help="encoders' device: auto, cpu, cuda or cuda:N")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that index and search")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if nothing could be measured, 2 for bad input, 130 for Ctrl-C."""
    interrupted = "finished steps are kept, the same command resumes"
    return run_command(PROG, ReproduceOptions, reproduce_command, argv, interrupted)


def reproduce_command(options: ReproduceOptions) -> int:
    """Measure, print the tables and write tables.md; return the exit code.

    Raises MilcoError before anything is written for an unknown name, and for a local copy that no table reads.
    """
    pipeline = open_pipeline(options)
    plan = plan_all(pipeline, options.systems, options.lang) if options.all else []
    for name in dict.fromkeys(options.tables):
        plan += plan_table(find_table(name), pipeline, options.systems, options.lang)
    cells = {cell.key: cell for _, own in plan for cell in own}
    names = {table.name for table, _ in plan}
    reads = {source for cell in cells.values() for step in cell.pipeline() for source in step.reads}
    validate_copies(pipeline, reads)
    validate_space(options.output, cells.values(), options.drop_vectors)
    everything = claim_directory(pipeline, reads)

    runner = Runner()
    stores = last_uses(cells) if options.drop_vectors else {}
    results = {}
    for number, (key, cell) in enumerate(cells.items(), 1):
        results[key] = runner.measure(cell, f"[{number}/{len(cells)}]")
        for store in stores.get(key, ()):
            if store.exists():
                log(f"Removing {store}: no other figure needs it")
                remove_directory(store)
    lacking = sum(bool(result.reason) for result in results.values())
    missing = f"; {lacking:,} could not be measured" if lacking else ""
    log(f"{counted(len(cells), 'cell')} of {counted(len(names), 'table')}{missing}")

    tables = all_results(everything, results)
    sys.stdout.write("\n".join(table_text(*table) for table in tables if table[0].name in names))
    path = options.output / PAGE
    with atomic_file(path, "w") as file:
        file.write(page_text(tables, everything.checkpoints[MILCO]))
    log(f"Wrote {path} (vectors/ and indexes/ next to it may be removed)")
    draw_sizes(options.output / SIZES, tables)
    return 0 if any(result.figure is not None for result in results.values()) else NOTHING_MEASURED


def last_uses(cells: Mapping[Key, Cell]) -> dict[Key, list[Path]]:
    """Return each cell with the vectors of corpora that no later cell needs, to be removed after it."""
    last = {step.output: key for key, cell in cells.items() for step in cell.pipeline() if step.corpus}
    stores: dict[Key, list[Path]] = {}
    for store, key in last.items():
        stores.setdefault(key, []).append(store)
    return stores


def validate_space(directory: Path, cells: Iterable[Cell], drop_vectors: bool) -> None:
    """Raise MilcoError if the vectors and indexes that are still to be made will not fit on the disk."""
    steps = {step.output: step for cell in cells for step in cell.pipeline(missing=True) if step.corpus}
    vectors, indexes = [], 0
    for step in steps.values():
        documents = corpus_size(step.corpus or "")
        is_dense = "experiments.dense" in step.argv
        vectors.append(documents * (DENSE_BYTES if is_dense else VECTOR_BYTES))
        indexes += 0 if is_dense else documents * INDEX_BYTES
    needed = (indexes + (max(vectors, default=0) if drop_vectors else sum(vectors))) / 1e9
    place = next(place for place in (directory.absolute(), *directory.absolute().parents) if place.exists())
    free = shutil.disk_usage(place).free / 1e9
    if needed > free:
        fix = "" if drop_vectors else ", or pass --drop-vectors, which keeps the vectors of one corpus at a time"
        raise MilcoError(
            f"vectors and indexes need about {needed:,.0f} GB, {directory} has {free:,.0f} GB free: choose another "
            f"--output, or fewer columns with --lang{fix}"
        )


def corpus_size(name: str) -> int:
    """Return the published number of documents of a corpus; 0 if it is unknown."""
    from milco_pyserini.corpora.catalog import CORPORA

    corpus = CORPORA.get(name.partition("@")[0])
    return (corpus.size if corpus else 0) or 0


class Runner:
    """Measures cells. A step that failed, or a source that cannot be had, is not tried again."""

    def __init__(self) -> None:
        self._errors: dict[Step | Source, MilcoError | None] = {}
        self._reported: set[str] = set()
        self._offline_until = 0.0

    def measure(self, cell: Cell, place: str = "") -> Result:
        """Run the steps of a cell whose output does not exist; return its figure, or why there is none.

        Args:
            place: Shown before the cell's name if there is something to do, such as "[3/40]".
        """
        name = f"{place} {cell.table}: {cell.row}, {cell.column}".lstrip()
        figure, reason = None, cell.lack
        try:
            if not reason:
                missing = cell.pipeline(missing=True)
                # Days of encoding should not end with topics that cannot be downloaded.
                for source in dict.fromkeys(source for step in missing for source in step.reads):
                    self._try(self._open, source)
                if missing:
                    log(name)
                for step in missing:
                    self._try(run, step)
                figure = cell.figure()
        except MilcoError as error:
            reason = " ".join(str(error).split())
        # Many cells lack the same data: once is enough.
        if reason and reason not in self._reported:
            self._reported.add(reason)
            log(f"{name}: not measured: {reason}")
        return Result(cell, figure, reason)

    def _try(self, call: Callable[[Any], None], what: Any) -> None:
        """Call for a step or source once. Raises the error of that one time; one cell must not end the run of all."""
        if what not in self._errors:
            self._errors[what] = None
            try:
                call(what)
            except MilcoError as error:
                self._errors[what] = error
            except Exception as error:
                traceback.print_exc()
                self._errors[what] = MilcoError(f"{type(error).__name__}: {error}")
        if (known := self._errors[what]) is not None:
            raise known

    def _open(self, source: Source) -> None:
        try:
            with only_cached(time.monotonic() < self._offline_until):
                open_source(*source)
        except Unreachable:
            self._offline_until = time.monotonic() + RETRY_AFTER
            raise
        except OSError as error:
            raise MilcoError(str(error)) from None


def open_source(kind: str, name: str) -> None:
    """Read just enough to know that something is available. Raises MilcoError or OSError if it is not."""
    from milco_pyserini import corpora

    opened: dict[str, Callable[[str], Any]] = {
        CORPUS: lambda name: next(iter(corpora.open_corpus(name)), None),
        TOPICS: lambda name: next(iter(corpora.open_topics(name)), None),
        QRELS: corpora.open_qrels,
        ANSWERS: corpora.open_answers,
        ENCODER: lambda name: Checkpoint.open(name).fetch(),
    }
    opened[kind](name)


def all_results(pipeline: Pipeline, results: dict[Key, Result]) -> list[Results]:
    """Return the tables with these results, the figures that earlier runs left in the directory, and quoted ones."""
    tables: dict[str, tuple[Table, dict[Key, Result]]] = {}
    for table in paper().tables.values():
        # All systems together are other latency tables than the usual ones.
        for systems in ((), list(paper().systems)):
            for own, cells in plan_table(table, pipeline, systems):
                shown = tables.setdefault(own.name, (own, {}))[1]
                for cell in cells:
                    result = results.get(cell.key) or shown.get(cell.key) or _earlier(cell)
                    if result is not None:
                        shown[cell.key] = result
    for table, shown in tables.values():
        for cell in quoted_cells(table, [result.cell for result in shown.values()]):
            shown[cell.key] = Result(cell, None)
    return [(table, shown) for table, shown in tables.values() if shown]


def _earlier(cell: Cell) -> Result | None:
    try:
        figure = cell.figure()
    except MilcoError:
        return None
    return None if figure is None else Result(cell, figure)


def claim_directory(pipeline: Pipeline, reads: Iterable[Source]) -> Pipeline:
    """Record in the directory which checkpoints and local copies its figures are of; return a pipeline with all.

    Vectors and runs carry the short name of a system and of a dataset: figures of two checkpoints, or of two copies,
    must not meet under it. Raises MilcoError if they would, or if the directory is not a reproduction's.
    """
    directory, path = pipeline.directory, pipeline.directory / CLAIM
    validate_output_directory(directory, True, lambda place: is_json_with(place / CLAIM, "checkpoints"))
    # Until there was a choice, all texts were lowercased.
    earlier = {"lowercase": ALWAYS} | read_json(path) if path.is_file() else {}
    claim: dict[str, Any] = {"checkpoints": {}, "local": {}, "lowercase": pipeline.lowercase} | earlier
    if claim["lowercase"] != pipeline.lowercase:
        raise MilcoError(
            f"{directory} has figures with --lowercase {claim['lowercase']}, not {pipeline.lowercase}",
            hint="Choose another --output.",
        )
    encoders = {name for kind, name in reads if kind == ENCODER}
    used = {key: name for key, name in pipeline.checkpoints.items() if name in encoders}
    for kind, names in (("checkpoints", used), ("local", pipeline.local)):
        for key, name in names.items():
            now = {"name": name, "files": _fingerprint(Path(name))}
            before = claim[kind].setdefault(key, now)
            if before != now:
                old = before["name"]
                other = f"another version of {old}" if name == old else f"{old}, not {name}"
                raise MilcoError(f"{directory} has figures of {key} with {other}", hint="Choose another --output.")
    write_json(path, claim)
    checkpoints, local = ({key: one["name"] for key, one in claim[kind].items()} for kind in ("checkpoints", "local"))
    return Pipeline(directory, {**pipeline.checkpoints, **checkpoints}, local, lowercase=pipeline.lowercase)


def _fingerprint(path: Path) -> str | None:
    """Return a hash of the names, sizes and times of a directory's files; None if there is no such directory."""
    files = [(file, file.stat()) for file in sorted(path.rglob("*")) if file.is_file()]
    lines = "".join(f"{file.relative_to(path)} {stat.st_size} {stat.st_mtime_ns}\n" for file, stat in files)
    return blake2b(lines.encode(), digest_size=16).hexdigest() if path.is_dir() else None


def open_pipeline(options: ReproduceOptions) -> Pipeline:
    """Raises MilcoError for options that do not fit together, unknown names and missing paths."""
    from milco_pyserini.corpora.catalog import BENCHMARKS, CORPORA, TOPICS, has_copies
    from milco_pyserini.encode.devices import validate_devices

    if options.all and options.tables:
        raise MilcoError("--all selects every table: omit the others")
    if not (options.all or options.tables):
        raise MilcoError("no table is given: name one, such as miracl, or pass --all")
    validate_devices(options.device)
    given = _pairs("--checkpoints", options.checkpoints, "2=models/pivot")
    if MILCO in given:
        raise MilcoError(f"--checkpoints {MILCO}={given[MILCO]}: MILCO's checkpoint is given as --encoder")
    known = [key for system in paper().systems.values() for key in system.checkpoints if key != MILCO]
    for name in given:
        validate_name("checkpoint", name, dict.fromkeys(known))
    checkpoints = {**paper().checkpoints, MILCO: options.encoder, **given}
    for name in checkpoints.values():
        Checkpoint.open(name)
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
    return Pipeline(options.output, checkpoints, copies, options.device, options.threads, options.lowercase)


def validate_copies(pipeline: Pipeline, reads: Iterable[Source]) -> None:
    """Raise MilcoError for a copy that nothing reads: figures would be of other files than the user meant."""
    from milco_pyserini.corpora.catalog import BENCHMARKS

    names = {name for _, name in reads}
    for key, path in pipeline.local.items():
        benchmark = BENCHMARKS.get(key)
        own = (key, *benchmark.corpora, *benchmark.topics) if benchmark else (key,)
        if names and names.isdisjoint(f"{name}@{path}" for name in own):
            raise MilcoError(f"--local {key}={path}: none of the tables reads {key}")


def _pairs(option: str, values: Sequence[str], example: str) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, _, path = value.partition("=")
        if not (name and path):
            raise MilcoError(f"{option} expects NAME=PATH, such as {example}, got {value!r}")
        pairs[name] = path
    return pairs


if __name__ == "__main__":
    raise SystemExit(program.start(main, PROG))
