"""Progress goes to stderr: a line a minute in a log, a line redrawn on a terminal, a closing line always."""

import pytest

from milco_pyserini import console
from milco_pyserini.console import Progress, duration, say


class Clock:
    """A monotonic clock that the test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that console reads."""
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
def test_durations_are_said_as_a_person_says_them(seconds: float, text: str) -> None:
    """Seconds below a minute, m:ss below an hour, h:mm:ss beyond."""
    assert duration(seconds) == text


def test_a_log_has_one_line_a_minute_and_a_closing_line(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Where stderr is no terminal: plain lines, nothing on stdout."""
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


def test_a_terminal_has_one_line_that_is_redrawn(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the line is drawn over, twice a second at most, and the closing line stays."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = Progress("queries")
    for _ in range(4):
        clock.now += 0.25
        progress.add(1)
    progress.close("searched")
    printed = capsys.readouterr().err
    assert printed.count("\r\x1b[2K") == 3
    assert printed.endswith("\r\x1b[2Ksearched: 4 queries, 4 queries/s, 1 s in all\n")


def test_resumed_work_is_no_speed(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """What an earlier run had done counts as done, but not for the rate or the time left."""
    progress = Progress("documents", total=200, done=100)
    clock.now += 10
    progress.add(50)
    assert progress.line() == "150/200 documents, 5 documents/s, 10 s left"


def test_nothing_done_is_told_too(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """No documents, no time: still a closing line."""
    Progress("documents", total=0).close()
    assert capsys.readouterr().err == "done: 0/0 documents, 0 documents/s, 0 s in all\n"


@pytest.mark.parametrize(
    ("unit", "line"),
    [("queries", "1/1 query, 1 queries/s"), ("English texts", "1/1 English text, 1 English texts/s")],
)
def test_one_is_singular(unit: str, line: str, clock: Clock) -> None:
    """What is counted agrees with its number."""
    progress = Progress(unit, total=1)
    clock.now += 1
    progress.add(1)
    assert progress.line() == line


def test_say_writes_one_line_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """stdout is data."""
    say("a word")
    assert capsys.readouterr() == ("", "a word\n")
