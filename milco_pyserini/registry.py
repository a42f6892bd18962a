"""Engines, export targets and commands by name: the package's own, and those that other packages declare."""

import configparser
from collections.abc import Iterator, MutableMapping
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, TypeVar

from milco_pyserini.console import warn
from milco_pyserini.errors import MilcoError

T = TypeVar("T")
_OWN = Path(__file__).with_name("entry_points.txt")


class Declared(NamedTuple):
    """An entry point that is not loaded. value: module:object. owner: the distribution, "" for this package."""

    value: str
    owner: str = ""


class Registry(MutableMapping[str, T]):
    """The objects of a group of entry points by name. A class is replaced by an instance.

    Each is imported when it is first looked up. entry_points.txt declares the package's own, so that a source checkout
    has them, too. The installed distributions are read only to list all names, or if a name is unknown.

    >>> engines: Registry = Registry("milco.engines")
    >>> engines["lucene"].name
    'lucene'

    Args:
        group: milco.engines, milco.targets or milco.commands.
        kind: the class of the objects.
    """

    def __init__(self, group: str, kind: Any = object) -> None:
        self._group, self._kind = group, kind
        self._loaded: dict[str, T] = {}
        self._reported: set[str] = set()

    @cached_property
    def own(self) -> dict[str, Declared]:
        """The package's own entry points."""
        parser = configparser.ConfigParser(delimiters="=")
        parser.read_string(_OWN.read_text(encoding="utf-8"))
        return {name: Declared(value) for name, value in parser[self._group].items()}

    @cached_property
    def others(self) -> dict[str, Declared]:
        """The entry points of other distributions. They cannot replace the package's own."""
        from importlib.metadata import entry_points

        points = [point for point in entry_points(group=self._group) if point.name not in self.own]
        return {point.name: Declared(point.value, point.dist.name) for point in points if point.dist}

    def available(self) -> dict[str, T]:
        """Return all objects by name, without those of other packages that cannot be loaded: a warning names each."""
        found = {}
        for name in self:
            try:
                found[name] = self[name]
            except MilcoError as error:
                if name not in self._reported:
                    warn(str(error))
                self._reported.add(name)
        return found

    def __getitem__(self, name: str) -> T:
        """Raises MilcoError, which names the distribution, if its entry point cannot be loaded, whatever the reason."""
        if name not in self._loaded:
            value, owner = self.own.get(name) or self.others[name]
            try:
                found = resolve_name(value)
                found = found() if isinstance(found, type) else found
                if not isinstance(found, self._kind):
                    raise TypeError(f"{value} is not of type {self._kind.__name__}")
            except BaseException as error:
                if not owner or isinstance(error, KeyboardInterrupt):
                    raise
                reason = f"{type(error).__name__}: {error}"
                raise MilcoError(f"{name} of the package {owner} cannot be imported: {reason}") from error
            self._loaded[name] = found
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in self.own or name in self.others

    def __setitem__(self, name: str, value: T) -> None:
        self._loaded[name] = value

    def __delitem__(self, name: str) -> None:
        for table in (self._loaded, self.own, self.others):
            table.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.own, **self.others, **self._loaded})

    def __len__(self) -> int:
        return sum(1 for _ in self)
