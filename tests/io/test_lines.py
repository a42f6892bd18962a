"""Lines of files, whatever they contain."""

import gzip
from pathlib import Path

import pytest

from milco_pyserini.io.lines import numbered_lines


def test_blank_lines_are_counted_and_long_stretches_of_them_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small gzip file may have billions: whoever waits for the first record sees that the file is read."""
    monkeypatch.setattr("milco_pyserini.io.lines._REPORTED", 1000)
    path = tmp_path / "blank.gz"
    path.write_bytes(gzip.compress(b"\n" * 2500 + b"text\n"))
    assert list(numbered_lines(path)) == [(2501, b"text")]
    assert capsys.readouterr().err == "".join(
        f"{path}: read {n} lines, this one is blank\n" for n in ("1,000", "2,000")
    )
