"""A command's options are one frozen dataclass; its command line is derived from it, in kebab-case.

A field's type decides how it is read: str, int, float, Path, bool (a flag), tuple[X, ...] (one or more),
X | None (not given). A field declares its range and choices, and parse() holds values to them.
"""

import argparse
import dataclasses
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from milco_pyserini.cli import program
from milco_pyserini.errors import MilcoError, shown, unknown_name

# Of every whole number: what Java, Rust and C++ take as one.
_LARGEST = 2**31 - 1
# More than any machine gains from; with some thousands, it has no room for their stacks.
MOST_THREADS = 1024

OptionsT = TypeVar("OptionsT")


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: Sequence[str] = (),
    metavar: str | None = None,
    names: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
) -> Any:
    """A dataclass field that is an option; without a default it must be given.

    names: further spellings, such as "-m". choices: the valid values, answered with the nearest match. minimum,
    maximum: of a number, inclusive; above: a limit below it, exclusive. Numbers are finite, and integers have 32 bits.
    """
    metadata = {
        "help": help,
        "choices": tuple(choices),
        "metavar": metavar,
        "names": tuple(names),
        "range": (minimum, maximum, above),
    }
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
    """Parse and run; returns the exit code of program.run().

    argv: None for the command line of this process. interrupted: what Ctrl-C leaves of this command's work, and how to
    resume.
    """

    def parsed_and_run() -> None:
        command(parse(options_class, sys.argv[1:] if argv is None else argv, prog))

    return program.run(prog, parsed_and_run, interrupted)


def _add(parser: argparse.ArgumentParser, field: dataclasses.Field, hint: Any) -> None:
    meta = field.metadata
    names = [*meta["names"], "--" + field.name.replace("_", "-")]
    required = field.default is dataclasses.MISSING
    kind, many = _kind(hint)
    extra: dict[str, Any] = {"dest": field.name, "help": _help(meta["help"], field.default, kind)}
    if kind is bool:
        parser.add_argument(*names, action="store_true", default=field.default, **extra)
        return
    extra["type"] = _reader(kind, names[-1], meta["choices"], *meta["range"])
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


def _reader(
    kind: type,
    name: str,
    choices: Sequence[str],
    minimum: float | None,
    maximum: float | None,
    above: float | None,
) -> Callable[[str], Any]:
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
            value = kind(text)
        except ValueError:
            wanted = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
            raise MilcoError(f"{name} takes {wanted}, not {shown(text)}") from None
        if kind in (int, float):
            check_range(name, value, minimum, maximum, above)
        return value

    return read


def check_range(
    name: str,
    value: float,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
) -> None:
    """Raise MilcoError for a number that is not finite, or outside its range. name: of the option, with its dashes."""
    if maximum is None and isinstance(value, int) and value > _LARGEST:
        maximum = _LARGEST
    lowest = above if minimum is None else minimum
    low = -math.inf if lowest is None else lowest
    high = math.inf if maximum is None else maximum
    if low <= value <= high and value != above and abs(value) != math.inf:
        return
    if lowest is None:
        rule = "a finite number" if maximum is None else f"at most {maximum:,}"
    elif maximum is None:
        rule = f"at least {lowest:,}" if above is None else f"above {lowest:,}"
    else:
        rule = f"from {lowest:,} to {maximum:,}" if above is None else f"above {lowest:,} and at most {maximum:,}"
    number = f"{value:g}" if isinstance(value, float) else str(value)
    raise MilcoError(f"{name} {number}: must be {rule}")


def _help(text: str, default: Any, kind: type) -> str:
    text = text.replace("%", "%%")
    if kind is bool or default in (dataclasses.MISSING, None, (), ""):
        return text
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{text} (default: {shown})"
