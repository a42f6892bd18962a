"""Language fairness of runs: milco eval --fairness."""

from collections.abc import Callable
from pathlib import Path

import pytest

from milco_pyserini.cli.eval import main
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.fairness import OWN_LANGUAGE, PEER, document_languages, evaluate_fairness, peer

LANGUAGES = {f"{language}-{number}": language for language in ("de", "sw") for number in range(1, 4)}
RELEVANT = dict.fromkeys(LANGUAGES, 1)
ALTERNATING = ["de-1", "sw-1", "sw-2", "de-2", "de-3", "sw-3"]
SEPARATE = sorted(LANGUAGES)


def test_peer_is_the_p_value_of_the_kruskal_wallis_test() -> None:
    """H = 12 / (N (N + 1)) sum(R**2 / n) - 3 (N + 1), chi-square of one degree of freedom, by hand."""
    assert peer(SEPARATE, RELEVANT, LANGUAGES) == pytest.approx(0.049535, abs=1e-6)  # H = 3.857
    assert peer(ALTERNATING, RELEVANT, LANGUAGES) == pytest.approx(0.827259, abs=1e-6)  # H = .0476
    assert peer(SEPARATE[3:] + SEPARATE[:3], RELEVANT, LANGUAGES) == peer(SEPARATE, RELEVANT, LANGUAGES)


def test_peer_compares_documents_of_one_grade() -> None:
    """The mean over grades; a grade of one language counts 1, documents that are not relevant do not count."""
    grades = {name: 2 if name == "de-1" else 1 for name in LANGUAGES}
    rest = {name: grade for name, grade in grades.items() if grade == 1}
    assert peer(SEPARATE, grades, LANGUAGES) == (1 + peer(SEPARATE, rest, LANGUAGES)) / 2
    assert peer(["en-1", *SEPARATE], RELEVANT | {"en-1": 0}, LANGUAGES) == peer(SEPARATE, RELEVANT, LANGUAGES)
    assert peer([], RELEVANT, LANGUAGES) == peer(SEPARATE, {}, LANGUAGES) == 1


def test_documents_below_the_depth_share_the_last_place() -> None:
    """Whether they are in the run or not, and in whatever order."""
    assert peer(SEPARATE, RELEVANT, LANGUAGES, 3) == peer(SEPARATE[:3], RELEVANT, LANGUAGES)
    assert peer(SEPARATE, RELEVANT, LANGUAGES, 3) == peer([*SEPARATE[:3], *SEPARATE[:2:-1]], RELEVANT, LANGUAGES, 3)


def test_hits_in_the_language_of_the_query_are_counted() -> None:
    """The share covers the ten best hits; queries whose ids have no language have no share."""
    run = {"sw-q": {name: 9.0 - place for place, name in enumerate(SEPARATE[:4])}, "de-q": {"de-1": 1.0}}
    qrels = {"sw-q": RELEVANT, "de-q": RELEVANT}
    fairness = evaluate_fairness(run, qrels, LANGUAGES)
    assert fairness[OWN_LANGUAGE] == {"sw-q": 0.25, "de-q": 1.0}
    named = evaluate_fairness({"1": run["sw-q"]}, {"1": RELEVANT}, LANGUAGES)
    assert list(named) == [PEER]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Callable:
    """Write files, given as words with | for line ends, and run the command: stdout by rows and columns, and stderr."""

    def run(files: dict[str, str], *arguments: str) -> tuple[list[list[str]], str]:
        monkeypatch.chdir(tmp_path)
        for name, content in files.items():
            (tmp_path / name).write_text(content.replace("|", "\n") + "\n")
        assert main(arguments) == 0
        out, err = capsys.readouterr()
        return [line.split() for line in out.splitlines()], err

    return run


def test_runs_have_the_same_measures_whatever_they_answer(command: Callable) -> None:
    """The judged queries decide whose languages are known."""
    files = {
        "q.txt": "sw-q 0 sw-1 1|x1 0 de-1 1",
        "a.txt": "sw-q Q0 sw-1 1 2 r|x1 Q0 de-1 1 2 r",
        "b.txt": "sw-q Q0 sw-1 1 2 r",
    }
    rows, err = command(files, "--run", "a.txt", "b.txt", "--qrels", "q.txt", "-m", "RR@10", "--fairness")
    assert rows[0] == ["run", "RR@10", "OwnLanguage@10"]
    assert [row[-1] for row in rows[1:3]] == ["1.0000", "1.0000"]
    assert "1 without results (counted as 0)" in err


