"""Is a difference between two runs more than chance? Paired tests, and corrections for many of them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

ALPHA = 0.05
ROUNDS = 10_000
_BATCH = 500


def student(differences: "np.ndarray") -> float:
    """Two-sided p-value of the paired t-test: a sum over queries is nearly normal. differences: float [Q]."""
    import numpy as np
    from scipy.special import stdtr

    freedom = len(differences) - 1
    with np.errstate(divide="ignore"):
        t = differences.mean() / (differences.std(ddof=1) / np.sqrt(len(differences)))
    return float(2 * stdtr(freedom, -abs(t)))


def wilcoxon(differences: "np.ndarray") -> float:
    """Two-sided p-value of Wilcoxon's signed ranks; queries without a difference are left out. float [Q]."""
    from scipy.stats import wilcoxon as signed_ranks

    return float(signed_ranks(differences).pvalue)


def randomisation(differences: "np.ndarray") -> float:
    """Two-sided p-value of Fisher's randomisation test: how often do random signs give as large a mean?

    differences: float [Q]. 10,000 rounds from a fixed seed, so never below 1/10,001, and repeatable.
    Source: Smucker, Allan, Carterette (CIKM 2007).
    """
    import numpy as np

    generator = np.random.default_rng(0)
    # A hair below what was seen: equal sums that were added in another order are equal.
    seen = abs(differences.sum()) * (1 - 1e-12)
    extreme = 0
    for _ in range(ROUNDS // _BATCH):
        signs = generator.integers(0, 2, size=(_BATCH, len(differences)), dtype=np.int8) * 2.0 - 1.0
        extreme += int((abs(signs @ differences) >= seen).sum())
    return (extreme + 1) / (ROUNDS + 1)


def holm(p: Sequence[float]) -> list[float]:
    """Corrected p-values, in the order given: the smallest times n, the next times n-1, never decreasing.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    corrected = [0.0] * len(p)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, p[place] * (len(p) - rank)))
        corrected[place] = largest
    return corrected


def bonferroni(p: Sequence[float]) -> list[float]:
    """Corrected p-values: each times their number."""
    return [min(1.0, value * len(p)) for value in p]


TESTS: dict[str, Callable[["np.ndarray"], float]] = {
    "t": student,
    "wilcoxon": wilcoxon,
    "randomisation": randomisation,
}
TEST_NAMES = {
    "t": "paired t-test",
    "wilcoxon": "Wilcoxon's signed-rank test",
    "randomisation": "randomisation test",
}
CORRECTIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "holm": holm,
    "bonferroni": bonferroni,
    "none": list,
}


def paired_test(test: str, first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value that two runs differ, from their values for the same queries in the same order.

    1.0 where there is nothing to test: fewer than two queries, or no query with a difference.
    """
    import numpy as np

    differences = np.subtract(second, first)
    if len(differences) < 2 or not differences.any():
        return 1.0
    return TESTS[test](differences)
