"""How to search, and how to build an index: one object with all options, which travels to what uses them.

The keywords of Searcher.search(), the options of the command line, the parameters of the REST API and the arguments of
MCP tools are the fields of SearchRequest, with their help and ranges; those of Index.build() and milco index are the
fields of BuildRequest. A new option needs a field here, its type among the keywords, and the code that uses it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypedDict

from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.defaults import VIEWS
from milco_pyserini.errors import MilcoError, ParameterError, parameter, value_text
from milco_pyserini.options import MAX_THREADS, ExternalOptions, from_keywords, option, validate, validate_number

__all__ = ["BuildRequest", "SearchRequest"]

# Methods that fuse hits of several indexes, whose scores are on different scales.
HYBRID_METHODS = ("rrf", "rsf")
# Options that change scores: an explanation takes them, too.
SCORING = ("alpha", "views", "balance")
# Options that a fusion excludes.
ONE_INDEX = ("min_share", "alpha", "views")
# Options of vectors: texts that are encoded for an index have none of them.
OF_VECTORS = ("plain", "scale", "shard_num", "shard_id")
_CONDITION = re.compile(r"([^<>=]+)(>=|<=|=|>|<)(.*)", re.DOTALL)

GivenFilters = Mapping[str, Any] | str | Sequence[str]
"""Filters of a search: what parse_filters() takes, or what it returns."""


def parse_filters(given: GivenFilters) -> Mapping[str, Any]:
    """Return {field: values} of filters FIELD=VALUE, and {field: {operator: bound}} of ranges such as FIELD>=VALUE.

    Raises MilcoError for one without a field or an operator, for a bound that is given twice, and for values and a
    range of one field.

    >>> parse_filters(["lang=de", "lang=fr", "year>=2000", "year<2010"])
    {'lang': ['de', 'fr'], 'year': {'>=': '2000', '<': '2010'}}
    """
    if isinstance(given, Mapping):
        return given
    conditions = [given] if isinstance(given, str) else given
    if not isinstance(conditions, Sequence) or not all(isinstance(condition, str) for condition in conditions):
        raise TypeError(f'filters={given!r}: expected "year>=2000", ["lang=de", "lang=fr"], or {{"lang": "de"}}')
    filters: dict[str, list[str] | dict[str, str]] = {}
    for condition in conditions:
        parts = _CONDITION.fullmatch(condition)
        if parts is None:
            raise ParameterError("filters", condition, "expected FIELD=VALUE, such as lang=de, or a range: year>=2000")
        name, operator, value = parts.groups()
        if operator == "=" and value.startswith("="):
            fix = f"Write {name}{value}, or, for a value that begins with =, {{{name!r}: {value!r}}}."
            raise ParameterError("filters", condition, "has two equals signs", fix)
        known = filters.setdefault(name, [] if operator == "=" else {})
        if isinstance(known, list) != (operator == "="):
            raise ParameterError("filters", condition, "a field has values (=) or a range, not both")
        if isinstance(known, list):
            known.append(value)
        elif known.setdefault(operator, value) != value:
            raise ParameterError("filters", condition, f"{name}{operator}{known[operator]} is given, too")
    return filters


@dataclass(frozen=True)
class Balance:
    """A field whose values are balanced in rankings, and how much of the mean score is subtracted.

    Texts of one language share terms, so that a query finds those of its own language first. The balanced score of a
    document is score - strength x the mean score of all documents of its language, which is the product of the query
    and the mean vector of the language. It does not change the order within a language.
    """

    field: str
    strength: float = 1.0

    def __str__(self) -> str:
        return self.field if self.strength == 1 else f"{self.field}={value_text(self.strength)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what FIELD or FIELD=STRENGTH specifies. Raises MilcoError for another text.

        >>> Balance.parse("lang"), Balance.parse("lang=0.5")
        (Balance(field='lang', strength=1.0), Balance(field='lang', strength=0.5))
        """
        field, equals, number = text.partition("=")
        try:
            strength = float(number) if equals else 1.0
        except ValueError:
            field, strength = "", 1.0
        if not field:
            raise ParameterError("balance", text, "expected FIELD or FIELD=STRENGTH, such as lang or lang=0.5")
        # Far beyond any use, and far below what overflows the float32 of scores.
        validate_number("strength of balance", strength, minimum=0, maximum=1000)
        return cls(field, strength)


