"""Comparisons of systems, and the tables that report them."""

import csv
import doctest
import io
import json
from dataclasses import replace
from importlib import import_module

import pytest

from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import Evaluation, ReportTable, compare, compare_evaluations, render
from milco_pyserini.eval.evaluation import mean_of_seeds


def made(*values: float, measure: str = "nDCG@10") -> Evaluation:
    """Return an evaluation of queries q0, q1, ... with these values."""
    per_query = {f"q{place}": value for place, value in enumerate(values)}
    return Evaluation({measure: sum(values) / len(values)}, {measure: per_query})


LOW = made(0.1, 0.2, 0.3, 0.4)
HIGH = made(0.5, 0.61, 0.72, 0.79)
ONE = {"bm25": {"ar": LOW}, "a_b|c": {"ar": HIGH}}
TWO = {"bm25": {"ar": LOW, "bn": HIGH}, "milco": {"ar": HIGH, "bn": HIGH}}


def test_digits_of_a_column_are_aligned_with_and_without_mark() -> None:
    """The note explains the mark, if there is one; 阿 is twice as wide as a letter, a combining accent has no width."""
    assert str(compare_evaluations(ONE)) == (
        "run    nDCG@10\nbm25    0.2500\na_b|c   0.6550*\n\n* differs from bm25: paired t-test, p < 0.05\n"
    )
    comparison = compare_evaluations({"bm25": {"ar": LOW}, "milco": {"ar": made(0.2, 0.1, 0.4, 0.3)}})
    assert comparison.differences
    assert not any("differs" in render(comparison.to_table(), form) for form in ("text", "markdown", "latex"))
    comparison = compare_evaluations({"阿拉伯": {"q": LOW}, "e\u0301": {"q": LOW}}, test="none")
    assert str(comparison).splitlines() == ["run     nDCG@10", "阿拉伯   0.2500", "e\u0301        0.2500"]


def test_rows_are_grouped_by_dataset() -> None:
    """The p-values of a measure are corrected together."""
    assert str(compare_evaluations(TWO, correction="bonferroni")) == (
        "dataset  run    nDCG@10\n"
        "ar       bm25    0.2500\n"
        "ar       milco   0.6550*\n"
        "bn       bm25    0.6550\n"
        "bn       milco   0.6550\n"
        "mean     bm25    0.4525\n"
        "mean     milco   0.6550\n"
        "\n"
        "* differs from bm25: paired t-test, p < 0.05, Bonferroni correction of 2 comparisons\n"
    )


def test_per_query_rows_precede_their_mean() -> None:
    """Each query's systems together, then all."""
    table = compare_evaluations({"a": {"c": made(0, 1)}, "b": {"c": made(0, 0)}}).to_table(per_query=True)
    expected = [("q0", "a"), ("q0", "b"), ("q1", "a"), ("q1", "b"), ("all", "a"), ("all", "b")]
    assert [tuple(row[:2]) for row in table.rows] == expected


def test_markdown_escapes_names() -> None:
    """A pipe in a name does not begin a cell, and an underscore does not begin emphasis."""
    lines = render(compare_evaluations(ONE).to_table(), "markdown").splitlines()
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[:3]] == [
        ["run", "nDCG@10"],
        [":" + "-" * 8, "-" * 10 + ":"],
        ["bm25", "0.2500"],
    ]
    assert lines[3:] == [r"| a\_b\|c |  0.6550\* |", "", r"\* differs from bm25: paired t-test, p \< 0.05"]


def test_latex_escapes_names() -> None:
    """Every character that LaTeX gives a meaning, and a bracket that would follow a line end."""
    results = {"[50% a_b & c]": {"q": LOW}, r"\~^#$<{}": {"q": HIGH}}
    lines = [" ".join(line.split()) for line in render(compare_evaluations(results).to_table(), "latex").splitlines()]
    assert lines == [
        r"% needs \usepackage{booktabs}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"run & nDCG@10 \\",
        r"\midrule",
        r"{}[50\% a\_b \& c] & 0.2500 \\",
        r"\textbackslash{}\textasciitilde{}\^{}\#\$\ensuremath{<}\{\} & 0.6550* \\",
        r"\bottomrule",
        r"\multicolumn{2}{l}{\footnotesize * differs from [50\% a\_b \& c]: paired t-test, p \ensuremath{<} 0.05} \\",
        r"\end{tabular}",
    ]


