"""Derive a command line from a frozen dataclass of options (milco_pyserini.options), and run commands.

A field's type decides how its value is read: str, int, float, Path, bool (a flag), tuple[X, ...] (one or more values),
X | None (optional). The class docstring is the help page's text; its indented lines are printed as they are.
"""

import argparse
import collections
import copy
import dataclasses
import inspect
import shlex
import shutil
import sys
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from milco_pyserini.cli import program
from milco_pyserini.errors import MilcoError, ParameterError, nearest, unknown_name
from milco_pyserini.options import (
    InvalidOptions,
    OptionsT,
    option_fields,
    option_values,
    replace_options,
    validate,
    value_error,
    value_types,
)

_METAVARS: dict[type, str] = {int: "N", float: "X", Path: "PATH", str: "NAME"}
_WIDEST = 100
_SETTING = "NAME=VALUE"


@dataclasses.dataclass(frozen=True)
class Subcommand:
    """A command or subcommand: its options, the function that runs it, and what Ctrl-C leaves of its work.

    defaults: returns, for the arguments, an options object that has the defaults, or None for those of the class.
    """

    options: type
    run: Callable[[Any], int | None]
    interrupted: str = ""
    defaults: Callable[[Sequence[str]], Any] = lambda argv: None


Subcommands = Mapping[str, Subcommand]
_NONE: Subcommands = types.MappingProxyType({})


def run_command(
    prog: str,
    options_class: type[OptionsT],
    command: Callable[[OptionsT], int | None],
    argv: Sequence[str] | None = None,
    interrupted: str = "",
    subcommands: Subcommands = _NONE,
    defaults: Callable[[Sequence[str]], Any] = lambda argv: None,
) -> int:
    """Parse the command line and run the command; return its exit code (see program.run).

    Args:
        prog: the command as users type it: "milco encode".
        command: returns its exit code if that is not 0.
        argv: its arguments; None for those of this process.
        interrupted: what Ctrl-C leaves of the command's work, and how to resume.
        subcommands: listed on its help page.
        defaults: as of Subcommand.
    """

    def parse_and_run() -> int | None:
        arguments = sys.argv[1:] if argv is None else argv
        return command(parse(options_class, arguments, prog, subcommands, defaults(arguments)))

    return program.run(prog, parse_and_run, interrupted, flags_of(options_class))


