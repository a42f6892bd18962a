"""Count what goes wrong if commands are killed, if their disk is full at each of their file operations, and if their
inputs are broken.

python benchmarks/faults.py
python benchmarks/faults.py --suite kills --case encode "index exact" --every 5

A command runs in a process of its own that was forked from this one, on small inputs that are made first. An audit hook
sees every file operation of Python in the directory of its outputs: files opened for writing, created and removed
directories, renames, removals, and fsync. Operations of Java, Rust and C++ are met by kills at moments that are spread
over the run, and by limits on the size of a file, which fail as a full disk does.

After each fault the same command runs again. It must succeed, and leave the same bytes as two unbroken runs left (where
these two differ, a file of the same name) and nothing else: no hidden file, no directory. A fault is clean if that is
so, if what had the output's name in between was complete, and if a full disk was reported in one line that names the
path and the fix. The exit code is 1 if a fault was not clean.

Two suites damage what a command wrote, one file at a time. flips: single bits, cuts, emptied, longer and removed files;
milco verify must name each, and what is read from it must be the same as before or an error of one line. manifests:
fields that are absent or of another type, as if version 0.1 had written them, without checksums.

A suite is a function from a Case and its Reference to trials, in the table SUITES. The suite inputs has no cases: it
gives each command the inputs of broken_inputs.py, one at a time. Such a trial is clean if the command ends in time with
exit code 2 and one line that names the input, and leaves nothing. The suite checkpoints loads those of
broken_checkpoints.py: each must be refused in one line that names it, before it gives a vector.
"""

import contextlib
import errno
import io
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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from broken_checkpoints import CHECKPOINTS, Change, met, tiny_checkpoint
from broken_inputs import COMMANDS, Broken, broken_inputs

from milco_pyserini.cli.main import main as milco
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.io.files import PARTIAL, write_json
from milco_pyserini.options import option

