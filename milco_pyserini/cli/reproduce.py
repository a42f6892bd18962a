"""milco_pyserini.eval reproduce miracl --lang ar: the paper's figures again, measured beside published."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, say
from milco_pyserini.defaults import DEFAULT_ENCODER, MINI, check_local_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import MAX_THREADS, option

if TYPE_CHECKING:
    from milco_pyserini.reproduce.cells import Table
    from milco_pyserini.reproduce.roads import Roads
    from milco_pyserini.reproduce.runner import Runner

FORMAT_VERSION = 1
MARK = "reproduction.json"
FIGURES = "figures.json"
NOTHING_MEASURED = 1


@dataclass(frozen=True)
class ReproduceOptions:
    """Measure the paper's figures again, each by the whole road: encode, index, search, eval.

      reproduce miracl --lang ar         MILCO and BM25 on Arabic MIRACL, beside the paper's figures
      reproduce sample --encoder mini    the same kinds of tables on the embedded sample, offline, in minutes
      reproduce --all                    every table that can be had

    Tables are sample, limit, miracl, miracl-hn (MTEB's hard negatives), alpha, pruning-top-k, pruning-mass, coverage,
    lengths, mteb-v2, mldr, mkqa, neuclir, beir and latency. Every cell has a record and shows its commands; what stands
    there is not made again, so that the same command goes on, over days. What cannot be reached is marked, the others
    go on. A page of everything in --output, index.html there, is made at the end.

    A cell is "reproduced" up to 0.5 points from the published figure, "near" up to 2, and else "differs". The rest of
    the paper's table stands beside it, quoted. Pruning, alpha, latency, lengths and coverage are analyses of milco; of
    the sample's tables they are left out where --systems does not name it.

    The exit code is 0 if anything that was asked for could be measured, 1 if nothing could.
    """

    tables: tuple[str, ...] = option((), positional=True, metavar="TABLE", help="tables to reproduce")
    all: bool = option(False, help="all tables but the sample's")
    lang: tuple[str, ...] = option((), help="these columns only: languages, or data sets of beir, tasks of mteb-v2")
    systems: tuple[str, ...] = option(
        (),
        help="rows: milco bm25 bm25-pieces milco+bm25 m3-sparse m3-dense qwen3 splade 2 3 4 5 6 "
        "milco-dense milco-dense-aligned (default: milco bm25, of the sample their fusion too)",
    )
    encoder: str = option(DEFAULT_ENCODER, help="MILCO's checkpoint: hub name, directory, or mini (embedded)")
    checkpoints: tuple[str, ...] = option(
        (),
        metavar="NAME=PATH",
        help="of configurations 2 to 6, milco-dense, milco-dense-aligned; other ones of m3, qwen3, splade",
    )
    local: tuple[str, ...] = option(
        (),
        metavar="NAME=PATH",
        help="copies of publishers' files, of a benchmark (limit=copies/LIMIT) or one of its names",
    )
    output: Path = option(Path("reproduction"), help="directory of everything: vectors, indexes, runs, cells, the page")
    device: str = option("auto", help="for encoders: auto, cpu, cuda or cuda:N")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that index and search")


def reproduce(prog: str, argv: Sequence[str], interrupted: str) -> int:
    """Run the command; returns 0, 1 if nothing could be measured, 2 for bad input, 130 for Ctrl-C."""
    measured: list[bool] = []
    code = run_command(
        prog,
        ReproduceOptions,
        lambda options: measured.append(reproduce_command(options)),
        argv,
        interrupted,
    )
    return NOTHING_MEASURED if measured == [False] else code


def reproduce_command(options: ReproduceOptions) -> bool:
    """Measure, print, make the page; returns whether anything could be measured.

    Raises MilcoError for a name that is unknown, and for a copy that no table reads, before anything is written.
    """
    from milco_pyserini.io.files import write_json
    from milco_pyserini.reproduce.assembly import assemble
    from milco_pyserini.reproduce.groups import all_tables, chosen_tables, find_group
    from milco_pyserini.reproduce.page import write_page
    from milco_pyserini.reproduce.records import to_json
    from milco_pyserini.reproduce.runner import Runner
    from milco_pyserini.reproduce.text import reproduction_text

    roads = _roads(options)
    chosen = all_tables(roads, options.systems, options.lang) if options.all else []
    for name in dict.fromkeys(options.tables):
        chosen += chosen_tables(find_group(name), roads, options.systems, options.lang)
    _check_copies(options.local, chosen)
    encoder = _take(options.output, roads, chosen)
    runner = Runner(options.output)
    measured = _measure(chosen, runner)
    reproduction = assemble(roads, runner, chosen, encoder)
    write_json(options.output / FIGURES, to_json(reproduction))
    page = write_page(reproduction, options.output)
    sys.stdout.write(reproduction_text(reproduction, [table.name for table in chosen]))
    say(f"page in {page}; vectors/ and indexes/ beside it may be removed")
    return measured


def _measure(tables: "Sequence[Table]", runner: "Runner") -> bool:
    """Whether any cell is measured."""
    from milco_pyserini.reproduce.records import DONE

    # Means and differences are cells too, as on the page; they follow from the others.
    cells = list({cell.key: cell for table in tables for cell in table.cells if not cell.is_fact}.values())
    found = [
        runner.measure(cell, f"[{number}/{len(cells)}]").status
        for number, cell in enumerate(cells, 1)
        if not cell.parts
    ]
    measured = found.count(DONE)
    beside = "" if measured == len(found) else f", {len(found) - measured:,} of which could not be measured"
    say(f"{counted(len(cells), 'cell')} of {counted(len(tables), 'table')}{beside}")
    return measured > 0


def _roads(options: ReproduceOptions) -> "Roads":
    """How everything is made. Raises MilcoError for options that do not fit together."""
    from milco_pyserini.encode.devices import check_device_name, device_names
    from milco_pyserini.reproduce.roads import Roads
    from milco_pyserini.reproduce.systems import read_checkpoints

    if options.all == bool(options.tables):
        raise MilcoError("give tables, such as reproduce miracl, or --all" + (", not both" if options.all else ""))
    for name in device_names(options.device):
        check_device_name(name)
    checkpoints = read_checkpoints(options.encoder, options.checkpoints)
    for name in checkpoints.values():
        if name != MINI:
            check_local_name(name)
    return Roads(options.output, checkpoints, _copies(options.local), options.device, options.threads)


def _copies(given: Sequence[str]) -> dict[str, str]:
    """Name -> place of NAME=PATH. Raises MilcoError if a name is unknown, or nothing is there."""
    from milco_pyserini.corpora.catalog import BENCHMARKS, CORPORA, TOPICS
    from milco_pyserini.errors import unknown_name

    found = {}
    for text in given:
        name, _, place = text.partition("=")
        if not (name and place):
            raise MilcoError(f"--local {text!r}: written NAME=PATH, such as limit=copies/LIMIT")
        if name not in BENCHMARKS and name not in CORPORA and name not in TOPICS:
            raise unknown_name("benchmark", name, BENCHMARKS, "A name of a corpus or of topics will do, too.")
        if not Path(place).exists():
            raise MilcoError(f"--local {name}: {place} is not there")
        found[name] = place
    return found


def _check_copies(given: Sequence[str], tables: "Sequence[Table]") -> None:
    """Raises MilcoError for a copy that nothing reads: a figure would be of other files than was meant."""
    from milco_pyserini.corpora.catalog import BENCHMARKS

    # A word for each name that is read, with the place of its copy.
    read = {word for table in tables for cell in table.cells for step in cell.steps for word in step.argv}
    for text in given:
        name, _, place = text.partition("=")
        family = BENCHMARKS.get(name)
        names = (name, *family.corpora, *family.topics) if family else (name,)
        if read and read.isdisjoint(f"{one}@{place}" for one in names):
            raise MilcoError(f"--local {text}: no table that was asked for reads {name}")


def _take(directory: Path, roads: "Roads", tables: "Sequence[Table]") -> str:
    """Mark a directory as one of ours, with the checkpoints that these tables need; returns MILCO's there.

    Records and vectors bear a system's short name, and figures of two checkpoints must not meet under one. Raises
    MilcoError if they would, or if the directory is another's.
    """
    from milco_pyserini.io.files import is_json_with, read_json, validate_output_directory, write_json
    from milco_pyserini.reproduce.roads import ENCODER
    from milco_pyserini.reproduce.systems import MILCO

    path = directory / MARK
    validate_output_directory(
        directory, True, lambda place: is_json_with(place / MARK, "format_version", "checkpoints")
    )
    before = read_json(path)["checkpoints"] if path.is_file() else {}
    needs = {need for table in tables for cell in table.cells for step in cell.steps for need in step.needs}
    used = {need.name for need in needs if need.kind == ENCODER}
    now = {key: {"name": name, "files": _fingerprint(name)} for key, name in roads.checkpoints.items() if name in used}
    for key in before.keys() & now.keys():
        if before[key] != now[key]:
            then = before[key]["name"]
            with_what = f"another state of {then}" if then == now[key]["name"] else f"{then}, not {now[key]['name']}"
            raise MilcoError(f"{directory} holds figures of {key} with {with_what}: choose another --output")
    write_json(path, {"format_version": FORMAT_VERSION, "checkpoints": before | now})
    return (before | now).get(MILCO, {"name": roads.checkpoints[MILCO]})["name"]


def _fingerprint(name: str) -> str | None:
    """Of a checkpoint given by path: names, sizes and times of its files, which tell that it was trained on."""
    path = Path(name)
    if not path.is_dir():
        return None
    digest = blake2b(digest_size=16)
    for file in sorted(path.rglob("*")):
        if file.is_file():
            stat = file.stat()
            digest.update(f"{file.relative_to(path)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
