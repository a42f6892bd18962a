"""Promises of --output where it names a file: what cannot be written is refused before the work, not after it."""

from pathlib import Path

import pytest

from milco_pyserini.errors import MilcoError
from milco_pyserini.output_file import refuse_output


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_can_hold_no_file_is_refused_whatever_is_said(tmp_path: Path, overwrite: bool) -> None:
    """A directory, full or empty, a device, and a path that leads through a file."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    for path, message in (
        (tmp_path / "empty", "is a directory"),
        (tmp_path, "is a directory"),
        (Path("/dev/null"), "choose another --output"),
        (tmp_path / "file" / "run.txt", "file is a file, nothing can be written below it"),
        (tmp_path / "file" / "runs" / "run.txt", "file is a file, nothing can be written below it"),
    ):
        with pytest.raises(MilcoError, match=message):
            refuse_output(path, overwrite)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


def test_a_directory_that_may_not_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest directory that is there decides."""
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    with pytest.raises(MilcoError, match=f"no permission to write in {tmp_path}"):
        refuse_output(tmp_path / "runs" / "run.txt", False)


def test_new_files_and_files_to_replace_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories that are missing are made later; a file that is there needs --overwrite."""
    monkeypatch.chdir(tmp_path)
    refuse_output(Path("runs/deep/run.txt"), False)
    Path("run.txt").write_text("mine")
    refuse_output(Path("run.txt"), True)
    with pytest.raises(MilcoError, match="replace it with --overwrite"):
        refuse_output(Path("run.txt"), False)
    assert [path.name for path in tmp_path.iterdir()] == ["run.txt"]
