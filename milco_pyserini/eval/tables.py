"""A comparison as rows of labels and figures; how they are written is for formats.py."""

from collections.abc import Callable
from dataclasses import dataclass

from milco_pyserini.eval.comparison import Comparison, Difference
from milco_pyserini.eval.significance import ALPHA, TEST_NAMES

MARK = "*"
AVERAGE = "mean"
ALL_QUERIES = "all"
_CORRECTED = {
    "holm": " after Holm's correction of {}",
    "bonferroni": " after Bonferroni's correction of {}",
    "none": ", not corrected for {}",
}


@dataclass(frozen=True)
class Figure:
    """One figure of a table; NaN is shown as a dash.

    difference: how it differs from the baseline's, where that was tested. digits: shown behind the point.
    """

    value: float
    difference: Difference | None = None
    digits: int = 4


@dataclass(frozen=True)
class Row:
    """What a row is about, and its figures."""

    labels: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Table:
    """labels, measures: the heads of the columns. notes: what the marks mean, a sentence each, where there are any."""

    labels: tuple[str, ...]
    measures: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def table(comparison: Comparison, per_query: bool = False) -> Table:
    """Lay out a comparison: a row for each collection and system, the systems of a collection together.

    A label that would be the same everywhere is left out. Over several collections their mean closes the
    table. per_query: the queries' own rows, each query's systems together, stand before the collection's.
    """
    many = len(comparison.collections) > 1
    several = len(comparison.systems) > 1
    # A lone run needs a name in its row where no collection gives one.
    shown = (many, per_query, several or not (many or per_query))
    heads = ("collection", "query", "run")
    rows: list[Row] = []

    def add(labels: tuple[str, str, str], figure: Callable[[str], Figure]) -> None:
        rows.append(Row(_chosen(labels, shown), tuple(map(figure, comparison.measures))))

    for name in comparison.collections:
        for query in comparison.results[comparison.baseline][name].queries if per_query else ():
            for system in comparison.systems:
                add((name, query, system), _query_figure(comparison, system, name, query))
        for system in comparison.systems:
            add((name, ALL_QUERIES, system), _mean_figure(comparison, system, name))
    for system in comparison.systems if many else ():
        add((AVERAGE, ALL_QUERIES, system), _average_figure(comparison, system))
    return Table(_chosen(heads, shown), comparison.measures, tuple(rows), _notes(comparison))


def _query_figure(comparison: Comparison, system: str, name: str, query: str) -> Callable[[str], Figure]:
    values = comparison.results[system][name].per_query
    return lambda measure: Figure(values[measure][query])


def _mean_figure(comparison: Comparison, system: str, name: str) -> Callable[[str], Figure]:
    mean = comparison.results[system][name].mean
    return lambda measure: Figure(mean[measure], comparison.differences.get((system, name, measure)))


def _average_figure(comparison: Comparison, system: str) -> Callable[[str], Figure]:
    return lambda measure: Figure(comparison.average(system, measure))


def _chosen(values: tuple[str, ...], shown: tuple[bool, ...]) -> tuple[str, ...]:
    return tuple(value for value, chosen in zip(values, shown, strict=True) if chosen)


def _notes(comparison: Comparison) -> tuple[str, ...]:
    if not any(difference.significant for difference in comparison.differences.values()):
        return ()
    count = len(comparison.differences) // len(comparison.measures)
    corrected = _CORRECTED[comparison.correction].format(f"{count} comparisons") if count > 1 else ""
    test = TEST_NAMES[comparison.test]
    return (f"{MARK} differs from {comparison.baseline}: {test}, p < {ALPHA}{corrected}",)