SEED = 20261
_COMMANDS = ("encode", "eval", "index", "search", "train")
_GROWS = ("open", "os.mkdir", "fsync")
_OPERATIONS = (*_GROWS, "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_COUNT = b"\0operations "
_LIMITS = (0.0, 0.1, 0.5, 0.9)
INPUTS, LOADED = "inputs", "checkpoints"
# Seconds and bytes of memory in which a broken input is refused.
_PATIENCE = 120.0
_MEMORY = 16 << 30
_OTHER_VALUES: tuple[Any, ...] = (None, "x", 1.5, -1, [], {}, True, [1], 10**15)


@dataclass(frozen=True)
class Case:
    """A command. arguments: {inputs} is the directory of inputs; the output is out, in a directory of its own.

    resumes: what it leaves after a fault is unfinished on purpose. replaces: an input that is copied to out before.
    every: a fault at every so many-th file operation. moments: kills that are spread over the time of a run.
    varies: directories of out whose content is another one in each run. reads: a command that reads out, into again.
    """

    name: str
    arguments: str
    resumes: bool = False
    replaces: str = ""
    every: int = 1
    moments: int = 0
    varies: tuple[str, ...] = ()
    reads: str = ""


_TERMS, _TEXTS, _DENSE = (
    f"search --index out --topics {{inputs}}/{name} --output again" for name in ("topics", "topics.tsv", "dense")
)
CASES = (
    Case(
        "encode",
        "encode --corpus {inputs}/corpus.jsonl --encoder mini --part-size 10 --output out",
        resumes=True,
        reads="index --vectors out --engine exact --output again",
    ),
    Case("index exact", "index --vectors {inputs}/vectors --engine exact --output out", reads=_TERMS),
    Case(
        "index exact --overwrite",
        "index --vectors {inputs}/vectors --engine exact --output out --overwrite",
        replaces="other.exact",
    ),
    Case(
        "index lucene",
        "index --vectors {inputs}/vectors --engine lucene --output out",
        every=4,
        moments=8,
        reads=_TERMS,
    ),
    Case(
        "index seismic",
        "index --vectors {inputs}/vectors --engine seismic --output out",
        every=4,
        moments=8,
        reads=_TERMS,
    ),
    Case("index flat", "index --vectors {inputs}/dense --engine flat --output out", every=2, reads=_DENSE),
    Case("index hnsw", "index --vectors {inputs}/dense --engine hnsw --output out", every=4, reads=_DENSE),
    Case(
        "index bm25",
        "index --corpus {inputs}/corpus.jsonl --language en --engine bm25 --output out",
        every=4,
        reads=_TEXTS,
    ),
    Case("search", "search --index {inputs}/index --topics {inputs}/topics --output out"),
    Case(
        "train sap",
        "train sap --config mini-sap --model mini --bitext {inputs}/de-en.tsv --teacher lexical --output out --steps 4 "
        "--save-steps 2 --batch-size 4 --log-steps 2 --device cpu",
        resumes=True,
        every=16,
        varies=("tensorboard",),
    ),
)


@dataclass(frozen=True)
class Options:
    """Count what goes wrong if commands are killed, if their disk is full, and if their inputs are broken."""

    suite: tuple[str, ...] = option(
        (), help="of kills, disk, flips, manifests, inputs, checkpoints (default: all)", metavar="NAME"
    )
    case: tuple[str, ...] = option((), help="cases, such as 'index exact' (default: all)", metavar="NAME")
    every: int = option(1, help="only every so many-th of a case's faults")


class Trial(NamedTuple):
    """One fault. problem: what was not as it should be; empty if all was."""

    fault: str
    problem: str


class Ended(NamedTuple):
    """How a command ended. code: negative for a signal. operations: how many file operations there were."""

    code: int
    printed: str
    operations: int
    seconds: float


@dataclass(frozen=True)
class Reference:
    """What unbroken runs of a case do. tree: path -> content of all that they leave, None where it varies."""

    inputs: Path
    tree: dict[str, bytes | None]
    operations: int
    seconds: float


# What is called before the nth file operation, with its name, its path and n.
Fault = Callable[[str, str, int], None]


def kills(case: Case, reference: Reference, every: int) -> Iterator[Trial]:
    """SIGKILL before each file operation, and at moments that are spread over a run."""
    for number in range(1, reference.operations + 1, case.every * every):

        def kill(name: str, path: str, n: int, number: int = number) -> None:
            if n == number:
                os.kill(os.getpid(), signal.SIGKILL)

        yield _tried(case, reference, f"killed before operation {number}", _after_kill, fault=kill)
    for number in range(1, case.moments + 1, every):
        moment = reference.seconds * number / (case.moments + 1)
        yield _tried(case, reference, f"killed after {moment:.1f} s", _after_kill, moment=moment)


def disk(case: Case, reference: Reference, every: int) -> Iterator[Trial]:
    """A disk that is full from each operation on that needs space; and limits on the size of a file."""
    for number in range(1, reference.operations + 1, case.every * every):

        def fill(name: str, path: str, n: int, number: int = number) -> None:
            if n >= number and name in _GROWS:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([path] if path else []))

        yield _tried(case, reference, f"disk full at operation {number}", _after_full, fault=fill)
    largest = max(len(content or b"") for content in reference.tree.values())
    for part in _LIMITS[::every]:
        limit = int(part * largest)
        yield _tried(case, reference, f"files of at most {limit:,} bytes", _after_full, limit=limit)