def test_csv_has_every_digit_and_any_name() -> None:
    """Commas, quotes and line ends in a name are read back; p-values have columns of their own."""
    name = 'a,"b"\nc'
    comparison = compare_evaluations({"bm25": {"q": LOW}, name: {"q": made(1 / 3, 0.5, 0.7, 0.9)}})
    rows = list(csv.reader(io.StringIO(render(comparison.to_table(), "csv"))))
    assert rows[0] == ["run", "nDCG@10", "p(nDCG@10)"]
    assert rows[1] == ["bm25", "0.25", ""]
    assert rows[2][0] == name
    assert float(rows[2][1]) == comparison.average(name, "nDCG@10")
    assert float(rows[2][2]) == comparison.differences[name, "q", "nDCG@10"].corrected


def test_missing_numbers_are_dashes_and_columns_have_their_digits() -> None:
    """None and NaN alike; CSV leaves them empty."""
    table = ReportTable(["index"], ["ms", "terms"], [["a", 1.25, None], ["b", 1000, float("nan")]], digits=[1, 0])
    assert render(table).splitlines() == ["index       ms  terms", "a          1.2      -", "b      1,000.0      -"]
    assert render(table, "csv") == "index,ms,terms\na,1.25,\nb,1000,\n"


def test_json_has_means_intervals_tests_and_queries() -> None:
    """With every digit; one run has neither a comparison nor a mean over datasets."""
    value = json.loads(compare_evaluations(TWO, test="wilcoxon").to_json(per_query=True))
    assert value["comparison"] == {"baseline": "bm25", "test": "wilcoxon", "correction": "holm", "alpha": 0.05}
    expected = [("ar", "bm25"), ("ar", "milco"), ("bn", "bm25"), ("bn", "milco")]
    assert [(result["dataset"], result["run"]) for result in value["results"]] == expected
    ndcg = value["results"][1]["measures"]["nDCG@10"]
    assert ndcg["mean"] == HIGH.mean["nDCG@10"]
    assert ndcg["difference"] == HIGH.mean["nDCG@10"] - LOW.mean["nDCG@10"]
    assert (ndcg["p"], ndcg["p_corrected"], ndcg["significant"]) == (0.125, 0.25, False)
    assert ndcg["interval"][0] < ndcg["mean"] < ndcg["interval"][1]
    assert 0.39 <= ndcg["difference_interval"][0] <= ndcg["difference"] <= ndcg["difference_interval"][1] <= 0.42
    assert ndcg["effect_size"] == pytest.approx(0.405 / 0.0129, rel=0.01)
    assert value["results"][1]["per_query"] == HIGH.per_query
    assert value["mean"]["milco"] == {"nDCG@10": HIGH.mean["nDCG@10"]}
    one = json.loads(compare_evaluations({"bm25": {"ar": LOW}}).to_json())
    assert one["comparison"] is None and "mean" not in one and "per_query" not in one["results"][0]


def test_any_system_may_be_the_baseline() -> None:
    """It is tested against nothing; differences of the others are from its mean."""
    comparison = compare_evaluations(ONE, baseline="a_b|c")
    assert list(comparison.differences) == [("bm25", "ar", "nDCG@10")]
    assert comparison.differences["bm25", "ar", "nDCG@10"].mean == pytest.approx(-0.405)


def test_values_are_paired_by_query_not_by_position() -> None:
    """The order of the queries does not matter."""
    turned = Evaluation(LOW.mean, {"nDCG@10": dict(reversed(LOW.per_query["nDCG@10"].items()))})
    assert compare_evaluations({"a": {"q": LOW}, "b": {"q": turned}}).differences["b", "q", "nDCG@10"].p == 1


@pytest.mark.parametrize(
    ("results", "options", "message"),
    [
        ({}, {}, "no evaluation"),
        (ONE, {"baseline": "bm52"}, "unknown baseline 'bm52': did you mean 'bm25'"),
        (ONE, {"test": "tt"}, "unknown test 'tt'"),
        (ONE, {"correction": "holms"}, "did you mean 'holm'"),
        ({"a": {"q": LOW}, "b": {"r": LOW}}, {}, "not evaluated on the same datasets"),
        ({"a": {"q": LOW}, "b": {"q": made(0.1)}}, {}, "on other queries of q than a"),
        ({"a": {"q": LOW}, "b": {"q": made(1, 1, 1, 1, measure="AP")}}, {}, "on q with other measures than a"),
    ],
)
def test_evaluations_that_cannot_be_compared_are_an_error(results: dict, options: dict, message: str) -> None:
    """Unknown names too."""
    with pytest.raises(MilcoError, match=message):
        compare_evaluations(results, **options)


