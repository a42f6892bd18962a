"""Messages and progress: the library's go to the logger milco_pyserini, a command's to stderr; stdout is for data."""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import IO, Any, TextIO

_TERMINAL_INTERVAL = 0.5
_LOG_INTERVAL = 60.0
# They are invisible, and join letters in Persian, Hindi and emoji.
_JOINERS = "\u200c\u200d"
# Silent unless a program that uses the library configures logging, or a command shows it.
_LOGGER = logging.getLogger("milco_pyserini")
_LOGGER.addHandler(logging.NullHandler())
# Called with the number of further texts that are encoded, and their tokens.
Report = Callable[[int, int], None]


def printable(text: str) -> str:
    """Replace what would act on a terminal (control characters, changes of direction) by escapes."""
    return "".join(sign if sign.isprintable() or sign in _JOINERS else ascii(sign)[1:-1] for sign in text)


def log(message: str) -> None:
    """Report one line, or several, by the logger milco_pyserini; commands show them on stderr."""
    _LOGGER.info(message, stacklevel=2)


def warn(message: str) -> None:
    """Report a warning as log() does; commands put "warning: " before it."""
    _LOGGER.warning(message, stacklevel=2)


def write(message: str, stream: TextIO | None = None) -> None:
    """Write one line to a stream (stderr), above a progress bar if one is shown, printable() whatever it names."""
    lines, stream = "\n".join(map(printable, message.split("\n"))), stream or sys.stderr
    shown = _bar_class().external_write_mode(file=stream) if "tqdm" in sys.modules else contextlib.nullcontext()
    with shown:
        stream.write(f"{lines}\n")
        stream.flush()


@contextlib.contextmanager
def captured_stderr() -> Iterator[IO[bytes]]:
    """Yield a file that receives all output to stderr within the block, also of native libraries."""
    import tempfile

    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield captured
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


