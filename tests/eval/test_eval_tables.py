"""Comparisons, and the tables they are shown in."""

import csv
import io
import json

import pytest

from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import Evaluation, compare, evaluate, render, report, table


def made(*values: float, measure: str = "nDCG@10") -> Evaluation:
    """An evaluation of queries q0, q1, ... with these values."""
    per_query = {f"q{place}": value for place, value in enumerate(values)}
    return Evaluation({measure: sum(values) / len(values)}, {measure: per_query})


LOW = made(0.1, 0.2, 0.3, 0.4)
HIGH = made(0.5, 0.61, 0.72, 0.79)
ONE = {"bm25": {"ar": LOW}, "a_b|c": {"ar": HIGH}}
TWO = {"bm25": {"ar": LOW, "bn": HIGH}, "milco": {"ar": HIGH, "bn": HIGH}}


def test_text_lines_its_figures_up_whether_marked_or_not() -> None:
    """Digits stand below each other; the note explains the mark."""
    assert render(table(compare(ONE))) == (
        "run    nDCG@10\nbm25    0.2500\na_b|c   0.6550*\n\n* differs from bm25: paired t-test, p < 0.05\n"
    )


def test_the_note_stands_only_where_a_figure_is_marked() -> None:
    """Nothing differs: nothing is marked, and no note speaks of marks."""
    results = {"bm25": {"ar": LOW}, "milco": {"ar": made(0.2, 0.1, 0.4, 0.3)}}
    assert compare(results).differences
    for form in ("text", "markdown", "latex"):
        assert "differs" not in render(table(compare(results)), form)


def test_wide_characters_take_two_columns() -> None:
    """A terminal gives 阿 twice the room of a letter, and a vowel sign above one none."""
    lines = render(table(compare({"阿拉伯": {"q": LOW}, "e\u0301": {"q": LOW}}, test="none"))).splitlines()
    assert lines == ["run     nDCG@10", "阿拉伯   0.2500", "e\u0301        0.2500"]


def test_several_collections_end_with_their_mean() -> None:
    """A lone system is named by no column; each collection counts the same."""
    assert render(table(compare({"milco": {"ar": LOW, "bn": made(0.75)}}))) == (
        "collection  nDCG@10\nar           0.2500\nbn           0.7500\nmean         0.5000\n"
    )


def test_the_systems_of_a_collection_stand_together() -> None:
    """Two collections by two systems; the comparisons of a measure are corrected together."""
    assert render(table(compare(TWO, correction="bonferroni"))) == (
        "collection  run    nDCG@10\n"
        "ar          bm25    0.2500\n"
        "ar          milco   0.6550*\n"
        "bn          bm25    0.6550\n"
        "bn          milco   0.6550\n"
        "mean        bm25    0.4525\n"
        "mean        milco   0.6550\n"
        "\n"
        "* differs from bm25: paired t-test, p < 0.05 after Bonferroni's correction of 2 comparisons\n"
    )


def test_per_query_rows_stand_before_their_mean() -> None:
    """Each query's systems together, then all."""
    labels = [row.labels for row in table(compare({"a": {"c": made(0, 1)}, "b": {"c": made(0, 0)}}), True).rows]
    assert labels == [("q0", "a"), ("q0", "b"), ("q1", "a"), ("q1", "b"), ("all", "a"), ("all", "b")]


def test_markdown_escapes_names() -> None:
    """A pipe in a name is no new cell, an underscore no emphasis."""
    assert render(table(compare(ONE)), "markdown") == (
        "| run | nDCG@10 |\n"
        "| :-- | --: |\n"
        "| bm25 | 0.2500 |\n"
        r"| a\_b\|c | 0.6550\* |" + "\n"
        "\n"
        r"\* differs from bm25: paired t-test, p \< 0.05" + "\n"
    )


def test_latex_escapes_names() -> None:
    """Every character that LaTeX gives a meaning, and a bracket that would follow a line end."""
    results = {"[50% a_b & c]": {"q": LOW}, r"\~^#$<{}": {"q": HIGH}}
    assert render(table(compare(results)), "latex") == (
        r"""\begin{tabular}{lr}
  \toprule
  run & nDCG@10 \\
  \midrule
  {[}50\% a\_b \& c] & 0.2500 \\
  \textbackslash{}\textasciitilde{}\textasciicircum{}\#\$\textless{}\{\} & 0.6550$^{*}$ \\
  \bottomrule
  \multicolumn{2}{l}{\footnotesize {*} differs from {[}50\% a\_b \& c]: paired t-test, p \textless{} 0.05} \\
\end{tabular}
"""
    )


