"""make release refuses versions, notes and wheels that do not fit each other."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from milco_pyserini.errors import MilcoError
from recipes import release
from recipes.budget import LineBudget, count_lines
from recipes.release import MAX_BYTES, release_notes, validate_citation, validate_wheel

VALID = "Metadata-Version: 2.1\nName: milco-pyserini\nVersion: 1.2.3\n"
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-12-01\n\n### Added\n\n- A.\n\n## [1.2.2]\n\n- B.\n"


def test_the_notes_of_a_version_end_at_the_next_heading() -> None:
    """They become the message of the tag."""
    assert release_notes(CHANGELOG, "1.2.3") == "### Added\n\n- A."


@pytest.mark.parametrize(
    ("given", "changed", "message"),
    [
        ("[1.2.3]", "[1.2.4]", "no heading for 1.2.3"),
        (" - 2026-12-01", "", "has no date"),
        ("2026-12-01", "2026-13-01", "has no date"),
        ("### Added\n\n- A.\n", "", "has no notes"),
        ("[Unreleased]\n", "[Unreleased]\n\n- C.\n", "move them to"),
    ],
)
def test_incomplete_notes_are_refused(given: str, changed: str, message: str) -> None:
    """A heading with a date, notes below it, and none left above."""
    with pytest.raises(MilcoError, match=message):
        release_notes(CHANGELOG.replace(given, changed), "1.2.3")


def test_the_citation_is_of_the_release() -> None:
    """It has the version and the date of the changelog."""
    citation = "title: milco_pyserini\nversion: 1.2.3\ndate-released: 2026-12-01\n"
    validate_citation(citation, CHANGELOG, "1.2.3")
    for line in ("version: 1.2.3", "date-released: 2026-12-01"):
        with pytest.raises(MilcoError, match=f"CITATION.cff is of another release: it needs the line '{line}'"):
            validate_citation(citation.replace(line, line.replace("1", "2")), CHANGELOG, "1.2.3")


def test_the_citation_is_of_a_release_with_notes() -> None:
    """The last release, until the next one is prepared."""
    root = Path(__file__).parents[1]
    citation, changelog = ((root / name).read_text(encoding="utf-8") for name in ("CITATION.cff", "CHANGELOG.md"))
    version = next(line for line in citation.splitlines() if line.startswith("version: ")).removeprefix("version: ")
    validate_citation(citation, changelog, version)


def make_wheel(path: Path, metadata: str, *more: str) -> Path:
    """Write a wheel of one module."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("milco_pyserini/__init__.py", *more):
            archive.writestr(name, "")
        archive.writestr("milco_pyserini-1.2.3.dist-info/METADATA", metadata)
    return path


def test_wheels_that_users_could_not_install_are_refused(tmp_path: Path) -> None:
    """Other packages, invalid metadata, too many bytes."""
    validate_wheel(make_wheel(tmp_path / "good.whl", VALID), "1.2.3")
    with pytest.raises(MilcoError, match="has recipes"):
        validate_wheel(make_wheel(tmp_path / "foreign.whl", VALID, "recipes/__init__.py"), "1.2.3")
    with pytest.raises(MilcoError, match="invalid metadata"):
        validate_wheel(make_wheel(tmp_path / "bad.whl", VALID.replace("1.2.3", "one")), "1.2.3")
    with (tmp_path / "large.whl").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(MilcoError, match="at most 100,000,000"):
        validate_wheel(tmp_path / "large.whl", "1.2.3")


@pytest.mark.parametrize(
    ("version", "setup", "message"),
    [
        ("1.2.4", "", "the package is 1.2.3, not release 1.2.4"),
        ("1.2.3", "touch new.txt", "changes: commit them first (?? new.txt)"),
        ("1.2.3", "git tag v1.2.3", "tag v1.2.3 exists"),
    ],
)
def test_nothing_is_built_from_a_tree_that_is_not_the_release(
    version: str,
    setup: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """Another version, changes that are not committed, a tag that exists: one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(release, "__version__", "1.2.3")
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty --message begin"
    subprocess.run(f"git init -q . && {commit} && {setup or 'true'}", shell=True, check=True)
    assert release.main([version]) == 2
    assert message in capsys.readouterr().err


def test_more_lines_than_the_slack_allows_are_refused() -> None:
    """The message has both figures, how many are too many, and what to do."""
    budget = LineBudget("1.2.3", lines=4000, slack=300)
    assert budget.excess(4300) is None
    assert budget.excess(4312) == (
        "milco_pyserini has 4,312 lines, 12 too many: release 1.2.3 had 4,000, and the next one may have 300 more. "
        "Remove as many lines as the change adds, and name what leaves in the commit."
    )


def test_lines_of_all_modules_are_counted(tmp_path: Path) -> None:
    """Lines of Python in any folder; nothing else."""
    for name in ("a.py", "inner/b.py", "page.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n\n2\n")
    assert count_lines(tmp_path) == 6


@pytest.mark.parametrize(("version", "lines"), [("1.2.3", 4001), ("1.2.4", 4000)])
def test_the_budget_is_of_the_release(version: str, lines: int) -> None:
    """A release sets its version and its number of lines, from which the next one is compared."""
    LineBudget("1.2.3", lines=4000, slack=300).validate_release("1.2.3", 4000)
    with pytest.raises(MilcoError, match=f"set release = {version} and lines = {lines}"):
        LineBudget("1.2.3", lines=4000, slack=300).validate_release(version, lines)


def test_a_budget_without_figures_is_refused(tmp_path: Path) -> None:
    """The figures of the repository can be read; a missing one and a word are errors that name the section."""
    assert LineBudget.read().slack >= 300
    for section in ("release = 1.2.3\nlines = 4000", "release = 1.2.3\nlines = many\nslack = 300"):
        (tmp_path / "setup.cfg").write_text(f"[budget]\n{section}\n")
        with pytest.raises(MilcoError, match=r"\[budget\] needs release, lines and slack"):
            LineBudget.read(tmp_path / "setup.cfg")
