"""Figures of a run over the sample: over all its passages, and over those of one language at a time."""

from collections.abc import Mapping, Sequence

from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import evaluate

MEASURE = "nDCG@10"
POOL_MEASURES = (MEASURE, "R@100")

Matrix = dict[str, dict[str, float]]


def language(name: str) -> str:
    """The language of a sample id: "ar" of "ar-07" and of "ar-q07"."""
    return name.partition("-")[0]


def matrix(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]], languages: Sequence[str]
) -> Matrix:
    """Query language -> passage language -> nDCG@10, each cell over that language's passages alone, in [0, 1]."""
    return {asked: {found: _cell(run, qrels, asked, found) for found in languages} for asked in languages}


def pool(run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Measure -> mean over all queries, each of them ranking the passages of all languages at once, in [0, 1]."""
    return evaluate(run, qrels, POOL_MEASURES).mean


def summary(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]], values: Matrix
) -> dict[str, float]:
    """The figures of pool(), and of matrix() the means within a language and across languages, in [0, 1]."""
    means = {name: mean([cell(values, asked) for asked in values]) for name, cell in _MEANS.items()}
    return {**pool(run, qrels), **means}


def within(values: Matrix, asked: str) -> float:
    """The figure of a language's queries on its own passages."""
    return values[asked][asked]


def across(values: Matrix, asked: str) -> float:
    """The mean figure of a language's queries on every other language's passages, one language at a time."""
    others = [value for found, value in values[asked].items() if found != asked]
    return sum(others) / len(others)


def mean(values: Sequence[float]) -> float:
    """Their mean."""
    return sum(values) / len(values)


_MEANS = {"within": within, "across": across}


def _cell(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]], asked: str, found: str
) -> float:
    judged = {
        query: {name: grade for name, grade in grades.items() if language(name) == found}
        for query, grades in qrels.items()
        if language(query) == asked
    }
    part = {
        query: {name: score for name, score in run.get(query, {}).items() if language(name) == found}
        for query in judged
    }
    if not any(part.values()):
        # BM25 across scripts finds nothing at all: that is its figure, not an error.
        if not judged:
            raise MilcoError(f"the sample has no judgements of {asked} queries on {found} passages")
        return 0.0
    return evaluate(part, judged, [MEASURE]).mean[MEASURE]
