"""Inject faults into commands: kills, full disks, damaged, mixed and replaced files, invalid inputs and checkpoints.

python benchmarks/faults.py
python benchmarks/faults.py --suite kills --case encode "index exact" --every 5

A command runs in a process forked from this one, on small generated inputs. An audit hook sees every file operation of
Python in its output directory: files opened for writing, created and removed directories, renames, removals and fsync.
Operations of Java, Rust and C++ are covered by kills at moments spread over the run, and by limits on file sizes, which
fail like a full disk.

kills, disk: after each fault the same command runs again. It must succeed and leave the same bytes as two runs without
    faults (where these two differ, a file of the same name) and no other files, hidden ones included. In between, an
    output under its final name must be complete, and a full disk must be reported in one line with the path and the
    fix.
flips: flips single bits of an output, and truncates, empties, extends and removes its files, one at a time. milco
    verify must name the file; reading the output must give the same results or an error of one line.
manifests: removes fields of a manifest, or changes their types; its checksum is right.
copied: copies an index over an older one, as rsync and tar do. A search must answer from the new one or name what to
    remove, and so must milco verify.
updated: flips bits of an index and updates it. The update, or milco verify after it, must report the damage.
opened: replaces an index by its update between two steps of a search that opens it. The hits must be those of one of
    the two.
rerun: runs a command again that has succeeded, next to leftovers of a killed run. It must succeed, change nothing and
    remove the leftovers.
memory: kills pairs of agents that write one memory of milco serve at random moments, 100 agents in all. Notes that were
    acknowledged must be there, those that were forgotten must not, and the memory must be intact.
adapt: kills milco adapt at 20 random moments, from reading to the last file, and runs it again. The model, its card and
    its report must be those of a run that was not killed. The model is kept whether it has gained or not.
planted: runs commands that start other processes in a directory with modules that have the names of others. None may
    be imported.
inputs: runs commands on the inputs of broken_inputs.py. A command must end in time with exit code 2 and one line that
    names the input, and leave no files.
server: searches an index of a server that plays the answers of evil_server.py, explains its hits, fills and serves it.
    A command must end in time and memory, with the results of an honest server or with exit code 2 and one line that
    names the server; no secret may be printed, stored or sent to a host that the user did not name.
The suites of attack_faults.py are described there: connections, ranges, values, site, headers, impacts and plugins.
checkpoints: loads those of broken_checkpoints.py. Each must be rejected in one line that names it, before it encodes.

The exit code is 1 if a fault was not handled. SUITES holds the suites that run a Case, STATE_SUITES those with commands
of their own.
"""

import asyncio
import contextlib
import errno
import itertools
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from attack_faults import ATTACKS, SELF_CONTAINED, Row
from broken_checkpoints import CHECKPOINTS, PIECES, Change, load_checkpoint, write_checkpoint
from broken_inputs import COMMANDS, InvalidInput, invalid_inputs
from server_faults import server_trials

from milco_pyserini.cli.main import MAINS
from milco_pyserini.cli.main import main as milco
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import PARTIAL
from milco_pyserini.io.manifest import read_checked, write_checked
from milco_pyserini.options import option

