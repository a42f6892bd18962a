"""Packages whose public names are loaded when they are first used: importing one loads neither torch nor Java."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The __getattr__ and __dir__ of a package (PEP 562). names: public name -> module that defines it.

    Type checkers and editors do not run it: a package imports the names for them, under TYPE_CHECKING.
    """

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(names[name]), name)

    def listed() -> list[str]:
        return sorted({*vars(import_module(package)), *names})

    return load, listed
