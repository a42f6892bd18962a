"""Files and directories appear whole or not at all, whatever happens while they are written."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from milco_pyserini import files
from milco_pyserini.errors import MilcoError
from milco_pyserini.files import (
    PARTIAL,
    read_json,
    refuse_existing,
    remove_partial,
    whole_directory,
    whole_file,
    write_json,
)


def names(path: Path) -> list[str]:
    """Everything in a directory, hidden files included."""
    return sorted(entry.name for entry in path.iterdir())


@pytest.fixture(autouse=True)
def umask() -> object:
    """A common umask, given back afterwards."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_file_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    """Until the block ends there is nothing under the name; then all of it, with a file's usual rights."""
    path = tmp_path / "deep" / "out.txt"
    with whole_file(path, "w") as handle:
        handle.write("ä\n")
        handle.flush()
        assert not path.exists()
    assert path.read_bytes() == "ä\n".encode()
    assert path.stat().st_mode & 0o777 == 0o644
    assert names(path.parent) == ["out.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_file_that_fails_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    """An error in the block leaves the old file as it was, or none, and nothing beside it."""
    path = tmp_path / "out"
    for before in (None, b"old"):
        if before:
            path.write_bytes(before)
        with pytest.raises(error), whole_file(path) as handle:
            handle.write(b"half")
            raise error
        assert names(tmp_path) == (["out"] if before else [])
        assert not before or path.read_bytes() == before


KILLED = """
import sys, time
from pathlib import Path
from milco_pyserini.files import whole_directory, whole_file
with {context} as place:
    {write}
    print("written", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("context", "write"),
    [
        ("whole_file(Path('out'))", "place.write(b'x' * 100_000); place.flush()"),
        ("whole_directory(Path('out'), overwrite=True)", "(place / 'half').write_text('half')"),
    ],
    ids=["file", "directory"],
)
def test_kill_leaves_no_half(tmp_path: Path, context: str, write: str) -> None:
    """After kill -9 in the middle nothing has the name, and what is left over is swept away by the next run."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(context=context, write=write)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[1])},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "out").exists()
    assert all(PARTIAL in name for name in names(tmp_path))
    remove_partial(tmp_path / "out")
    assert names(tmp_path) == []


def test_a_directory_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    """The block fills a directory beside the name; at its end that is the directory of the name."""
    path = tmp_path / "deep" / "index"
    with whole_directory(path) as place:
        (place / "a").write_text("a")
        assert not path.exists()
    assert names(path) == ["a"]
    assert path.stat().st_mode & 0o777 == 0o755
    assert names(path.parent) == ["index"]


def test_a_directory_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    """An error in the block leaves the old directory as it was and nothing beside it."""
    path = tmp_path / "index"
    path.mkdir()
    (path / "old").write_text("old")
    with pytest.raises(ValueError, match="half"), whole_directory(path, overwrite=True) as place:
        (place / "new").write_text("new")
        raise ValueError("half")
    assert names(tmp_path) == ["index"]
    assert names(path) == ["old"]


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_what_is_there_is_replaced_only_when_asked(tmp_path: Path, kind: str) -> None:
    """Without overwrite an output that holds something is refused; with it, it is replaced as a whole."""
    path = tmp_path / "index"
    if kind == "directory":
        path.mkdir()
        (path / "old").write_text("old")
    else:
        path.write_text("old")
    with (
        pytest.raises(MilcoError, match="index exists: choose another --output, or replace it with --overwrite"),
        whole_directory(path),
    ):
        pytest.fail("the block must not run")
    with whole_directory(path, overwrite=True) as place:
        (place / "new").write_text("new")
        assert path.exists()
    assert names(path) == ["new"]
    assert names(tmp_path) == ["index"]


def test_the_old_directory_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new directory has the name before anything of the old one is deleted."""
    path = tmp_path / "index"
    with whole_directory(path) as place:
        (place / "old").write_text("old")
    seen = []
    rmtree = files.shutil.rmtree
    monkeypatch.setattr(files.shutil, "rmtree", lambda *args, **more: (seen.append(names(path)), rmtree(*args, **more)))
    with whole_directory(path, overwrite=True) as place:
        (place / "new").write_text("new")
    assert seen == [["new"]]


def test_an_empty_directory_is_no_output(tmp_path: Path) -> None:
    """A directory that somebody made beforehand is filled without --overwrite."""
    (tmp_path / "index").mkdir()
    refuse_existing(tmp_path / "index", overwrite=False)
    with whole_directory(tmp_path / "index") as place:
        (place / "a").write_text("a")
    assert names(tmp_path / "index") == ["a"]


def test_only_the_leftovers_of_that_name_are_removed(tmp_path: Path) -> None:
    """Another output's unfinished files, which another process may be writing, stay."""
    (tmp_path / f".a{PARTIAL}1").mkdir()
    (tmp_path / f".a{PARTIAL}2").write_text("half")
    (tmp_path / f".b{PARTIAL}1").write_text("half")
    (tmp_path / "a").write_text("whole")
    remove_partial(tmp_path / "a")
    assert names(tmp_path) == [f".b{PARTIAL}1", "a"]


def test_json_round_trips(tmp_path: Path) -> None:
    """What write_json writes, read_json reads; a person can read it too."""
    value = {"terms": ["▁陌"], "scale": 100.0, "none": None}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value
    assert "▁陌" in (tmp_path / "a.json").read_text("utf-8").splitlines()[2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is not there"),
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[1]", "holds list, not a JSON object"),
    ],
)
def test_json_that_is_none_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    """The error has the path and what is wrong."""
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MilcoError, match=rf"a\.json {reason}"):
        read_json(path)
