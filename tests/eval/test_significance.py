"""Tests and corrections against hand values, scipy and readable references."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from milco_pyserini.eval.significance import (
    ALPHA,
    CORRECTIONS,
    TESTS,
    bootstrap_interval,
    holm,
    paired_test,
)

FIGURES = st.integers(0, 1000).map(lambda value: value / 1000)
VALUES = st.lists(st.tuples(FIGURES, FIGURES), min_size=2, max_size=40)
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def reference_holm_rejections(p: list[float], alpha: float) -> set[int]:
    """Step down: reject the smallest p while p <= alpha / (hypotheses left); stop at the first that is not."""
    rejected: set[int] = set()
    for place in sorted(range(len(p)), key=lambda place: p[place]):
        if p[place] > alpha / (len(p) - len(rejected)):
            break
        rejected.add(place)
    return rejected


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=40))
def test_the_t_test_agrees_with_scipy(pairs: list[tuple[int, int]]) -> None:
    """Wherever there is a difference that varies."""
    first, second = np.array(pairs).T
    if len(set(second - first)) == 1:
        return
    expected = scipy.stats.ttest_rel(second, first).pvalue
    assert paired_test("t", first, second) == pytest.approx(expected, rel=1e-9)


def test_wilcoxon_gives_the_table_value() -> None:
    """Ranks of 1..6, all of one sign: two of 2^6 outcomes are as extreme."""
    assert paired_test("wilcoxon", [0] * 6, [1, 2, 3, 4, 5, 6]) == pytest.approx(2 / 64)


def test_randomization_agrees_with_all_signs_tried_one_by_one() -> None:
    """The share of the 2^8 sign patterns with a sum as large, within the noise of 10,000 rounds."""
    differences = np.array([0.5, 0.2, -0.1, 0.4, 0.3, 0.3, -0.2, 0.1])
    signs = np.array(list(itertools.product((-1, 1), repeat=len(differences))))
    exact = np.mean(abs(signs @ differences) >= abs(differences.sum()) - 1e-9)
    assert paired_test("randomization", [0] * 8, differences) == pytest.approx(exact, abs=0.015)


def test_randomization_is_repeatable_and_never_zero() -> None:
    """A fixed seed; the smallest p-value is one over the rounds and the run itself."""
    values = np.linspace(0.5, 1, 60)
    assert paired_test("randomization", [0] * 60, values) == 1 / 10_001
    assert paired_test("randomization", values, values[::-1]) == paired_test("randomization", values, values[::-1])


@pytest.mark.parametrize("test", TESTS)
@settings(max_examples=20, deadline=None)
@given(pairs=VALUES)
def test_a_p_value_is_a_probability_and_does_not_depend_on_direction(test: str, pairs: list) -> None:
    """Two-sided: swapping the runs changes nothing."""
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    p = paired_test(test, first, second)
    assert 0 <= p <= 1
    assert paired_test(test, second, first) == pytest.approx(p, abs=0.03)


@pytest.mark.parametrize("test", TESTS)
def test_equal_runs_and_single_queries_are_no_evidence(test: str) -> None:
    """p is 1 where there is nothing to test, and no warning is given."""
    assert paired_test(test, [0.3, 0.4], [0.3, 0.4]) == 1
    assert paired_test(test, [0.3], [0.9]) == 1


@settings(deadline=None)
@given(p=P_VALUES)
def test_holm_rejects_what_its_definition_rejects(p: list[float]) -> None:
    """At 5 %, and at every corrected value itself."""
    corrected = holm(p)
    assert {place for place, value in enumerate(corrected) if value <= ALPHA} == reference_holm_rejections(p, ALPHA)


@settings(deadline=None)
@given(p=P_VALUES)
def test_corrections_only_raise_p_values_and_holm_never_more_than_bonferroni(p: list[float]) -> None:
    """none <= holm <= bonferroni <= 1, in the order given."""
    for raw, middle, most in zip(CORRECTIONS["none"](p), holm(p), CORRECTIONS["bonferroni"](p), strict=True):
        assert raw <= middle <= most <= 1


def test_an_interval_is_that_of_all_resamples() -> None:
    """A quarter of the resamples of 0 and 1 has the mean 0, a quarter 1; it takes two values, and no variance."""
    assert bootstrap_interval([[0, 1]]) == [0, 1]
    assert bootstrap_interval([[0.5, 0.5]]) == [0.5, 0.5]
    assert bootstrap_interval([[0.3, 0.7], [0.5]]) == [None, None]


def test_the_bootstrap_agrees_with_the_normal_interval_of_a_large_sample() -> None:
    """1.96 standard errors, within the noise of the resamples; the mean of two datasets has the smaller error."""
    sample = [place / 399 for place in range(400)]
    error = np.std(sample) / 20
    for samples, expected in (([sample], error), ([sample, sample], error / 2**0.5)):
        low, high = bootstrap_interval(samples)
        assert low == pytest.approx(0.5 - 1.96 * expected, abs=expected / 5)
        assert high == pytest.approx(0.5 + 1.96 * expected, abs=expected / 5)
