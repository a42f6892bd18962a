"""Compare systems with a baseline: paired tests, corrections for many of them, and the report of a comparison."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from operator import sub
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from milco_pyserini import __version__
from milco_pyserini.errors import MilcoError, validate_name
from milco_pyserini.eval.evaluation import DEFAULT_MEASURES, Evaluation, QrelsMapping, Run, differing_options, evaluate
from milco_pyserini.eval.report import ALPHA, DIGITS, ReportTable, render
from milco_pyserini.io.runs import option_text

NO_TEST = "none"
TESTS = {"t": "paired t-test", "wilcoxon": "Wilcoxon signed-rank test", "randomization": "randomization test"}
CONFIDENCE = 0.95
_RESAMPLES = 10_000
_EFFECTS = ("mean", "mean low", "mean high", "gain", "gain low", "gain high", "d", "p")


def paired_test(test: str, first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of a difference between two runs: 1 if there is nothing to test.

    The randomization test (Smucker, Allan, Carterette, CIKM 2007) draws 10,000 assignments of signs from a fixed seed.

    Args:
        test: "t", "wilcoxon" or "randomization".
        first: values of one run, float [Q].
        second: values of the other run for the same queries, in the same order.

    Example:
        >>> round(paired_test("t", [0, 0, 0], [1, 2, 3]), 4)
        0.0742
    """
    import numpy as np

    differences = np.subtract(second, first, dtype=float)
    if len(differences) < 2 or not differences.any():
        return 1.0
    from scipy import stats

    if test == "wilcoxon":
        return float(stats.wilcoxon(differences).pvalue)
    if test == "randomization":
        generator = np.random.default_rng(0)
        # permutation_test() of SciPy computes the same, ten times slower.
        resampled = stats.monte_carlo_test(
            differences,
            lambda size: differences * (generator.integers(0, 2, size, np.int8) * 2.0 - 1.0),
            lambda values, axis: abs(values.sum(axis)),
            alternative="greater",
            n_resamples=_RESAMPLES,
            batch=500,
        )
        return float(resampled.pvalue)
    with warnings.catch_warnings():
        # Equal differences have no variance: p is 0, with a warning.
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(stats.ttest_rel(second, first).pvalue)


def bootstrap_interval(samples: Sequence[Sequence[float]]) -> list[float] | list[None]:
    """Return low and high end of the 95 % interval of the mean of samples' means, by a percentile bootstrap of each.

    samples: values of the queries of each dataset; None for both ends if one has fewer than two. The seed is fixed.
    """
    from scipy import stats

    if min(map(len, samples)) < 2:
        return [None, None]
    options: dict[str, Any] = {"confidence_level": CONFIDENCE, "method": "percentile", "batch": 500, "random_state": 0}
    found = stats.bootstrap(samples, lambda *drawn, axis: sum(one.mean(axis) for one in drawn) / len(drawn), **options)
    return list(map(float, found.confidence_interval))


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's method (1979): the smallest times n, the next times n-1, never decreasing."""
    corrected = [0.0] * len(p)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, p[place] * (len(p) - rank)))
        corrected[place] = largest
    return corrected


CORRECTIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "holm": holm,
    "bonferroni": lambda p: [min(1.0, value * len(p)) for value in p],
    "none": list,
}


@dataclass(frozen=True)
class MeanDifference:
    """A system's mean minus the baseline's, the p-value and the corrected one, and the gain of each query."""

    mean: float
    p: float
    corrected: float
    gains: Sequence[float]

    @property
    def effect_size(self) -> float | None:
        """The mean gain over the standard deviation of gains (Cohen's d of pairs); None if all are alike."""
        deviation = stdev(self.gains) if len(self.gains) > 1 else 0.0
        # Equal gains differ by rounding.
        return self.mean / deviation if deviation > 1e-9 else None


