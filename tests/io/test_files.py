"""Files and directories are complete or absent, whatever happens while they are written."""

import contextlib
import ctypes
import errno
import hashlib
import io
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from filelock import BaseFileLock, FileLock

from milco_pyserini.errors import MilcoError
from milco_pyserini.io import files, locks
from milco_pyserini.io.files import (
    PARTIAL,
    STDOUT,
    atomic_directory,
    atomic_file,
    checksum,
    checksum_bytes,
    read_json,
    remove_directory,
    remove_partial,
    scratch_directory,
    text_output,
    validate_output_directory,
    validate_output_file,
    visible,
    write_json,
)


def names(path: Path) -> list[str]:
    """Return the names in a directory, including hidden ones."""
    return sorted(entry.name for entry in path.iterdir())


def ours(path: Path) -> bool:
    """Return whether these tests wrote a directory."""
    return any((path / name).exists() for name in ("old", "new", "half"))


@pytest.fixture(autouse=True)
def umask() -> object:
    """Set a common umask for a test."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_file_or_directory_is_renamed_when_it_is_complete(tmp_path: Path) -> None:
    """Until the block ends the path does not exist; then it is complete, with the usual permissions."""
    path, index = tmp_path / "deep" / "out.txt", tmp_path / "deep" / "index"
    with atomic_file(path, "w") as handle, atomic_directory(index, False, ours) as place:
        handle.write("ä\n")
        handle.flush()
        (place / "a").write_text("a")
        assert not path.exists() and not index.exists()
    assert path.read_bytes() == "ä\n".encode() and names(index) == ["a"]
    assert (path.stat().st_mode & 0o777, index.stat().st_mode & 0o777) == (0o644, 0o755)
    assert names(path.parent) == ["index", "out.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    """The old file or directory, if any, is unchanged, and nothing partial remains."""
    path, index = tmp_path / "out", tmp_path / "index"
    index.mkdir()
    (index / "old").write_text("old")
    for before in (None, b"old"):
        if before:
            path.write_bytes(before)
        with pytest.raises(error), atomic_file(path) as handle:
            handle.write(b"half")
            raise error
        with pytest.raises(error), atomic_directory(index, True, ours) as place:
            (place / "new").write_text("new")
            raise error
        assert names(tmp_path) == (["index", "out"] if before else ["index"])
        assert not before or path.read_bytes() == before
        assert names(index) == ["old"]


def new_directory(path: Path) -> contextlib.AbstractContextManager[Path]:
    """atomic_directory() for a path that does not exist."""
    return atomic_directory(path, False, ours)


KILLED = """
import sys, time
from pathlib import Path
from milco_pyserini.io.files import atomic_directory, atomic_file
with {context} as place:
    {write}
    print("written", flush=True)
    sys.stdin.read()
"""
WRITERS = pytest.mark.parametrize(
    ("context", "write"),
    [
        ("atomic_file(Path('out'))", "place.write(b'x' * 100_000); place.flush()"),
        ("atomic_directory(Path('out'), True, lambda path: True)", "(place / 'half').write_text('half')"),
    ],
    ids=["file", "directory"],
)


def writer(directory: Path, context: str, write: str) -> subprocess.Popen:
    """Start a process that writes a file until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(context=context, write=write)],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[2])},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    return process


@WRITERS
def test_a_killed_writer_leaves_no_incomplete_file(tmp_path: Path, context: str, write: str) -> None:
    """After kill -9 the path does not exist, and the next run removes the partial file."""
    process = writer(tmp_path, context, write)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "out").exists()
    assert all(PARTIAL in name for name in names(tmp_path))
    with (atomic_file if "atomic_file" in context else new_directory)(tmp_path / "out"):
        pass
    assert names(tmp_path) == ["out"]


