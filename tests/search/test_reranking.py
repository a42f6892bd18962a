"""The command milco search rerank: the texts of a run are scored by a cross-encoder."""

import json
from pathlib import Path

import pytest
from golden_set import make_reranker

from milco_pyserini.cli.search import main
from milco_pyserini.io.runs import read_run
from milco_pyserini.search.reranking import CrossEncoder

TEXTS = {"a": "The old harbour", "b": "A train crosses the bridge", "c": "первая книга", "d": "小さな 市場"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, topics, a run of all documents, and a tiny cross-encoder with random weights."""
    root = tmp_path_factory.mktemp("rerank")
    (root / "corpus.jsonl").write_text(
        "".join(json.dumps({"id": name, "title": name, "text": text}) + "\n" for name, text in TEXTS.items())
    )
    (root / "topics.tsv").write_text("1\triver\n2\tmarket\n")
    (root / "run.txt").write_text(
        "".join(f"{topic} Q0 {name} {rank} {9 - rank} x\n" for topic in "12" for rank, name in enumerate(TEXTS, 1))
    )
    make_reranker(root / "model")
    return root


def arguments(files: Path, output: Path, *more: str) -> list[str]:
    """Return a command line with settings that fit the tiny model."""
    given = {"--run": files / "run.txt", "--topics": files / "topics.tsv", "--encoder": files / "model"}
    words = [word for name, value in given.items() for word in (name, str(value))]
    return ["rerank", *words, "--output", str(output), "--max-length", "64", "--device", "cpu", *more]


def test_the_first_documents_are_in_the_order_of_the_cross_encoders_scores(files: Path, tmp_path: Path) -> None:
    """--k of each topic, with title and text; the others are not in the run."""
    output = tmp_path / "new.txt"
    assert main(arguments(files, output, "--corpus", str(files / "corpus.jsonl"), "--k", "3")) == 0
    scorer = CrossEncoder(str(files / "model"), 64, device="cpu")
    found = read_run(output)
    for topic, query in (("1", "river"), ("2", "market")):
        scores = dict(zip("abc", scorer.score([(query, f"{name} {TEXTS[name]}") for name in "abc"]), strict=True))
        assert found[topic] == pytest.approx(scores, rel=1e-4)
        assert list(found[topic]) == sorted(scores, key=lambda name: -scores[name])


def test_missing_texts_are_refused_and_nothing_is_written(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A document or a topic without a text; no place of texts, or two; a model that is not there."""
    corpus, few, topics = str(files / "corpus.jsonl"), tmp_path / "few.jsonl", tmp_path / "topics.tsv"
    few.write_text(json.dumps({"id": "a", "text": "x"}) + "\n")
    topics.write_text("2\tmarket\n")
    output = tmp_path / "new.txt"
    line = arguments(files, output)
    for command, message in (
        ([*line, "--corpus", str(few)], "the text of document 'b' is not available. Give the --corpus of the run"),
        (line, "give exactly one of --index, --corpus"),
        ([*line, "--corpus", corpus, "--index", "x"], "give exactly one of --index, --corpus"),
        ([str(topics) if word.endswith("topics.tsv") else word for word in [*line, "--corpus", corpus]], "topic '1'"),
        (["nowhere" if word.endswith("model") else word for word in [*line, "--corpus", corpus]], "at 'nowhere'"),
    ):
        assert main(command) == 2
        assert message in capsys.readouterr().err
    assert not output.exists()
