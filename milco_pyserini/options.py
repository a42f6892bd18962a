"""Declare options as fields of a frozen dataclass, with their ranges, choices and groups.

A command's options and a training configuration are such classes: milco_pyserini.cli.parser derives a command line from
one, validate() checks an object that was built in Python.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from milco_pyserini.errors import MilcoError, shown, unknown_name

OptionsT = TypeVar("OptionsT")

# Java, Rust and C++ read integers of 32 bits.
MAX_INTEGER = 2**31 - 1
# Beyond this, threads only use up memory for their stacks.
MAX_THREADS = 1024


class InvalidOptions(MilcoError):  # noqa: N818
    """Several invalid options, reported together: a command prints one line for each of `errors`."""

    def __init__(self, errors: Iterable[MilcoError]) -> None:
        self.errors = tuple(part for error in errors for part in getattr(error, "errors", [error]))
        super().__init__("; ".join(map(str, self.errors)))

    @classmethod
    def of(cls, errors: Sequence[MilcoError]) -> MilcoError:
        """Return several errors as one; a single one as it is."""
        return cls(errors) if len(errors) > 1 else errors[0]


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    group: str = "",
    choices: Sequence[str] = (),
    metavar: str | None = None,
    names: Sequence[str] = (),
    flag: str = "",
    synonyms: Sequence[str] = (),
    positional: bool = False,
    repeatable: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
) -> Any:
    """Return a dataclass field that is an option; one without a default is required.

    Args:
        help: a noun phrase for the help page. The default is appended to it.
        group: heading under which the help page lists the option; "" for the first, unnamed group.
        choices: valid values; any other is answered with the nearest match.
        metavar: placeholder of the value on the help page (default: by type and choices).
        names: other spellings, such as "-m".
        flag: the name on the command line, if it differs from the field's.
        synonyms: what other programs call it, such as "--hits": not accepted, but answered with this option.
        positional: the value is given without the option's name.
        repeatable: of several values; the option may be given several times, and has the values of all.
        minimum, maximum: inclusive bounds of a number; above: an exclusive lower bound. Numbers are always finite, and
            integers fit 32 bits.
    """
    metadata = {
        "help": help,
        "group": group,
        "choices": tuple(choices),
        "metavar": metavar,
        "names": tuple(names),
        "flag": flag,
        "synonyms": tuple(synonyms),
        "positional": positional,
        "repeatable": repeatable,
        "range": (minimum, maximum, above),
    }
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def option_name(field: dataclasses.Field) -> str:
    """Return the name of a field as messages have it: "`max_length`", which commands print as --max-length."""
    return f"`{field.name}`"


def changed_options(options: Any, *names: str) -> list[str]:
    """Return those of the named fields that differ from their default, as option_name() has them."""
    fields = {field.name: field for field in dataclasses.fields(options)}
    return [option_name(fields[name]) for name in names if getattr(options, name) != fields[name].default]


def options_of(source: type, *names: str, without: Sequence[str] = ()) -> Any:
    """Return a dataclass field that holds an object of another options class, by default the class's own.

    A command that has such a field has the options of that class.

    Args:
        names: of the options that the command has; all by default.
        without: those that it does not have.
    """
    held = {field.name: field for field in dataclasses.fields(source) if field.name not in without}
    chosen = {name: field for name, field in held.items() if not names or name in names}
    return dataclasses.field(default=source(), metadata={"held": chosen})


def option_fields(options: Any) -> dict[str, dataclasses.Field]:
    """Return the options of a class or object by name, with those of the objects that it holds."""
    found: dict[str, dataclasses.Field] = {}
    for field in dataclasses.fields(options):
        found |= field.metadata.get("held", {field.name: field})
    return found


def option_values(options: Any) -> dict[str, Any]:
    """Return the values of an object's options by name, with those of the objects that it holds."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        held = field.metadata.get("held")
        values |= {field.name: value} if held is None else {name: getattr(value, name) for name in held}
    return values


