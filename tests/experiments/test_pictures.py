"""Pictures of what milco analyze and milco eval report."""

import json
from pathlib import Path

import numpy as np
import pytest
from synthetic_stores import synthetic_batch, write_store

from experiments.pictures import main, sweep_curves
from milco_pyserini.analysis.sweep import SweepPoint
from milco_pyserini.sparse import SparseBatch

pytestmark = pytest.mark.slow

POINTS = [
    {"vectors": name, "index": "exact", "ms": 1.0 + terms, "measures": {"R@9": 0.5}, "size": 9 * terms, "terms": terms}
    for name, terms in (("none", 40), ("top-k:3", 3), ("top-k:10", 10), ("mass:40", 9))
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_drawn(name: str) -> None:
    assert Path(name).read_bytes().startswith(b"\x89PNG")


def test_statistics_are_drawn(here: Path) -> None:
    """Also those of vectors without terms; languages are read from the ids."""
    write_store(here / "v", *synthetic_batch(20))
    empty = SparseBatch(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 200)
    write_store(here / "empty", ["en-1", "en-2", "fr-1"], empty)
    for name in ("v", "empty"):
        assert main(["statistics", "--vectors", name, "--output", f"{name}.png"]) == 0
        assert_drawn(f"{name}.png")


def test_a_sweep_has_a_curve_for_each_kind_of_rule(here: Path) -> None:
    """The unpruned vectors are part of each; the most terms come first."""
    curves = sweep_curves([SweepPoint(**point) for point in POINTS])
    assert {kind: [point.vectors for point in curve] for (kind, _), curve in curves.items()} == {
        "top-k": ["none", "top-k:10", "top-k:3"],
        "mass": ["none", "mass:40"],
    }
    (here / "sweep.json").write_text(json.dumps(POINTS))
    assert main(["sweep", "--sweep", "sweep.json", "--output", "sweep.png"]) == 0
    assert_drawn("sweep.png")


def test_languages_of_hits_are_drawn(here: Path) -> None:
    """A panel for each run."""
    (here / "a.txt").write_text("sw-q Q0 sw-1 1 3 r\nsw-q Q0 de-1 2 2 r\n")
    (here / "b.txt").write_text("sw-q Q0 de-1 1 3 r\n")
    (here / "qrels").write_text("sw-q 0 sw-1 1\nsw-q 0 de-1 1\n")
    assert main(["languages", "--run", "a.txt", "b.txt", "--qrels", "qrels", "--output", "languages.png"]) == 0
    assert_drawn("languages.png")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "--sweep", "other.json", "--output", "x.svg"], "pictures are PNG"),
        (["sweep", "--sweep", "other.json", "--output", "x.png"], "other.json is not what milco analyze sweep"),
        (["sweep", "--sweep", "other.json", "--output", "mine.png"], "mine.png exists"),
    ],
)
def test_bad_input_is_one_line(here: Path, capsys: pytest.CaptureFixture, arguments: list[str], message: str) -> None:
    """Exit code 2, and no picture is replaced."""
    (here / "other.json").write_text('[{"points": 3}]')
    (here / "mine.png").write_bytes(b"mine")
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not (here / "x.png").exists() and (here / "mine.png").read_bytes() == b"mine"