def test_queries_without_a_language_are_left_out_of_its_measure_only(command: Callable) -> None:
    """A line reports how many. If one of several datasets has no such query, none has the measure: there is no mean."""
    files = {}
    for name, first in (("some", "sw-q"), ("none", "x0")):
        files[f"{name}.qrels"] = f"{first} 0 sw-1 1|{first} 0 sw-2 1|{first} 0 de-1 1|x1 0 de-1 1"
        files[f"{name}.txt"] = f"{first} Q0 sw-1 1 2 r|x1 Q0 de-1 1 2 r"
    given = ["-m", "RR@10", "--fairness", "--per-query"]
    rows, err = command(files, "--run", "some.txt", "--qrels", "some.qrels", *given)
    expected = {"query": "OwnLanguage@10", "sw-q": "1.0000", "x1": "-", "all": "1.0000"}
    assert {row[0]: row[3] for row in rows} == expected
    assert "OwnLanguage@10 leaves out 1 query of some.qrels: the id of 'x1' begins with no known language" in err
    rows, err = command({}, "--run", "some.txt", "none.txt", "--qrels", "some.qrels", "none.qrels", *given)
    assert OWN_LANGUAGE not in rows[0] and "OwnLanguage@10 leaves out all queries of none.qrels" in err
    seeds = {f"{name}-2.txt": files[f"{name}.txt"] for name in ("some", "none")}
    runs = ["some.txt", "none.txt", *seeds, "--qrels", "some.qrels", "none.qrels", "--names", "A", "A"]
    rows, _ = command(seeds, "--run", *runs, *given[:-1])
    assert "sd(RR@10)" in rows[0] and OWN_LANGUAGE not in rows[0]


def test_a_peer_that_cannot_differ_is_left_out(command: Callable) -> None:
    """With one relevant document per query, or one in each language, any ranking has the same."""
    files = {"q.txt": "sw-1 0 sw-1 1|sw-2 0 sw-2 1|sw-2 0 de-2 1", "run.txt": "sw-1 Q0 sw-1 1 2 r"}
    rows, err = command(files, "--run", "run.txt", "--qrels", "q.txt", "--fairness")
    assert "PEER@100" not in rows[0] and "PEER@100 is left out, it cannot tell rankings of q.txt apart" in err


def test_a_run_without_judged_documents_is_reported(command: Callable) -> None:
    """Its docids are probably of another collection."""
    files = {"q.txt": "q 0 d1 1", "run.txt": "q Q0 D-1 1 2 r"}
    _, err = command(files, "--run", "run.txt", "--qrels", "q.txt")
    assert "No document of run.txt is judged: it has docids such as 'D-1', q.txt 'd1'" in err


def test_the_command_adds_measures(command: Callable) -> None:
    """Columns, which are tested like the others."""
    files = {
        "run.txt": "|".join(f"sw-q Q0 {name} {rank} {9 - rank} r" for rank, name in enumerate(SEPARATE, 1)),
        "q.txt": "|".join(f"sw-q 0 {name} 1" for name in SEPARATE),
    }
    rows, _ = command(files, "--run", "run.txt", "--qrels", "q.txt", "-m", "R@100", "--fairness")
    assert rows == [["run", "R@100", "PEER@100", "OwnLanguage@10"], ["run", "1.0000", "0.0495", "0.5000"]]


def test_languages_come_from_ids_or_corpora(tmp_path: Path) -> None:
    """From the field lang; a document without a language is an error that names it."""
    run, qrels = {"q": {"d1": 2.0}}, {"q": {"d2": 1, "d3": 0}}
    corpus = tmp_path / "docs.jsonl"
    corpus.write_text('{"id": "d1", "text": "a", "lang": "fa"}\n{"id": "d2", "text": "b", "lang": "zh"}\n')
    assert document_languages([run], qrels, [str(corpus)]) == {"d1": "fa", "d2": "zh"}
    with pytest.raises(MilcoError, match="document 'd1' is not known"):
        document_languages([run], qrels, [])
    with pytest.raises(MilcoError, match=r"document 'd4' .*docs.jsonl"):
        document_languages([{"q": {"d4": 1.0}}], qrels, [str(corpus)])
