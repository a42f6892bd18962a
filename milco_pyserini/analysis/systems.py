"""What a sweep and a latency table compare: one pruning of the vectors, one engine, its settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, validate_unique

if TYPE_CHECKING:
    from milco_pyserini.index.protocol import Engine
    from milco_pyserini.sparse.pruning import PruningRule

UNPRUNED = "none"
_AND = "+"


@dataclass(frozen=True)
class Cut:
    """Pruning rules that apply one after the other; none leave the vectors as they are."""

    rules: "tuple[PruningRule, ...]" = ()

    def __str__(self) -> str:
        return _AND.join(map(str, self.rules)) or UNPRUNED

    @property
    def method(self) -> str:
        """The rules without their values, as in "mass" or "pivot:top-k+source:top-k": what makes a curve."""
        return _AND.join(str(rule).rpartition(":")[0] for rule in self.rules) or UNPRUNED

    @classmethod
    def parse(cls, text: str) -> "Cut":
        """Read "none", "RULE" or "RULE+RULE". Raises MilcoError for a rule that is none."""
        from milco_pyserini.sparse.pruning import PruningRule

        return cls() if text == UNPRUNED else cls(tuple(map(PruningRule.parse, text.split(_AND))))


@dataclass(frozen=True)
class EngineChoice:
    """An engine by name and the settings that differ from its own; those of a build make an index of their own."""

    engine: str
    build: tuple[tuple[str, float], ...] = ()
    search: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        return " ".join([self.engine, *(f"{name}={value:g}" for name, value in (*self.build, *self.search))])

    @classmethod
    def parse(cls, text: str) -> "EngineChoice":
        """Read "ENGINE" or "ENGINE:NAME=VALUE,NAME=VALUE". Raises MilcoError for what the engine does not know."""
        from milco_pyserini.index.protocol import BUILD, SEARCH
        from milco_pyserini.index.registry import find_engine

        name, _, rest = text.partition(":")
        settings = dict(_setting(text, part) for part in rest.split(",")) if rest else {}
        engine = find_engine(name).with_settings(settings, BUILD, SEARCH)
        given = {
            when: {key: settings[key] for key in engine.settings(when) if key in settings} for when in (BUILD, SEARCH)
        }
        return cls(name, tuple(given[BUILD].items()), tuple(given[SEARCH].items()))

    def adjusted_engine(self) -> "Engine":
        """The engine with these settings."""
        from milco_pyserini.index.protocol import BUILD, SEARCH
        from milco_pyserini.index.registry import find_engine

        return find_engine(self.engine).with_settings(dict((*self.build, *self.search)), BUILD, SEARCH)

    def settings(self) -> dict[str, float]:
        """All settings of the engine, also those that are its own."""
        from milco_pyserini.index.protocol import BUILD, SEARCH

        engine = self.adjusted_engine()
        return engine.settings(BUILD) | engine.settings(SEARCH)


@dataclass(frozen=True)
class System:
    """One thing to measure."""

    cut: Cut
    choice: EngineChoice

    def __str__(self) -> str:
        return f"{self.choice}, {self.cut}"

    @property
    def index_name(self) -> str:
        """A folder's name, the same for all that search one index."""
        return _folder(self.cut, EngineChoice(self.choice.engine, self.choice.build))

    @property
    def name(self) -> str:
        """A file's name."""
        return _folder(self.cut, self.choice)


def read_systems(prune: Iterable[str], engines: Iterable[str]) -> list[System]:
    """Every cut with every engine, the engines of a cut together. Raises MilcoError for what is given twice."""
    cuts, choices = [Cut.parse(text) for text in prune], [EngineChoice.parse(text) for text in engines]
    validate_unique("--prune", cuts)
    validate_unique("--engines", choices)
    return [System(cut, choice) for cut, choice in product(cuts, choices)]


def check_available(systems: Iterable[System]) -> None:
    """Raise MilcoError if an engine of these cannot work here."""
    from milco_pyserini.index.registry import find_engine

    for name in dict.fromkeys(system.choice.engine for system in systems):
        find_engine(name).available()


def _folder(cut: Cut, choice: EngineChoice) -> str:
    return directory_name(f"{choice}.{cut}")


def _setting(text: str, part: str) -> tuple[str, float]:
    name, equals, value = part.partition("=")
    try:
        if not equals:
            raise ValueError
        return name.strip().replace("-", "_"), float(value)
    except ValueError:
        raise MilcoError(
            f"engine {text!r}: {part!r} is no setting; written ENGINE:NAME=VALUE,..., "
            "such as seismic:query_cut=10,heap_factor=0.9"
        ) from None
