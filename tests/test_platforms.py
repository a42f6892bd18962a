"""Commands without servers, shards and Ray run where a system lacks fcntl, resource, /proc and POSIX signals."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milco_pyserini.corpora import Document
from milco_pyserini.corpora.languages import detect_languages
from milco_pyserini.encode.ray_launcher import validate_ray
from milco_pyserini.engines.qdrant import Qdrant
from milco_pyserini.engines.seismic import Seismic
from milco_pyserini.errors import MilcoError
from milco_pyserini.train.cli import validate_installation

TESTS = Path(__file__).parent
# doctor ends with 1 if something is not installed.
PROGRAM = """
import without_posix
from milco_pyserini.cli.main import main
for line in open("commands.txt"):
    code = main(line.split())
    assert code == 0 or line.split() == ["doctor"] and code == 1, (line, code)
"""
COMMANDS = """
encode --corpus c.jsonl --encoder mini --output vectors --part-size 2
encode --topics q.tsv --encoder mini --output queries
encode --corpus c.jsonl --encoder mini --output vectors --part-size 2 --overwrite
index --vectors vectors --engine exact --store --output exact
index --vectors vectors --engine lucene --store --output lucene
index --vectors vectors --engine lucene --store --output lucene --overwrite
search --index exact --topics queries --output exact.txt
search --index lucene --topics queries --output lucene.txt
search --index exact --query harbor
explain --index lucene --query boats --doc d1
eval --run exact.txt lucene.txt --qrels qrels.txt -m nDCG@10
verify vectors exact lucene
doctor
"""


@pytest.mark.slow
@pytest.mark.integration
def test_the_commands_of_the_demo_need_no_posix(tmp_path: Path) -> None:
    """Encoding, exact and lucene indexes, search, explain, eval, verify and doctor succeed, and leave no lock."""
    texts = ("boats in the old harbor", "a green hill", "mashua bandarini", "the price of tea")
    documents = "".join(f'{{"id": "d{number}", "text": "{text}"}}\n' for number, text in enumerate(texts, 1))
    (tmp_path / "c.jsonl").write_text(documents)
    (tmp_path / "q.tsv").write_text("q1\tharbor\nq2\ttea\n")
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\nq2 0 d4 1\n")
    (tmp_path / "commands.txt").write_text(COMMANDS.strip())
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "_JAVA_OPTIONS": "-Xmx1g"}
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ranked = [[line.split()[:4] for line in (tmp_path / f"{name}.txt").open()] for name in ("exact", "lucene")]
    assert ranked[0] == ranked[1]
    assert "Python" in done.stdout
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(".")] == []


@pytest.mark.parametrize("missing", [Qdrant().available, validate_ray], ids=["qdrant", "ray"])
def test_what_cannot_work_on_windows_is_refused(missing: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is read or written."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(MilcoError, match="needs Linux"):
        missing()


@pytest.mark.parametrize(
    ("missing", "extra"),
    [
        (Qdrant().available, "qdrant"),
        (Seismic().available, "seismic"),
        (validate_ray, "ray"),
        (validate_installation, "train"),
        # Languages that no other test of this process has asked for.
        (lambda: list(detect_languages([Document("d", "", "Der Nil ist ein Fluss.")], ("cy", "eo"))), "detect"),
    ],
    ids=["qdrant", "seismic", "ray", "train", "detect"],
)
def test_what_is_not_installed_is_named_with_its_extra(
    missing: Callable, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is read or written."""
    monkeypatch.setattr("milco_pyserini.errors.find_spec", lambda name: None)
    with pytest.raises(MilcoError, match=rf"pip install '\.\[{extra}\]'"):
        missing()