def dispatch(prog: str, subcommands: Subcommands, default: Subcommand | str, argv: Sequence[str] | None = None) -> int:
    """Run the subcommand that argv begins with; return the exit code.

    Args:
        default: the command without a subcommand, or the summary of one that always has a subcommand.
        argv: the arguments; None for those of this process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else ""

    def print_page() -> None:
        summary = _wrapped(str(default))
        sys.stdout.write(f"usage: {prog} SUBCOMMAND [options]\n\n{summary}\n\n{_listed(prog, subcommands)}\n")

    if name in subcommands:
        command = subcommands[name]
        parts = command.options, command.run, arguments[1:], command.interrupted, _NONE, command.defaults
        return run_command(f"{prog} {name}", *parts)
    if isinstance(default, Subcommand) and (name.startswith("-") or nearest(name, subcommands) is None):
        return run_command(prog, default.options, default.run, arguments, default.interrupted, subcommands)
    if isinstance(default, str) and name in ("", "-h", "--help"):
        return program.run(prog, print_page)
    return program.fail(prog, str(unknown_name("subcommand", name, subcommands)))


def _listed(prog: str, subcommands: Subcommands) -> str:
    """Return the part of a help page that lists subcommands, or "" if there are none."""
    if not subcommands:
        return ""
    width = max(map(len, subcommands))
    lines = ["subcommands:"]
    for name, subcommand in subcommands.items():
        purpose = inspect.cleandoc(subcommand.options.__doc__ or "").split("\n")[0].rstrip(".")
        lines.append(f"  {name:<{width}}  {purpose}")
    return "\n".join([*lines, "", f"{prog} SUBCOMMAND --help lists the options of a subcommand."])


def parse(
    options_class: type[OptionsT],
    argv: Sequence[str],
    prog: str,
    subcommands: Subcommands = _NONE,
    defaults: OptionsT | None = None,
) -> OptionsT:
    """Read a command line into an options object. --help prints the page and exits with code 0.

    Args:
        defaults: has the values of the options that are not given, in place of the class.

    Raises:
        MilcoError: an option or a value is invalid. Several invalid ones are reported together, as InvalidOptions.
    """
    parser = argparse.ArgumentParser(
        prog=prog,
        description=inspect.cleandoc(options_class.__doc__ or ""),
        epilog=_listed(prog, subcommands),
        allow_abbrev=False,
        exit_on_error=False,
        formatter_class=_HelpFormatter,
    )
    fields = option_fields(options_class)
    hints = value_types(options_class)
    if defaults is not None:
        fields = {name: _with_default(fields[name], value) for name, value in option_values(defaults).items()}
    groups: dict[str, Any] = {"": parser}
    for name, field in fields.items():
        group = field.metadata["group"]
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        _add(groups[group], field, *hints[name])
    by_option = {name: field for field in fields.values() for name in _names_of(field)}
    try:
        namespace, unexpected = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        raise MilcoError(str(error), "A value that begins with - follows an equals sign, as in --query=--x.") from None
    unknown = [name.split("=")[0] for name in unexpected if name.startswith("--")]
    settings = {f"--{name.replace('_', '-')}": flag for name, flag in flags_of(options_class).items()}
    errors = [
        MilcoError(f"unknown option {name!r}", f"Give it as {settings[name]}...")
        if name in settings
        else unknown_name("option", name, [*by_option, "--help"])
        for name in unknown
    ]
    if unexpected and not unknown:
        guess = _option_for(unexpected[0], options_class, [text.split("=")[0] for text in argv])
        errors.append(MilcoError(f"unexpected argument {unexpected[0]!r} (see {prog} --help)", guess))
    misspelled = bool(errors)
    given = collections.Counter(
        by_option[name].name for name in (text.split("=")[0] for text in argv) if name in by_option
    )
    for name, count in given.items():
        if count > 1 and not fields[name].metadata["repeatable"]:
            errors.append(ParameterError(name, None, "is given twice", "Give it once, with all its values."))
    values: dict[str, Any] = {}
    for name, field in fields.items():
        raw = getattr(namespace, name)
        if raw is None or raw == []:
            # A misspelled option may be the required one.
            if field.default is dataclasses.MISSING and not misspelled:
                errors.append(ParameterError(name, None, "is required"))
            continue
        try:
            values[name] = _read(field, hints[name][0], raw)
        except MilcoError as error:
            errors.append(error)
            continue
        if (invalid := value_error(field, values[name])) is not None:
            errors.append(invalid)
    if errors:
        raise InvalidOptions.of(errors)
    if defaults is None:
        own = {field.name for field in dataclasses.fields(options_class)}  # type: ignore[arg-type]
        defaults = options_class(**{name: values.pop(name) for name in own & values.keys()})
    options = replace_options(defaults, **values)
    validate(options)
    return options


def _option_for(argument: str, options_class: type, given: Sequence[str]) -> str:
    """Return the first of a command's own options that takes such an argument, for a message; "" if it is given."""
    kinds = {"TEXT"} if " " in argument else {"PATH", "DIR"} if Path(argument).is_dir() else {"PATH", "DIR", "FILE"}
    own = dataclasses.fields(options_class)
    for field in (field for field in own if field.name in vars(options_class).get("__annotations__", ())):
        if not kinds.isdisjoint((field.metadata.get("metavar") or "").split("|")):
            flag = flag_of(field)
            return "" if flag in given else f"Write {flag} {shlex.quote(argument)}."
    return ""


