"""Check a release and tag it here: make release VERSION=0.3.0. CONTRIBUTING.md has the steps."""

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from packaging.metadata import Metadata

from milco_pyserini import __version__
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option
from recipes.budget import LineBudget, count_lines

# PyPI's limit of a file.
MAX_BYTES = 100 * 10**6


@dataclass(frozen=True)
class ReleaseOptions:
    """Check version, notes, lines and wheel of a release, then tag the commit. Nothing is pushed or uploaded."""

    version: str = option(positional=True, metavar="VERSION", help="version, such as 0.3.0")


def command(options: ReleaseOptions) -> None:
    """Check, from the cheapest to the wheel in an environment of its own, then tag."""
    version, tag = options.version, f"v{options.version}"
    if version != __version__ or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise MilcoError(f"the package is {__version__}, not release {version}: set it in milco_pyserini/__init__.py")
    if changes := _git("status", "--porcelain"):
        raise MilcoError(f"the working tree has changes: commit them first ({changes.splitlines()[0].strip()})")
    if _git("tag", "--list", tag):
        raise MilcoError(f"tag {tag} exists: a version is released once")
    changelog = Path("CHANGELOG.md").read_text(encoding="utf-8")
    notes = release_notes(changelog, version)
    validate_citation(Path("CITATION.cff").read_text(encoding="utf-8"), changelog, version)
    LineBudget.read().validate_release(version, count_lines())
    with tempfile.TemporaryDirectory() as directory:
        # Builds the wheel, installs it in a new environment, and runs the pipeline there.
        if subprocess.call(["make", "smoke", f"WHEEL_VENV={directory}/venv"]):
            raise MilcoError("the wheel does not work: see the messages of make smoke")
        (wheel,) = Path("dist").glob("*.whl")
        validate_wheel(wheel, version)
        printed = subprocess.check_output([f"{directory}/venv/bin/milco", "--version"], encoding="utf-8").strip()
    if printed != f"milco_pyserini {version}":
        raise MilcoError(f"the installed wheel is {printed!r}: expected milco_pyserini {version}")
    _git("tag", "--annotate", "--cleanup=verbatim", "--message", f"milco_pyserini {version}\n\n{notes}", tag)
    log(f"Tagged {tag}. To publish: git push origin HEAD {tag}, then upload {wheel}")


def release_notes(changelog: str, version: str) -> str:
    """Return the text below the heading of a version. Raises MilcoError if its heading, date or text is missing."""
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE))
    heading = next((heading for heading in sections if heading.startswith(f"[{version}]")), None)
    if heading is None:
        raise MilcoError(f"CHANGELOG.md has no heading for {version}: write ## [{version}] - {date.today()}")
    try:
        date.fromisoformat(heading.removeprefix(f"[{version}] - "))
    except ValueError:
        raise MilcoError(f"{heading!r} in CHANGELOG.md has no date: write [{version}] - {date.today()}") from None
    if not sections[heading].strip():
        raise MilcoError(f"{heading!r} in CHANGELOG.md has no notes: move those of [Unreleased] there")
    if sections.get("[Unreleased]", "").strip():
        raise MilcoError(f"[Unreleased] in CHANGELOG.md has notes: move them to [{version}]")
    return sections[heading].strip()


def validate_citation(citation: str, changelog: str, version: str) -> None:
    """Raise MilcoError unless CITATION.cff names the version and its date in the changelog."""
    _, _, day = next(line for line in changelog.splitlines() if line.startswith(f"## [{version}]")).partition(" - ")
    for line in (f"version: {version}", f"date-released: {day}"):
        if line not in citation.splitlines():
            raise MilcoError(f"CITATION.cff is of another release: it needs the line {line!r}")


def validate_wheel(wheel: Path, version: str) -> None:
    """Raise MilcoError if a wheel is too large, has files outside of the package, or metadata that PyPI refuses."""
    if (size := wheel.stat().st_size) > MAX_BYTES:
        raise MilcoError(f"{wheel} has {size:,} bytes: PyPI takes at most {MAX_BYTES:,}")
    information = f"milco_pyserini-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        foreign = {name.split("/")[0] for name in archive.namelist()} - {"milco_pyserini", information}
        if foreign:
            raise MilcoError(f"{wheel} has {', '.join(sorted(foreign))}: it is for milco_pyserini {version} only")
        content = archive.read(f"{information}/METADATA")
    try:
        Metadata.from_email(content)
    except ExceptionGroup as errors:
        raise MilcoError(f"{wheel} has invalid metadata: {'; '.join(map(str, errors.exceptions))}") from None


def _git(*arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], encoding="utf-8").strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command("recipes.release", ReleaseOptions, command, argv, "nothing was tagged")


if __name__ == "__main__":
    sys.exit(main())