@dataclass(frozen=True)
class RunComparison:
    """Evaluations of systems on datasets, tested against a baseline.

    Args:
        results: system -> dataset -> evaluation. All systems have the same datasets, measures and queries.
        baseline: the system that the others are tested against.
        test: one of TESTS, or "none".
        correction: one of CORRECTIONS.
        differences: (system, dataset, measure) -> difference; empty if nothing was tested.
    """

    results: Mapping[str, Mapping[str, Evaluation]]
    baseline: str
    test: str
    correction: str
    differences: Mapping[tuple[str, str, str], MeanDifference]

    def __str__(self) -> str:
        return render(self.to_table())

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems."""
        return tuple(self.results)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets."""
        return tuple(self.results[self.baseline])

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures."""
        return tuple(next(iter(self.results[self.baseline].values())).mean)

    @property
    def options(self) -> tuple[str, ...]:
        """Options in which the runs of a dataset differ, of those that have a record."""
        runs = [[of_system[dataset] for of_system in self.results.values()] for dataset in self.datasets]
        return tuple(dict.fromkeys(name for of_dataset in runs for name in differing_options(of_dataset)))

    def average(self, system: str, measure: str, datasets: Sequence[str] = ()) -> float:
        """Return a system's mean over datasets (default: all), each of the same weight."""
        return fmean(self.results[system][dataset].mean[measure] for dataset in datasets or self.datasets)

    def _extra(self, system: str, datasets: Sequence[str]) -> dict[str, float]:
        """Return what a row has after its measures: standard deviations between seeds, and costs."""
        evaluations = [self.results[system][dataset] for dataset in datasets]
        extra = {}
        for measure in self.measures if evaluations[0].seeds else ():
            means = map(fmean, zip(*(one.seeds[measure] for one in evaluations), strict=True))
            extra[f"sd({measure})"] = stdev(means)
        costs = {name: fmean(one.costs.get(name, nan) for one in evaluations) for name in evaluations[0].costs}
        return extra | costs

    def to_table(self, per_query: bool = False) -> ReportTable:
        """Tabulate: a row per dataset and system; over several datasets, their mean at the end.

        A label that is the same in all rows is omitted. per_query adds the rows of each query. Options in which the
        runs differ are labels, too.
        """
        many, options = len(self.datasets) > 1, self.options
        # A single run is named only if no dataset or query is.
        chosen = [many, per_query, len(self.systems) > 1 or not (many or per_query)]
        rows: list[list[Any]] = []
        p_values = {}
        extras = list(dict.fromkeys(name for system in self.systems for name in self._extra(system, self.datasets)))

        def add(dataset: str, query: str, system: str, values: Iterable[float | None]) -> None:
            names = [dataset] if dataset in self.datasets else self.datasets
            labels = zip((dataset, query, system), chosen, strict=True)
            runs = [self.results[system][name] for name in names]
            made = ["/".join({option_text(run.options.get(name)): None for run in runs}) or "-" for name in options]
            extra = self._extra(system, names) if query == "all" else {}
            rows.append([*(label for label, is_shown in labels if is_shown), *made, *values, *map(extra.get, extras)])

        for dataset in self.datasets:
            for query in self.results[self.baseline][dataset].queries if per_query else ():
                for system in self.systems:
                    values = self.results[system][dataset].per_query
                    add(dataset, query, system, [values[measure].get(query) for measure in self.measures])
            for system in self.systems:
                for column, measure in enumerate(self.measures):
                    if (system, dataset, measure) in self.differences:
                        p_values[len(rows), column] = self.differences[system, dataset, measure].corrected
                add(dataset, "all", system, self.results[system][dataset].mean.values())
        for system in self.systems if many else ():
            add("mean", "all", system, [self.average(system, measure) for measure in self.measures])
        heads = [head for head, is_shown in zip(("dataset", "query", "run"), chosen, strict=True) if is_shown]
        notes = []
        if any(p < ALPHA for p in p_values.values()):
            count = len(self.differences) // len(self.measures)
            how = f"{self.correction.capitalize()} correction of" if self.correction != "none" else "not corrected for"
            corrected = f", {how} {count} comparisons" if count > 1 else ""
            notes.append(f"* differs from {self.baseline}: {TESTS[self.test]}, p < {ALPHA}{corrected}")
        costs = {name for found in self.results.values() for one in found.values() for name in one.costs}
        digits = [DIGITS if name not in costs else 2 for name in (*self.measures, *extras)]
        return ReportTable([*heads, *options], [*self.measures, *extras], rows, digits, notes, p_values)

    def effects(self) -> ReportTable:
        """Tabulate means and gains on the baseline with 95 % intervals and effect sizes: a row per run and measure."""
        many = len(self.datasets) > 1
        groups = [(name, [name]) for name in self.datasets] + [("mean", list(self.datasets))] * many
        rows = [
            [*(name, system, measure)[not many :], *self._effect(system, measure, datasets)]
            for name, datasets in groups
            for system in self.systems
            for measure in self.measures
        ]
        intervals = f"low and high are {100 * CONFIDENCE:.0f} % bootstrap intervals, paired by query for gains"
        notes = [f"{intervals} on {self.baseline}; d is the mean gain / its standard deviation"]
        labels = ("dataset", "run", "measure")[not many :]
        return ReportTable(labels, _EFFECTS, rows, digits=[*[DIGITS] * 6, 2, DIGITS], notes=notes)

    def _effect(self, system: str, measure: str, datasets: Sequence[str]) -> list[float | None]:
        """Return the numbers of _EFFECTS. d and p are those of one dataset."""
        values = [list(self.results[system][dataset].per_query[measure].values()) for dataset in datasets]
        row = [self.average(system, measure, datasets), *bootstrap_interval(values)]
        keys = [(system, dataset, measure) for dataset in datasets]
        if keys[0] not in self.differences:
            return row + [None] * 5
        tested = [self.differences[key] for key in keys]
        row += [fmean(one.mean for one in tested), *bootstrap_interval([one.gains for one in tested])]
        return [*row, tested[0].effect_size, tested[0].corrected] if len(tested) == 1 else [*row, None, None]

    def to_json(self, per_query: bool = False) -> str:
        """Return everything as indented JSON: means with confidence intervals, differences and p-values."""
        import orjson

        tested = {"baseline": self.baseline, "test": self.test, "correction": self.correction, "alpha": ALPHA}
        value: dict[str, Any] = {
            "version": __version__,
            "measures": self.measures,
            "comparison": tested if self.differences else None,
            "confidence": CONFIDENCE,
            "results": [
                self._result(system, dataset, per_query) for dataset in self.datasets for system in self.systems
            ],
        }
        if len(self.datasets) > 1:
            value["mean"] = {
                system: {measure: self.average(system, measure) for measure in self.measures} for system in self.systems
            }
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"

    def _result(self, system: str, dataset: str, per_query: bool) -> dict[str, Any]:
        evaluation = self.results[system][dataset]
        measures: dict[str, Any] = {}
        for measure in self.measures:
            interval = bootstrap_interval([list(evaluation.per_query[measure].values())])
            measures[measure] = {"mean": evaluation.mean[measure], "interval": None if None in interval else interval}
            if evaluation.seeds:
                measures[measure]["seeds"] = evaluation.seeds[measure]
            if difference := self.differences.get((system, dataset, measure)):
                measures[measure] |= {
                    "difference": difference.mean,
                    "difference_interval": bootstrap_interval([difference.gains]),
                    "effect_size": difference.effect_size,
                    "p": difference.p,
                    "p_corrected": difference.corrected,
                    "significant": difference.corrected < ALPHA,
                }
        return {
            "run": system,
            "dataset": dataset,
            "queries": len(evaluation.queries),
            "queries_without_results": len(evaluation.unanswered),
            "queries_not_judged": evaluation.unjudged,
            **({"costs": evaluation.costs} if evaluation.costs else {}),
            **({"options": {name: evaluation.options.get(name) for name in self.options}} if self.options else {}),
            "measures": measures,
        } | ({"per_query": evaluation.per_query} if per_query else {})


