"""Collapse alarms in training runs: figures in the log, and held-out pairs of --probe."""

import json
from pathlib import Path

import orjson
import pytest
from golden_set import bent

from milco_pyserini.train.cli import main
from milco_pyserini.train.data.bitext import open_bitext
from milco_pyserini.train.monitor import COUNTED, LEAST_TEXTS

WORDS = "river bridge book harbour town market train library letter map water doctor north morning story".split()
NOT_MONITORED = "Grounding is not monitored: pass --probe FILE"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def sct(tmp_path: Path) -> list[str]:
    """Return the arguments of a short SCT run with both views, on forty German queries."""
    data = tmp_path / "pairs.de.jsonl"
    lines = []
    for number in range(40):
        texts = [f"{WORDS[(number + step) % 15]} {WORDS[(number + 2 * step + 1) % 15]} town" for step in range(2)]
        lines.append({"query": WORDS[number % 15], "positives": texts[:1], "negatives": texts[1:], "scores": [2, 1]})
    data.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    sizes = "--group-size 2 --steps 4 --batch-size 8 --log-steps 2 --query-max-length 16 --passage-max-length 32"
    where = ["--model", str(bent(tmp_path, "alignment")), "--data", str(data), "--output", str(tmp_path / "run")]
    return ["sct", "--preset", "paper-sct", *where, *sizes.split(), *"--device cpu --dtype float32 --workers 0".split()]


def log(output: Path) -> list[dict]:
    """Return the entries of a run's log."""
    return [orjson.loads(line) for line in (output / "log.jsonl").read_bytes().splitlines()]


def probe(directory: Path) -> Path:
    """Write sentence pairs in the layout of FLORES (id, text, English) in German, and of bitext in Swahili."""
    directory.mkdir()
    pairs = [f"{WORDS[n % 15]} {WORDS[(n + 1) % 15]}\t{WORDS[n % 15]} town\n" for n in range(LEAST_TEXTS)]
    (directory / "de-en.tsv").write_text("".join(f"{n}\t{pair}" for n, pair in enumerate(pairs)), encoding="utf-8")
    (directory / "sw-en.tsv").write_text("".join(pairs), encoding="utf-8")
    return directory


def test_contrast_without_a_probe_reports_that_grounding_is_not_monitored(
    sct: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """Figures of a language are logged from LEAST_TEXTS texts on, term usage from COUNTED on."""
    assert main(sct) == 0
    assert capsys.readouterr().err.count(NOT_MONITORED) == 1
    names = set(log(tmp_path / "run")[1])
    assert {f"{view}/terms/{kind}/de" for view in ("pivot", "source") for kind in ("query", "passage")} <= names
    assert LEAST_TEXTS <= 4 * 8 and COUNTED > 4 * 8 * 2
    assert not any("dead" in name for name in names)
    assert not any("grounded" in name for name in names)


def test_probe_pairs_may_have_ids(sct: list[str], tmp_path: Path, capsys: Capture) -> None:
    """A directory in the layout of FLORES, or of bitext: the log has its grounded terms."""
    place = probe(tmp_path / "probe")
    assert main([*sct, "--probe", str(place)]) == 0
    assert NOT_MONITORED not in capsys.readouterr().err
    entry = log(tmp_path / "run")[0]
    assert {"pivot/grounded/probe", "pivot/grounded/probe/de", "pivot/grounded/probe/sw"} <= set(entry)
    assert "pivot/dead/probe" not in entry
    pairs = [list(source.pairs()) for source in open_bitext([place], ids=True)]
    assert [pair[1:] for pair in pairs[0]] == [pair[1:] for pair in pairs[1]]


def test_a_probe_is_filtered_by_training_languages(sct: list[str], tmp_path: Path) -> None:
    """--languages selects among its files."""
    assert main([*sct, "--probe", str(probe(tmp_path / "probe")), "--languages", "de"]) == 0
    names = log(tmp_path / "run")[0]
    assert "pivot/grounded/probe/de" in names and "pivot/grounded/probe/sw" not in names


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        ("1\ta\tb\tc\n", [], "de-en.tsv:1: 4 tab-separated column(s): expected [id TAB] text TAB English"),
        ("1\t\tb\n", [], "de-en.tsv:1: column 2 is empty"),
        ("", [], "de-en.tsv has no pairs"),
        ("1\ta\tb\n", ["--languages", "de"], "no pairs in de"),
    ],
)
def test_an_invalid_probe_is_reported_in_one_line(
    sct: list[str], tmp_path: Path, capsys: Capture, text: str, more: list[str], why: str
) -> None:
    """With file and line, before a run is created."""
    name = "fr-en.tsv" if more else "de-en.tsv"
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert main([*sct, "--probe", str(tmp_path / name), *more]) == 2
    error = capsys.readouterr().err
    assert why in error and "Traceback" not in error
    assert not (tmp_path / "run").exists()
