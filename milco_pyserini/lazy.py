"""Packages whose public names are loaded when they are first used: importing one loads neither torch nor Java."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loader(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The __getattr__ of a package (PEP 562). names: public name -> module that defines it."""

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(names[name]), name)

    return load