def compare(
    runs: Mapping[str, Run | str | Path],
    qrels: QrelsMapping | str | Path,
    measures: Iterable[str] = DEFAULT_MEASURES,
    baseline: str | None = None,
    test: str = "t",
    correction: str = "holm",
) -> RunComparison:
    """Evaluate runs on one dataset and test each against the baseline.

    Args:
        runs: system name -> run or path, see evaluate().
        qrels: grades, or a name or path of qrels.
        measures: names of measures.
        baseline: the system that the others are tested against (default: the first).
        test: "t", "wilcoxon", "randomization" or "none".
        correction: "holm", "bonferroni" or "none".

    Raises:
        MilcoError: a name is unknown, or a run has no judged query.

    Example:
        >>> qrels = {f"q{number}": {"d1": 1} for number in range(4)}
        >>> bm25 = {query: {"d2": 2.0, "d1": 1.0} for query in qrels}
        >>> milco = {query: {"d1": 2.0, "d2": 1.0} for query in qrels}
        >>> print(compare({"bm25": bm25, "milco": milco}, qrels, ["RR@10"]), end="")
        run     RR@10
        bm25   0.5000
        milco  1.0000*
        <BLANKLINE>
        * differs from bm25: paired t-test, p < 0.05
    """
    names = list(measures)
    dataset = qrels if isinstance(qrels, str) else "qrels"
    if isinstance(qrels, str | Path):
        from milco_pyserini.corpora import open_qrels

        qrels = open_qrels(str(qrels))
    results = {system: {dataset: evaluate(run, qrels, names)} for system, run in runs.items()}
    return compare_evaluations(results, baseline, test, correction)