SEED = 20261
_COMMANDS = ("encode", "eval", "index", "search", "train")
_NEEDS_SPACE = ("open", "os.mkdir", "fsync")
_OPERATIONS = (*_NEEDS_SPACE, "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_COUNT_PREFIX = b"\0operations "
_SIZE_LIMITS = (0.0, 0.1, 0.5, 0.9)
INPUTS, CHECKPOINT_SUITE = "inputs", "checkpoints"
STATE_SUITE_NAMES = ("copied", "updated", "opened", "rerun", "planted", "memory", "adapt", "server", *ATTACKS)
SUITE_NAMES = ("kills", "disk", "flips", "manifests", *STATE_SUITE_NAMES, INPUTS, CHECKPOINT_SUITE)
# Limits within which an invalid input must be rejected: seconds, and bytes of memory.
_TIMEOUT = 120.0
_MEMORY = 16 << 30
# Pairs of agents that are killed, and the most steps of the first of a pair.
_PAIRS, _STEPS = 50, 6
# Adaptations that are killed.
_ADAPTATIONS = 20
_OTHER_VALUES: tuple[Any, ...] = (None, "x", 1.5, -1, [], {}, True, [1], 10**15)


@dataclass(frozen=True)
class FaultCase:
    """A command that writes `out` in an empty directory.

    Attributes:
        arguments: command line; {inputs} is the directory of inputs.
        resumes: the command resumes, so that its output may be incomplete after a fault.
        replaces: an input that is copied to `out` before the run.
        every: faults are injected at every n-th file operation.
        moments: number of kills spread over the time of a run.
        varies: directories of `out` whose content differs between runs.
        reads: a command that reads `out` and writes `again`.
    """

    name: str
    arguments: str
    resumes: bool = False
    replaces: str = ""
    every: int = 1
    moments: int = 0
    varies: tuple[str, ...] = ()
    reads: str = ""


_TERMS = "search --index out --topics {inputs}/topics --output again"
CASES = (
    FaultCase(
        "encode",
        "encode --corpus {inputs}/corpus.jsonl --encoder mini --part-size 10 --output out",
        resumes=True,
        reads="index --vectors out --engine exact --output again",
    ),
    FaultCase("index exact", "index --vectors {inputs}/vectors --engine exact --output out", reads=_TERMS),
    FaultCase(
        "index exact --overwrite",
        "index --vectors {inputs}/vectors --engine exact --output out --overwrite",
        replaces="other.exact",
    ),
    FaultCase(
        "index lucene",
        "index --vectors {inputs}/vectors --engine lucene --output out",
        every=4,
        moments=8,
        reads=_TERMS,
    ),
    FaultCase(
        "index seismic",
        "index --vectors {inputs}/vectors --engine seismic --output out",
        every=4,
        moments=8,
        reads=_TERMS,
    ),
    FaultCase("index update exact", "index update --index out --vectors {inputs}/more", replaces="index"),
    FaultCase("index update exact --delete", "index update --index out --delete {inputs}/ids0", replaces="index"),
    FaultCase("search", "search --index {inputs}/index --topics {inputs}/topics --output out"),
    FaultCase(
        "train sap",
        "train sap --preset mini-sap --model mini --bitext {inputs}/de-en.tsv --teacher lexical --output out --steps 4 "
        "--save-steps 2 --batch-size 4 --log-steps 2 --device cpu",
        resumes=True,
        every=16,
        varies=("tensorboard",),
    ),
)


@dataclass(frozen=True)
class FaultOptions:
    """Inject faults into commands and count those that are not handled."""

    suite: tuple[str, ...] = option(
        (), choices=SUITE_NAMES, metavar="NAME", help=f"{', '.join(SUITE_NAMES)} (default: all)"
    )
    case: tuple[str, ...] = option(
        (),
        choices=tuple(case.name for case in CASES),
        metavar="NAME",
        help="cases, such as 'index exact' (default: all)",
    )
    every: int = option(1, minimum=1, metavar="N", help="inject only every N-th fault")


class Trial(NamedTuple):
    """An injected fault and how the command failed to handle it; empty if it was handled."""

    fault: str
    problem: str


class CommandResult(NamedTuple):
    """Exit code (negative for a signal), output, number of file operations, seconds, and peak memory of a command."""

    code: int
    printed: str
    operations: int
    seconds: float
    peak: int


@dataclass(frozen=True)
class Reference:
    """Runs of a case without faults; tree: content of all files by path, None where it varies."""

    inputs: Path
    tree: dict[str, bytes | None]
    operations: int
    seconds: float


# Called before each file operation with its name, its path and its number.
Fault = Callable[[str, str, int], None]


def killing(number: int) -> Fault:
    """Return a fault that kills the command before a file operation."""

    def kill(name: str, path: str, n: int) -> None:
        if n == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def without_space(number: int) -> Fault:
    """Return a fault that lets all operations that need space fail from a file operation on."""

    def fill(name: str, path: str, n: int) -> None:
        if n >= number and name in _NEEDS_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([path] if path else []))

    return fill


def kills(case: FaultCase, reference: Reference, every: int) -> Iterator[Trial]:
    """Kill a command before each file operation and at moments spread over a run."""
    for number in range(1, reference.operations + 1, case.every * every):
        yield inject(case, reference, f"killed before operation {number}", after_kill, fault=killing(number))
    for number in range(1, case.moments + 1, every):
        moment = reference.seconds * number / (case.moments + 1)
        yield inject(case, reference, f"killed after {moment:.1f} s", after_kill, moment=moment)


def disk(case: FaultCase, reference: Reference, every: int) -> Iterator[Trial]:
    """Fail all operations that need space from each operation on, and limit file sizes."""
    for number in range(1, reference.operations + 1, case.every * every):
        yield inject(case, reference, f"disk full at operation {number}", after_full, fault=without_space(number))
    largest = max(len(content or b"") for content in reference.tree.values())
    for part in _SIZE_LIMITS[::every]:
        limit = int(part * largest)
        yield inject(case, reference, f"files of at most {limit:,} bytes", after_full, limit=limit)


