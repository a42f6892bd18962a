"""Commands as processes: closed and broken streams, Ctrl-C and SIGTERM at any moment, invalid environments."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milco_pyserini.cli import program

ROOT = Path(program.__file__).parents[1]
# The command writes a file, its work, and finally "done" to stderr.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from milco_pyserini.cli import program
from milco_pyserini.console import Progress, log
def main():
{body}
sys.exit(program.start(main))
"""
WORK = """
    for number in range(3):
        log("x" * 70_000)
    Progress("documents", 1).close()
    Path(sys.argv[1]).write_text("done")
"""


def run(body: str, *arguments: object, before: str = "", **options: object) -> subprocess.CompletedProcess:
    """Run a Python program. before: a redirection of the shell, such as 2>&-."""
    given = [sys.executable, "-c", PROGRAM.format(body=body.strip("\n")), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}  # type: ignore[dict-item]
    shell = ["sh", "-c", f'exec "$@" {before}', "sh", *given]
    return subprocess.run(shell, env=environment, timeout=60, check=False, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("before", ["2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_a_command_works_without_stderr(tmp_path: Path, before: str) -> None:
    """With stderr closed or on a full disk, the command completes with exit code 0."""
    assert run(WORK, tmp_path / "work", before=before).returncode == 0
    assert (tmp_path / "work").read_text() == "done"


@pytest.mark.parametrize(
    ("body", "code"), [(WORK, 0), ("    raise program.MilcoError('bad')", 2)], ids=["work", "error"]
)
def test_a_reader_of_stderr_may_exit(tmp_path: Path, body: str, code: int) -> None:
    """`milco ... 2>&1 | true` completes its work with its usual exit code."""
    reading, writing = os.pipe()
    os.close(reading)
    assert run(body, tmp_path / "work", stderr=writing).returncode == code
    os.close(writing)
    assert (tmp_path / "work").exists() == (code == 0)


def test_a_file_never_reuses_the_descriptor_of_a_closed_stream(tmp_path: Path) -> None:
    """Messages that libraries write to descriptor 2 never reach an output file."""
    body = "    with open(sys.argv[1], 'w') as file:\n        os.write(2, b'noise')\n        file.write('done')"
    assert run(body, tmp_path / "work", before="2>&-").returncode == 0
    assert (tmp_path / "work").read_text() == "done"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_stdout_cannot_encode_are_escaped(encoding: str) -> None:
    """An ASCII terminal does not lose results."""
    done = run("    sys.stdout.write('█ ナ')", env={"PYTHONIOENCODING": encoding}, capture_output=True)
    assert (done.returncode, done.stdout) == (0, rb"\u2588 \u30ca")


def test_only_a_broken_stdout_ends_a_command_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    """A broken pipe to a child process is an error."""

    def command() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    assert program.run("milco test", command) == 2
    assert capsys.readouterr().err == "milco test: error: Broken pipe\n"


INTERRUPT = "os.kill(os.getpid(), signal.SIGINT)"
SWALLOWED = f"""
    class Finalized:
        def __del__(self):
            {INTERRUPT}
            time.sleep(0.01)
    Finalized()
    time.sleep(30)
"""


@pytest.mark.parametrize(
    "body",
    [
        f"    {INTERRUPT}; time.sleep(30)",
        f"    try:\n        {INTERRUPT}; time.sleep(30)\n    except BaseException:\n        raise ImportError",
        SWALLOWED,
        f"    {INTERRUPT} if False else None\n    import atexit; atexit.register(lambda: {INTERRUPT})\n    {INTERRUPT}",
    ],
    ids=["at work", "as another error", "in a finalizer", "twice"],
)
def test_ctrl_c_is_reported_in_one_line(body: str) -> None:
    """During work, in an import that converts it to another error, and where Python drops it."""
    done = run(body, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "\nmilco: interrupted\n")


TERMINATED = """
    from milco_pyserini.io.files import atomic_directory
    with atomic_directory(Path(sys.argv[1], "index"), False, bool) as directory:
        (directory / "file").write_text("begun")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
"""


def test_sigterm_ends_a_command_as_ctrl_c_does(tmp_path: Path) -> None:
    """Schedulers send it: one line, 128 + 15 as exit code, and what was begun is removed."""
    done = run(TERMINATED, tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (143, "\nmilco: terminated\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("threads", ["0", "-1", " 0 "])
def test_an_invalid_numba_setting_is_one_error(
    threads: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is reported before the command starts."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    command: Callable[[], None] = lambda: pytest.fail("must not run")  # noqa: E731
    assert program.run("milco test", command) == 2
    assert f"NUMBA_NUM_THREADS is {threads!r} in the environment: must be at least 1" in capsys.readouterr().err


def test_python_without_docstrings_is_refused() -> None:
    """transformers needs docstrings."""
    given = [sys.executable, "-OO", "-m", "milco_pyserini", "encode", "--text", "x"]
    done = subprocess.run(given, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("milco: error: python -OO: ") and done.stderr.count("\n") == 1