def test_csv_has_every_digit_and_survives_any_name() -> None:
    """Commas, quotes and line ends in a name come back as they were; p-values have columns of their own."""
    name = 'a,"b"\nc'
    comparison = compare({"bm25": {"q": LOW}, name: {"q": made(1 / 3, 0.5, 0.7, 0.9)}})
    rows = list(csv.reader(io.StringIO(render(table(comparison), "csv"))))
    assert rows[0] == ["run", "nDCG@10", "p(nDCG@10)"]
    assert rows[1] == ["bm25", "0.25", ""]
    assert rows[2][0] == name
    assert float(rows[2][1]) == comparison.average(name, "nDCG@10")
    assert float(rows[2][2]) == comparison.differences[name, "q", "nDCG@10"].corrected


def test_json_has_means_intervals_tests_and_queries() -> None:
    """What the tables leave out is there, with every digit."""
    value = json.loads(report(compare(TWO, test="wilcoxon"), per_query=True))
    assert value["comparison"] == {"baseline": "bm25", "test": "wilcoxon", "correction": "holm", "alpha": 0.05}
    assert [(r["collection"], r["run"]) for r in value["results"]] == [
        ("ar", "bm25"),
        ("ar", "milco"),
        ("bn", "bm25"),
        ("bn", "milco"),
    ]
    figures = value["results"][1]["measures"]["nDCG@10"]
    assert figures["mean"] == HIGH.mean["nDCG@10"]
    assert figures["difference"] == HIGH.mean["nDCG@10"] - LOW.mean["nDCG@10"]
    assert figures["p"] == 0.125
    assert figures["p_corrected"] == 0.25
    assert figures["significant"] is False
    assert figures["interval"][0] < figures["mean"] < figures["interval"][1]
    assert value["results"][1]["per_query"] == HIGH.per_query
    assert value["mean"]["milco"] == {"nDCG@10": HIGH.mean["nDCG@10"]}


def test_json_of_one_run_says_that_nothing_was_compared() -> None:
    """No test, no mean over collections, no queries unless asked for."""
    value = json.loads(report(compare({"bm25": {"ar": LOW}})))
    assert value["comparison"] is None
    assert "mean" not in value
    assert "per_query" not in value["results"][0]


def test_the_baseline_is_tested_against_nothing_and_may_be_any_system() -> None:
    """Its rows carry no mark; the difference of the others is seen from it."""
    comparison = compare(ONE, baseline="a_b|c")
    assert list(comparison.differences) == [("bm25", "ar", "nDCG@10")]
    assert comparison.differences["bm25", "ar", "nDCG@10"].mean == pytest.approx(-0.405)


def test_values_are_paired_by_query_not_by_place() -> None:
    """The same values for the same queries are no difference, in whatever order they are held."""
    turned = Evaluation(LOW.mean, {"nDCG@10": dict(reversed(LOW.per_query["nDCG@10"].items()))})
    assert compare({"a": {"q": LOW}, "b": {"q": turned}}).differences["b", "q", "nDCG@10"].p == 1


@pytest.mark.parametrize(
    ("results", "options", "message"),
    [
        ({}, {}, "no evaluation"),
        (ONE, {"baseline": "bm52"}, "unknown baseline 'bm52': did you mean 'bm25'"),
        (ONE, {"test": "tt"}, "unknown test 'tt'"),
        (ONE, {"correction": "holms"}, "did you mean 'holm'"),
        ({"a": {"q": LOW}, "b": {"r": LOW}}, {}, "not evaluated on the same collections"),
        ({"a": {"q": LOW}, "b": {"q": made(0.1)}}, {}, "on other queries of q"),
        ({"a": {"q": LOW}, "b": {"q": made(1, 1, 1, 1, measure="AP")}}, {}, "with other measures than a"),
    ],
)
def test_evaluations_that_do_not_fit_together_are_refused(results: dict, options: dict, message: str) -> None:
    """Comparing them would give a figure that means nothing."""
    with pytest.raises(MilcoError, match=message):
        compare(results, **options)


def test_an_unknown_format_names_the_nearest() -> None:
    """render() is also called from Python, where no command line has checked the name."""
    with pytest.raises(MilcoError, match="did you mean 'markdown'"):
        render(table(compare(ONE)), "markdwn")


def test_the_packages_example_works() -> None:
    """Evaluation, comparison, table and text in one go."""
    evaluation = evaluate({"1": {"a": 2.0}}, {"1": {"a": 1}})
    assert render(table(compare({"milco": {"sample": evaluation}}))) == (
        "run    nDCG@10   R@100\nmilco   1.0000  1.0000\n"
    )
