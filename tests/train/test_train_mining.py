"""Mining hard negatives."""

import gzip
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_set import GOLDEN, encoder
from training_set import MANY_SCRIPTS as WORDS
from training_set import examples, write_lines

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.index import Hits
from milco_pyserini.train import mining
from milco_pyserini.train.cli import main
from milco_pyserini.train.data.retrieval import RetrievalFile, distinct_passages
from milco_pyserini.train.mining import NegativeMiner, near_duplicates, shingles
from milco_pyserini.train.rewriting import MineOptions

CHECKPOINT = GOLDEN / "ckpt_distillation"


def passage(number: int) -> str:
    """Return a passage that shares words with its neighbors."""
    return " ".join(WORDS[(number * step + step) % len(WORDS)] for step in range(1, 9)) + f" {number}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Thirty pairs; two of them have the same query."""
    lines = [{"query": f"{WORDS[n % 12]} {WORDS[n * 5 % 12]}", "positive": passage(n)} for n in range(28)]
    lines += [{"query": "old bridge", "positive": passage(n)} for n in (30, 31)]
    return write_lines(tmp_path / "pairs.ja.jsonl.gz", *lines)


def run(data: Path, output: Path, *more: str, model: Path | str = CHECKPOINT) -> int:
    """Run the command with the golden set's tiny encoder."""
    common = ["--encoder", str(model), "--dtype", "float32", "--device", "cpu"]
    return main(["mine", "--data", str(data), "--output", str(output), *common, *more])


def test_negatives_are_the_best_hits_in_order(data: Path, tmp_path: Path) -> None:
    """Dot products by definition, sorted, without positives of the same query and their near-duplicates."""
    assert run(data, tmp_path / "mined", "--negatives", "4") == 0
    found = examples(tmp_path / "mined")
    before = list(RetrievalFile(data).examples())
    assert [(one.language, one.query, one.positives) for one in found] == [
        ("ja", one.query, one.positives) for one in before
    ]
    passages = list(distinct_passages(RetrievalFile(data)))
    model = encoder("distillation")
    scores = model.similarity(model.encode_query([one.query for one in before]), model.encode_document(passages))
    for one, row in zip(found, scores, strict=True):
        positives = {text for other in before if other.query == one.query for text in other.positives}
        ranked = [passages[place] for place in (-row).argsort(kind="stable") if row[place] > 0]
        kept = [
            text
            for text in ranked
            if text not in positives
            and not any(near_duplicates(shingles(text), shingles(positive)) for positive in positives)
        ]
        assert [row[passages.index(text)] for text in one.negatives] == pytest.approx(
            [row[passages.index(text)] for text in kept[:4]], rel=1e-5
        )
        assert not positives & set(one.negatives)


class FixedSearcher:
    """Finds passages 0, 1, 2, ... with decreasing scores for every query."""

    def search(self, queries: list, k: int, threads: int = 1) -> list[Hits]:
        """Return the same hits for all queries."""
        return [Hits([f"{n:010d}" for n in range(5)], np.array([10.0, 9.6, 9.0, 8.0, 1.0]))] * len(queries)


@pytest.mark.parametrize("max_score, expected", [(None, "acde"), (0.99, "cde"), (0.9, "de"), (0.1, "")])
def test_max_score_drops_false_negatives(tmp_path: Path, max_score: float | None, expected: str) -> None:
    """Hits above that share of the best positive's score, and queries without remaining negatives."""
    path = tmp_path / "x.jsonl"
    letters = {letter: letter * 20 for letter in "abcde"}
    lines = [{"query": "q", "positives": [letters["b"]], "negatives": [letters[letter] for letter in "acde"]}]
    write_lines(path, *lines)
    passages = {letters[letter]: number for number, letter in enumerate("abcde")}
    source = RetrievalFile(path)
    options = MineOptions(data=(str(path),), output=tmp_path, max_score=max_score)
    miner = NegativeMiner(source, passages, encoder("distillation"), FixedSearcher(), options)
    (found,) = miner.mine(list(source.examples()))
    assert (found and found.negatives) == (tuple(letters[letter] for letter in expected) or None)


@pytest.mark.parametrize(
    "left, right, same",
    [
        ("The old harbour of Hamburg", "the OLD  harbour of\nhamburg", True),
        ("The old harbour of Hamburg is large", "x The old harbour of Hamburg is large, and so is its bridge.", True),
        ("The old harbour of Hamburg is large", "The old harbour of Bremen is small today", False),
        ("戦後日本のストーリー漫画の第一人者", "戦後日本のストーリー漫画の第一人者として", True),
        ("ab", "ab", True),
        ("ab", "cd", False),
    ],
)
def test_near_duplicates_share_most_of_the_shorter_text(left: str, right: str, same: bool) -> None:
    """In any script, ignoring case and white space."""
    assert near_duplicates(shingles(left), shingles(right)) is same


