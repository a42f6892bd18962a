"""This process as a command: its streams, its signals, and the exit code that it ends with."""

import contextlib
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from milco_pyserini.console import say
from milco_pyserini.errors import DISK_FULL, MilcoError

INTERRUPTED = 130
BAD_INPUT = 2
# One Ctrl-C may arrive twice, as of `timeout -s INT`. A later one is a person who does not want to wait.
_IMPATIENCE = 1.0
# Until a call that swallowed Ctrl-C has returned.
_RETURNING = 0.05


def start(main: Callable[[], int | None], prog: str = "milco") -> int:
    """Run main() as what this process is for; returns its exit code.

    Streams that are closed or break never stop its work, but for a broken stdout; Ctrl-C is one line at any moment.
    """
    signal.signal(signal.SIGINT, _interrupts)
    sys.unraisablehook = _interrupts.raise_again
    _open_streams()
    try:
        return run(prog, main)
    finally:
        # Ctrl-C while the interpreter takes itself apart would only print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def run(prog: str, command: Callable[[], int | None], interrupted: str = "") -> int:
    """Run a command and turn every outcome into an exit code: 0 or its own, 2 for bad input, 130 for Ctrl-C.

    interrupted: what Ctrl-C leaves of the command's work, and how to resume. A bug stays a traceback.
    """
    try:
        _check_environment()
        code = command() or 0
        sys.stdout.flush()
        return code
    except SystemExit:
        _drop_unwritten()
        raise
    except MilcoError as error:
        return fail(prog, str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _is_stdout_broken():
            # The reader of our output (head, less) has had enough: that is its right, not an error.
            _drop_unwritten()
            return 0
        where = f"{error.filename}: " if error.filename else ""
        fix = ""
        if error.errno in DISK_FULL:
            fix = f". Free some space, then run the same command again{interrupted and f' ({interrupted})'}"
        return fail(prog, f"{where}{error.strerror or error}{fix}")
    except BaseException as error:
        # What is interrupted in the middle of an import may raise any error.
        if not isinstance(error, KeyboardInterrupt) and _interrupts.first is None:
            raise
        _interrupts.write(f"{prog}: interrupted{interrupted and '; '}{interrupted}")
        return INTERRUPTED


def fail(prog: str, message: str) -> int:
    """Report on stderr, in one line, why a command ends; returns its exit code, 2."""
    _drop_unwritten()
    line = " ".join(message.split())
    say(f"{prog}: error: {line}")
    return BAD_INPUT


@contextlib.contextmanager
def interrupts_held() -> Any:
    """Start processes in it: they inherit a blocked Ctrl-C, which this process gets at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Interrupts:
    """The handler of SIGINT. first: when it was called first; None before."""

    first: float | None = None
    _written = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = time.monotonic()
            raise KeyboardInterrupt
        if time.monotonic() - self.first > _IMPATIENCE:
            if not self._written:
                os.write(2, b"\ninterrupted\n")
            # Whatever is complete has its name already.
            os._exit(INTERRUPTED)

    def write(self, line: str) -> None:
        """The one line."""
        say(f"\n{line}")
        self._written = True

    def raise_again(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Python drops what is raised in a callback of C or a finalizer: Ctrl-C there counts a moment later."""
        if unraisable.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(unraisable)
            return
        self.first = None
        # A real signal, which ends a system call that the main thread may wait in.
        again = threading.Timer(_RETURNING, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        again.daemon = True
        again.start()


_interrupts = _Interrupts()


class _LastingStderr(io.FileIO):
    """A stderr whose reader may go away, or whose disk may be full: the rest goes to nowhere."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            # So that the libraries' own messages cannot fail either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def _open_streams() -> None:
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # A file of ours would get its number otherwise, and a library's message would end up there.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        encoding = getattr(sys.stderr, "encoding", "utf-8")
        lasting = io.BufferedWriter(_LastingStderr(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(lasting, encoding, "backslashreplace", line_buffering=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal or PYTHONIOENCODING that cannot write a term gets its number.
        sys.stdout.reconfigure(errors="backslashreplace")


def _check_environment() -> None:
    """Raise MilcoError for what libraries would end in a traceback for when they are imported."""
    if sys.flags.optimize > 1:
        raise MilcoError("python -OO: transformers reads docstrings, which it removes. Use -O, or PYTHONOPTIMIZE=1")
    threads = os.environ.get("NUMBA_NUM_THREADS", "")
    if threads.strip().lstrip("+-").isdecimal() and int(threads) < 1:
        raise MilcoError(f"NUMBA_NUM_THREADS is {threads!r} in the environment: must be at least 1. Unset it")


def _is_stdout_broken() -> bool:
    """Whether nobody reads stdout any more."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except OSError:
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_unwritten() -> None:
    """Write what is left for stdout; what cannot be written goes to nowhere, or Python would complain at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
