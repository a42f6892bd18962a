"""The command milco search fuse equals Pyserini's fusion, except for ties."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from milco_pyserini.cli.search import main
from milco_pyserini.errors import MilcoError
from milco_pyserini.search.fusion import fuse

pytest.importorskip("pyserini", reason="Pyserini is not installed")

Capture = pytest.CaptureFixture[str]
Run = dict[str, dict[str, float]]


def made(seed: int, topics: int = 130, documents: int = 30) -> Run:
    """A run of distinct scores, best first, whose topics have some of a hundred documents."""
    draw = np.random.default_rng(seed)
    run = {}
    for topic in range(topics):
        names = [f"d{number}" for number in draw.permutation(100)[:documents]]
        scores = np.sort(draw.random(documents).astype(np.float32) * 40 - 5)[::-1]
        run[f"t{topic:03}"] = dict(zip(names, scores.tolist(), strict=True))
    return run


def written(path: Path, run: Run) -> Path:
    """The run as a TREC file."""
    path.write_text(
        "".join(
            f"{topic} Q0 {docid} {rank} {score!r} x\n"
            for topic, scores in run.items()
            for rank, (docid, score) in enumerate(scores.items(), 1)
        )
    )
    return path


def rows_of(path: Path) -> list[tuple[str, str, int, float]]:
    """Topic, docid, rank and score of every line."""
    rows = [line.split() for line in path.read_text("utf-8").splitlines()]
    return [(row[0], row[2], int(row[3]), float(row[4])) for row in rows]


def refused(capsys: Capture, *arguments: object) -> str:
    """Run the command with invalid input, and return its one line."""
    capsys.readouterr()
    assert main(["fuse", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("milco search fuse: error: ")
    return err.splitlines()[-1]


@pytest.mark.parametrize(
    ("method", "settings", "count"),
    [
        ("rrf", {"rrf_k": 60}, 3),
        ("rrf", {"rrf_k": 7}, 2),
        ("interpolation", {"alpha": 0.3}, 2),
        ("average", {}, 3),
        ("average", {"normalize": True}, 2),
        ("rsf", {}, 3),
    ],
)
def test_fused_scores_are_pyserinis(method: str, settings: dict, count: int, tmp_path: Path) -> None:
    """Documents and scores of Pyserini's fusion of the same files, at the same depth."""
    from pyserini import fusion
    from pyserini.trectools import TrecRun

    runs = [made(seed) for seed in range(count)]
    theirs = [TrecRun(str(written(tmp_path / f"{number}.txt", run))) for number, run in enumerate(runs)]
    if method == "rsf" or (method == "average" and settings):
        # Pyserini's normalize adds up what average divides.
        expected, share = fusion.normalize(theirs, depth=20), count
    else:
        functions = {"rrf": fusion.reciprocal_rank_fusion, "interpolation": fusion.interpolation}
        expected, share = functions.get(method, fusion.average)(theirs, depth=20, **settings), 1
    for topic, hits in fuse(runs, method, depth=20, **settings):
        rows = expected.get_docs_by_topic(topic)
        wanted = dict(zip(rows["docid"], rows["score"] / share, strict=True))
        assert dict(zip(hits.docids, hits.scores, strict=True)) == pytest.approx(wanted, abs=1e-5)
        assert sorted(range(len(hits)), key=lambda n: (-hits.scores[n], hits.docids[n])) == list(range(len(hits)))


def test_ties_are_in_order_of_docid() -> None:
    """For any order of the runs, also if sums differ only in the last bit."""
    one = {"q": {"b": 3.0, "c": 2.0, "a": 1.0}}
    two = {"q": {"c": 3.0, "a": 2.0, "b": 1.0}}
    three = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    for runs in ([one, two, three], [three, one, two]):
        ((topic, hits),) = fuse(runs, k=2)
        assert (topic, hits.docids) == ("q", ["a", "b"])


def test_ids_are_strings(tmp_path: Path) -> None:
    """007 is not 7, NA is a document, a quotation mark is a letter; topics of a single run are fused, too."""
    one = written(tmp_path / "one.txt", {"007": {"NA": 2.0, '"x': 1.0}, "7": {"null": 1.0}})
    two = written(tmp_path / "two.txt", {"007": {"NA": 9.0}, "1e3": {"1.0": 4.0}})
    output = tmp_path / "runs" / "fused.txt"
    for method in ("rrf", "interpolation", "average"):
        normalize = [] if method == "rrf" else ["--normalize"]
        arguments = ["--runs", str(one), str(two), "--method", method, "--output", str(output), "--overwrite"]
        assert main(["fuse", *arguments, *normalize]) == 0
        assert [row[:3] for row in rows_of(output)] == [
            ("007", "NA", 1),
            ("007", '"x', 2),
            ("7", "null", 1),
            ("1e3", "1.0", 1),
        ]