def test_runs_are_compared_from_dicts() -> None:
    """One call from runs to a comparison; an unknown format has the nearest one in its error."""
    qrels = {f"q{number}": {"a": 1} for number in range(3)}
    comparison = compare({"milco": {query: {"a": 2.0} for query in qrels}}, qrels)
    assert str(comparison) == "run    nDCG@10   R@100\nmilco   1.0000  1.0000\n"
    with pytest.raises(MilcoError, match="did you mean 'markdown'"):
        render(comparison.to_table(), "markdwn")


@pytest.mark.parametrize("name", ["", ".evaluation", ".measures", ".report", ".significance"])
def test_examples_in_docstrings_run(name: str) -> None:
    """As they are printed."""
    result = doctest.testmod(import_module(f"milco_pyserini.eval{name}"))
    assert result.attempted and not result.failed


def test_effects_have_intervals_that_are_paired_by_query_and_sizes() -> None:
    """Gains .4, .41, .42 and .39: their interval is far narrower than those of the means; the mean has neither d nor p.

    A gain that all queries have alike has no effect size, and the baseline no gain.
    """
    table = compare_evaluations(TWO).effects()
    assert [tuple(row[:3]) for row in table.rows] == [
        (dataset, system, "nDCG@10") for dataset in ("ar", "bn", "mean") for system in ("bm25", "milco")
    ]
    numbers = {(row[0], row[1]): dict(zip(table.columns, row[3:], strict=True)) for row in table.rows}
    milco = numbers["ar", "milco"]
    assert milco["gain"] == pytest.approx(0.405)
    assert 0.39 <= milco["gain low"] < milco["gain"] < milco["gain high"] <= 0.42
    assert milco["mean low"] < 0.6 < milco["mean"] < 0.7 < milco["mean high"]
    assert milco["d"] == pytest.approx(31.4, abs=0.1)
    assert milco["p"] < 0.001
    assert [numbers["bn", "milco"][name] for name in ("gain", "gain low", "gain high", "d", "p")] == [0, 0, 0, None, 1]
    assert {numbers["ar", "bm25"][name] for name in ("gain", "gain low", "gain high", "d", "p")} == {None}
    assert numbers["mean", "milco"]["gain"] == pytest.approx(0.405 / 2)
    assert (numbers["mean", "milco"]["d"], numbers["mean", "milco"]["p"]) == (None, None)
    equal = compare_evaluations({"bm25": {"ar": LOW}, "milco": {"ar": made(0.2, 0.3, 0.4, 0.5)}}, test="none").effects()
    assert equal.rows[1][1] == "nDCG@10" and equal.rows[1][-2:] == [None, None]


def test_a_system_of_several_seeds_is_their_mean() -> None:
    """Per query, too; with the deviation of the means, which over datasets is that of each seed's mean."""
    seeds = [mean_of_seeds([made(*first), made(*second)]) for first, second in (((0, 1), (1, 1)), ((1, 0), (0, 0)))]
    assert seeds[0].mean == {"nDCG@10": 0.75} and seeds[0].per_query == {"nDCG@10": {"q0": 0.5, "q1": 1}}
    bm25 = made(0, 0)
    comparison = compare_evaluations(
        {"bm25": {"ar": bm25, "bn": bm25}, "milco": dict(zip(("ar", "bn"), seeds, strict=True))}
    )
    table = comparison.to_table()
    assert table.columns == ["nDCG@10", "sd(nDCG@10)"]
    assert [tuple(row) for row in table.rows] == [
        ("ar", "bm25", 0, None),
        ("ar", "milco", 0.75, pytest.approx(0.25 * 2**0.5)),
        ("bn", "bm25", 0, None),
        ("bn", "milco", 0.25, pytest.approx(0.25 * 2**0.5)),
        ("mean", "bm25", 0, None),
        # Each seed has .5 in the mean.
        ("mean", "milco", 0.5, 0),
    ]
    assert json.loads(comparison.to_json())["results"][1]["measures"]["nDCG@10"]["seeds"] == [0.5, 1]
    assert render(table, "csv").splitlines()[0] == "dataset,run,nDCG@10,p(nDCG@10),sd(nDCG@10)"


def test_runs_that_were_searched_differently_are_not_seeds() -> None:
    """Other options than the encoder and the machine's are refused; a run without a record may be any."""
    runs = [
        replace(LOW, options={"alpha": alpha, "encoder": name, "threads": 1}) for alpha, name in ((1, "a"), (1, "b"))
    ]
    assert mean_of_seeds([*runs, LOW]).options == {"alpha": 1}
    with pytest.raises(MilcoError, match="runs that differ in alpha are not seeds of a system: give them other names"):
        mean_of_seeds([*runs, replace(LOW, options={"alpha": 0.5})])
