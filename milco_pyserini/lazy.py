"""Lazy public names (PEP 562): importing a package loads neither torch nor Java."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the __getattr__ and __dir__ of a package. names: public name -> module that defines it.

    For type checkers and editors, the package also imports the names under TYPE_CHECKING.
    """

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(names[name]), name)

    def listed() -> list[str]:
        module = import_module(package)
        # Neither what the package imports, nor its own constants and modules.
        return sorted({*filter(lambda name: name.startswith("__"), vars(module)), *module.__all__})

    return load, listed