@WRITERS
def test_partial_files_of_live_processes_are_kept(tmp_path: Path, context: str, write: str) -> None:
    """Several processes can write the same output at once."""
    process = writer(tmp_path, context, write)
    (left,) = names(tmp_path)
    remove_partial(tmp_path / "out")
    with atomic_directory(tmp_path / "out", False, ours) as place:
        (place / "new").write_text("new")
    assert names(tmp_path) == sorted([left, "out"])
    if "atomic_file" in context:
        (tmp_path / "out" / "new").unlink()
        (tmp_path / "out").rmdir()
    process.communicate()
    assert process.returncode == 0
    assert names(tmp_path) == ["out"]
    if "atomic_file" not in context:
        assert names(tmp_path / "out") == ["half"]


def test_an_existing_directory_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    """Without overwrite an output is refused unless it is empty; with it, the entire directory is replaced."""
    path = tmp_path / "index"
    path.mkdir()
    validate_output_directory(path, False, ours)
    with atomic_directory(path, False, ours) as place:
        (place / "old").write_text("old")
    with pytest.raises(MilcoError, match=r"index exists.*overwrite=True"), atomic_directory(path, False, ours):
        pytest.fail("the block must not run")
    with atomic_directory(path, True, ours) as place:
        (place / "new").write_text("new")
        assert path.exists()
    assert names(path) == ["new"]
    assert names(tmp_path) == ["index"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_foreign_directory_is_never_replaced(tmp_path: Path, kind: str, overwrite: bool) -> None:
    """--overwrite on a home directory or a file is refused."""
    path = tmp_path / "home"
    if kind == "directory":
        path.mkdir()
        (path / "letter").write_text("dear")
    else:
        path.write_text("dear")
    with pytest.raises(MilcoError, match=r"home .* never replaced"), atomic_directory(path, overwrite, ours):
        pytest.fail("the block must not run")
    assert (path / "letter" if kind == "directory" else path).read_text() == "dear"
    assert names(tmp_path) == ["home"]


def test_an_output_that_appears_during_the_work_is_not_replaced(tmp_path: Path) -> None:
    """The first of two runs without --overwrite wins; the other fails and leaves nothing."""
    path = tmp_path / "index"
    with pytest.raises(MilcoError, match="index exists"), atomic_directory(path, False, ours) as place:
        (place / "new").write_text("late")
        path.mkdir()
        (path / "old").write_text("first")
    assert names(tmp_path) == ["index"]
    assert names(path) == ["old"]


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Record each file and directory that is flushed, with its size, and whether renames were flushed."""
    seen: dict[str, int] = {}

    def fsync(descriptor: int) -> None:
        seen[str(Path(f"/proc/self/fd/{descriptor}").readlink())] = os.fstat(descriptor).st_size

    rename = Path.replace

    def replace(path: Path, target: Path) -> Path:
        """Rename a path; everything below it must have been flushed."""
        content = [path, *path.rglob("*")]
        missing = [each for each in content if seen.get(str(each)) != each.stat().st_size]
        assert not missing or path.name == "index", f"not on disk before the rename: {missing}"
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    return seen


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
def test_content_is_flushed_before_the_rename(tmp_path: Path, flushed: dict[str, int]) -> None:
    """After a power failure, a renamed tree is complete."""
    for overwrite in (False, True):
        flushed.clear()
        with atomic_directory(tmp_path / "index", overwrite, ours) as place:
            (place / "deep" / "er").mkdir(parents=True)
            (place / "new").write_bytes(b"1" * 9)
            (place / "deep" / "er" / "file").write_bytes(b"2" * 99)
        assert str(tmp_path) in flushed
    flushed.clear()
    with atomic_file(tmp_path / "file") as handle:
        handle.write(b"3" * 999)
    assert str(tmp_path) in flushed


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    """An output that links to another disk is written and replaced there, and remains a link."""
    (tmp_path / "disk").mkdir()
    path = tmp_path / "index"
    path.symlink_to(tmp_path / "disk" / "real")
    for name in ("old", "new"):
        with atomic_directory(path, True, ours) as place:
            (place / name).write_text(name)
            assert place.is_relative_to(tmp_path / "disk")
    assert path.is_symlink()
    assert names(path) == ["new"]
    assert names(tmp_path / "disk") == ["real"]


CUT_SHORT = """
import ctypes, os, shutil, signal, sys
from pathlib import Path
from milco_pyserini.io import files
moment = int(sys.argv[1])
if sys.argv[2] == "renames":
    ctypes.CDLL = lambda name: None
calls = 0
def then_die(call):
    def counted(*arguments, **more):
        global calls
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **more)
    return counted
