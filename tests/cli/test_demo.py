"""Promises of the demo's figures: what was ranked against what is said, and computed, as it stands."""

import pytest

from milco_pyserini.demo.figures import across, matrix, pool, summary, within
from milco_pyserini.demo.report import languages_table, summary_table

LANGUAGES = ["ar", "de"]
QRELS = {"ar-q1": {"ar-1": 1, "de-1": 1}, "de-q1": {"ar-1": 1, "de-1": 1}}
# Each query finds the passage of its own language first, then a wrong one, and the other language's right one last.
RUN = {
    "ar-q1": {"ar-1": 9.0, "ar-2": 8.0, "de-1": 7.0},
    "de-q1": {"de-1": 9.0, "ar-2": 8.0, "de-2": 7.5, "ar-1": 7.0},
}


def test_a_cell_ranks_the_passages_of_one_language_and_the_pool_ranks_all() -> None:
    """The wrong passages of other languages count in the pool alone."""
    values = matrix(RUN, QRELS, LANGUAGES)
    assert within(values, "ar") == within(values, "de") == 1
    assert across(values, "ar") == 1
    assert across(values, "de") == pytest.approx(1 / 1.584963, abs=1e-6)
    pooled = pool(RUN, QRELS)
    assert pooled["R@100"] == 1
    ideal = 1 + 1 / 1.584963
    assert pooled["nDCG@10"] == pytest.approx(((1 + 1 / 2) / ideal + (1 + 1 / 2.321928) / ideal) / 2, abs=1e-6)


def test_a_run_without_results_in_a_language_counts_zero_there() -> None:
    """BM25 across scripts finds nothing: a figure, not an error."""
    assert matrix({"ar-q1": {"ar-1": 1.0}}, QRELS, LANGUAGES)["de"] == {"ar": 0.0, "de": 0.0}


def test_the_tables_say_what_was_ranked() -> None:
    """One language's passages in the first, all of them in the second, with the means of the first."""
    values = matrix(RUN, QRELS, LANGUAGES)
    table = languages_table("MILCO, --alpha 0.8", values, values, 2)
    assert table.splitlines()[0].startswith(
        "MILCO, --alpha 0.8, nDCG@10, ranking the 2 passages of one language at a time"
    )
    assert table.splitlines()[-1].split() == ["mean", "1.000", "1.000", "0.815", "0.815"]
    worst = {"nDCG@10": 0.25, "R@100": 0.5, "within": 0.125, "across": 0.0}
    head, *_, names, first, second = summary_table(
        {"BM25": worst, "MILCO": summary(RUN, QRELS, values)}, 4
    ).splitlines()
    assert head.startswith("Ranking all 4 passages at once, with relevant ones in every language")
    assert names.split() == ["nDCG@10", "R@100", "within", "across"]
    assert first.split() == ["BM25", "0.250", "0.500", "0.125", "0.000"]
    assert second.split() == ["MILCO", "0.898", "1.000", "1.000", "0.815"]
