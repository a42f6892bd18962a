"""Progress on stderr: one line per minute in a log, a bar on a terminal, and a summary line."""

import io
import logging
import os

import pytest

from milco_pyserini import console
from milco_pyserini.console import Progress, duration, log


class Clock:
    """A monotonic clock that the test advances."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock of the console."""
    clock = Clock()
    monkeypatch.setattr(console, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (41.4, "41 s"),
        (59.6, "1:00"),
        (725, "12:05"),
        (3599.6, "1:00:00"),
        (12000, "3:20:00"),
        (360000, "100:00:00"),
    ],
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    """Seconds below a minute, m:ss below an hour, h:mm:ss beyond."""
    assert duration(seconds) == text


def test_a_log_has_one_line_per_minute_and_a_summary(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """If stderr is not a terminal: plain lines, and nothing on stdout."""
    progress = Progress("documents", total=1000)
    for _ in range(10):
        clock.now += 12
        progress.add(50, tokens=5000, terms=500)
    progress.close()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "250/1,000 documents, 4 documents/s, 417 tokens/s, 10.0 terms each, 3:00 left",
        "500/1,000 documents, 4 documents/s, 417 tokens/s, 10.0 terms each, 2:00 left",
        "done: 500/1,000 documents, 4 documents/s, 417 tokens/s, 10.0 terms each, 2:00 left, 2:00 in all",
    ]


def test_messages_cannot_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences and changes of direction, as in the name of a file, are shown; letters stay as they are."""
    log("d\x1b[31m\u202ex/ドキュメント می\u200cخواهم.jsonl:1: not JSON\nsecond line")
    assert capsys.readouterr().err == "d\\x1b[31m\\u202ex/ドキュメント می\u200cخواهم.jsonl:1: not JSON\nsecond line\n"


class Terminal(io.StringIO):
    """A terminal of 80 columns that keeps the visible lines."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return the visible lines."""
        shown = []
        for line in self.getvalue().split("\n"):
            cells = ""
            for drawn in line.split("\r"):
                assert len(drawn) <= 80 or line == self.getvalue().split("\n")[-2]
                cells = drawn + cells[len(drawn) :]
            shown.append(cells.rstrip())
        return shown


def test_a_logged_exception_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """It is what a server's log has of an internal error."""
    with console.messages_shown():
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            logging.getLogger("milco_pyserini.serve.app").exception("GET /search failed")
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1]) == ("GET /search failed", "ZeroDivisionError")


def test_a_terminal_shows_a_bar_from_the_start(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never wider than the terminal, below messages, and finally replaced by the summary."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda stream: (80, 24))
    progress = Progress("documents", total=4)
    assert terminal.lines() == ["  0%|          | 0/4 documents, 0 documents/s"]
    for _ in range(4):
        clock.now += 0.5
        progress.add(1, tokens=12345, **{"pivot terms": 10.0, "terms": 20.0})
    assert terminal.lines() == ["100%|██████████| 4/4 documents, 2 documents/s, 24,690 tokens/s, 10.0 pivot terms"]
    log("a word")
    progress.close("store")
    assert terminal.lines() == [
        "a word",
        "store: 4/4 documents, 2 documents/s, 24,690 tokens/s, 10.0 pivot terms each, 20.0 terms each, 2 s in all",
        "",
    ]


class Notebook(Terminal):
    """A stream of Jupyter, which shows stderr in red."""

    __module__ = "ipykernel.iostream"

    def isatty(self) -> bool:
        return False


def test_a_notebook_shows_progress_on_stdout(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook shows lines on stderr as errors."""
    out, err = Notebook(), Notebook()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    progress = Progress("texts", total=2, show=True)
    assert out.lines() == ["  0%|          | 0/2 texts, 0 texts/s"]
    clock.now += 1
    progress.add(2)
    progress.close("Encoded")
    assert out.lines() == ["Encoded: 2/2 texts, 2 texts/s, 1 s in all", ""] and not err.getvalue()


def test_without_a_total_there_is_no_bar(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the counts."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    progress = Progress("queries")
    clock.now += 1
    progress.add(3)
    assert terminal.lines() == [" 3 queries, 3 queries/s"]
    progress.close()
    assert terminal.lines() == ["done: 3 queries, 3 queries/s, 1 s in all", ""]


def test_averages_are_per_unit_they_were_added_for(clock: Clock) -> None:
    """Documents are counted per batch, their terms per part."""
    progress = Progress("documents", total=100)
    clock.now += 1
    progress.add(60, tokens=600)
    progress.average(50, terms=500)
    assert progress.line() == "60/100 documents, 60 documents/s, 600 tokens/s, 10.0 terms each, 1 s left"


def test_resumed_work_does_not_count_for_the_rate(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Units of an earlier run count as done, but not for the rate or the remaining time."""
    progress = Progress("documents", total=200, done=100)
    clock.now += 10
    progress.add(50)
    assert progress.line() == "150/200 documents, 5 documents/s, 10 s left"


def test_a_terminal_without_columns_gets_the_lines_of_a_log(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some terminals of containers and of CI have the size 0 x 0, on which no bar can be seen."""
    reader, writer = os.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        progress = Progress("documents", total=4)
        clock.now += 61
        progress.add(2)
        assert os.read(reader, 1000).decode().startswith("2/4 documents")
        progress.close("store")
        assert os.read(reader, 1000).decode().startswith("store: 2/4 documents")
    os.close(reader)
