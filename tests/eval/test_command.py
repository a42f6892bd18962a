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


def test_all_runs_may_share_one_qrels(command: Callable[..., Outcome]) -> None:
    """One row per run, with the name of its file."""
    runs = ["--run", "bad.txt", "good.txt", "--test", "none"]
    _, out, _ = command(*runs, "--qrels", "ar.qrels", "-m", "recip_rank", "P.1")
    assert out.splitlines() == ["run       RR     P@1", "bad   0.2500  0.0000", "good  1.0000  1.0000"]


def test_several_qrels_are_paired_with_runs_and_averaged(command: Callable[..., Outcome]) -> None:
    """A table of languages with their mean."""
    _, out, err = command("--run", "bad.txt", "good.txt", "--qrels", "ar.qrels", "bn.qrels", "-m", "P@1")
    assert out == "dataset     P@1\nar       0.0000\nbn       1.0000\nmean     0.5000\n"
    assert "bad.txt against ar.qrels" in err
    assert "good.txt against bn.qrels" in err


def test_systems_on_several_datasets_are_named_by_their_directories(command: Callable[..., Outcome]) -> None:
    """All runs of one system, then all runs of the next."""
    runs = ["bm25/ar.txt", "bm25/bn.txt", "milco/ar.txt", "milco/bn.txt"]
    _, out, _ = command("--run", *runs, "--qrels", "ar.qrels", "bn.qrels", "-m", "P@1", "--test", "none")
    assert [line.split() for line in out.splitlines()] == [
        ["dataset", "run", "P@1"],
        ["ar", "bm25", "0.0000"],
        ["ar", "milco", "1.0000"],
        ["bn", "bm25", "0.0000"],
        ["bn", "milco", "1.0000"],
        ["mean", "bm25", "0.0000"],
        ["mean", "milco", "1.0000"],
    ]


def test_files_of_the_same_name_are_shown_with_their_paths(command: Callable[..., Outcome]) -> None:
    """--names replaces them."""
    runs = ["--run", "bm25/ar.txt", "milco/ar.txt", "--qrels", "ar.qrels", "-m", "P@1"]
    assert command(*runs)[1].splitlines()[1].split() == ["bm25/ar.txt", "0.0000"]
    assert command(*runs, "--names", "A", "B")[1].splitlines()[1].split() == ["A", "0.0000"]


def test_names_of_runs_cannot_act_on_a_terminal(command: Callable[..., Outcome], files: Path) -> None:
    """Control characters in the name of a file are shown as escapes."""
    (files / "good.txt").rename(files / "a\x1b[31m.txt")
    _, out, err = command("--run", "a\x1b[31m.txt", "--qrels", "ar.qrels", "-m", "P@1")
    assert out.splitlines()[1].split() == ["a\\x1b[31m", "1.0000"]
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
        (["--run", "good.txt", "--qrels", "miracl-arr-dev"], "unknown qrels 'miracl-arr-dev'"),
        (
            ["--run", "other.txt", "--qrels", "ar.qrels"],
            "no query of the run is judged: the run has 1 query, such as 'x1',",
        ),
        (["--run", "gone.txt", "--qrels", "gone", "-m", "nDGC@10"], "did you mean 'nDCG@10'"),
        (["--run", "good.txt", "bad.txt", "good.txt", "--qrels", "ar.qrels", "bn.qrels"], "3 runs cannot be paired"),
        (["--run", "good.txt", "bad.txt", "--qrels", "ar.qrels", "ar.qrels"], "--qrels ar.qrels is given twice"),
        (["--run", "good.txt", "good.txt", "--qrels", "ar.qrels"], "good.txt is given twice. Name each by --names."),
        (
            ["--run", "good.txt", "--qrels", "ar.qrels", "--names", "a", "b"],
            "--names has 2 names: it needs one for each of 1 system",
        ),
        (["--run", "good.txt", "--qrels", "ar.qrels", "--baseline", "god"], "did you mean 'good'"),
        (["--run", "good.txt", "--qrels", "ar.qrels", "--output", "bad.txt/t.csv"], "bad.txt is a file, nothing can"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_line(
    command: Callable[..., Outcome], files: Path, arguments: list[str], message: str
) -> None:
    """Nothing on stdout, and nothing written."""
    (files / "other.txt").write_text("x1 Q0 a 1 3 t\n")
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    extra = [] if "--output" in arguments else ["--output", "table.txt"]
    code, out, err = command(*arguments, *extra)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("milco eval: error: ")
    assert err.count("\n") == 1
    assert {path: path.read_bytes() for path in files.rglob("*") if path.is_file()} == before


def test_a_broken_line_in_a_later_run_leaves_no_table(command: Callable[..., Outcome], files: Path) -> None:
    """Even if the first run is valid."""
    (files / "broken.txt").write_text(GOOD + "2 Q0 x\n")
    code, out, err = command("--run", "good.txt", "broken.txt", "--qrels", "ar.qrels", "--output", "t")
    assert (code, out) == (2, "")
    assert "error: broken.txt:5: 3 columns" in err
    assert not (files / "t").exists()
