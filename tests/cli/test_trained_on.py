"""A checkpoint names the benchmarks that it was trained on, and commands warn when they meet one of them."""

from pathlib import Path

import pytest

from milco_pyserini.cli.main import main
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.configuration import NetworkConfig, warn_if_trained_on

TOPICS = "mkqa-few.tsv"


def command(*words: object) -> int:
    """Run milco."""
    return main([str(word) for word in words])


@pytest.mark.slow
def test_encode_search_and_eval_warn_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The run has it in its tag, so eval needs no encoder; other topics have no warning, and a tag is the user's."""
    monkeypatch.chdir(tmp_path)
    Path("docs.tsv").write_text("d1\tThe Nile is a river.\nd2\tBell patented the telephone.\n")
    for name in (TOPICS, "own.tsv"):
        Path(name).write_text("q1\tWer erfand das Telefon?\n")
    Path("qrels.txt").write_text("q1 0 d2 1\n")
    assert command("encode", "--topics", TOPICS, "--encoder", MINI, "--output", "topics") == 0
    assert capsys.readouterr().err.count("warning: mini was trained on data of mkqa") == 1
    assert command("encode", "--corpus", "docs.tsv", "--encoder", MINI, "--output", "docs") == 0
    assert command("index", "--vectors", "docs", "--engine", "exact", "--output", "index") == 0
    assert "warning" not in capsys.readouterr().err
    for topics, run, further, warned in (
        (TOPICS, "a", (), 1),
        (TOPICS, "b", ("--tag", "x"), 0),
        ("own.tsv", "c", (), 0),
    ):
        assert command("search", "--index", "index", "--topics", topics, "--output", run, *further) == 0
        assert capsys.readouterr().err.count("trained on data of mkqa") == (topics == TOPICS)
        assert command("eval", "--run", run, "--qrels", "qrels.txt", "--test", "none") == 0
        assert capsys.readouterr().err.count(f"warning: the encoder of {run} was trained on data of mkqa") == warned


@pytest.mark.parametrize(
    ("topics", "benchmark"),
    [
        ("mkqa-ar-test", "mkqa"),
        ("mkqa-ar-test@copies/mkqa", "mkqa"),
        ("miracl-hn-sw-dev", "miracl"),
        ("beir/nq/test", "beir-nq"),
        ("beir-nfcorpus-test", ""),
        ("sample", ""),
    ],
)
def test_topics_are_recognized_by_the_name_of_their_benchmark(topics: str, benchmark: str) -> None:
    """The card's list has benchmarks, or one of their datasets."""
    values = Checkpoint.open(MINI).config

    class Encoder:
        name, config = "mini", NetworkConfig(**values)

    assert warn_if_trained_on(Encoder(), topics) == benchmark


def test_a_checkpoint_without_such_a_list_is_read_and_another_type_is_an_error() -> None:
    """The published checkpoint has none."""
    values = Checkpoint.open(MINI).config
    assert NetworkConfig(values["encoder"]).trained_on is None
    with pytest.raises(MilcoError, match="trained_on expects a list or null, got 'mkqa'"):
        NetworkConfig(values["encoder"], trained_on="mkqa")  # type: ignore[arg-type]
