"""The command milco eval."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from milco_pyserini.cli.eval import main

QRELS = "1 0 a 1\n1 0 b 0\n2 0 a 1\n2 0 c 2\n"
GOOD = "1 Q0 a 1 3 good\n1 Q0 b 2 2 good\n2 Q0 c 1 3 good\n2 Q0 a 2 2 good\n"
BAD = "1 Q0 b 1 3 bad\n1 Q0 a 2 2 bad\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write qrels and runs into the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, content in {"ar.qrels": QRELS, "bn.qrels": QRELS, "good.txt": GOOD, "bad.txt": BAD}.items():
        (tmp_path / name).write_text(content)
    for system, content in {"bm25": BAD, "milco": GOOD}.items():
        (tmp_path / system).mkdir()
        for language in ("ar", "bn"):
            (tmp_path / system / f"{language}.txt").write_text(content)
    return tmp_path


Outcome = tuple[int, str, str]


@pytest.fixture
def command(files: Path, capsys: pytest.CaptureFixture) -> Callable[..., Outcome]:
    """Run the command: exit code, stdout, stderr."""

    def run(*arguments: str) -> Outcome:
        code = main(arguments)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_run_and_qrels_are_a_complete_command(command: Callable[..., Outcome]) -> None:
    """The table is on stdout, the number of evaluated queries on stderr."""
    code, out, err = command("--run", "bad.txt", "--qrels", "ar.qrels")
    assert code == 0
    assert out == "run  nDCG@10   R@100\nbad   0.3155  0.5000\n"
    assert err == "bad.txt against ar.qrels: 2 judged queries, 1 without results (counted as 0)\n"


SYSTEMS = ["bm25/ar.txt", "bm25/bn.txt", "milco/ar.txt", "milco/bn.txt"]
TWO_QRELS = ["--qrels", "ar.qrels", "bn.qrels"]


@pytest.mark.parametrize(
    ("runs", "more", "rows"),
    [
        # All runs share one qrels, or each has its own.
        (["bad.txt", "good.txt"], ["--qrels", "ar.qrels"], "run P@1|bad 0.0000|good 1.0000"),
        (["bad.txt", "good.txt"], TWO_QRELS, "dataset P@1|ar 0.0000|bn 1.0000|mean 0.5000"),
        # All runs of one system, then all runs of the next: named by their directories.
        (
            SYSTEMS,
            TWO_QRELS,
            "dataset run P@1|ar bm25 0.0000|ar milco 1.0000|bn bm25 0.0000|bn milco 1.0000|"
            "mean bm25 0.0000|mean milco 1.0000",
        ),
        # Files of the same name are shown with their paths, which --names replaces.
        (SYSTEMS[::2], ["--qrels", "ar.qrels"], "run P@1|bm25/ar.txt 0.0000|milco/ar.txt 1.0000"),
        (SYSTEMS[::2], ["--qrels", "ar.qrels", "--names", "A", "B"], "run P@1|A 0.0000|B 1.0000"),
        # Runs of one name are seeds of a system, on each dataset.
        (
            ["good.txt", "bad.txt", "worse.txt"],
            ["--qrels", "ar.qrels", "--names", "A", "B", "B"],
            "run P@1 sd(P@1)|A 1.0000 -|B 0.2500 0.3536",
        ),
        (
            [*SYSTEMS[:2], "worse.txt", "good.txt"],
            [*TWO_QRELS, "--names", "A", "A"],
            "dataset P@1 sd(P@1)|ar 0.2500 0.3536|bn 0.5000 0.7071|mean 0.3750 0.5303",
        ),
        # A name cannot act on a terminal.
        (["a\x1b[31m.txt"], ["--qrels", "ar.qrels"], "run P@1|a\\x1b[31m 1.0000"),
    ],
)
def test_runs_are_paired_with_qrels_and_named(
    command: Callable[..., Outcome], files: Path, runs: list[str], more: list[str], rows: str
) -> None:
    """By file, directory, path or --names; several datasets end with their mean."""
    (files / "a\x1b[31m.txt").write_text(GOOD)
    (files / "worse.txt").write_text(BAD + "2 Q0 a 1 3 worse\n")
    _, out, err = command("--run", *runs, *more, "-m", "P@1", "--test", "none")
    assert [line.split() for line in out.splitlines()] == [row.split() for row in rows.split("|")]
    assert "\x1b" not in err


def test_output_file_has_the_table_that_stdout_would_have(command: Callable[..., Outcome], files: Path) -> None:
    """Its directory is made; it is replaced only with --overwrite."""
    arguments = ["--run", "good.txt", "--qrels", "ar.qrels", "--format", "json"]
    expected = command(*arguments)[1]
    into = [*arguments, "--output", "tables/ar.json"]
    assert command(*into)[:2] == (0, "")
    assert (files / "tables/ar.json").read_text() == expected
    assert json.loads(expected)["results"][0]["measures"]["R@100"]["mean"] == 1
    code, _, err = command(*into)
    assert (code, "--overwrite" in err) == (2, True)
    assert command(*into, "--overwrite")[0] == 0


def test_ranks_that_contradict_scores_are_reported(command: Callable[..., Outcome], files: Path) -> None:
    """Equal scores are ordered by descending docid, whatever their ranks are."""
    (files / "tied.txt").write_text("1 Q0 a 1 3 t\n1 Q0 b 2 3 t\n")
    _, out, err = command("--run", "tied.txt", "--qrels", "ar.qrels", "-m", "RR")
    assert out == "run       RR\ntied  0.2500\n"
    assert "1 ranked in another order than trec_eval's" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--qrels", "ar.qrels"], "--run is required"),
        (["--run", "/dev/zero", "--qrels", "ar.qrels"], "--run /dev/zero is not a regular file"),
        (["--run", "ar.qrels", "--qrels", "ar.qrels"], "ar.qrels:1: 4 columns"),
        (["--run", "good.txt", "broken.txt", "--qrels", "ar.qrels"], "broken.txt:5: 3 columns"),
        (["--run", "good.txt", "--qrels", "miracl-arr-dev"], "unknown qrels 'miracl-arr-dev'"),
        (["--run", "other.txt", "--qrels", "ar.qrels"], "no query of the run is judged: the run has 1 query"),
        (["--run", "gone.txt", "--qrels", "gone", "-m", "nDGC@10"], "did you mean 'nDCG@10'"),
        (["--run", "good.txt", "bad.txt", "good.txt", *TWO_QRELS], "3 runs cannot be paired"),
        (["--run", "good.txt", "bad.txt", "--qrels", "ar.qrels", "ar.qrels"], "--qrels ar.qrels is given twice"),
        (["--run", "good.txt", "good.txt", "--qrels", "ar.qrels"], "run good.txt is given twice. Name each by --names"),
        (["--run", "good.txt", "--qrels", "ar.qrels", "--names", "a", "b"], "--names has 2 names"),
        (
            ["--run", "bad.txt", "good.txt", "good.txt", "--qrels", "ar.qrels", "--names", "a", "b", "b"],
            "run good.txt is given twice. Name each by --names: runs of one name are its seeds.",
        ),
        (
            ["--run", "good.txt", "--qrels", "ar.qrels", "--effects", "--per-query"],
            "--per-query exclude each other",
        ),
        (["--run", "good.txt", "--qrels", "ar.qrels", "--baseline", "god"], "did you mean 'good'"),
        (["--run", "good.txt", "--qrels", "ar.qrels", "--output", "bad.txt/t.csv"], "bad.txt is a file, nothing can"),
        (["--run", "good.txt", "--qrels", "ar.qrels", "--corpus", "sample"], "--corpus requires --fairness"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_line(
    command: Callable[..., Outcome], files: Path, arguments: list[str], message: str
) -> None:
    """Nothing on stdout, and nothing written, even if the first run is valid."""
    (files / "other.txt").write_text("x1 Q0 a 1 3 t\n")
    (files / "broken.txt").write_text(GOOD + "2 Q0 x\n")
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    extra = [] if "--output" in arguments else ["--output", "table.txt"]
    code, out, err = command(*arguments, *extra)
    assert (code, out) == (2, "")
    # The summary of a valid run comes before the error of a later one.
    *summaries, line = err.splitlines()
    assert line.startswith("milco eval: error: ") and message in line
    assert len(summaries) == ("broken.txt" in arguments)
    assert {path: path.read_bytes() for path in files.rglob("*") if path.is_file()} == before
