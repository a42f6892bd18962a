"""Show the library's messages as a command's user knows them: its parameters as the command's options.

The library writes parameters as Python in backticks: "`max_length=0`: must be at least 1. Pass `overwrite=True`.". The
command that has such options prints "--max-length 0: must be at least 1. Pass --overwrite.".
"""

import ast
import dataclasses
import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType

from milco_pyserini.options import option_fields

# `name` or `name=value`.
_PARAMETER = re.compile(r"`([a-z_][a-z0-9_]*)(?:=([^`]*))?`")
_SET = "set"
# Command -> parameter of the functions that it calls -> the command's option, where their names differ.
PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "milco index": {"path": "output", "source": "vectors", "store_documents": "store"},
    "milco export": {"store_documents": "store"},
    "milco index tune": {"path": "index"},
    "milco index update": {"path": "index", "source": "vectors"},
    "milco eval": {"corpora": "corpus"},
}
NO_FLAGS: Mapping[str, str] = MappingProxyType({})


def flag_of(field: dataclasses.Field) -> str:
    """Return a field's option as users type it: "--max-length", or "PATH" for a positional one.

    A flag that is on by default has the option that turns it off: "--no-lowercase".
    """
    if field.metadata["positional"]:
        return field.metadata["metavar"] or field.name.upper()
    name = field.metadata["flag"] or field.name
    return f"--{'no-' if field.default is True else ''}{name.replace('_', '-')}"


def flags_of(prog: str, options_class: type) -> dict[str, str]:
    """Return parameter -> option of a command ("milco index"), by its fields and by PARAMETERS.

    The synonyms of --set NAME=VALUE are the names of the settings that it takes.
    """
    fields = option_fields(options_class)
    flags = {name: flag_of(field) for name, field in fields.items()}
    flags |= {field.metadata["flag"]: flag_of(field) for field in fields.values() if field.metadata["flag"]}
    words = fields[_SET].metadata["synonyms"] if _SET in fields else ()
    settings = {word.removeprefix("--").replace("-", "_"): flags[_SET] for word in words}
    return settings | {parameter: flags[name] for parameter, name in PARAMETERS.get(prog, {}).items()} | flags


def with_flags(message: str, flags: Mapping[str, str]) -> str:
    """Return a message with the options of a command in place of parameters in backticks; others stay as they are.

    >>> with_flags("Pass `overwrite=True`, or another `path`", {"overwrite": "--overwrite", "path": "--output"})
    'Pass --overwrite, or another --output'
    """

    def rendered(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in flags:
            return match[0]
        if flags[name] == f"--{_SET}" and name != _SET:
            return f"{flags[name]} {name}={_typed(value or '...')}"
        return flags[name] if value in (None, "True") else f"{flags[name]} {_typed(value)}"

    return _PARAMETER.sub(rendered, message)


def _typed(value: str) -> str:
    """Return a value as users type it: "top-k:100 mass:.9" for "['top-k:100', 'mass:.9']"; other text as it is."""
    try:
        # Not 1,000, which would be a pair.
        literal = ast.literal_eval(value) if value.startswith(("[", "'", '"')) else None
    except (ValueError, SyntaxError):
        return value
    if isinstance(literal, list):
        return shlex.join(map(str, literal))
    # A repr with spaces or escapes is what a shell needs, too.
    return literal if isinstance(literal, str) and shlex.quote(literal) == literal else value