class SearchKeywords(TypedDict, total=False):
    """Keywords of Searcher.search(): the fields of SearchRequest other than k, in the forms in which they are given."""

    offset: int
    threads: int
    filters: GivenFilters | None
    balance: Balance | str | None
    min_share: float | None
    max_passage: bool | str
    passages: int | None
    distinct: str | None
    fuse: str | None
    weights: Sequence[float]
    depth: int
    alpha: float | None
    views: Sequence[str]
    approximate: bool


@dataclass(frozen=True)
class SearchRequest:
    """How to search. Values are validated when it is made: MilcoError if one is out of its range, or two conflict.

    >>> SearchRequest(5, filters=["lang=de"]).filters
    {'lang': ['de']}
    """

    k: int = option(10, minimum=1, help="documents to return")
    offset: int = option(0, minimum=0, help="better documents to skip")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that search")
    filters: Mapping[str, Any] = option(
        (),
        flag="filter",
        repeatable=True,
        metavar="FIELD=VALUE",
        help="only documents with this value of a stored field, or in a range such as 'year>=2000' (>, <=, <); several "
        "values of a field are alternatives, all fields must have one",
    )
    balance: Balance | None = option(
        None,
        metavar="FIELD[=X]",
        help="balance languages (lang, or lang=0.5): the mean score of all documents of a language, times X "
        "(default: 1), is subtracted from the score of each (lucene, exact, filled servers)",
    )
    min_share: float | None = option(
        None,
        minimum=0,
        maximum=1,
        help="drop those of the k best hits that match less of the query's weight (column share; 0.3 drops most hits "
        "that have little to do with the query)",
    )
    max_passage: bool | str = option(False, help="documents by their best passage, if the index holds passages")
    passages: int | None = option(None, minimum=1, help="passages to fetch first (default: four times k)")
    distinct: str | None = option(
        None,
        metavar="FIELD",
        help="only the best document of each value of a stored field; a list is one value, and a document without the "
        "field has one of its own",
    )
    fuse: str | None = option(
        None,
        choices=HYBRID_METHODS,
        help="search several indexes, and fuse their hits by ranks (rrf) or min-max normalized scores (rsf); the "
        "best max(k, 100) of each count",
    )
    weights: tuple[float, ...] = option(
        (), above=0, metavar="X", help="a weight for each index that is fused (default: equal)"
    )
    depth: int = option(100, minimum=1, help="documents of each index that count, even if k is smaller")
    alpha: float | None = option(
        None,
        minimum=0,
        maximum=1,
        metavar="A",
        help="weight of the query's pivot view, with 1 - A for its source view (default: 1 for both, or where all "
        "documents are in one language the checkpoint's)",
    )
    views: tuple[str, ...] = option(
        (), choices=VIEWS, help="views of the query that are used; none for all that the index has"
    )
    approximate: bool = option(
        False,
        help="search for the strong terms of a query, and score only the best of these documents with all terms: "
        "faster, and some hits may be missed (filled servers of elasticsearch and opensearch; seismic always does)",
    )

    def __post_init__(self) -> None:
        """Parse and validate the values."""
        for field in fields(self):
            value = getattr(self, field.name)
            if type(field.default) is int and type(value) is not int:
                raise TypeError(f"{field.name} is {value!r}, expected an integer")
        object.__setattr__(self, "filters", parse_filters(self.filters or ()))
        if isinstance(self.balance, str):
            object.__setattr__(self, "balance", Balance.parse(self.balance))
        elif not isinstance(self.balance, Balance | None):
            raise TypeError(f"balance is {self.balance!r}, expected a field, such as 'lang'")
        validate(self)
        for name in ("weights", "views"):
            object.__setattr__(self, name, tuple(getattr(self, name) or ()))

    @classmethod
    def of(cls, k: int, options: SearchKeywords) -> Self:
        """Return the request of a call with keywords."""
        return from_keywords(cls, k, **options)

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield errors about options that exclude each other."""
        for name in ONE_INDEX:
            if self.fuse is not None and getattr(self, name) not in (None, ()):
                rule = "applies to a single ranking, but this search fuses several"
                yield ParameterError(name, None, rule, "Omit it.")
        if self.max_passage == "":
            yield ParameterError("max_passage", None, "is empty")
        if self.distinct == "":
            yield ParameterError("distinct", None, "is empty")

    def index_conflicts(self, names: Sequence[str]) -> Iterator[MilcoError]:
        """Yield errors unless one index is searched without fusion, or several different ones are fused."""
        if len(set(names)) < len(names):
            yield MilcoError(f"an index is given twice: {' '.join(names)}", "Fuse different indexes of a collection.")
        if self.fuse is None and len(names) != 1:
            fix = "Pass " + parameter("fuse", HYBRID_METHODS[0]) + " to search them together."
            yield MilcoError(f"several indexes are given: {' '.join(names) or 'none'}", fix)
        for name in ("fuse", "weights"):
            if getattr(self, name) and len(names) < 2:
                rule = f"requires several indexes, got only {' '.join(names) or 'none'}"
                yield ParameterError(name, None, rule, "Omit it, or give a list of them.")
        if self.weights and len(self.weights) != len(names):
            yield ParameterError("weights", list(self.weights), f"must be one for each of {len(names)}")

    @property
    def delimiter(self) -> str | None:
        """The delimiter of document and number in the ids of passages; None unless documents are ranked by them."""
        if self.max_passage is False:
            return None
        return PASSAGE_DELIMITER if self.max_passage is True else self.max_passage


class IndexKeywords(TypedDict, total=False):
    """Keywords of Index.update(): the fields of IndexRequest, in the forms in which they are given."""

    threads: int
    prune: Sequence[str]
    views: Sequence[str]
    plain: bool
    scale: float | None


class BuildKeywords(IndexKeywords, total=False):
    """Keywords of Index.build(): the fields of BuildRequest, in the forms in which they are given."""

    overwrite: bool
    store_documents: bool | None
    topics: str | Path | None
    shard_id: int
    shard_num: int


@dataclass(frozen=True)
class IndexRequest(ExternalOptions):
    """How vectors become documents of an index. Values are validated when it is made, as those of a SearchRequest."""

    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that build")
    prune: tuple[str, ...] = option(
        (),
        group="pruning",
        metavar="RULE",
        help="drop weak terms: top-k:100, percentile:50, mass:30, threshold:0.1; for one view pivot:top-k:80",
    )
    views: tuple[str, ...] = option(
        (), group="pruning", choices=VIEWS, metavar="VIEW", help="pivot, source or both (default: those of the vectors)"
    )

    def __post_init__(self) -> None:
        """Validate the values."""
        validate(self)
        for name in ("prune", "views"):
            object.__setattr__(self, name, tuple(getattr(self, name) or ()))


@dataclass(frozen=True)
class BuildRequest(IndexRequest):
    """How to build an index, or one of its shards.

    >>> BuildRequest(threads=4, prune=["top-k:100"]).prune
    ('top-k:100',)
    """

    overwrite: bool = option(False, help="replace an index, once the new one is complete")
    store_documents: bool | None = option(
        None,
        flag="store",
        help="documents in the index, for hits and filters by their fields (lucene, exact, qdrant; default: those that "
        "the vectors have)",
    )
    topics: str | Path | None = option(
        None,
        group="approximate engines",
        metavar="DIR",
        help="encoded topics to measure recall on (default: sampled documents)",
    )
    shard_id: int = option(0, minimum=0, group="shards", help="shard that this command builds, from 0")
    shard_num: int = option(
        1,
        minimum=1,
        group="shards",
        excludes=("plain",),
        help="number of shards, all in one directory, searched as one index",
    )

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield an error if there is no such shard."""
        if self.shard_id >= self.shard_num:
            yield ParameterError("shard_id", self.shard_id, f"must be from 0 to {self.shard_num - 1:,}")

    @property
    def is_shard(self) -> bool:
        """True if only a part of the vectors is indexed."""
        return self.shard_num > 1