def flips(case: FaultCase, reference: Reference, every: int) -> Iterator[Trial]:
    """Flip 10 single bits of each output file, and truncate, extend, remove and empty it."""
    with _complete_output(case, reference) as (workdir, expected):
        for path in sorted(
            path for path in (workdir / "out").rglob("*") if path.is_file() and path.name != "write.lock"
        ):
            content, draw = path.read_bytes(), random.Random(SEED)
            damages: dict[str, bytes | None] = {}
            for _ in range(10 if content else 0):
                bit, changed = draw.randrange(8 * len(content)), bytearray(content)
                changed[bit // 8] ^= 1 << bit % 8
                damages[f"bit {bit:,} flipped"] = bytes(changed)
            damages |= {"truncated": content[: len(content) // 2], "extended": content + b"\0", "removed": None}
            damages |= {"emptied": b""} if content else {}
            for what, damaged in list(damages.items())[::every]:
                path.unlink()
                if damaged is not None:
                    path.write_bytes(damaged)
                fault, ended = f"{path.relative_to(workdir)}, {what}", _run(["verify", "out"], workdir)
                found = ended.code == 2 and path.name in ended.printed
                yield Trial(f"{fault}, verified", "" if found else f"not detected: {_last_line(ended)}")
                yield Trial(f"{fault}, read", _misread(case, reference, workdir, expected))
            path.write_bytes(content)


def manifests(case: FaultCase, reference: Reference, every: int) -> Iterator[Trial]:
    """Remove each field of a manifest, and replace it by values of other types."""
    with _complete_output(case, reference) as (workdir, _):
        manifest = read_checked(workdir / "out" / "manifest.json")
        changes = []
        for section in ("", "vectors", "texts"):
            fields: Any = manifest if not section else manifest.get(section)
            for key in fields if isinstance(fields, dict) else ():
                others: list[dict] = [{name: value for name, value in fields.items() if name != key}]
                others += [fields | {key: value} for value in _OTHER_VALUES]
                where = f"{section}.{key}".removeprefix(".")
                changes += [(where, manifest | {section: other} if section else other) for other in others]
        for where, changed in changes[::every]:
            write_checked(workdir / "out" / "manifest.json", changed)
            yield Trial(f"{where} changed", _misread(case, reference, workdir, None))


SUITES = {"kills": kills, "disk": disk, "flips": flips, "manifests": manifests}


def copied(workdir: Path, inputs: Path) -> Iterator[tuple[str, Trial]]:
    """Copy a new index over one that was built of other documents and updated 0 to 2 times."""
    for engine in ("lucene", "qdrant", "exact"):
        new = _build(workdir / engine, inputs / "vectors", engine)
        for count in range(3 if engine in _UPDATED else 1):
            old = _build(workdir / f"{engine}{count}", inputs / "more", engine)
            for number in range(count):
                _milco(workdir, f"index update --index {old.name} --delete {inputs}/ids{number}")
            yield engine, _mixed(workdir, f"over one with {counted(count, 'update')}", new, old, inputs)
    sharded = _build(workdir / "sharded", inputs / "vectors", "exact", shards=2)
    yield "exact", _mixed(workdir, "shards over one", sharded, _build(workdir / "o", inputs / "more", "exact"), inputs)
    old = _build(workdir / "old", inputs / "more", "exact", shards=2)
    yield "exact", _mixed(workdir, "over shards", workdir / "exact", old, inputs)


def updated(workdir: Path, inputs: Path) -> Iterator[tuple[str, Trial]]:
    """Flip single bits of the largest files of an index, then update it."""
    for engine in _UPDATED:
        intact = _build(workdir / engine, inputs / "vectors", engine)
        draw = random.Random(SEED)
        # Without the zeros that fill Qdrant's files.
        contents = {path: path.read_bytes().rstrip(b"\0") for path in intact.rglob("*") if path.is_file()}
        files = sorted((path for path in contents if contents[path]), key=lambda path: -path.stat().st_size)
        for file in files[:8]:
            damaged = Path(shutil.copytree(intact, workdir / "damaged")) / file.relative_to(intact)
            content = contents[file]
            place = draw.randrange(len(content))
            with damaged.open("r+b") as handle:
                handle.seek(place)
                handle.write(bytes([content[place] ^ 1 << draw.randrange(8)]))
            command = f"index update --index damaged --delete {inputs}/ids0"
            reported = _run(command.split(), workdir).code == 2 or _run(["verify", "damaged"], workdir).code == 2
            problem = "" if reported else "the damage has a new checksum"
            yield engine, Trial(f"{file.relative_to(intact)}, bit of byte {place:,} flipped", problem)
            shutil.rmtree(workdir / "damaged")


def opened(workdir: Path, inputs: Path) -> Iterator[tuple[str, Trial]]:
    """Replace an index while a search opens it: before its files are compared, and before they are opened."""
    from milco_pyserini.index import Index, find_engine

    search = f"search --index out --topics {inputs}/topics --k 1000 --output again"
    for engine in ("lucene", "qdrant", "exact"):
        old = _build(workdir / f"{engine}-old", inputs / "vectors", engine)
        new = Path(shutil.copytree(old, workdir / f"{engine}-new"))
        if engine in _UPDATED:
            _milco(workdir, f"index update --index {new.name} --vectors {inputs}/more")
        else:
            new = _build(workdir / f"{engine}-more", inputs / "more", engine)
        answers = []
        for index in (old, new):
            shutil.copytree(index, workdir / "out")
            _milco(workdir, search)
            answers.append((workdir / "again").read_bytes())
            shutil.rmtree(workdir / "out")
            (workdir / "again").unlink()
        for owner, name in ((Index, "searcher"), (type(find_engine(engine)), "open")):
            shutil.copytree(old, workdir / "out")
            shutil.copytree(new, workdir / "next")
            ended = _run(search.split(), workdir, prepare=partial(_before, owner, name, workdir))
            run = (workdir / "again").read_bytes() if ended.code == 0 else b""
            problem = ""
            if ended.code not in (0, 2) or (ended.code == 2 and "run the command again" not in ended.printed):
                problem = f"ended with {ended.code}: {_last_line(ended)}"
            elif ended.code == 0 and run not in answers:
                problem = "hits of neither index, and no error"
            yield engine, Trial(f"replaced before {owner.__name__}.{name}", problem)
            for left in ("out", "last"):
                shutil.rmtree(workdir / left)
            (workdir / "again").unlink(missing_ok=True)


def rerun(workdir: Path, inputs: Path) -> Iterator[tuple[str, Trial]]:
    """Run commands twice."""
    for name, line in _RERUN.items():
        for engine in _UPDATED if name.startswith("update") else [""]:
            place, command = Path(tempfile.mkdtemp(dir=workdir)), line.format(inputs=inputs)
            if engine:
                _build(place / "out", inputs / "vectors", engine)
            first = _run(command.split(), place)
            before = _contents(place)
            output = next(place.glob("out/shard-*"), place / "out")
            left = output.with_name(f".{output.name}{PARTIAL}1")
            left.mkdir(parents=True)
            os.utime(left, (0, 0))
            ended = first if first.code else _run(command.split(), place)
            problem = ""
            if ended.code:
                problem = f"ended with {ended.code}: {_last_line(ended)}"
            elif _contents(place) != before:
                problem = "changed its output, or left hidden files"
            yield name, Trial(f"run again {engine}".strip(), problem)


def planted(workdir: Path, inputs: Path) -> Iterator[tuple[str, Trial]]:
    """Plant a module in the working directory."""
    for number, (name, line) in enumerate(_PLANTED.items()):
        for module in _MODULES:
            place = workdir / f"{number}-{module}"
            place.mkdir()
            (place / f"{module}.py").write_text("open('IMPORTED', 'w').close()\n")
            _run(line.format(inputs=inputs).split(), place, moment=_TIMEOUT)
            problem = "was imported" if (place / "IMPORTED").exists() else ""
            yield name, Trial(f"{module}.py in the working directory", problem)


def attack(
    trials: Callable[[Path, Path, Any], Iterator[Row]], workdir: Path, inputs: Path
) -> Iterator[tuple[str, Trial]]:
    """Run a suite of another module."""
    for kind, fault, problem in trials(workdir, inputs, _run):
        yield kind, Trial(fault, problem)


def memory(workdir: Path, inputs: Path) -> Iterator[tuple[str, Trial]]:
    """Kill pairs of agents that write one memory."""
    import torch

    from milco_pyserini.serve.memory import open_memory

    # A forked process has no other threads than the one that forked.
    torch.set_num_threads(1)
    notes, draw = workdir / "notes", random.Random(SEED)
    open_memory(notes, "mini")
    kept, gone, unknown = set[str](), set[str](), set[str]()
    for number in range(_PAIRS):
        agents = [_start_agent(notes, f"{name}{number}") for name in "ab"]
        for _, lines in agents:
            lines.readline()
        # At any moment of a step after the first steps, however fast the machine is.
        started, count = time.monotonic(), draw.randint(1, _STEPS)
        first = [agents[0][1].readline() for _ in range(count)]
        time.sleep(draw.uniform(0, (time.monotonic() - started) / count))
        moment = time.monotonic() - started
        for process, _ in agents:
            os.kill(process, signal.SIGKILL)
        for process, lines in agents:
            with lines:
                read, first = "".join(first) + lines.read(), []
                for line in read.splitlines():
                    what, _, docid = line.partition(" ")
                    {"remembered": kept, "forgets": unknown, "forgotten": gone}[what].add(docid)
            os.waitpid(process, 0)
        searcher = open_memory(notes).searcher()
        lost = [docid for docid in kept - unknown if searcher.weights(docid, ()) is None]
        left = [docid for docid in gone if searcher.weights(docid, ()) is not None]
        problem = f"{counted(len(lost), 'note')} lost" if lost else "a forgotten note is there" if left else ""
        verified = _run(["verify", "notes"], workdir)
        problem = problem or (_last_line(verified) if verified.code else "")
        for name in "ab":
            yield "two agents", Trial(f"agent {name} of pair {number} killed after {moment:.2f} s", problem)
    log(f"{len(kept):,} notes were acknowledged, {len(gone):,} of them forgotten")


def adapt(workdir: Path, inputs: Path) -> Iterator[tuple[str, Trial]]:
    """Kill the adaptation of a tiny model."""
    import torch

    # A forked process has no other threads than the one that forked.
    torch.set_num_threads(1)
    write_checkpoint(workdir / "tiny")
    draw = random.Random(SEED)
    with (workdir / "docs.jsonl").open("wb") as file:
        for number in range(120):
            title, *texts = (" ".join(f"w{draw.randrange(PIECES)}" for _ in range(9)) for _ in range(6))
            record = {"id": f"d{number}", "title": title, "text": ". ".join(texts) + ".", "lang": "en"}
            file.write(orjson.dumps(record) + b"\n")
    line = f"adapt {workdir}/docs.jsonl --encoder {workdir}/tiny --held-out .25 --steps 6 --batch-size 4 --device cpu "
    arguments = [*line.split(), "--output", "out"]

    def run(place: Path, moment: float = 0) -> CommandResult:
        place.mkdir(exist_ok=True)
        return _run(arguments, place, moment=moment, prepare=_keep_every_model)

    started = time.monotonic()
    _expect_success(run(workdir / "reference"), line)
    seconds, expected = time.monotonic() - started, _files(workdir / "reference")
    for number in range(_ADAPTATIONS):
        moment, place = draw.uniform(0, seconds), workdir / f"adapted-{number}"
        run(place, moment)
        before = f"{len(_files(place))} files"
        ended = run(place)
        found = _files(place)
        problem = f"ended with {ended.code}: {_last_line(ended)}" if ended.code else ""
        differing = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        problem = problem or (f"{', '.join(differing[:3])} differ" if differing else "")
        shutil.rmtree(place)
        yield "milco adapt", Trial(f"killed after {moment:.1f} of {seconds:.1f} s, {before}", problem)


def _keep_every_model() -> None:
    from milco_pyserini.train.adapt.report import Measured

    Measured.has_gained = lambda self: True  # type: ignore[method-assign]


def _files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _start_agent(notes: Path, name: str) -> tuple[int, Any]:
    """Start a process that remembers and forgets notes until it is killed; return it and what it acknowledges."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        try:
            os.close(reading)
            asyncio.run(_write_notes(notes, name, os.fdopen(writing, "w", buffering=1)))
        finally:
            os._exit(1)
    os.close(writing)
    return process, os.fdopen(reading)


async def _write_notes(notes: Path, name: str, output: Any) -> None:
    from milco_pyserini.serve.memory import Memory
    from milco_pyserini.serve.opened import IndexSnapshot
    from milco_pyserini.serve.service import SearchService

    writer, ids = Memory(SearchService(IndexSnapshot.open(notes, device="cpu"))), []
    output.write("begins\n")
    for number in itertools.count():
        ids.append((await writer.remember(f"Agent {name} wrote the note {number} about the house by the river."))["id"])
        output.write(f"remembered {ids[-1]}\n")
        if number % 3 == 2:
            output.write(f"forgets {ids[0]}\n")
            await writer.forget(ids[0])
            output.write(f"forgotten {ids.pop(0)}\n")


_ATTACKS = [partial(attack, trials) for trials in (server_trials, *ATTACKS.values())]
STATE_SUITES = dict(
    zip(STATE_SUITE_NAMES, (copied, updated, opened, rerun, planted, memory, adapt, *_ATTACKS), strict=True)
)
_UPDATED = ("lucene", "exact", "qdrant")
_RERUN = {
    **{
        f"index {engine}": f"index --vectors {{inputs}}/vectors --engine {engine} --output out"
        for engine in ("lucene", "exact", "qdrant", "seismic")
    },
    "index --store": "index --vectors {inputs}/vectors --store --corpus {inputs}/corpus.jsonl --output out",
    "index, a shard": "index --vectors {inputs}/vectors --engine exact --output out --shard-id 1 --shard-num 2",
    "update --since": "index update --index out --since {inputs}/vectors --vectors {inputs}/more",
    "update": "index update --index out --vectors {inputs}/other",
    "update --delete": "index update --index out --delete {inputs}/ids0",
    "update, empty --delete": "index update --index out --delete {inputs}/none",
    "encode": "encode --corpus {inputs}/other.jsonl --encoder mini --output out",
    "export": "export --vectors {inputs}/vectors --to elasticsearch --output out",
}
_PLANTED = {
    "index seismic": "index --vectors {inputs}/vectors --engine seismic --output out",
    "doctor": "doctor",
    "encode, two processes": "encode --corpus {inputs}/other.jsonl --encoder mini --device cpu,cpu --output out",
}
_MODULES = ("os", "ctypes", "signal", "numpy", "milco_pyserini")


def _milco(workdir: Path, line: str) -> None:
    _expect_success(_run(line.split(), workdir), line)


def _build(path: Path, vectors: Path, engine: str, shards: int = 1) -> Path:
    """Build an index and return its path."""
    for number in range(shards):
        shard = f"--shard-id {number} --shard-num {shards}"
        _milco(path.parent, f"index --vectors {vectors} --engine {engine} --output {path.name} {shard}")
    return path


def _mixed(workdir: Path, what: str, new: Path, old: Path, inputs: Path) -> Trial:
    """Copy an index over an older one, search and verify it."""
    search = f"search --topics {inputs}/topics --k 1000 --tag t"
    _milco(workdir, f"{search} --index {new.name} --output expected --overwrite")
    before = {path.relative_to(new) for path in new.rglob("*")}
    left = [path for path in old.rglob("*") if path.is_file() and path.relative_to(old) not in before]
    shutil.copytree(new, old, dirs_exist_ok=True)
    ended = _run(f"{search} --index {old.name} --output found --overwrite".split(), workdir)
    verified = _run(["verify", old.name], workdir)
    if ended.code == 0 and (workdir / "found").read_bytes() != (workdir / "expected").read_bytes():
        return Trial(what, "hits of the older index, and no error")
    if ended.code not in (0, 2) or (ended.code == 2 and "remove" not in ended.printed):
        return Trial(what, f"ended with {ended.code}: {_last_line(ended)}")
    if left and not (verified.code == 2 and "remove" in _last_line(verified).lower()):
        return Trial(what, f"verify does not name what to remove: {_last_line(verified)}")
    return Trial(what, "")


def _before(owner: Any, name: str, workdir: Path) -> None:
    """Let the directory "next" take the place of "out" before a method is first called."""
    method = getattr(owner, name)

    def replaced(*arguments: Any) -> Any:
        if (workdir / "next").exists():
            (workdir / "out").rename(workdir / "last")
            (workdir / "next").rename(workdir / "out")
        return method(*arguments)

    setattr(owner, name, replaced)


def _contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Return content and time of all files by path, and empty directories."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else (b"", 0)
        for path in directory.rglob("*")
    }


def run_invalid_input(broken: InvalidInput, inputs: Path) -> Trial:
    """Run a command with an invalid input."""
    with tempfile.TemporaryDirectory(dir=inputs.parent, prefix="trial-") as name:
        workdir, source = Path(name) / "work", Path(name) / "source"
        workdir.mkdir()
        source.mkdir()
        values = {"inputs": inputs, "file": broken.write(source)}
        arguments = [word.format(**values) for word in COMMANDS[broken.kind].split()]
        ended = _run(arguments, workdir, moment=_TIMEOUT, memory=_MEMORY)
        lines = [line for line in ended.printed.splitlines() if "error:" in line]
        problem = ""
        if ended.code == 0:
            problem = "accepted"
        elif ended.code != 2 or len(lines) != 1 or "Traceback" in ended.printed:
            problem = f"ended with {ended.code}: {_last_line(ended)}"
        elif broken.name not in lines[0]:
            problem = f"does not name the input: {lines[0]}"
        elif left := [path.name for path in workdir.iterdir()]:
            problem = f"left {left[0]}"
    return Trial(f"{broken.kind}: {broken.name}", problem)


def load_invalid_checkpoint(name: str, change: Change, inputs: Path) -> Trial:
    """Load an invalid checkpoint in this process."""
    with tempfile.TemporaryDirectory(dir=inputs.parent, prefix="trial-") as workdir:
        directory = Path(workdir) / "tiny"
        shutil.copytree(inputs / "tiny", directory)
        change(directory)
        outcome, text = load_checkpoint(directory)
        problem = "" if outcome == "rejected" else f"{outcome}: {text}"
        if not problem and str(directory) not in text:
            problem = f"does not name the checkpoint: {text}"
    return Trial(name, problem)


def command(options: FaultOptions) -> list[Trial]:
    """Run the suites and print their counts. Raises MilcoError if a command fails without a fault."""
    cases = [case for case in CASES if not options.case or case.name in options.case]
    preload()
    trials: list[Trial] = []
    sys.stdout.write(f"{'suite':<12}{'command':<26}{'faults':>7}{'handled':>9}{'not':>5}\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="milco-faults-") as directory:
        inputs = Path(directory) / "inputs"
        suites = options.suite or SUITE_NAMES
        if not set(suites) <= set(SELF_CONTAINED):
            write_inputs(inputs)
        for case in cases if SUITES.keys() & set(suites) else ():
            reference = find_reference(case, inputs)
            for suite in suites:
                if suite in SUITES and (case.reads or suite not in ("flips", "manifests")):
                    trials += _report(suite, case.name, list(SUITES[suite](case, reference, options.every)))
        for suite in (name for name in STATE_SUITES if name in suites):
            trials += _run_state_suite(suite, inputs, options.every)
        for kind in COMMANDS if INPUTS in suites else ():
            some = [broken for broken in invalid_inputs() if broken.kind == kind]
            trials += _report(INPUTS, kind, [run_invalid_input(broken, inputs) for broken in some[:: options.every]])
        if CHECKPOINT_SUITE in suites:
            write_checkpoint(inputs / "tiny")
            changes = list(CHECKPOINTS.items())[:: options.every]
            trials += _report(
                CHECKPOINT_SUITE, "load", [load_invalid_checkpoint(*change, inputs) for change in changes]
            )
    bad = [trial for trial in trials if trial.problem]
    sys.stdout.write(f"{counted(len(trials), 'fault')}, {len(bad)} not handled\n")
    return trials


def _run_state_suite(suite: str, inputs: Path, every: int) -> list[Trial]:
    with tempfile.TemporaryDirectory(dir=inputs.parent, prefix="trial-") as workdir:
        found = list(STATE_SUITES[suite](Path(workdir), inputs))[::every]
    return [
        trial
        for name in dict.fromkeys(name for name, _ in found)
        for trial in _report(suite, name, [trial for other, trial in found if other == name])
    ]


def _report(suite: str, name: str, found: list[Trial]) -> list[Trial]:
    bad = [trial for trial in found if trial.problem]
    row = f"{suite:<12}{name:<26}{len(found):>7}{len(found) - len(bad):>9}{len(bad):>5}\n"
    sys.stdout.write(row + "".join(f"    {trial.fault}: {trial.problem}\n" for trial in bad))
    sys.stdout.flush()
    return found


def preload() -> None:
    """Import what the commands need, so that forked processes have it."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for command in _COMMANDS:
        MAINS.get(command)
    for name in ("encode.encoder", "index.directory", "search.topics", "train.run", "train.adapt.run"):
        __import__(f"milco_pyserini.{name}")


def write_inputs(inputs: Path) -> None:
    """Write a corpus, topics, vector stores, an index and bitext."""
    inputs.mkdir(parents=True)
    draw = random.Random(SEED)
    words = "das Haus am Fluss ein Baum the river house music 水 山 电话 la maison un arbre дом река".split()
    texts = [" ".join(draw.choices(words, k=8)) for _ in range(60)]
    records = [orjson.dumps({"id": f"d{number}", "contents": text}) for number, text in enumerate(texts)]
    (inputs / "corpus.jsonl").write_bytes(b"\n".join(records) + b"\n")
    (inputs / "other.jsonl").write_bytes(b"\n".join(records[:20]) + b"\n")
    more = [orjson.dumps({"id": f"e{number}", "contents": text}) for number, text in enumerate(texts)]
    (inputs / "more.jsonl").write_bytes(b"\n".join([*records, *more]) + b"\n")
    # So many of a segment are deleted that Lucene writes it again, under another name.
    for name, numbers in (("ids0", range(25)), ("ids1", range(25, 50)), ("none", range(0))):
        (inputs / name).write_text("".join(f"d{number}\n" for number in numbers))
    (inputs / "topics.tsv").write_text("".join(f"q{n}\t{text[:20]}\n" for n, text in enumerate(texts[:5])), "utf-8")
    (inputs / "run.txt").write_text("q0 Q0 d0 1 2 t\n")
    (inputs / "qrels.txt").write_text("q0 0 d0 1\n")
    (inputs / "de-en.tsv").write_text("".join(f"das Haus {n}\tthe house {n}\n" for n in range(32)), "utf-8")
    for line in (
        "encode --corpus corpus.jsonl --encoder mini --output vectors --part-size 30",
        "encode --corpus other.jsonl --encoder mini --output other",
        "encode --corpus more.jsonl --encoder mini --output more --part-size 30",
        "encode --topics topics.tsv --encoder mini --output topics",
        "index --vectors vectors --engine exact --output index",
        "index --vectors other --engine exact --output other.exact",
    ):
        _expect_success(_run(line.split(), inputs), line)


def _expect_success(ended: CommandResult, line: str) -> None:
    if ended.code:
        raise MilcoError(f"milco {line} ended with {ended.code}: {ended.printed.strip()[-500:]}")


def find_reference(case: FaultCase, inputs: Path) -> Reference:
    """Run the case twice without faults. Raises MilcoError if it fails, or leaves different files."""
    trees = []
    for _ in range(2):
        with _working_directory(case, inputs) as workdir:
            ended = _run(_arguments(case, inputs), Path(workdir))
            _expect_success(ended, case.arguments)
            trees.append(_tree(Path(workdir), case))
    first, second = trees
    if first.keys() != second.keys():
        raise MilcoError(f"milco {case.arguments}: two runs left different files: {first.keys() ^ second.keys()}")
    tree = {name: content if second[name] == content else None for name, content in first.items()}
    return Reference(inputs, tree, ended.operations, ended.seconds)


def _working_directory(case: FaultCase, inputs: Path) -> "tempfile.TemporaryDirectory[str]":
    """Return a new directory, with the output that the case replaces."""
    directory = tempfile.TemporaryDirectory(dir=inputs.parent, prefix="trial-")
    if case.replaces:
        shutil.copytree(inputs / case.replaces, Path(directory.name) / "out")
    return directory


def _arguments(case: FaultCase, inputs: Path) -> list[str]:
    return [word.format(inputs=inputs) for word in case.arguments.split()]


def _tree(workdir: Path, case: FaultCase) -> dict[str, bytes]:
    """Return the content of all files in a directory by path; b"" for directories."""
    tree = {}
    for path in workdir.rglob("*"):
        name = str(path.relative_to(workdir))
        if not any(f"out/{varying}/" in name for varying in case.varies):
            tree[name] = b"" if path.is_dir() else path.read_bytes()
    return tree


def inject(case: FaultCase, reference: Reference, what: str, check: Callable[..., str], **faults: Any) -> Trial:
    """Run the case with a fault, then again without; check() returns the problem in between."""
    with _working_directory(case, reference.inputs) as name:
        workdir = Path(name)
        before = _tree(workdir, case)
        ended = _run(_arguments(case, reference.inputs), workdir, **faults)
        problem = check(case, reference, ended, before, _tree(workdir, case))
        again = _run(_arguments(case, reference.inputs), workdir)
        # After a kill that followed the final rename, the command is refused because its output is complete.
        refused = again.code == 2 and "--overwrite" in again.printed and not case.resumes
        if again.code and not refused:
            problem = problem or f"the same command then ended with {again.code}: {_last_line(again)}"
        problem = problem or _difference(_tree(workdir, case), reference)
    return Trial(what, problem)


@contextlib.contextmanager
def _complete_output(case: FaultCase, reference: Reference) -> Iterator[tuple[Path, dict[str, bytes]]]:
    """Yield a directory in which the case has run, and the results of reading its output."""
    with _working_directory(case, reference.inputs) as name:
        workdir = Path(name)
        _expect_success(_run(_arguments(case, reference.inputs), workdir), case.arguments)
        _expect_success(_read(case, reference, workdir), case.reads)
        yield workdir, _results(workdir)


def _read(case: FaultCase, reference: Reference, workdir: Path) -> CommandResult:
    for path in workdir.glob("again*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return _run(case.reads.format(inputs=reference.inputs).split(), workdir)


def _results(workdir: Path) -> dict[str, bytes]:
    """Return the results of reading: a run, or the files of an index without its manifest."""
    paths = [path for path in workdir.glob("again/*") if path.name != "manifest.json"]
    return {path.name: path.read_bytes() for path in [*paths, workdir / "again"] if path.is_file()}


def _misread(case: FaultCase, reference: Reference, workdir: Path, expected: dict[str, bytes] | None) -> str:
    """Return the problem of reading a damaged output: a traceback, or different results without an error."""
    ended = _read(case, reference, workdir)
    if ended.code not in (0, 2) or "Traceback" in ended.printed:
        return f"ended with {ended.code}: {_last_line(ended)}"
    return "different results and no error" if ended.code == 0 and expected not in (None, _results(workdir)) else ""


def after_kill(case: FaultCase, reference: Reference, ended: CommandResult, before: dict, after: dict) -> str:
    """Return the problem of an output after a kill: it must be unchanged, complete or absent."""
    named = {name: content for name, content in after.items() if name.split("/")[0] == "out"}
    if case.resumes or not named or named == before:
        return ""
    difference = _difference(named, reference)
    return difference and f"incomplete output: {difference}"


def after_full(case: FaultCase, reference: Reference, ended: CommandResult, before: dict, after: dict) -> str:
    """Return the problem after a full disk: without effect, or one line with path and fix; no hidden files."""
    if ended.code == 0:
        return _difference(after, reference)
    lines = [line for line in ended.printed.splitlines() if "error:" in line]
    if ended.code != 2 or len(lines) != 1:
        return f"ended with {ended.code}: {_last_line(ended)}"
    if "Traceback" in ended.printed or "\tat " in ended.printed:
        return "prints a traceback before its line"
    if not all(words in lines[0] for words in ("out", "same command")):
        return f"does not name the path or the fix: {lines[0]}"
    left = [name for name in after if PARTIAL in name]
    return f"left {left[0]}" if left else after_kill(case, reference, ended, before, after)


def _last_line(ended: CommandResult) -> str:
    return next(reversed(ended.printed.strip().splitlines()), "")[:300]


def _difference(tree: dict, reference: Reference) -> str:
    for name in sorted(tree.keys() | reference.tree.keys()):
        if name not in tree:
            return f"{name} is missing"
        if name not in reference.tree:
            return f"{name} was not removed"
        if reference.tree[name] not in (None, tree[name]):
            return f"{name} differs"
    return ""


def _run(
    arguments: Sequence[str],
    workdir: Path,
    fault: Fault | None = None,
    moment: float = 0,
    limit: int | None = None,
    memory: int | None = None,
    prepare: Callable[[], None] | None = None,
) -> CommandResult:
    """Run a milco command in a directory, in a forked process.

    Args:
        fault: called before each file operation.
        moment: seconds until the command is killed; 0 for never.
        limit: bytes per file.
        memory: bytes of address space.
        prepare: called in the process before the command.
    """
    reading, writing = os.pipe()
    started = time.monotonic()
    process = os.fork()
    if not process:
        os.close(reading)
        code = 1
        try:
            if prepare:
                prepare()
            code = _in_child(arguments, workdir, writing, fault, limit, memory)
        finally:
            os._exit(code)
    os.close(writing)
    timer = threading.Timer(moment, _kill_group, (process,)) if moment else None
    if timer:
        timer.start()
    with os.fdopen(reading, "rb") as handle:
        printed, _, count = handle.read().partition(_COUNT_PREFIX)
    seconds = time.monotonic() - started
    _, status, used = os.wait4(process, 0)
    if timer:
        timer.cancel()
        timer.join()
    code, text = os.waitstatus_to_exitcode(status), printed.decode(errors="replace")
    return CommandResult(code, text, int(count or 0), seconds, 1024 * used.ru_maxrss)


def _kill_group(process: int) -> None:
    """Kill a command and its child processes."""
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        log("A command ended before it could be killed")


def _in_child(
    arguments: Sequence[str], workdir: Path, output: int, fault: Fault | None, limit: int | None, memory: int | None
) -> int:
    os.setsid()
    os.chdir(workdir)
    os.dup2(output, 1)
    os.dup2(output, 2)
    count = _watch(str(workdir), fault)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        code = milco(arguments)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(output, _COUNT_PREFIX + str(count()).encode())
    return code


def _watch(workdir: str, fault: Fault | None) -> Callable[[], int]:
    """Count file operations in a directory and call fault before each; return a function that returns the count."""
    number = 0
    fsync = os.fsync

    def operation(name: str, path: str) -> None:
        nonlocal number
        number += 1
        if fault:
            fault(name, path, number)

    def hook(event: str, arguments: tuple) -> None:
        if event not in _OPERATIONS or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100
        if path.startswith(workdir) and (event != "open" or arguments[2] & _WRITE_FLAGS):
            operation(event, path)

    def counted_fsync(descriptor: int) -> None:
        operation("fsync", "")
        fsync(descriptor)

    sys.addaudithook(hook)
    os.fsync = counted_fsync  # type: ignore[assignment]
    return lambda: number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 1 if a fault was not handled."""
    trials: list[Trial] = []
    code = run_command("benchmarks/faults.py", FaultOptions, lambda options: trials.extend(command(options)), argv)
    return code or int(any(trial.problem for trial in trials))


if __name__ == "__main__":
    sys.exit(main())
