"""A command's options are one frozen dataclass; its command line is derived from it, in kebab-case.

A field's type decides how it is read: str, int, float, Path, bool (a flag), tuple[X, ...] (one or more),
X | None (not given). Errors of every command end here: one line on stderr, exit code 2.
"""

import argparse
import dataclasses
import inspect
import os
import signal
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from milco_pyserini.errors import DISK_FULL, MilcoError, unknown_name

INTERRUPTED = 130
BAD_INPUT = 2

# Read by native libraries when torch loads them, which every command does later than this. Threads that wait spin by
# default: on cores that are shared with other work, encoding is ten times slower for it. To spin for a tenth of a
# millisecond spares a query's small products the waking, and costs little. oneDNN keeps 1,024 kernels, one for each
# shape of a batch, and memory grows with them; 256 are as fast (benchmarks/encode_memory.py).
_NATIVE_SETTINGS = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "5000",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
}

OptionsT = TypeVar("OptionsT")


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: Sequence[str] = (),
    metavar: str | None = None,
    names: Sequence[str] = (),
) -> Any:
    """A dataclass field that is an option; without a default it must be given.

    names: further spellings, such as "-m". choices: the valid values, answered with the nearest match.
    """
    metadata = {"help": help, "choices": tuple(choices), "metavar": metavar, "names": tuple(names)}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise MilcoError(f"{message} (see {self.prog} --help)")


def parse(options_class: type[OptionsT], argv: Sequence[str], prog: str) -> OptionsT:
    """Read argv into options_class, whose docstring is the help page's text.

    Raises MilcoError on an option or a value that is not valid; --help prints and exits with 0.
    """
    parser = _Parser(
        prog=prog,
        description=inspect.cleandoc(options_class.__doc__ or ""),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    hints = typing.get_type_hints(options_class)
    for field in dataclasses.fields(options_class):  # type: ignore[arg-type]
        _add(parser, field, hints[field.name])
    # Before argparse, which would first ask for the required option that was misspelt.
    known = [name for action in parser._actions for name in action.option_strings]
    for argument in argv:
        name = argument.split("=")[0]
        if name.startswith("--") and name not in known and " " not in name:
            raise unknown_name("option", name, known)
    values, left = parser.parse_known_args(argv)
    if left:
        raise MilcoError(f"unexpected argument {left[0]!r} (see {prog} --help)")
    return options_class(**vars(values))


def first_words(name: str, argv: Sequence[str]) -> list[str]:
    """A command line in which the words before any option are the values of the option with this name."""
    return [name, *argv] if argv and not argv[0].startswith("-") else list(argv)


def run_command(
    prog: str,
    options_class: type[OptionsT],
    command: Callable[[OptionsT], None],
    argv: Sequence[str] | None,
    interrupted: str = "",
) -> int:
    """Parse, run, and turn every outcome into an exit code: 0, 2 for bad input, 130 for Ctrl-C.

    interrupted: what Ctrl-C leaves of this command's work, and how to go on.
    """
    try:
        return _run(prog, options_class, command, argv, interrupted)
    finally:
        if argv is None:
            ignore_interrupts()


def ignore_interrupts() -> None:
    """For the end of a program: Ctrl-C while the interpreter takes itself apart would only print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(
    prog: str,
    options_class: type[OptionsT],
    command: Callable[[OptionsT], None],
    argv: Sequence[str] | None,
    interrupted: str,
) -> int:
    for name, value in _NATIVE_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        command(parse(options_class, sys.argv[1:] if argv is None else argv, prog))
        sys.stdout.flush()
    except MilcoError as error:
        return fail(prog, str(error))
    except BrokenPipeError:
        # The reader of our output (head, less) has had enough: that is its right, not an error. What is left in
        # the buffer goes to nowhere, or the interpreter would complain when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fix = ""
        if error.errno in DISK_FULL:
            fix = f". Free some space, then run the same command again{interrupted and f' ({interrupted})'}"
        return fail(prog, f"{where}{error.strerror or error}{fix}")
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{prog}: interrupted{interrupted and '; '}{interrupted}\n")
        return INTERRUPTED
    return 0


def fail(prog: str, message: str) -> int:
    """Say on stderr, in one line, why a command ends; returns its exit code, 2."""
    line = " ".join(message.split())
    sys.stderr.write(f"{prog}: error: {line}\n")
    return BAD_INPUT


def _add(parser: argparse.ArgumentParser, field: dataclasses.Field, hint: Any) -> None:
    meta = field.metadata
    names = [*meta["names"], "--" + field.name.replace("_", "-")]
    required = field.default is dataclasses.MISSING
    kind, many = _kind(hint)
    extra: dict[str, Any] = {"dest": field.name, "help": _help(meta["help"], field.default, kind)}
    if kind is bool:
        parser.add_argument(*names, action="store_true", default=field.default, **extra)
        return
    extra["type"] = _reader(kind, names[-1], meta["choices"])
    extra["metavar"] = meta["metavar"] or ("|".join(meta["choices"]) or kind.__name__.upper())
    if many:
        extra["nargs"] = "+"
        extra["action"] = _Tuple
    parser.add_argument(*names, required=required, default=None if required else field.default, **extra)


class _Tuple(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, tuple(values))


def _kind(hint: Any) -> tuple[type, bool]:
    """The type that one value is read as, and whether there may be several."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(inner for inner in typing.get_args(hint) if inner is not type(None))
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    return hint, False


def _reader(kind: type, name: str, choices: Sequence[str]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if choices and text not in choices:
            raise unknown_name(f"value for {name}", text, choices)
        if kind is str and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                why = "names are written to manifests, as UTF-8. Rename the file, or check the terminal's encoding"
                raise MilcoError(f"{name} {text!a} is not UTF-8: {why}") from None
        try:
            return kind(text)
        except ValueError:
            wanted = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
            raise MilcoError(f"{name} takes {wanted}, not {text!r}") from None

    return read


def _help(text: str, default: Any, kind: type) -> str:
    text = text.replace("%", "%%")
    if kind is bool or default in (dataclasses.MISSING, None, (), ""):
        return text
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{text} (default: {shown})"