def test_runs_may_lack_topics(tmp_path: Path) -> None:
    """With every method."""
    long, short = made(1), {"t001": {"d1": 2.0, "d2": 1.0}}
    for method in ("rrf", "interpolation", "average"):
        found = dict(fuse([long, short], method, normalize=method == "average"))
        assert list(found) == list(long)
        assert set(found["t120"].docids) == set(long["t120"])


def test_the_default_output_is_named_after_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """runs/A+B.METHOD.txt; missing topics and unsorted runs are reported."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "a.txt", {"1": {"x": 1.0, "y": 5.0}, "2": {"x": 1.0}})
    with gzip.open("b.txt.gz", "wt") as handle:
        handle.write("1\ty\t1\n1\tx\t2\n")
    assert main(["fuse", "--runs", "a.txt", "b.txt.gz", "--tag", "both", "--rrf-k", "1"]) == 0
    err = capsys.readouterr().err
    assert "a.txt: 1 topic not sorted by score" in err
    assert "b.txt.gz lacks 1 of 2 topics" in err
    assert rows_of(Path("runs/a+b.rrf.txt")) == [
        ("1", "y", 1, 1.0),
        ("1", "x", 2, pytest.approx(2 / 3)),
        ("2", "x", 1, 0.5),
    ]
    assert main(["fuse", "--runs", "a.txt", "b.txt.gz"]) == 2 and "--overwrite" in capsys.readouterr().err


def test_a_finished_fusion_is_up_to_date(tmp_path: Path, capsys: Capture) -> None:
    """As after a kill when the run was complete; a longer and a damaged file are other runs, and stay; or stdout."""
    runs = [written(tmp_path / name, {"1": {"x": 2.0, name: 1.0}}) for name in "ab"]
    output = tmp_path / "fused.txt"
    command = ["--runs", *map(str, runs), "--output"]
    assert main(["fuse", *command, str(output)]) == 0
    content = output.read_bytes()
    capsys.readouterr()
    assert main(["fuse", *command, str(output)]) == 0
    assert capsys.readouterr().err == f"{output} is up to date\n"
    assert main(["fuse", *command, "-"]) == 0
    out, err = capsys.readouterr()
    assert out == content.decode() and "into stdout" in err and not Path("-").exists()
    for other in (content + b"1 Q0 z 9 0 t\n", content[:-1], b"\xff" + content):
        output.write_bytes(other)
        assert "exists" in refused(capsys, *command, output)
        assert output.read_bytes() == other


def test_invalid_input_is_one_line_and_writes_nothing(tmp_path: Path, capsys: Capture) -> None:
    """Too few runs, options of other methods, broken runs, ranks without scores, and no topic in common."""
    one = written(tmp_path / "one", {"1": {"x": 1.0}})
    other = written(tmp_path / "other", {"2": {"x": 1.0}})
    twice = tmp_path / "twice"
    twice.write_text("1 Q0 x 1 2 t\n1 Q0 x 2 1 t\n")
    ranks = tmp_path / "ranks"
    ranks.write_text("1\tx\t1\n")
    output = tmp_path / "out" / "run"
    cases = {
        ("--runs", one): "fusion takes two runs or more",
        ("--runs", one, one, one, "--method", "interpolation"): "takes two runs, got 3",
        ("--runs", one, one, "--alpha", 0.5): "--alpha requires --method interpolation",
        ("--runs", one, one, "--normalize"): "--normalize requires --method interpolation or --method average",
        ("--runs", one, one, "--weights", 1): "--weights 1: must be one for each of 2",
        ("--runs", one, one, "--method", "interpolation", "--alpha", 1.5): "must be from 0 to 1",
        ("--runs", one, one, "--method", "rrff"): "Did you mean rrf?",
        ("--runs", one, other): "have no topic in common",
        ("--runs", one, twice): "twice:2: document 'x' is repeated for query '1'",
        ("--runs", one, ranks, "--method", "average"): "has ranks and no scores (MS MARCO)",
        ("--runs", one, tmp_path / "missing"): "missing",
    }
    for arguments, message in cases.items():
        line = refused(capsys, *arguments, "--output", output)
        assert message in line, line
    assert not output.parent.exists()


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -1e308])
def test_scores_that_are_not_finite_are_refused(score: float) -> None:
    """With topic and document, before anything is fused; a command refuses them when it reads a run."""
    with pytest.raises(MilcoError, match="topic 'q', document 'd2': the score"):
        fuse([{"q": {"d1": 1e30}}, {"q": {"d1": 1.0, "d2": score}}], "rsf")