def _with_default(field: dataclasses.Field, value: Any) -> dataclasses.Field:
    changed = copy.copy(field)
    changed.default = value
    return changed


def flag_of(field: dataclasses.Field) -> str:
    """Return a field's option as users type it: "--max-length", or "PATH" for a positional one.

    A flag that is on by default has the option that turns it off: "--no-lowercase".
    """
    if field.metadata["positional"]:
        return field.metadata["metavar"] or field.name.upper()
    name = field.metadata["flag"] or field.name
    return f"--{'no-' if field.default is True else ''}{name.replace('_', '-')}"


def flags_of(options_class: type) -> dict[str, str]:
    """Return parameter -> option of a command, as users type it before a value: "--max-length", "--set query_cut="."""
    flags = {}
    for field in option_fields(options_class).values():
        flag = flag_of(field)
        for name in field.metadata["parameters"]:
            flags[name] = f"{flag} {name}=" if field.metadata["metavar"] == _SETTING else flag
        flags |= {field.name: flag, field.metadata["flag"] or field.name: flag}
    return flags


def _names_of(field: dataclasses.Field) -> list[str]:
    """Return all spellings of a field's option: short ones, its name, aliases."""
    return sorted([flag_of(field), *field.metadata["names"]], key=lambda name: name.startswith("--"))


class _HelpFormatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=_width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return _wrapped(text)


def _width() -> int:
    return min(shutil.get_terminal_size().columns - 2, _WIDEST)


def _wrapped(text: str) -> str:
    """Wrap paragraphs to the terminal; lines that are indented, such as examples, stay as they are."""
    paragraphs = [
        paragraph if any(line.startswith(" ") for line in paragraph.split("\n")) else textwrap.fill(paragraph, _width())
        for paragraph in text.split("\n\n")
    ]
    return "\n\n".join(paragraphs)


def _add(group: Any, field: dataclasses.Field, value_type: type, several: bool) -> None:
    """Add a field to the parser. Values stay strings, so that parse() can report all invalid ones together."""
    metadata = field.metadata
    help_text = metadata["help"].replace("%", "%%")
    if value_type is bool:
        action: Any = "store_true"
        if field.default is None:
            action = argparse.BooleanOptionalAction
        if field.default is True:
            # A training configuration sets it.
            action, help_text = "store_false", f"do not {help_text}"
        group.add_argument(*_names_of(field), dest=field.name, action=action, help=help_text)
        return
    if field.default not in (dataclasses.MISSING, None, (), ""):
        default = " ".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        help_text = f"{help_text} (default: {default})"
    metavar = metadata["metavar"] or "|".join(metadata["choices"]) or _METAVARS.get(value_type, "VALUE")
    if metadata["positional"]:
        # A missing one is reported with other errors.
        group.add_argument(
            field.name, nargs="*" if several else "?", metavar=metadata["metavar"] or field.name.upper(), help=help_text
        )
        return
    count = "+" if several else None
    action = "extend" if metadata["repeatable"] else "store"
    group.add_argument(*_names_of(field), dest=field.name, action=action, nargs=count, metavar=metavar, help=help_text)


def _read(field: dataclasses.Field, value_type: type, raw: Any) -> Any:
    """Convert the string or strings of an option to its type."""
    if isinstance(raw, list):
        return tuple(_read(field, value_type, value) for value in raw)
    if value_type is bool:
        return raw
    try:
        raw.encode()
    except UnicodeEncodeError:
        fix = "Check the terminal's encoding, or rename the file."
        raise ParameterError(field.name, raw, "must be UTF-8", fix) from None
    if value_type is Path and not raw:
        raise ParameterError(field.name, None, "is empty", "Give a path.")
    try:
        return value_type(raw)
    except ValueError:
        expected = {int: "an integer", float: "a number"}.get(value_type, value_type.__name__)
        raise ParameterError(field.name, raw, f"must be {expected}") from None