def compare_evaluations(
    results: Mapping[str, Mapping[str, Evaluation]],
    baseline: str | None = None,
    test: str = "t",
    correction: str = "holm",
) -> RunComparison:
    """Compare evaluations on several datasets: system -> dataset -> evaluation.

    Every system is tested against the baseline on every dataset and measure. The p-values of one measure, over all
    systems and datasets, are corrected together. The other arguments are those of compare().

    Raises:
        MilcoError: a name is unknown, or the evaluations are of different datasets, measures or queries.
    """
    if not results or not all(results.values()):
        raise MilcoError("there is no evaluation to compare")
    baseline = next(iter(results)) if baseline is None else baseline
    validate_name("test", test, (*TESTS, NO_TEST))
    validate_name("correction", correction, CORRECTIONS)
    validate_name("baseline", baseline, results)
    expected = results[baseline]
    measures = next(iter(expected.values())).mean.keys()
    for system, evaluations in results.items():
        if evaluations.keys() != expected.keys():
            raise MilcoError(f"{system} and {baseline} were not evaluated on the same datasets")
        for dataset, evaluation in evaluations.items():
            if evaluation.mean.keys() != measures:
                raise MilcoError(f"{system} was evaluated on {dataset} with other measures than {baseline}")
            if set(evaluation.queries) != set(expected[dataset].queries):
                raise MilcoError(f"{system} was evaluated on other queries of {dataset} than {baseline}")
    differences = {}
    pairs = [(system, dataset) for system in results if system != baseline for dataset in expected]
    for measure in measures if test != NO_TEST else ():
        gains = []
        for system, dataset in pairs:
            first, second = expected[dataset].per_query[measure], results[system][dataset].per_query[measure]
            gains.append([second[query] - value for query, value in first.items()])
        p = [paired_test(test, [0.0] * len(sample), sample) for sample in gains]
        for pair, sample, raw, corrected in zip(pairs, gains, p, CORRECTIONS[correction](p), strict=True):
            means = (results[system][pair[1]].mean[measure] for system in (pair[0], baseline))
            differences[(*pair, measure)] = MeanDifference(sub(*means), raw, corrected, sample)
    return RunComparison(results, baseline, test, correction, differences)
