"""What an engine lets its users choose, under the names of its paper: some when it builds, some at every search.

An engine that has settings is a frozen dataclass, and each of them is one of its fields, made by setting(); the
others need nothing. adjusted() is the engine with other values, checked.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.index.protocol import Engine

BUILD = "build"
SEARCH = "search"


def setting(default: float, when: str, low: float, high: float, what: str) -> Any:
    """A dataclass field that is a setting: from low to high; a whole number where default is one.

    when: BUILD, or SEARCH for what may differ from one search to the next. what: its meaning, for messages.
    """
    return dataclasses.field(default=default, metadata={"when": when, "low": low, "high": high, "what": what})


def values(engine: Engine, when: str) -> dict[str, float]:
    """The settings of an engine, for its builds or for its searches: {name: value}."""
    return {name: getattr(engine, name) for name, field in _fields(engine).items() if field.metadata["when"] == when}


def adjusted(engine: Engine, settings: Mapping[str, float], *when: str) -> Engine:
    """The engine with these settings, the others as they were.

    Raises MilcoError for one that the engine does not know, that has no place in when, or that is out of its range.
    """
    fields = _fields(engine)
    for name, value in settings.items():
        if not fields:
            raise MilcoError(f"{_option(name)} {value:g}: {engine.name} has no settings")
        if name not in fields:
            raise unknown_name(f"setting of {engine.name}", name, fields)
        field = fields[name]
        if field.metadata["when"] not in when:
            raise MilcoError(f"{_option(name)} {value:g}: it is chosen when the index is built; build it again")
        _check(field, value)
    changed = {name: type(fields[name].default)(value) for name, value in settings.items()}
    return dataclasses.replace(engine, **changed) if changed else engine  # type: ignore[type-var]


def given(**settings: float | None) -> dict[str, float]:
    """Those of a command's options that were given."""
    return {name: value for name, value in settings.items() if value is not None}


def _fields(engine: Engine) -> dict[str, Any]:
    if not dataclasses.is_dataclass(engine):
        return {}
    return {field.name: field for field in dataclasses.fields(engine) if "when" in field.metadata}


def _check(field: Any, value: float) -> None:
    low, high, what = (field.metadata[name] for name in ("low", "high", "what"))
    whole = isinstance(field.default, int)
    # Written so that NaN, which is neither above nor below, is refused too.
    if not low <= value <= high or (whole and value != int(value)):
        kind = "a whole number " if whole else ""
        raise MilcoError(f"{_option(field.name)} {value:g}: {what}, must be {kind}from {low:g} to {high:,g}")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