def flips(case: Case, reference: Reference, every: int) -> Iterator[Trial]:
    """Damage each file of what the case wrote: 10 single bits, and in 4 other ways."""
    with _written(case, reference) as (place, expected):
        for path in sorted(path for path in (place / "out").rglob("*") if path.is_file() and path.name != "write.lock"):
            content, draw = path.read_bytes(), random.Random(SEED)
            damages: dict[str, bytes | None] = {}
            for _ in range(10 if content else 0):
                bit, changed = draw.randrange(8 * len(content)), bytearray(content)
                changed[bit // 8] ^= 1 << bit % 8
                damages[f"bit {bit:,} flipped"] = bytes(changed)
            damages |= {"cut": content[: len(content) // 2], "longer": content + b"\0", "removed": None}
            damages |= {"emptied": b""} if content else {}
            for what, damaged in list(damages.items())[::every]:
                path.unlink()
                if damaged is not None:
                    path.write_bytes(damaged)
                fault, ended = f"{path.relative_to(place)}, {what}", _run(["verify", "out"], place)
                found = ended.code == 2 and path.name in ended.printed
                yield Trial(f"{fault}, verified", "" if found else f"not found: {_last_line(ended)}")
                yield Trial(f"{fault}, read", _misread(case, reference, place, expected))
            path.write_bytes(content)


def manifests(case: Case, reference: Reference, every: int) -> Iterator[Trial]:
    """Leave out each field of a manifest without checksums, and give it values of other types."""
    with _written(case, reference) as (place, _):
        manifest = orjson.loads((place / "out" / "manifest.json").read_bytes())
        for name in ("checksum", "files"):
            manifest.pop(name)
        changes = []
        for about in ("", "vectors", "texts"):
            fields = manifest if not about else manifest.get(about)
            for key in fields if isinstance(fields, dict) else ():
                others: list[dict] = [{name: value for name, value in fields.items() if name != key}]
                others += [fields | {key: value} for value in _OTHER_VALUES]
                where = f"{about}.{key}".removeprefix(".")
                changes += [(where, manifest | {about: other} if about else other) for other in others]
        for where, changed in changes[::every]:
            write_json(place / "out" / "manifest.json", changed)
            yield Trial(f"{where} changed", _misread(case, reference, place, None))


SUITES = {"kills": kills, "disk": disk, "flips": flips, "manifests": manifests}


def refused(broken: Broken, inputs: Path) -> Trial:
    """A command with a broken input."""
    with tempfile.TemporaryDirectory(dir=inputs.parent, prefix="trial-") as name:
        place, given = Path(name) / "place", Path(name) / "given"
        place.mkdir()
        given.mkdir()
        values = {"inputs": inputs, "file": broken.make(given)}
        arguments = [word.format(**values) for word in COMMANDS[broken.kind].split()]
        ended = _run(arguments, place, moment=_PATIENCE, memory=_MEMORY)
        lines = [line for line in ended.printed.splitlines() if "error:" in line]
        problem = ""
        if ended.code == 0:
            problem = "accepted"
        elif ended.code != 2 or len(lines) != 1 or "Traceback" in ended.printed:
            problem = f"ended with {ended.code}: {_last_line(ended)}"
        elif broken.name not in lines[0]:
            problem = f"names no input: {lines[0]}"
        elif left := [path.name for path in place.iterdir()]:
            problem = f"left {left[0]}"
    return Trial(f"{broken.kind}: {broken.name}", problem)


def refused_checkpoint(name: str, change: Change, inputs: Path) -> Trial:
    """A broken checkpoint, loaded in this process."""
    with tempfile.TemporaryDirectory(dir=inputs.parent, prefix="trial-") as place:
        directory = Path(place) / "tiny"
        shutil.copytree(inputs / "tiny", directory)
        change(directory)
        kind, text = met(directory)
        problem = "" if kind == "clean" else f"{kind}: {text}"
        if not problem and str(directory) not in text:
            problem = f"names no checkpoint: {text}"
    return Trial(name, problem)


def command(options: Options) -> list[Trial]:
    """Run the suites and print their counts. Raises MilcoError if a command fails without a fault, too."""
    for name in options.suite:
        if name not in (*SUITES, INPUTS, LOADED):
            raise unknown_name("suite", name, [*SUITES, INPUTS, LOADED])
    cases = [case for case in CASES if not options.case or case.name in options.case]
    if len(cases) < len(set(options.case)):
        raise unknown_name("case", next(iter({*options.case} - {case.name for case in CASES})), [c.name for c in CASES])
    _preload()
    trials: list[Trial] = []
    sys.stdout.write(f"{'suite':<12}{'command':<26}{'faults':>7}{'clean':>7}{'not':>5}\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="milco-faults-") as directory:
        inputs = Path(directory) / "inputs"
        _make_inputs(inputs)
        suites = options.suite or (*SUITES, INPUTS, LOADED)
        for case in cases if set(suites) - {INPUTS, LOADED} else ():
            reference = _reference(case, inputs)
            for suite in suites:
                if suite in SUITES and (case.reads or suite not in ("flips", "manifests")):
                    trials += _reported(suite, case.name, list(SUITES[suite](case, reference, options.every)))
        for kind in COMMANDS if INPUTS in suites else ():
            some = [broken for broken in broken_inputs() if broken.kind == kind]
            trials += _reported(INPUTS, kind, [refused(broken, inputs) for broken in some[:: options.every]])
        if LOADED in suites:
            tiny_checkpoint(inputs / "tiny")
            changes = list(CHECKPOINTS.items())[:: options.every]
            trials += _reported(LOADED, "load", [refused_checkpoint(*change, inputs) for change in changes])
    bad = [trial for trial in trials if trial.problem]
    sys.stdout.write(f"{counted(len(trials), 'fault')}, {len(bad)} not clean\n")
    return trials


def _reported(suite: str, name: str, found: list[Trial]) -> list[Trial]:
    bad = [trial for trial in found if trial.problem]
    row = f"{suite:<12}{name:<26}{len(found):>7}{len(found) - len(bad):>7}{len(bad):>5}\n"
    sys.stdout.write(row + "".join(f"    {trial.fault}: {trial.problem}\n" for trial in bad))
    sys.stdout.flush()
    return found


def _preload() -> None:
    """Import here, once, what every command needs: a forked process has it at once."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for name in _COMMANDS:
        __import__(f"milco_pyserini.{name}.__main__")
    for name in ("encode.encoder", "index.directory", "search.topics", "train.run"):
        __import__(f"milco_pyserini.{name}")


def _make_inputs(inputs: Path) -> None:
    """A corpus, topics, two vector stores, dense vectors, an index and bitext."""
    from milco_pyserini.encode.dense_store import write_dense

    (inputs / "dense").mkdir(parents=True)
    draw = random.Random(SEED)
    words = "das Haus am Fluss ein Baum the river house music 水 山 电话 la maison un arbre дом река".split()
    texts = [" ".join(draw.choices(words, k=8)) for _ in range(60)]
    records = [orjson.dumps({"id": f"d{number}", "contents": text}) for number, text in enumerate(texts)]
    (inputs / "corpus.jsonl").write_bytes(b"\n".join(records) + b"\n")
    (inputs / "other.jsonl").write_bytes(b"\n".join(records[:20]) + b"\n")
    (inputs / "topics.tsv").write_text("".join(f"q{n}\t{text[:20]}\n" for n, text in enumerate(texts[:5])), "utf-8")
    (inputs / "run.txt").write_text("q0 Q0 d0 1 2 t\n")
    (inputs / "qrels.txt").write_text("q0 0 d0 1\n")
    (inputs / "de-en.tsv").write_text("".join(f"das Haus {n}\tthe house {n}\n" for n in range(32)), "utf-8")
    content = io.BytesIO()
    write_dense(content, [f"d{n}" for n in range(60)], np.random.default_rng(SEED).random((60, 8), np.float32))
    (inputs / "dense" / "part.parquet").write_bytes(content.getvalue())
    about = {"format_version": 1, "kind": "documents", "dense": True, "dimensions": 8, "documents": 60}
    part = {"file": "part.parquet", "bytes": len(content.getvalue())}
    write_json(inputs / "dense" / "manifest.json", about | {"parts": [part]})
    for line in (
        "encode --corpus corpus.jsonl --encoder mini --output vectors --part-size 30",
        "encode --corpus other.jsonl --encoder mini --output other",
        "encode --topics topics.tsv --encoder mini --output topics",
        "index --vectors vectors --engine exact --output index",
        "index --vectors other --engine exact --output other.exact",
    ):
        _expect_success(_run(line.split(), inputs), line)


def _expect_success(ended: Ended, line: str) -> None:
    if ended.code:
        raise MilcoError(f"milco {line} ended with {ended.code}: {ended.printed.strip()[-500:]}")


def _reference(case: Case, inputs: Path) -> Reference:
    """Run the case twice without a fault."""
    trees = []
    for _ in range(2):
        with _place(case, inputs) as place:
            ended = _run(_arguments(case, inputs), Path(place))
            _expect_success(ended, case.arguments)
            trees.append(_tree(Path(place), case))
    first, second = trees
    if first.keys() != second.keys():
        raise MilcoError(f"milco {case.arguments}: two runs left different files: {first.keys() ^ second.keys()}")
    tree = {name: content if second[name] == content else None for name, content in first.items()}
    return Reference(inputs, tree, ended.operations, ended.seconds)


def _place(case: Case, inputs: Path) -> "tempfile.TemporaryDirectory[str]":
    """A fresh directory, with what is to be replaced."""
    made = tempfile.TemporaryDirectory(dir=inputs.parent, prefix="trial-")
    if case.replaces:
        shutil.copytree(inputs / case.replaces, Path(made.name) / "out")
    return made


def _arguments(case: Case, inputs: Path) -> list[str]:
    return [word.format(inputs=inputs) for word in case.arguments.split()]


def _tree(place: Path, case: Case) -> dict[str, bytes]:
    """Everything in a directory: path -> content, of directories nothing."""
    tree = {}
    for path in place.rglob("*"):
        name = str(path.relative_to(place))
        if not any(f"out/{varying}/" in name for varying in case.varies):
            tree[name] = b"" if path.is_dir() else path.read_bytes()
    return tree


def _tried(case: Case, reference: Reference, what: str, check: Callable[..., str], **faults: Any) -> Trial:
    """Run the case with a fault and once more without; check: what was wrong in between."""
    with _place(case, reference.inputs) as name:
        place = Path(name)
        before = _tree(place, case)
        ended = _run(_arguments(case, reference.inputs), place, **faults)
        problem = check(case, reference, ended, before, _tree(place, case))
        again = _run(_arguments(case, reference.inputs), place)
        # Killed after the output had its name, the same command is refused: what is there is complete.
        refused = again.code == 2 and "--overwrite" in again.printed and not case.resumes
        if again.code and not refused:
            problem = problem or f"the same command then ended with {again.code}: {_last_line(again)}"
        problem = problem or _difference(_tree(place, case), reference)
    return Trial(what, problem)


@contextlib.contextmanager
def _written(case: Case, reference: Reference) -> Iterator[tuple[Path, dict[str, bytes]]]:
    """A directory in which the case has run, and what is read from its output."""
    with _place(case, reference.inputs) as name:
        place = Path(name)
        _expect_success(_run(_arguments(case, reference.inputs), place), case.arguments)
        _expect_success(_read(case, reference, place), case.reads)
        yield place, _results(place)


def _read(case: Case, reference: Reference, place: Path) -> Ended:
    for path in place.glob("again*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return _run(case.reads.format(inputs=reference.inputs).split(), place)


def _results(place: Path) -> dict[str, bytes]:
    """What was read: a run, or the files of an index without its manifest."""
    paths = [path for path in place.glob("again/*") if path.name != "manifest.json"]
    return {path.name: path.read_bytes() for path in [*paths, place / "again"] if path.is_file()}


def _misread(case: Case, reference: Reference, place: Path, expected: dict[str, bytes] | None) -> str:
    """What is wrong with reading a damaged output: a traceback, or other results without an error."""
    ended = _read(case, reference, place)
    if ended.code not in (0, 2) or "Traceback" in ended.printed:
        return f"ended with {ended.code}: {_last_line(ended)}"
    return "other results and no error" if ended.code == 0 and expected not in (None, _results(place)) else ""


def _after_kill(case: Case, reference: Reference, ended: Ended, before: dict, after: dict) -> str:
    """What has the output's name after a kill is what was there before, or complete, or nothing."""
    named = {name: content for name, content in after.items() if name.split("/")[0] == "out"}
    if case.resumes or not named or named == before:
        return ""
    difference = _difference(named, reference)
    return difference and f"incomplete under its name: {difference}"


def _after_full(case: Case, reference: Reference, ended: Ended, before: dict, after: dict) -> str:
    """A full disk is one line with the path and the fix, or harmless; nothing hidden stays."""
    if ended.code == 0:
        return _difference(after, reference)
    lines = [line for line in ended.printed.splitlines() if "error:" in line]
    if ended.code != 2 or len(lines) != 1:
        return f"ended with {ended.code}: {_last_line(ended)}"
    if "Traceback" in ended.printed or "\tat " in ended.printed:
        return "prints a traceback above its line"
    if not all(words in lines[0] for words in ("out", "same command")):
        return f"names no path or no fix: {lines[0]}"
    left = [name for name in after if PARTIAL in name]
    return f"left {left[0]}" if left else _after_kill(case, reference, ended, before, after)


def _last_line(ended: Ended) -> str:
    return next(reversed(ended.printed.strip().splitlines()), "")[:300]


def _difference(tree: dict, reference: Reference) -> str:
    for name in sorted(tree.keys() | reference.tree.keys()):
        if name not in tree:
            return f"{name} is missing"
        if name not in reference.tree:
            return f"{name} is left behind"
        if reference.tree[name] not in (None, tree[name]):
            return f"{name} has other bytes"
    return ""


def _run(
    arguments: Sequence[str],
    place: Path,
    fault: Fault | None = None,
    moment: float = 0,
    limit: int | None = None,
    memory: int | None = None,
) -> Ended:
    """Run milco in place, in a forked process.

    moment: seconds until it is killed. limit: bytes of a file. memory: bytes of its address space.
    """
    reading, writing = os.pipe()
    started = time.monotonic()
    process = os.fork()
    if not process:
        os.close(reading)
        code = 1
        try:
            code = _in_child(arguments, place, writing, fault, limit, memory)
        finally:
            os._exit(code)
    os.close(writing)
    timer = threading.Timer(moment, _kill_group, (process,)) if moment else None
    if timer:
        timer.start()
    with os.fdopen(reading, "rb") as handle:
        printed, _, count = handle.read().partition(_COUNT)
    seconds = time.monotonic() - started
    _, status = os.waitpid(process, 0)
    if timer:
        timer.cancel()
        timer.join()
    return Ended(os.waitstatus_to_exitcode(status), printed.decode(errors="replace"), int(count or 0), seconds)


def _kill_group(process: int) -> None:
    """Kill a command with the processes that it has started."""
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        log("a command had ended before it was to be killed")


def _in_child(
    arguments: Sequence[str], place: Path, output: int, fault: Fault | None, limit: int | None, memory: int | None
) -> int:
    os.setsid()
    os.chdir(place)
    os.dup2(output, 1)
    os.dup2(output, 2)
    count = _watch(str(place), fault)
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
    os.write(output, _COUNT + str(count()).encode())
    return code


def _watch(place: str, fault: Fault | None) -> Callable[[], int]:
    """Count file operations in place from now on, and call fault before each of them."""
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
        if path.startswith(place) and (event != "open" or arguments[2] & _WRITES):
            operation(event, path)

    def counted_fsync(descriptor: int) -> None:
        operation("fsync", "")
        fsync(descriptor)

    sys.addaudithook(hook)
    os.fsync = counted_fsync  # type: ignore[assignment]
    return lambda: number


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code: 1 if a fault was not clean."""
    trials: list[Trial] = []
    code = run_command("benchmarks.faults", Options, lambda options: trials.extend(command(options)), argv)
    return code or int(any(trial.problem for trial in trials))


if __name__ == "__main__":
    sys.exit(main())
