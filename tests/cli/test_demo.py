"""The demo's figures and tables."""

from pathlib import Path

import pytest

from milco_pyserini.demo.evaluation import across, language_matrix, run_demo, summarize
from milco_pyserini.demo.report import languages_table, summary_table
from milco_pyserini.errors import MilcoError

QRELS = {"ar-q1": {"ar-1": 1, "de-1": 1}, "de-q1": {"ar-1": 1, "de-1": 1}}
# Each query finds the passage of its own language first, then a wrong one, and the other language's right one last.
RUN = {
    "ar-q1": {"ar-1": 9.0, "ar-2": 8.0, "de-1": 7.0},
    "de-q1": {"de-1": 9.0, "ar-2": 8.0, "de-2": 7.5, "ar-1": 7.0},
}


def test_the_matrix_ranks_passages_of_one_language_and_the_summary_all_at_once() -> None:
    """Wrong passages of other languages count only when all are ranked together."""
    matrix = language_matrix(RUN, QRELS)
    assert matrix["ar"]["ar"] == matrix["de"]["de"] == 1
    assert across(matrix, "ar") == 1
    assert across(matrix, "de") == pytest.approx(1 / 1.584963, abs=1e-6)
    summary = summarize(RUN, QRELS, matrix)
    ideal = 1 + 1 / 1.584963
    assert summary["nDCG@10"] == pytest.approx(((1 + 1 / 2) / ideal + (1 + 1 / 2.321928) / ideal) / 2, abs=1e-6)
    assert (summary["R@100"], summary["within"]) == (1, 1)
    assert summary["across"] == pytest.approx((1 + 1 / 1.584963) / 2, abs=1e-6)


def test_a_language_without_hits_counts_zero() -> None:
    """BM25 across scripts finds nothing: a figure, not an error."""
    assert language_matrix({"ar-q1": {"ar-1": 1.0}}, QRELS)["de"] == {"ar": 0.0, "de": 0.0}


def test_tables_state_what_was_ranked() -> None:
    """Passages of one language in the first, all of them in the second, with the means of the first."""
    matrix = language_matrix(RUN, QRELS)
    table = languages_table("MILCO, both views", matrix, matrix, 2)
    assert table.startswith("MILCO, both views, nDCG@10, ranking the 2 passages of one language at a time")
    assert table.splitlines()[-1].split() == ["mean", "1.000", "1.000", "0.815", "0.815"]
    worst = {"nDCG@10": 0.25, "R@100": 0.5, "within": 0.125, "across": 0.0}
    table = summary_table({"BM25": worst, "MILCO": summarize(RUN, QRELS, matrix)}, 4)
    names, first, second = (line.split() for line in table.splitlines()[-3:])
    assert "ranking all 4 passages at once" in table and names == ["nDCG@10", "R@100", "within", "across"]
    assert first == ["BM25", "0.250", "0.500", "0.125", "0.000"]
    assert second == ["MILCO", "0.898", "1.000", "1.000", "0.815"]


def test_directories_that_no_demo_wrote_are_kept(tmp_path: Path) -> None:
    """vectors/ is also where milco encode writes."""
    (tmp_path / "vectors" / "miracl-ar").mkdir(parents=True)
    with pytest.raises(MilcoError, match=r"vectors .* never replaced"):
        run_demo(tmp_path, "mini")
    assert [path.name for path in tmp_path.iterdir()] == ["vectors"]
    assert (tmp_path / "vectors" / "miracl-ar").is_dir()
