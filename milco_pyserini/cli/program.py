"""Run a command as this process: its streams, its signals and its exit code."""

import io
import os
import select
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType, MappingProxyType
from typing import Any

from milco_pyserini.console import messages_shown, start_messages, write
from milco_pyserini.errors import DISK_FULL, MilcoError, Parameter, named, value_text
from milco_pyserini.options import InvalidOptions

BAD_INPUT = 2
NO_FLAGS: Mapping[str, str] = MappingProxyType({})
# The signals that end a command, and what is reported; its exit code is 128 + the signal, as a shell has it.
_ENDING = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
# `timeout -s INT` sends one Ctrl-C twice. After this many seconds a second one means that the user will not wait.
_IMPATIENCE = 1.0
# Seconds until a call that swallowed Ctrl-C has returned.
_RETURNING = 0.05


def start(main: Callable[[], int | None], prog: str = "milco") -> int:
    """Run main() as the purpose of this process; return its exit code.

    A closed or broken stderr never stops the work, and Ctrl-C or SIGTERM is reported in one line at any moment. Python
    processes that are started for the work, by whatever library, do not import from the working directory.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    start_messages()
    for number in _ENDING:
        signal.signal(number, _interrupts)
    sys.unraisablehook = _interrupts.raise_again
    _open_streams()
    try:
        return run(prog, main)
    finally:
        # During interpreter shutdown they would only print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run(
    prog: str, command: Callable[[], int | None], interrupted: str = "", flags: Mapping[str, str] = NO_FLAGS
) -> int:
    """Run a command and turn every outcome into an exit code.

    0 or its own, 2 for bad input, 130 for Ctrl-C, 143 for SIGTERM. A bug remains a traceback.

    Args:
        interrupted: what Ctrl-C or SIGTERM leaves of the command's work, and how to resume.
        flags: parameter -> option, for messages (parser.flags_of()).
    """
    with messages_shown(partial(with_flags, flags=flags)):
        try:
            _check_environment()
            code = command() or 0
            sys.stdout.flush()
            return code
        except SystemExit:
            _drop_unwritten()
            raise
        except InvalidOptions as invalid:
            for error in invalid.errors:
                fail(prog, str(error), flags)
            return BAD_INPUT
        except MilcoError as error:
            return fail(prog, str(error), flags)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and _is_stdout_broken():
                # The reader of stdout (head, less) has closed it, which is not an error.
                _drop_unwritten()
                return 0
            where = f"{error.filename}: " if error.filename else ""
            fix = ""
            if error.errno in DISK_FULL:
                fix = f". Free some space, then run the same command again{interrupted and f' ({interrupted})'}"
            return fail(prog, f"{where}{error.strerror or error}{fix}")
        except BaseException as error:
            # Interrupting an import may raise any error.
            if not isinstance(error, KeyboardInterrupt) and _interrupts.first is None:
                raise
            _interrupts.write(f"{prog}: {_ENDING[_interrupts.number]}{interrupted and '; '}{interrupted}")
            return 128 + _interrupts.number


def fail(prog: str, message: str, flags: Mapping[str, str] = NO_FLAGS) -> int:
    """Report an error in one line on stderr; return the exit code 2. flags: as of run()."""
    _drop_unwritten()
    line = " ".join(with_flags(message, flags).split())
    write(f"{prog}: error: {line}")
    return BAD_INPUT


def with_flags(message: str, flags: Mapping[str, str]) -> str:
    """Return a message with the parameters that it mentions as options of a command; others have their Python names."""

    def typed(mention: Parameter) -> str:
        flag, value = flags.get(mention.name), mention.value
        if flag is None:
            return str(mention)
        if value is None or isinstance(value, bool):
            return flag.rstrip("=")
        texts = map(value_text, value if isinstance(value, list | tuple) else [value])
        return f"{flag}{'' if flag.endswith('=') else ' '}{shlex.join(texts)}"

    return named(message, typed)


class _Interrupts:
    """The handler of SIGINT and SIGTERM. first: time of its first call, or None; number: of the signal."""

    first: float | None = None
    number = signal.SIGINT
    _written = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first, self.number = time.monotonic(), signal.Signals(number)
            raise KeyboardInterrupt
        if time.monotonic() - self.first > _IMPATIENCE:
            if not self._written:
                os.write(2, f"\n{_ENDING[self.number]}\n".encode())
            # Complete files have been renamed into place already.
            os._exit(128 + number)

    def write(self, line: str) -> None:
        """Report the interruption."""
        write(f"\n{line}")
        self._written = True

    def raise_again(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Deliver the signal again where Python dropped it: in a callback from C or in a finalizer."""
        if unraisable.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(unraisable)
            return
        self.first = None
        again = threading.Timer(_RETURNING, _signal_main_thread, (self.number,))
        again.daemon = True
        again.start()


def _signal_main_thread(number: int) -> None:
    """Send a signal, which also ends a system call in which the main thread may wait, except on Windows."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)


_interrupts = _Interrupts()


class _LastingStderr(io.FileIO):
    """A stderr that discards output that it cannot write: its reader may be gone, or its disk full."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            # Messages that libraries write must not fail either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def _open_streams() -> None:
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Otherwise the next file opened would get this descriptor, and messages would be written into it.
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
        # Characters that the terminal cannot encode are escaped.
        sys.stdout.reconfigure(errors="backslashreplace")


def _check_environment() -> None:
    """Raise MilcoError for settings with which importing a library would end in a traceback."""
    if sys.flags.optimize > 1:
        raise MilcoError("python -OO: transformers reads docstrings, which it removes. Use -O, or PYTHONOPTIMIZE=1")
    threads = os.environ.get("NUMBA_NUM_THREADS", "")
    if threads.strip().lstrip("+-").isdecimal() and int(threads) < 1:
        raise MilcoError(f"NUMBA_NUM_THREADS is {threads!r} in the environment: must be at least 1. Unset it")


def _is_stdout_broken() -> bool:
    """Return whether the reader of stdout is gone. Windows does not know."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, AttributeError):
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_unwritten() -> None:
    """Flush stdout; discard what cannot be written, or Python would complain at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
