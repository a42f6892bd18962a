"""The demo: its commands, and what its table has of their runs."""

from pathlib import Path

import pytest
from golden_set import GOLDEN

from milco_pyserini.cli.demo import main, summarize

QRELS = {"ar-q1": {"ar-1": 1, "de-1": 1}, "de-q1": {"ar-1": 1, "de-1": 1}}
# Each query finds the passage of its own language first, then a wrong one, and the other language's right one last.
RUN = {"ar-q1": {"ar-1": 9.0, "ar-2": 8.0, "de-1": 7.0}, "de-q1": {"de-1": 9.0, "ar-2": 8.0, "de-2": 7.5, "ar-1": 7.0}}


def test_passages_are_ranked_within_languages_and_all_at_once() -> None:
    """Wrong passages of other languages count only when all are ranked together."""
    summary = summarize(RUN, QRELS)
    ideal = 1 + 1 / 1.584963
    assert summary["nDCG@10"] == pytest.approx(((1 + 1 / 2) / ideal + (1 + 1 / 2.321928) / ideal) / 2, abs=1e-6)
    assert (summary["R@100"], summary["within"]) == (1, 1)
    assert summary["across"] == pytest.approx((1 + 1 / 1.584963) / 2, abs=1e-6)


def test_a_language_without_hits_counts_zero() -> None:
    """BM25 across scripts finds nothing: a figure, not an error."""
    summary = summarize({"ar-q1": {"ar-1": 1.0}}, QRELS)
    assert (summary["within"], summary["across"]) == (0.5, 0.0)


@pytest.mark.slow
@pytest.mark.integration
def test_the_table_has_a_row_for_each_system(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """BM25 has README's figures; the commands are shown, and a run of an earlier demo is replaced."""
    (tmp_path / "demo.json").write_text('{"encoder": "mini"}')
    (tmp_path / "run.txt").write_text("ar-q01 Q0 ar-01 1 1.0 old\n")
    assert main(["--output", str(tmp_path), "--encoder", str(GOLDEN / "ckpt_distillation")]) == 0
    shown = capsys.readouterr()
    rows = {line.split(",")[0]: line.split()[-4:] for line in shown.out.splitlines() if line.count(".") == 4}
    assert [float(figure) for figure in rows["BM25"]] == pytest.approx([0.405, 0.244, 0.987, 0.177], abs=0.001)
    assert "MILCO" in rows
    assert f"$ milco index --vectors {tmp_path}/vectors" in shown.err
    assert "old" not in (tmp_path / "run.txt").read_text()


def test_directories_that_no_demo_wrote_are_kept(tmp_path: Path) -> None:
    """They may hold vectors/, which is where milco encode writes."""
    (tmp_path / "vectors" / "miracl-ar").mkdir(parents=True)
    assert main(["--output", str(tmp_path)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["vectors"]
