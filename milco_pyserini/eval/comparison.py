"""Several systems on several collections: averages, and how each system differs from the baseline."""

from collections.abc import Mapping
from dataclasses import dataclass

from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.eval.evaluation import Evaluation
from milco_pyserini.eval.significance import ALPHA, CORRECTIONS, TESTS, paired_test

NO_TEST = "none"


@dataclass(frozen=True)
class Difference:
    """A system's mean minus the baseline's, with the test's p-value as it is and corrected."""

    mean: float
    p: float
    corrected: float

    @property
    def significant(self) -> bool:
        """Whether the corrected p-value is below 0.05."""
        return self.corrected < ALPHA


@dataclass(frozen=True)
class Comparison:
    """Evaluations by system and collection; every system has every collection, all have the same measures.

    differences: (system, collection, measure) -> Difference; empty where nothing was tested.
    """

    results: Mapping[str, Mapping[str, Evaluation]]
    baseline: str
    test: str
    correction: str
    differences: Mapping[tuple[str, str, str], Difference]

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems' names, in the order given."""
        return tuple(self.results)

    @property
    def collections(self) -> tuple[str, ...]:
        """The collections' names, in the order given."""
        return tuple(self.results[self.baseline])

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures' names, in the order given."""
        return tuple(next(iter(self.results[self.baseline].values())).mean)

    def average(self, system: str, measure: str) -> float:
        """A system's mean over the collections, each of them counting the same."""
        evaluations = self.results[system].values()
        return sum(evaluation.mean[measure] for evaluation in evaluations) / len(evaluations)


def compare(
    results: Mapping[str, Mapping[str, Evaluation]],
    baseline: str | None = None,
    test: str = "t",
    correction: str = "holm",
) -> Comparison:
    """Put evaluations side by side: system -> collection -> Evaluation.

    Every other system is tested against the baseline (the first one unless named) on every collection and
    measure, by the paired test over its queries: "t", "wilcoxon", "randomisation" or "none". The p-values of
    one measure, over all systems and collections, are corrected together ("holm", "bonferroni" or "none").
    Raises MilcoError for an unknown name and for evaluations that do not fit together.
    """
    if not results or not all(results.values()):
        raise MilcoError("there is no evaluation to compare")
    if test not in (*TESTS, NO_TEST):
        raise unknown_name("test", test, (*TESTS, NO_TEST))
    if correction not in CORRECTIONS:
        raise unknown_name("correction", correction, CORRECTIONS)
    baseline = next(iter(results)) if baseline is None else baseline
    if baseline not in results:
        raise unknown_name("baseline", baseline, results)
    _refuse_unlike(results, baseline)
    differences = {} if test == NO_TEST else _differences(results, baseline, test, correction)
    return Comparison(results, baseline, test, correction, differences)


def _differences(
    results: Mapping[str, Mapping[str, Evaluation]], baseline: str, test: str, correction: str
) -> dict[tuple[str, str, str], Difference]:
    found = {}
    for measure in next(iter(results[baseline].values())).mean:
        pairs = [(system, name) for system in results if system != baseline for name in results[system]]
        p = []
        for system, name in pairs:
            first, second = results[baseline][name].per_query[measure], results[system][name].per_query[measure]
            p.append(paired_test(test, list(first.values()), [second[query] for query in first]))
        for (system, name), raw, corrected in zip(pairs, p, CORRECTIONS[correction](p), strict=True):
            mean = results[system][name].mean[measure] - results[baseline][name].mean[measure]
            found[system, name, measure] = Difference(mean, raw, corrected)
    return found


def _refuse_unlike(results: Mapping[str, Mapping[str, Evaluation]], baseline: str) -> None:
    expected = results[baseline]
    measures = next(iter(expected.values())).mean.keys()
    for system, evaluations in results.items():
        if evaluations.keys() != expected.keys():
            raise MilcoError(f"{system} and {baseline} were not evaluated on the same collections")
        for name, evaluation in evaluations.items():
            if evaluation.mean.keys() != measures:
                raise MilcoError(f"{system} on {name} was evaluated with other measures than {baseline}")
            if set(evaluation.queries) != set(expected[name].queries):
                raise MilcoError(f"{system} and {baseline} were evaluated on other queries of {name}")