with files.atomic_directory(Path("index"), True, lambda path: True) as place:
    (place / "new").write_text("new")
    Path.replace = then_die(Path.replace)
    shutil.rmtree = then_die(shutil.rmtree)
"""


@pytest.mark.parametrize(
    ("how", "moment", "stands"),
    [("renames", 1, "old"), ("renames", 2, "old"), ("renames", 3, "new"), ("exchange", 1, "new")],
)
def test_kill_while_a_directory_is_replaced_loses_nothing(tmp_path: Path, how: str, moment: int, stands: str) -> None:
    """Before, between and after the two renames, the next run finds the old or the new directory, complete.

    Where the system exchanges directories in one step, this run leaves the new one.
    """
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "old").write_text("old")
    killed = subprocess.run(
        [sys.executable, "-c", CUT_SHORT, str(moment), how],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[2])},
    )
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(MilcoError, match="index exists"), atomic_directory(tmp_path / "index", False, ours):
        pytest.fail("the block must not run")
    assert names(tmp_path / "index") == [stands]
    with atomic_directory(tmp_path / "index", True, ours) as place:
        (place / "new").write_text("newer")
    assert (tmp_path / "index" / "new").read_text() == "newer"
    assert names(tmp_path) == ["index"]


def test_a_replaced_directory_never_lacks_its_name(tmp_path: Path) -> None:
    """A reader that opens it meanwhile finds the old or the new one."""
    path, running, found = tmp_path / "index", True, set()

    def watch() -> None:
        while running:
            try:
                found.update(file.name for file in path.iterdir())
            except FileNotFoundError:
                found.add("nothing")

    with atomic_directory(path, False, ours) as place:
        (place / "old").write_text("old")
    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(50):
        with atomic_directory(path, True, ours) as place:
            (place / "new").write_text("new")
    running = False
    thread.join()
    assert found <= {"old", "new"}


def test_an_interruption_between_the_renames_restores_the_old_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the two renames restores the old directory."""
    path = tmp_path / "index"
    with atomic_directory(path, False, ours) as place:
        (place / "old").write_text("old")
    # As where the system cannot exchange two directories in one step.
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    replace, calls = Path.replace, []

    def interrupted(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_directory(path, True, ours) as place:
        (place / "new").write_text("new")
    assert names(path) == ["old"]
    assert names(tmp_path) == ["index"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_paths_that_cannot_be_files_are_refused(tmp_path: Path, overwrite: bool) -> None:
    """A directory, a device, and a path below a file, with and without --overwrite."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    for path, message in (
        (tmp_path / "empty", "is a directory"),
        (tmp_path, "is a directory"),
        (Path("/dev/null"), "/dev/null"),
        (tmp_path / "file" / "run.txt", "file is a file, nothing can be written below it"),
        (tmp_path / "file" / "runs" / "run.txt", "file is a file, nothing can be written below it"),
    ):
        with pytest.raises(MilcoError, match=message):
            validate_output_file(path, overwrite)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


def test_a_full_disk_is_reported_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises the same OSError as a disk that becomes full."""

    def full(dir: Path) -> IO:
        raise OSError(errno.ENOSPC, "No space left on device", str(dir / "tmp"))

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(OSError, match="No space") as raised:
        validate_output_file(tmp_path / "run.txt", False)
    assert raised.value.filename == str(tmp_path / "run.txt")


def test_only_partial_files_of_the_same_output_are_removed(tmp_path: Path) -> None:
    """Partial files of other outputs may belong to another process."""
    (tmp_path / f".a{PARTIAL}1").mkdir()
    for name in (f".a{PARTIAL}2", f".b{PARTIAL}1", "a"):
        (tmp_path / name).write_text("half")
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    remove_partial(tmp_path / "a")
    assert names(tmp_path) == [f".b{PARTIAL}1", "a"]
    remove_partial(tmp_path / "[b]")
    assert names(tmp_path) == [f".b{PARTIAL}1", "a"]


def test_a_partial_directory_that_is_removed_before_it_is_locked_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may take it for the leftover of a killed one."""
    removed = []

    def file_lock(path: Path) -> BaseFileLock:
        lock = FileLock(path, thread_local=False)
        if not removed:
            removed.append(path)
            acquire = lock.acquire
            monkeypatch.setattr(lock, "acquire", lambda: (path.parent.rmdir(), acquire()))
        return lock

    monkeypatch.setattr(locks, "file_lock", file_lock)
    write_json(tmp_path / "out", {})
    assert removed and names(tmp_path) == ["out"]


def test_partial_files_of_version_03_are_removed(tmp_path: Path) -> None:
    """They are plain files, and directories without a lock."""
    (tmp_path / f".out{PARTIAL}0a-1").write_text("half")
    (tmp_path / f".out{PARTIAL}0a-2").mkdir()
    write_json(tmp_path / "out", {})
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("name", ["n" * 255, "水" * 85, "n" * 239])
def test_names_may_have_the_maximum_length(tmp_path: Path, name: str) -> None:
    """Partial names of long names are shortened, and remain distinct."""
    path = tmp_path / name
    write_json(path, {"long": True})
    assert read_json(path) == {"long": True}
    path.unlink()
    for content in ("old", "new"):
        with atomic_directory(path, True, ours) as place:
            (place / content).write_text(content)
    assert names(tmp_path) == [name]
    assert names(path) == ["new"]


def test_a_file_system_without_permissions_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """chmod may fail (vfat, some FUSE), and fsync of directories (FUSE, SMB)."""
    fsync = os.fsync

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "chmod", refused)
    monkeypatch.setattr(os, "fchmod", refused)
    monkeypatch.setattr(os, "fsync", files_only)
    write_json(tmp_path / "index.json", {})
    with atomic_directory(tmp_path / "index", False, ours) as place:
        (place / "new").write_text("new")
    assert names(tmp_path) == ["index", "index.json"]


@pytest.mark.parametrize("writer", [atomic_file, new_directory])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), errno.ENOSPC),
        (OSError(errno.EFBIG, "File too large"), errno.EFBIG),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), errno.EDQUOT),
        (OSError("10574 requested and 1264 written"), errno.ENOSPC),
        (RuntimeError("Error in write_index: 'ret == (size)' failed (No space left on device)"), errno.ENOSPC),
        (MilcoError("Lucene cannot write the index: No space left on device"), errno.ENOSPC),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_full_disk_is_reported_whatever_a_library_raises(
    tmp_path: Path, writer: Callable[[Path], contextlib.AbstractContextManager], error: Exception, code: int
) -> None:
    """Errors of the operating system, NumPy, Faiss and Lucene become one OSError with the path of the output."""
    with pytest.raises(OSError, match=r"index") as raised, writer(tmp_path / "index"):
        raise error
    assert (raised.value.errno, raised.value.filename) == (code, str(tmp_path / "index"))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device", "/tmp/other"), BrokenPipeError(), ValueError("bad")]
)
def test_other_errors_keep_their_filename(tmp_path: Path, error: Exception) -> None:
    """A full disk elsewhere, a closed pipe, and bad input; an error within the output names its final path."""
    with pytest.raises(type(error)) as raised, atomic_file(tmp_path / "out"):
        raise error
    assert raised.value is error
    with pytest.raises(OSError, match="No space") as raised, new_directory(tmp_path / "index") as place:
        raise OSError(errno.ENOSPC, "No space left on device", str(place / "deep" / "rows.npy"))
    assert raised.value.filename == str(tmp_path / "index" / "deep" / "rows.npy")


def test_a_mount_point_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be renamed, which would otherwise be noticed only after the build."""
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "volume")
    with pytest.raises(MilcoError, match=r"volume.*volume/NAME"):
        new_directory(tmp_path / "volume").__enter__()
    with pytest.raises(MilcoError, match="volume is a mount point"):
        remove_directory(tmp_path / "volume")
    with new_directory(tmp_path / "volume" / "index") as place:
        (place / "new").write_text("new")


def test_a_foreign_lock_is_reported_and_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wait is reported after some seconds, and fails after the limit."""
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    with locks.locked_directory(tmp_path):
        (lock,) = tmp_path.iterdir()
        with pytest.raises(MilcoError, match=f"{lock} has been locked"):
            locks.locked_directory(tmp_path, limit=0.1).__enter__()
        assert capsys.readouterr().err == f"Waiting for another program that has locked {lock} (lslocks lists it)\n"
        with pytest.raises(MilcoError, match="End that program"):
            locks.locked_directory(tmp_path, limit=0).__enter__()
        assert not capsys.readouterr().err
    with locks.locked_directory(tmp_path, limit=0):
        pass
    assert names(tmp_path) == []


def test_a_lock_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    """Also while its file is removed and created again."""
    program = (
        "import os, sys; from pathlib import Path; from milco_pyserini.io.locks import locked_file\n"
        "for _ in range(200):\n"
        "    with locked_file(Path('lock')): os.close(os.open('held', os.O_CREAT | os.O_EXCL)); os.unlink('held')"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[2])}
    processes = [subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=environment) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "does not exist"),
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[1]", "contains list, not a JSON object"),
    ],
)
def test_invalid_json_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    """The error has the path and the reason."""
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MilcoError, match=rf"a\.json {reason}"):
        read_json(path)


def test_a_lone_surrogate_is_refused(tmp_path: Path) -> None:
    """No file is written."""
    with pytest.raises(MilcoError, match="a string contains a lone surrogate"):
        write_json(tmp_path / "vocabulary.json", {"english": ["a\ud800"]})
    assert not list(tmp_path.iterdir())


def test_checksum_depends_on_every_byte(tmp_path: Path) -> None:
    """BLAKE2b with 16 bytes, as in existing manifests; it reports its progress."""
    content = bytes(range(256)) * 8192
    (tmp_path / "file").write_bytes(content)
    sizes: list[int] = []
    expected = hashlib.blake2b(content, digest_size=16).hexdigest()
    assert checksum(tmp_path / "file", sizes.append) == checksum_bytes(content) == expected
    assert sum(sizes) == len(content) and len(sizes) > 1
    (tmp_path / "file").write_bytes(content[:-1] + b"\xfe")
    assert checksum(tmp_path / "file") != expected


def test_a_terminal_shows_ids_that_would_act_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As escapes; a file or a pipe receives them as they are."""
    for is_terminal, expected in ((True, "q1\tQ0\t\\x1b[31m\n"), (False, "q1\tQ0\t\x1b[31m\n")):
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda value=is_terminal: value)
        monkeypatch.setattr("sys.stdout", screen)
        with text_output(STDOUT) as handle:
            handle.writelines(["q1\tQ0\t\x1b[31m\n"])
        assert screen.getvalue() == expected


def test_messages_have_the_paths_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the name of a scratch directory nor an absolute path for a relative one, whatever the path is called."""
    monkeypatch.chdir(tmp_path)
    with scratch_directory(Path("indexes/mine")) as scratch:
        assert visible(scratch / "vectors") == Path("indexes/mine")
    place = Path(tempfile.gettempdir()) / "milco-demo" / "index"
    assert visible(place) == place