def replace_options(options: OptionsT, **values: Any) -> OptionsT:
    """Return a copy of an options object with other values of its own options and of those of the objects it holds."""
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        if held := field.metadata.get("held"):
            given = {name: values.pop(name) for name in held.keys() & values.keys()}
            values[field.name] = dataclasses.replace(values.get(field.name, getattr(options, field.name)), **given)
    return dataclasses.replace(options, **values)  # type: ignore[type-var]


def value_types(options_class: type) -> dict[str, tuple[type, bool]]:
    """Return the type of one value of each option as it is given, and whether there may be several.

    A mapping, and a class with a method parse(), are given as texts.
    """
    found: dict[str, tuple[type, bool]] = {}
    fields = {field.name: field for field in dataclasses.fields(options_class)}
    for name, hint in typing.get_type_hints(options_class).items():
        if name in fields and (held := fields[name].metadata.get("held")):
            found |= {inner: kind for inner, kind in value_types(hint).items() if inner in held}
            continue
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint = next(inner for inner in typing.get_args(hint) if inner is not type(None))
        if typing.get_origin(hint) is tuple:
            found[name] = typing.get_args(hint)[0], True
        elif typing.get_origin(hint) is Mapping:
            found[name] = str, True
        else:
            found[name] = (str if hasattr(hint, "parse") else hint), False
    return found


def validate(options: Any) -> None:
    """Raise InvalidOptions if an options object holds values outside their declared ranges and choices.

    If its class has a method `conflicts()` that yields messages about combinations of options, these are reported too.
    """
    values = option_values(options)
    fields = option_fields(options)
    errors = [error for name, field in fields.items() if (error := value_error(field, values[name])) is not None]
    conflicts = getattr(options, "conflicts", None)
    if conflicts is not None and not errors:
        errors = [MilcoError(message) for message in conflicts()]
    if errors:
        raise InvalidOptions.of(errors)


def value_error(field: dataclasses.Field, value: Any) -> MilcoError | None:
    """Return why a value is outside a field's declared choices or range, or None if it is valid."""
    if isinstance(field.default, tuple) and isinstance(value, str):
        # Its letters would be the values.
        return MilcoError(f"{option_name(field)} takes several values, got the string {value!r}: write [{value!r}]")
    values = value if isinstance(value, tuple | list) else (value,)
    if field.metadata["choices"] and len(set(values)) < len(values):
        return MilcoError(f"`{field.name}={' '.join(values)}`: give each value once")
    for item in values:
        choices = field.metadata["choices"]
        if choices and isinstance(item, str) and item and item not in choices:
            return unknown_name(f"value for {option_name(field)}", item, choices)
        if isinstance(item, str | Path) and "\0" in str(item):
            return MilcoError(f"`{field.name}={shown(str(item))}` has a NUL character, as no name or path may")
        if isinstance(item, int | float) and not isinstance(item, bool):
            try:
                validate_number(field.name, item, *field.metadata["range"])
            except MilcoError as error:
                return error
    return None


def validate_number(
    name: str,
    value: float,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
) -> None:
    """Raise MilcoError if a number is not finite or is outside its range.

    Args:
        name: of the parameter, or a phrase such as "number of texts", for the message.
    """
    if maximum is None and isinstance(value, int) and value > MAX_INTEGER:
        maximum = MAX_INTEGER
    lowest = above if minimum is None else minimum
    low = -math.inf if lowest is None else lowest
    high = math.inf if maximum is None else maximum
    # False for NaN; math.isfinite() fails on integers beyond the range of a float.
    is_finite = abs(value) < math.inf
    if is_finite and low <= value <= high and value != above:
        return
    if lowest is None and maximum is None:
        rule = "a finite number"
    elif lowest is None:
        rule = f"at most {maximum:,}"
    elif maximum is not None:
        rule = f"from {lowest:,} to {maximum:,}" if above is None else f"above {lowest:,} and at most {maximum:,}"
    elif above is None:
        rule = f"at least {lowest:,}" if is_finite else f"a finite number of at least {lowest:,}"
    else:
        rule = f"above {lowest:,}" if is_finite else f"a finite number above {lowest:,}"
    number = f"{value:g}" if isinstance(value, float) else str(value)
    given = f"`{name}={number}`" if name.isidentifier() else f"{name} {number}"
    raise MilcoError(f"{given}: must be {rule}")
