"""Collapse alarms in training runs: figures in the log, and held-out pairs of --probe."""

from pathlib import Path

import pytest
from golden_set import bent
from training_set import WORDS, logged, write_lines

from milco_pyserini.corpora.bitext import open_bitext
from milco_pyserini.train.cli import main
from milco_pyserini.train.monitor import COUNTED, LEAST_TEXTS

NOT_MONITORED = "Grounding is not monitored: pass --probe FILE"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def sct(tmp_path: Path) -> list[str]:
    """Return the arguments of a short SCT run with both views, on forty German queries."""
    lines = []
    for number in range(40):
        texts = [f"{WORDS[(number + step) % 15]} {WORDS[(number + 2 * step + 1) % 15]} town" for step in range(2)]
        lines.append({"query": WORDS[number % 15], "positives": texts[:1], "negatives": texts[1:], "scores": [2, 1]})
    data = write_lines(tmp_path / "pairs.de.jsonl", *lines)
    sizes = "--group-size 2 --steps 4 --batch-size 8 --log-steps 2 --query-max-length 16 --passage-max-length 32"
    where = ["--model", str(bent(tmp_path, "alignment")), "--data", str(data), "--output", str(tmp_path / "run")]
    return ["sct", "--preset", "paper-sct", *where, *sizes.split(), *"--device cpu --dtype float32 --workers 0".split()]


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
    names = set(logged(tmp_path / "run")[1])
    assert {f"{view}/terms/{kind}/de" for view in ("pivot", "source") for kind in ("query", "passage")} <= names
    assert LEAST_TEXTS <= 4 * 8 and COUNTED > 4 * 8 * 2
    assert not any("dead" in name for name in names)
    assert not any("grounded" in name for name in names)


def test_probe_pairs_may_have_ids(sct: list[str], tmp_path: Path, capsys: Capture) -> None:
    """A directory in the layout of FLORES, or of bitext: the log has its grounded terms; --languages selects files."""
    place = probe(tmp_path / "probe")
    assert main([*sct, "--probe", str(place)]) == 0
    assert NOT_MONITORED not in capsys.readouterr().err
    entry = logged(tmp_path / "run")[0]
    assert {"pivot/grounded/probe", "pivot/grounded/probe/de", "pivot/grounded/probe/sw"} <= set(entry)
    assert "pivot/dead/probe" not in entry
    pairs = [list(source.pairs()) for source in open_bitext([place], ids=True)]
    assert [pair[1:] for pair in pairs[0]] == [pair[1:] for pair in pairs[1]]
    assert main([*sct, "--probe", str(place), "--languages", "de", "--overwrite"]) == 0
    entry = logged(tmp_path / "run")[0]
    assert "pivot/grounded/probe/de" in entry and "pivot/grounded/probe/sw" not in entry