class _Console(logging.Handler):
    """Writes messages as commands show them. render: how the running command shows the library's parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.render: Callable[[str], str] = str

    def emit(self, record: logging.LogRecord) -> None:
        trace = f"\n{logging.Formatter().formatException(record.exc_info)}" if record.exc_info else ""
        write(f"{'warning: ' if record.levelno == logging.WARNING else ''}{self.render(record.msg)}{trace}")


_CONSOLE = _Console()


def shows_messages() -> bool:
    """Return whether this process runs a command, which shows messages and progress."""
    return _CONSOLE in _LOGGER.handlers


def start_messages() -> None:
    """Show messages and progress on stderr from now on."""
    _LOGGER.addHandler(_CONSOLE)
    _LOGGER.setLevel(logging.INFO)
    # Libraries such as Ray give the root logger handlers of their own, which would write each line again.
    _LOGGER.propagate = False


@contextlib.contextmanager
def messages_shown(render: Callable[[str], str] = str) -> Iterator[None]:
    """Show messages and progress on stderr within the block, as commands do: as render() returns them."""
    shown, level, propagates, before = shows_messages(), _LOGGER.level, _LOGGER.propagate, _CONSOLE.render
    start_messages()
    _CONSOLE.render = render
    try:
        yield
    finally:
        _CONSOLE.render = before
        if not shown:
            _LOGGER.removeHandler(_CONSOLE)
            _LOGGER.setLevel(level)
            _LOGGER.propagate = propagates


def counted(number: int, one: str, more: str = "") -> str:
    """Return a number with its noun: "1 query", "1,204 queries". more: the plural, if it is not one + "s"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def duration(seconds: float) -> str:
    """Format seconds: "41 s", "12:05", "3:20:00"."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    hours, rest = divmod(total, 3600)
    minutes = f"{rest // 60:02d}:{rest % 60:02d}"
    return f"{hours}:{minutes}" if hours else minutes.removeprefix("0")


class Progress:
    """Progress of a long task: counts, rates, averages and remaining time, with a summary line at the end.

    On a terminal it is a bar, shown from the start and truncated to its width; in a log it is one line per minute. In
    a library, the lines are messages (log), unless the caller asks to see them.

    Args:
        unit: what is counted, in the plural.
        total: None if unknown.
        done: units that were finished before, as in a resumed run.
        show: whether to show it, even if no command runs.
    """

    def __init__(self, unit: str, total: int | None = None, done: int = 0, show: bool = False) -> None:
        self.unit = unit
        self.total = total
        self.done = self._before = done
        self.tokens = 0.0
        # Units of done that were copied from elsewhere.
        self.reused = 0
        # Name -> sum, and the number of units it covers.
        self.sums: dict[str, tuple[float, int]] = {}
        self._started = self._shown = time.monotonic()
        # A notebook shows what is written to stderr as an error.
        is_notebook = type(sys.stderr).__module__.startswith("ipykernel.")
        stream = sys.stdout if is_notebook else sys.stderr
        self._write: Callable[[str], None] = partial(write, stream=stream) if show else log
        self._bar: Any = None
        if (show or shows_messages()) and (is_notebook or _has_columns(stream)):
            form = "{bar:1}{desc}" if total is None else "{percentage:3.0f}%|{bar:10}| {desc}"
            how = {"total": total, "initial": done, "desc": self.line(), "bar_format": form}
            self._bar = _bar_class()(**how, file=stream, dynamic_ncols=True, leave=False)

    def add(self, count: int, tokens: float = 0, **sums: float) -> None:
        """Count finished units. tokens are reported as a rate, sums as averages per unit."""
        self.done += count
        self.tokens += tokens
        self.average(count, **sums)
        now = time.monotonic()
        if now - self._shown < (_LOG_INTERVAL if self._bar is None else _TERMINAL_INTERVAL):
            return
        self._shown = now
        if self._bar is None:
            self._write(self.line())
        else:
            self._bar.n = self.done
            self._bar.set_description_str(self.line())

    def average(self, count: int, **sums: float) -> None:
        """Add to the sums of units that are counted elsewhere."""
        for name, value in sums.items():
            before, units = self.sums.get(name, (0, 0))
            self.sums[name] = before + value, units + count

    def line(self) -> str:
        """Return the progress line: counts, rates, averages per unit, remaining time."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (self.done - self._before) / seconds
        of = f"/{self.total:,}" if self.total is not None else ""
        counts = self.done if self.total is None else self.total
        unit = _singular(self.unit) if counts == 1 else self.unit
        parts = [f"{self.done:,}{of} {unit}", f"{rate:,.0f} {self.unit}/s"]
        if self.reused:
            parts.append(f"{self.reused:,} reused")
        if self.tokens:
            parts.append(f"{self.tokens / seconds:,.0f} tokens/s")
        parts.extend(f"{value / max(units, 1):,.1f} {name} each" for name, (value, units) in self.sums.items())
        if self.total is not None and rate > 0 and self.done < self.total:
            parts.append(f"{duration((self.total - self.done) / rate)} left")
        return ", ".join(parts)

    def close(self, outcome: str | None = "done") -> None:
        """Remove the bar and report counts, rates and elapsed time after outcome; None reports nothing."""
        if self._bar is not None:
            self._bar.close()
        if outcome is None:
            return
        self._write(f"{outcome}: {self.line()}, {duration(time.monotonic() - self._started)} in all")


def _has_columns(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can show a bar: some terminals in containers have 0 columns."""
    try:
        return stream.isatty() and os.get_terminal_size(stream.fileno()).columns > 0
    except (OSError, ValueError):
        # It has no descriptor, and states its size to tqdm.
        return True


@cache
def _bar_class() -> Any:
    from tqdm import tqdm

    class Bar(tqdm):
        """tqdm without its monitor thread and its lock between processes."""

        monitor_interval = 0
        _lock = threading.RLock()

    return Bar


def _singular(unit: str) -> str:
    """Return the singular: "query" for "queries"."""
    return f"{unit.removesuffix('ies')}y" if unit.endswith("ies") else unit.removesuffix("s")
