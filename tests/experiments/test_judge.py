"""Qrels made from answers, as for MKQA."""

import json
import zipfile
from pathlib import Path

import pytest

from experiments.judge import judge, main, word_splitter
from milco_pyserini.corpora import Document, open_qrels, open_topics

pytestmark = pytest.mark.slow


def test_answers_match_adjacent_complete_words() -> None:
    """Case, the normal form of accents and the kind of dash do not matter."""
    words = word_splitter()
    assert words("Jean‑Luc’s CAFÉ, 1999") == " jean - luc ' s cafe\u0301 , 1999 "
    corpus = [Document("1", "Anna", "Karenina, by Leo Tolstoy"), Document("2", "", "Leopold"), Document("3", "", "x")]
    retrieved = {"a": ["1", "2"], "b": ["1"], "c": ["3"], "other": ["1"]}
    answers = {"a": ["LEO"], "b": ["Anna Karenina", "nobody"], "c": [""], "d": ["x"]}
    assert judge(corpus, retrieved, answers) == {"a": {"1": 1, "2": 0}, "b": {"1": 1}, "c": {"3": 0}, "d": {}}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """MKQA's archive with three questions in Arabic."""
    rows = [
        {"id": "1", "question": "من كتب آنا كارنينا؟", "answers": ["Leo Tolstoy", "Tolstoy"]},
        {"id": "2", "question": "متى؟", "answers": ["1878"]},
        {"id": "3", "question": "أين؟", "answers": ["Russia"]},
    ]
    with zipfile.ZipFile(tmp_path / "MKQA_test-data.zip", "w") as archive:
        archive.writestr("ar.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_mkqa_is_judged_by_answers(questions: Path, capsys: pytest.CaptureFixture) -> None:
    """Every retrieved passage gets a grade; a topic without results gets a placeholder that is not relevant."""
    name = f"mkqa-ar-test@{questions}"
    corpus, runs, output = (questions / file for file in ("passages.tsv", "run.txt", "qrels.txt"))
    corpus.write_text("p1\tAnna Karenina\tA novel by Tolstoy.\np2\tWar\tand peace, 1869\np3\t\tnever found\n")
    runs.write_text("1 Q0 p2 1 9.5 milco\n1 Q0 p1 2 9.0 milco\n2 Q0 p2 1 3.0 milco\n2 Q0 p3 2 2.0 milco\n")
    assert [query.text for query in open_topics(name)] == ["من كتب آنا كارنينا؟", "متى؟", "أين؟"]
    command = ["--topics", name, "--corpus", str(corpus), "--run", str(runs), "--output", str(output)]
    assert main(command) == 0
    assert open_qrels(str(output)) == {"1": {"p1": 1, "p2": 0}, "2": {"p2": 0, "p3": 0}, "3": {"-": 0}}
    assert f"Judged 4 passages into {output}: 1 of 3 topics have one with an answer" in capsys.readouterr().err
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite", "--depth", "1"]) == 0
    assert open_qrels(str(output)) == {"1": {"p2": 0}, "2": {"p2": 0}, "3": {"-": 0}}


def test_judge_refuses_runs_that_do_not_fit(questions: Path, capsys: pytest.CaptureFixture) -> None:
    """Passages that the corpus lacks, a run of other topics, a malformed run; nothing is written."""
    corpus, runs, output = (questions / file for file in ("passages.tsv", "run.txt", "qrels.txt"))
    corpus.write_text("p1\tTolstoy\n")
    command = ["--topics", f"mkqa-ar-test@{questions}", "--corpus", str(corpus), "--run", str(runs)]
    for content, why in (
        ("1 Q0 p9 1 1.0 x\n", "lacks 1 of 1 retrieved passages. Pass the corpus that was searched."),
        ("q7 Q0 p1 1 1.0 x\n", f"{runs} has no topic of mkqa-ar-test@{questions}"),
        ("1 p1\n", f"{runs}:1: 2 columns"),
    ):
        runs.write_text(content)
        assert main([*command, "--output", str(output)]) == 2
        assert why in capsys.readouterr().err
    assert not output.exists()
