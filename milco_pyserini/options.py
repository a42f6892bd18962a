"""Declare options as fields of a frozen dataclass, with their ranges, choices and groups.

A command's options and a training configuration are such classes: milco_pyserini.cli.parser derives a command line from
one, validate() checks an object that was built in Python.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from milco_pyserini.defaults import ENCODER_DTYPES
from milco_pyserini.errors import MilcoError, Parameter, ParameterError, joined, nearest, parameter, unknown_name

__all__ = ["option", "replace_options"]

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
    parameters: Sequence[str] = (),
    requires: str | Parameter = "",
    excludes: Sequence[str] = (),
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
        names: other spellings, such as "-m", or Pyserini's --hits.
        flag: the name on the command line, if it differs from the field's.
        parameters: names of the functions' parameters that get its value, for messages; for NAME=VALUE, the names.
        requires: another option without which this one has no effect, or the values of the other with which it has one.
        excludes: options that may not be given with this one.
        positional: the value is given without the option's name.
        repeatable: the option takes several values and may be given several times; it has the values of all.
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
        "parameters": tuple(parameters),
        "requires": Parameter(requires) if isinstance(requires, str) else requires,
        "excludes": tuple(excludes),
        "positional": positional,
        "repeatable": repeatable,
        "range": (minimum, maximum, above),
    }
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Options of commands that run a network."""

    device: str = option("auto", group="encoder", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option(
        "auto",
        group="encoder",
        choices=ENCODER_DTYPES,
        metavar="DTYPE",
        help="precision of matrix products: auto (the checkpoint's), fast (bfloat16 where the device multiplies it "
        "natively, else float32), float32, bfloat16, or int8 (encoders on the CPU)",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardOptions:
    """Options of commands that several processes or machines may share."""

    shard_id: int = option(0, minimum=0, group="scale-out", help="shard that this command makes, from 0")
    shard_num: int = option(1, minimum=1, group="scale-out", help="number of shards, all with the same --output")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExternalOptions:
    """Options of commands that read vectors which another program wrote."""

    plain: bool = option(
        False, group="external vectors", help="--vectors is external Anserini JSONL: a directory or a file"
    )
    scale: float | None = option(
        None,
        above=0,
        maximum=MAX_INTEGER,
        requires="plain",
        group="external vectors",
        help="impact = round(weight x scale), for float weights (default: 1)",
    )


def from_keywords(options_class: type[OptionsT], *arguments: Any, **keywords: Any) -> OptionsT:
    """Return an options object. Raises TypeError for a keyword that it does not have, with the nearest one."""
    for name in keywords:
        if name not in option_fields(options_class):
            raise TypeError(str(unknown_name("keyword", name, option_fields(options_class))))
    return options_class(*arguments, **keywords)


def changed_options(options: Any, *names: str) -> list[str]:
    """Return mentions of those of the named fields that differ from their default, for messages."""
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    return [parameter(name) for name in names if getattr(options, name) != defaults[name]]


def one_of(options: Any, *names: str) -> Iterator[MilcoError]:
    """Yield an error unless exactly one of the named options is given."""
    if len(changed_options(options, *names)) != 1:
        yield MilcoError("give exactly one of " + joined(map(parameter, names), ", "))


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

    Then the declared combinations are validated, and others by its method `conflicts()`, if there is one, which
    yields errors or messages.
    """
    values = option_values(options)
    fields = option_fields(options)
    errors = [error for name, field in fields.items() if (error := value_error(field, values[name])) is not None]
    if not errors:
        errors = list(_combination_errors(fields, values))
    conflicts = getattr(options, "conflicts", None)
    if conflicts is not None and not errors:
        errors = [message if isinstance(message, MilcoError) else MilcoError(message) for message in conflicts()]
    if errors:
        raise InvalidOptions.of(errors)


def _combination_errors(fields: Mapping[str, dataclasses.Field], values: Mapping[str, Any]) -> Iterator[MilcoError]:
    """Yield an error for each given option that excludes another given one, or lacks the one that it requires."""
    given = [name for name, field in fields.items() if values[name] not in (None, field.default)]
    for name in given:
        other, needed = fields[name].metadata["requires"]
        if other and (other not in given if needed is None else set(needed).isdisjoint(_each(values[other]))):
            alternatives = joined([parameter(other, value) for value in needed or (None,)], " or ")
            yield ParameterError(name, None, "requires " + alternatives)
        for other in fields[name].metadata["excludes"]:
            if other in given:
                yield MilcoError(parameter(name) + " and " + parameter(other) + " exclude each other", "Omit one.")


def value_error(field: dataclasses.Field, value: Any) -> MilcoError | None:
    """Return why a value is outside a field's declared choices or range, or None if it is valid."""
    choices = field.metadata["choices"]
    if isinstance(field.default, tuple) and isinstance(value, str):
        # Its letters would be the values.
        example = value if not choices or value in choices else choices[0]
        rule = f"must be a list of {', '.join(choices)}" if choices else "must be a list of values"
        return ParameterError(field.name, value, rule, f"Write [{example!r}].")
    values = _each(value)
    if choices and len(set(values)) < len(values):
        return ParameterError(field.name, values, "each value may be given once")
    for item in values:
        if choices and isinstance(item, str) and item and item not in choices:
            near = nearest(item, choices)
            return ParameterError(
                field.name, item, f"must be one of {', '.join(choices)}", f"Did you mean {near}?" if near else ""
            )
        if isinstance(item, str | Path) and "\0" in str(item):
            return ParameterError(field.name, item, "names and paths may not contain the character NUL")
        if isinstance(item, int | float) and not isinstance(item, bool):
            try:
                validate_number(field.name, item, *field.metadata["range"])
            except MilcoError as error:
                return error
    return None


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,)


def validate_number(
    name: str, value: float, minimum: float | None = None, maximum: float | None = None, above: float | None = None
) -> None:
    """Raise MilcoError if a number is not finite or is outside its range.

    Args:
        name: of the parameter.
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
    raise ParameterError(name, value, f"must be {rule}")
