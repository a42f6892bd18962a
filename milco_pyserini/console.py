"""What a person sees while a command works. stdout is data; everything here goes to stderr."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

_TERMINAL_INTERVAL = 0.5
_LOG_INTERVAL = 60.0
# Takes how many more texts are done, and their tokens.
Report = Callable[[int, int], None]


def say(message: str) -> None:
    """Write one line to stderr, above a bar that is there."""
    shown = _bar_class().external_write_mode(file=sys.stderr) if "tqdm" in sys.modules else contextlib.nullcontext()
    with shown:
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()


def counted(number: int, one: str, more: str = "") -> str:
    """A number and its noun: "1 query", "1,204 queries". more: the plural where it is not one + "s"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def duration(seconds: float) -> str:
    """Seconds as a person says them: 41 s, 12:05, 3:20:00."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes = f"{rest // 60:02d}:{rest % 60:02d}"
    return f"{hours}:{minutes}" if hours else minutes.removeprefix("0")


class Progress:
    """Counts of one long piece of work: rates, averages, time left; a closing line always.

    A terminal sees a bar from the beginning on, cut to its width; a log file gets one line a minute. total may be None
    where it is not known. unit: in the plural.
    """

    def __init__(self, unit: str, total: int | None = None, done: int = 0) -> None:
        self.unit = unit
        self.total = total
        self.done = self._before = done
        self.tokens = 0.0
        # Of each further sum, its value and the number of units that it is of.
        self.sums: dict[str, tuple[float, int]] = {}
        self._started = self._shown = time.monotonic()
        self._bar: Any = None
        if sys.stderr.isatty():
            form = "{bar:1}{desc}" if total is None else "{percentage:3.0f}%|{bar:10}| {desc}"
            how = {"total": total, "initial": done, "desc": self.line(), "bar_format": form}
            self._bar = _bar_class()(**how, file=sys.stderr, dynamic_ncols=True, leave=False)

    def add(self, count: int, tokens: float = 0, **sums: float) -> None:
        """Count finished units; tokens are shown as a rate, sums as their average per unit."""
        self.done += count
        self.tokens += tokens
        self.average(count, **sums)
        now = time.monotonic()
        if now - self._shown < (_LOG_INTERVAL if self._bar is None else _TERMINAL_INTERVAL):
            return
        self._shown = now
        if self._bar is None:
            say(self.line())
        else:
            self._bar.n = self.done
            self._bar.set_description_str(self.line())

    def average(self, count: int, **sums: float) -> None:
        """Add to the sums what is of units that are counted already, or will be."""
        for name, value in sums.items():
            before, units = self.sums.get(name, (0, 0))
            self.sums[name] = before + value, units + count

    def line(self) -> str:
        """The line as it stands: done, rates, averages per unit, time left."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (self.done - self._before) / seconds
        of = f"/{self.total:,}" if self.total is not None else ""
        counts = self.done if self.total is None else self.total
        unit = _singular(self.unit) if counts == 1 else self.unit
        parts = [f"{self.done:,}{of} {unit}", f"{rate:,.0f} {self.unit}/s"]
        if self.tokens:
            parts.append(f"{self.tokens / seconds:,.0f} tokens/s")
        parts.extend(f"{value / max(units, 1):,.1f} {name} each" for name, (value, units) in self.sums.items())
        if self.total is not None and rate > 0 and self.done < self.total:
            parts.append(f"{duration((self.total - self.done) / rate)} left")
        return ", ".join(parts)

    def close(self, outcome: str | None = "done") -> None:
        """Remove the bar and report the counts, the rates and the time it took; outcome None reports nothing."""
        if self._bar is not None:
            self._bar.close()
        if outcome is None:
            return
        say(f"{outcome}: {self.line()}, {duration(time.monotonic() - self._started)} in all")


@cache
def _bar_class() -> Any:
    from tqdm import tqdm

    class Bar(tqdm):
        """Without tqdm's thread, and its lock between processes."""

        monitor_interval = 0
        _lock = threading.RLock()

    return Bar


def _singular(unit: str) -> str:
    """One of "queries", of "English texts"."""
    return f"{unit.removesuffix('ies')}y" if unit.endswith("ies") else unit.removesuffix("s")
