"""Inject faults that no test does: kills, full disks, malicious servers, attacks on servers, pages and plug-ins.

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
memory: kills pairs of agents that write one memory of milco serve at random moments, 100 agents in all. Notes that were
    acknowledged must be there, those that were forgotten must not, and the memory must be intact.
adapt: kills recipes.adapt at 20 random moments, from reading to the last file, and runs it again. The model, its card
    and its report must be those of a run that was not killed. The model is kept whether it has gained or not.
server: searches an index of a server that plays the answers of evil_server.py, explains its hits, fills and serves it.
    A command must end in time and memory, with the results of an honest server or with exit code 2 and one line that
    names the server; no secret may be printed, stored or sent to a host that the user did not name.
The suites of attack_faults.py are described there: connections, ranges, values, site, headers, impacts and plugins.

Damaged and mixed files, invalid inputs and checkpoints, and commands that run again are tested (tests/contract,
tests/model/test_model_faults.py).

The exit code is 1 if a fault was not handled. SUITES holds the suites that run a Case, STATE_SUITES those with commands
of their own.
"""

import asyncio
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
from repository import ROOT
from server_faults import server_trials

from milco_pyserini.cli.main import MAINS
from milco_pyserini.cli.main import main as milco
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import PARTIAL
from milco_pyserini.options import option

SEED = 20261
_COMMANDS = ("encode", "eval", "index", "search", "train")
_NEEDS_SPACE = ("open", "os.mkdir", "fsync")
_OPERATIONS = (*_NEEDS_SPACE, "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_COUNT_PREFIX = b"\0operations "
_SIZE_LIMITS = (0.0, 0.1, 0.5, 0.9)
STATE_SUITE_NAMES = ("memory", "adapt", "server", *ATTACKS)
SUITE_NAMES = ("kills", "disk", *STATE_SUITE_NAMES)
# Pairs of agents that are killed, and the most steps of the first of a pair.
_PAIRS, _STEPS = 50, 6
# Adaptations that are killed.
_ADAPTATIONS = 20


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
    """

    name: str
    arguments: str
    resumes: bool = False
    replaces: str = ""
    every: int = 1
    moments: int = 0
    varies: tuple[str, ...] = ()


CASES = (
    FaultCase(
        "encode",
        "encode --corpus {inputs}/corpus.jsonl --encoder mini --part-size 10 --output out",
        resumes=True,
    ),
    FaultCase("index exact", "index --vectors {inputs}/vectors --engine exact --output out"),
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
    ),
    FaultCase(
        "index seismic",
        "index --vectors {inputs}/vectors --engine seismic --output out",
        every=4,
        moments=8,
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


SUITES = {"kills": kills, "disk": disk}


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
        lost = [docid for docid in kept - unknown if searcher.weights(f"{docid}#0", ()) is None]
        left = [docid for docid in gone if searcher.weights(f"{docid}#0", ()) is not None]
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
    # The smallest checkpoint there is, of random weights.
    sys.path.append(f"{ROOT}/tests")
    from broken_checkpoints import PIECES, write_checkpoint

    write_checkpoint(workdir / "tiny")
    draw = random.Random(SEED)
    with (workdir / "docs.jsonl").open("wb") as file:
        for number in range(160):
            title, *texts = (" ".join(f"w{draw.randrange(PIECES)}" for _ in range(9)) for _ in range(6))
            record = {
                "id": f"d{number}",
                "title": title,
                "text": ". ".join(texts) + ".",
                "lang": ("en", "de")[number % 2],
            }
            file.write(orjson.dumps(record) + b"\n")
    line = f"adapt {workdir}/docs.jsonl --encoder {workdir}/tiny --held-out .25 --steps 6 --batch-size 4 --device cpu "
    arguments = [*line.split(), "--output", "out"]

    def run(place: Path, moment: float = 0) -> CommandResult:
        place.mkdir(exist_ok=True)
        return _run(arguments, place, moment=moment, prepare=_prepare_recipe)

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
        yield "recipes.adapt", Trial(f"killed after {moment:.1f} of {seconds:.1f} s, {before}", problem)


def _prepare_recipe() -> None:
    """Run the recipe by the name of a command, take every two documents for translations, and keep every model."""
    from recipes.adapt import run
    from recipes.adapt.__main__ import main
    from recipes.adapt.report import Measured

    MAINS["adapt"] = main
    run.find_parallel = lambda documents, vectors: {one.id: f"d{int(one.id[1:]) // 2 * 2}" for one in documents}
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


_ATTACKS: list[Any] = [partial(attack, trials) for trials in (server_trials, *ATTACKS.values())]
STATE_SUITES: dict[str, Callable[[Path, Path], Iterator[tuple[str, Trial]]]] = dict(
    zip(STATE_SUITE_NAMES, (memory, adapt, *_ATTACKS), strict=True)
)


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
                if suite in SUITES:
                    trials += _report(suite, case.name, list(SUITES[suite](case, reference, options.every)))
        for suite in (name for name in STATE_SUITES if name in suites):
            trials += _run_state_suite(suite, inputs, options.every)
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
    for name in ("encode.encoder", "index.directory", "search.topics", "train.run"):
        __import__(f"milco_pyserini.{name}")
    import recipes.adapt.run  # noqa: F401


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
    for name, numbers in (("ids0", range(25)), ("ids1", range(25, 50))):
        (inputs / name).write_text("".join(f"d{number}\n" for number in numbers))
    (inputs / "topics.tsv").write_text("".join(f"q{n}\t{text[:20]}\n" for n, text in enumerate(texts[:5])), "utf-8")
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