def test_a_corpus_adds_passages(data: Path, tmp_path: Path) -> None:
    """Its documents are found as negatives too."""
    lines = ({"id": f"d{n}", "contents": f"{passage(n)} corpus"} for n in range(40, 60))
    corpus = write_lines(tmp_path / "corpus.jsonl", *lines)
    assert run(data, tmp_path / "mined", "--corpus", str(corpus), "--negatives", "20") == 0
    assert any(text.endswith("corpus") for one in examples(tmp_path / "mined") for text in one.negatives)


def test_the_index_of_the_passages_is_next_to_the_output(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """While it is needed: messages name that place, and nothing of it is left."""
    output = tmp_path / "mined"
    assert run(data, output) == 0
    assert f"{output / data.name}.index takes " in capsys.readouterr().err
    assert not [path for path in output.rglob("*") if "index" in path.name]


def test_a_complete_output_is_kept(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The same command does nothing; another one is refused, or starts over with --overwrite."""
    output = tmp_path / "mined"
    assert run(data, output) == 0
    written = (output / "pairs.ja.jsonl.gz").read_bytes()
    assert sorted(path.name for path in output.iterdir()) == ["manifest.json", "pairs.ja.jsonl.gz"]
    capsys.readouterr()
    assert run(data, output) == 0 and "is up to date" in capsys.readouterr().err
    assert run(data, output, "--depth", "7") == 2
    assert "was begun with depth 100, not 7" in capsys.readouterr().err
    assert run(data, output, "--negatives", "1", "--overwrite") == 0
    assert (output / "pairs.ja.jsonl.gz").read_bytes() != written
    assert run(data, output, "--overwrite") == 0
    assert (output / "pairs.ja.jsonl.gz").read_bytes() == written


def test_an_interrupted_run_keeps_its_vectors_and_parts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Passages are not encoded again, and queries without a negative are counted over all parts."""
    monkeypatch.setattr(mining, "_PART_SIZE", 4)
    monkeypatch.setattr(mining, "_ENCODED_AT_A_TIME", 8)
    more = ("--max-score", "0.5")
    assert run(data, tmp_path / "whole", *more) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    mine, calls = NegativeMiner.mine, itertools.count()

    def interrupted(*arguments: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return mine(*arguments)

    monkeypatch.setattr(NegativeMiner, "mine", interrupted)
    assert run(data, tmp_path / "cut", *more) == 130
    monkeypatch.setattr(NegativeMiner, "mine", mine)
    monkeypatch.setattr(MilcoEncoder, "encode_document", None)
    capsys.readouterr()
    assert run(data, tmp_path / "cut", *more) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if "left out" in line] == lines
    name = "pairs.ja.jsonl.gz"
    assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == ["manifest.json", name]


def test_changed_texts_are_not_joined_to_older_parts(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Also if there are as many as before."""
    assert run(data, tmp_path / "mined") == 0
    data.write_bytes(gzip.compress(gzip.decompress(data.read_bytes()).replace(b"0", b"7")))
    assert run(data, tmp_path / "mined") == 2
    assert "was begun with digest of pairs.ja.jsonl.gz " in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, why",
    [
        (["--negatives", "0"], "--negatives 0"),
        (["--max-score", "1.5"], "--max-score 1.5"),
        (["--engine", "exat"], "Did you mean exact?"),
        (["--corpus", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (["--languages", "ko"], "no retrieval data in ko"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture, more: list[str], why: str
) -> None:
    """In one line, with exit code 2."""
    assert run(data, tmp_path / "mined", *more) == 2
    assert why in capsys.readouterr().err
    assert run(data, tmp_path / "mined", model="/nowhere") == 2
    assert "/nowhere" in capsys.readouterr().err
    assert not (tmp_path / "mined").exists()


def test_a_directory_with_other_files_is_never_replaced(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Even with --overwrite, and with the manifest of another command."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    assert run(data, tmp_path / "thesis", "--overwrite") == 2
    assert "was not written by this command" in capsys.readouterr().err
    (tmp_path / "thesis" / "manifest.json").write_text('{"command": "score"}')
    assert run(data, tmp_path / "thesis", "--overwrite") == 2
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_the_data_itself_is_never_replaced(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A second round of mining reads what the first one wrote."""
    assert run(data, tmp_path / "mined") == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "mined").iterdir()}
    for options in ([], ["--overwrite"]):
        capsys.readouterr()
        assert run(tmp_path / "mined", tmp_path / "mined", *options, "--negatives", "3") == 2
        error = capsys.readouterr().err
    assert f"--output {tmp_path / 'mined'}" in error
    assert {path.name: path.read_bytes() for path in (tmp_path / "mined").iterdir()} == before
    (tmp_path / "empty.jsonl").touch()
    assert run(tmp_path / "empty.jsonl", tmp_path / "of nothing") == 2
    assert "empty.jsonl has no examples" in capsys.readouterr().err
    assert not (tmp_path / "of nothing").exists()


def test_sources_with_the_same_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Their output files would be one."""
    for place in "ab":
        write_lines(tmp_path / place / "x.ja.jsonl", {"query": "q", "positive": "p"})
    assert run(tmp_path, tmp_path / "mined") == 2
    assert "would both become" in capsys.readouterr().err
