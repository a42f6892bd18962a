"""What a person sees while a command works. stdout is data; everything here goes to stderr."""

import sys
import time

_TERMINAL_INTERVAL = 0.5
_LOG_INTERVAL = 60.0


def say(message: str) -> None:
    """Write one line to stderr."""
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

    A terminal sees one line redrawn twice a second; a log file gets one line a minute. total may be None
    where it is not known. The first counter of add() is the one that total counts. unit: in the plural.
    """

    def __init__(self, unit: str, total: int | None = None, done: int = 0) -> None:
        self.unit = unit
        self.total = total
        self.done = self._before = done
        self.sums: dict[str, float] = {}
        self._started = self._shown = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def add(self, count: int, **sums: float) -> None:
        """Count finished units; sums are further totals, such as tokens=..., shown as rates."""
        self.done += count
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0) + value
        now = time.monotonic()
        if now - self._shown >= (_TERMINAL_INTERVAL if self._terminal else _LOG_INTERVAL):
            self._shown = now
            self._show(self.line())

    def line(self) -> str:
        """The line as it stands: done, rates, averages per unit, time left."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        fresh = self.done - self._before
        rate = fresh / seconds
        of = f"/{self.total:,}" if self.total is not None else ""
        counts = self.done if self.total is None else self.total
        unit = _singular(self.unit) if counts == 1 else self.unit
        parts = [f"{self.done:,}{of} {unit}", f"{rate:,.0f} {self.unit}/s"]
        for name, value in self.sums.items():
            if name == "tokens":
                parts.append(f"{value / seconds:,.0f} tokens/s")
            else:
                parts.append(f"{value / max(fresh, 1):,.1f} {name} each")
        if self.total is not None and rate > 0 and self.done < self.total:
            parts.append(f"{duration((self.total - self.done) / rate)} left")
        return ", ".join(parts)

    def close(self, outcome: str = "done") -> None:
        """End the work with one line that stays: the counts, the rates and the time it took."""
        end = f"{outcome}: {self.line()}, {duration(time.monotonic() - self._started)} in all"
        if self._terminal:
            sys.stderr.write("\r\x1b[2K")
        say(end)

    def _show(self, line: str) -> None:
        if self._terminal:
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()
        else:
            say(line)


def _singular(unit: str) -> str:
    """One of "queries", of "English texts"."""
    return f"{unit.removesuffix('ies')}y" if unit.endswith("ies") else unit.removesuffix("s")
