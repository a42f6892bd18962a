"""Errors that do not depend on the encoder are reported before it is loaded."""

from pathlib import Path

import pytest
from explained_set import index
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.cli.main import main

COMMANDS = {
    "encode --corpus docs.tsv --encoder mini --device cuda:99": "--device cuda:99",
    "encode --corpus docs.tsv --encoder mini --max-length 100000": "--max-length 100000",
    "encode --corpus docs.tsv --encoder mini --output /proc/x": "--output /proc/x",
    "encode --text a --encoder mini --device cuda:99": "--device cuda:99",
    "encode --text a --encoder mini --max-length 100000": "--max-length 100000",
    "index --vectors vectors --engine exact --output /proc/x": "--output /proc/x",
    "search --index INDEX --query a --device cuda:99": "--device cuda:99",
    "search --index INDEX --topics docs.tsv --device cuda:99": "--device cuda:99",
    "explain --index INDEX --query a --device cuda:99": "--device cuda:99",
    "explain --index INDEX --query a --doc d1 zzz": "no document",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_error_comes_before_the_encoder(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2, nothing written; no partial name is shown."""
    path = index("exact").path.absolute()
    write_store(tmp_path / "vectors", *synthetic_batch(5))
    (tmp_path / "docs.tsv").write_text("d1\ta river\n")
    monkeypatch.chdir(tmp_path)

    def load(*_: object) -> None:
        raise AssertionError("the encoder was loaded")

    monkeypatch.setattr("milco_pyserini.model.networks.read_checkpoint", load)
    assert main([str(path) if word == "INDEX" else word for word in command.split()]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert COMMANDS[command] in line and ".partial-" not in line
    assert sorted(file.name for file in tmp_path.iterdir()) == ["docs.tsv", "vectors"]
