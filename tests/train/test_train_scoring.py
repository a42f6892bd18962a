"""Scoring training data with a cross-encoder or the lexical teacher."""

import json
import shutil
from collections.abc import Sequence
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_set import GOLDEN, encoder, make_reranker
from numpy.typing import NDArray
from training_set import MANY_SCRIPTS, examples, write_lines
from transformers import AutoTokenizer, XLMRobertaConfig, XLMRobertaForMaskedLM, XLMRobertaForSequenceClassification

from milco_pyserini.encode.bm25 import K1, B
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.train import scoring
from milco_pyserini.train.cli import main
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalFile, RetrievalSource, open_retrieval
from milco_pyserini.train.data.streams import RetrievalStream
from milco_pyserini.train.rewriting import ScoreOptions
from milco_pyserini.train.scoring import CrossEncoder, LexicalScorer, score_examples, score_training_set

CHECKPOINT = GOLDEN / "ckpt_distillation"


def text(number: int, length: int) -> str:
    """Return a text of so many words."""
    return " ".join(MANY_SCRIPTS[number * step % len(MANY_SCRIPTS)] for step in range(1, length + 1))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Twenty-five queries with one or two positives and up to four negatives of various lengths."""
    lines = [
        {
            "query": text(n, 1 + n % 4),
            "positives": [text(n + 1, 3 + n), text(n + 2, 5)][: 1 + n % 2],
            "negatives": [text(n + k, 2 * k + n % 7) for k in range(3, 3 + n % 5)],
        }
        for n in range(1, 26)
    ]
    return write_lines(tmp_path / "data" / "mined.ja.jsonl.gz", *lines)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny cross-encoder with random weights, in the layout of BAAI/bge-reranker-v2-m3."""
    return make_reranker(tmp_path_factory.mktemp("reranker"), labels=1)


def run(data: Path, output: Path, *more: str) -> int:
    """Run the command."""
    return main(["score", "--data", str(data), "--output", str(output), "--device", "cpu", "--dtype", "float32", *more])


def test_scores_are_the_cross_encoders_logits(data: Path, tmp_path: Path, reranker: Path) -> None:
    """Each pair without padding gives what the command writes; texts are kept."""
    assert run(data, tmp_path / "scored", "--teacher", str(reranker), "--max-length", "64", "--batch-size", "5") == 0
    model = XLMRobertaForSequenceClassification.from_pretrained(reranker).eval()
    tokenizer = AutoTokenizer.from_pretrained(reranker)
    found = examples(tmp_path / "scored")
    assert [one[:4] for one in found] == [one[:4] for one in examples(data)]
    for one in found:
        for passage, score in zip(
            one.positives + one.negatives, (one.positive_scores or ()) + (one.negative_scores or ()), strict=True
        ):
            pair = tokenizer(one.query, passage, truncation="longest_first", max_length=64, return_tensors="pt")
            with torch.no_grad():
                assert score == pytest.approx(model(**pair).logits.item(), rel=1e-4, abs=1e-5)
    # The output is training data for distillation.
    assert json.loads((tmp_path / "scored" / "manifest.json").read_text())["teacher"] == str(reranker)
    assert RetrievalStream(open_retrieval([tmp_path / "scored"]), 1, 1, scored=True).sizes == [25]


def test_lexical_scores_are_bm25_plus_the_encoders(data: Path) -> None:
    """Both by definition, for every pair."""
    model = encoder("distillation")
    source = RetrievalFile(data)
    passages = list(dict.fromkeys(p for one in source.examples() for p in (*one.positives, *one.negatives)))
    teacher = LexicalScorer(model, bm25_weight=2.0, encoder_weight=0.5)
    teacher.read(source)
    queries = [one.query for one in source.examples()]
    pairs = [(query, passage) for query in queries for passage in passages]

    special = set(model.tokenizer.special_ids)
    pieces = {
        t: [piece for piece in model.tokenizer.ids([t])[0] if piece not in special] for t in (*passages, *queries)
    }
    mean = sum(len(pieces[passage]) for passage in passages) / len(passages)

    def bm25(query: str, passage: str) -> float:
        total = 0.0
        for piece in pieces[query]:
            frequency = sum(piece in pieces[other] for other in passages)
            count = pieces[passage].count(piece)
            idf = log(1 + (len(passages) - frequency + 0.5) / (frequency + 0.5))
            total += idf * count / (count + K1 * (1 - B + B * len(pieces[passage]) / mean))
        return total

    dots = model.similarity(model.encode_query(queries), model.encode_document(passages)).ravel()
    expected = [2.0 * bm25(*pair) + 0.5 * dot for pair, dot in zip(pairs, dots, strict=True)]
    np.testing.assert_allclose(teacher.score(pairs), expected, rtol=1e-4)
    np.testing.assert_allclose(teacher.score(pairs[::-1]), expected[::-1], rtol=1e-4)


def test_agreement_of_teacher_and_labels_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the label's weight; a query without negatives agrees."""
    bridge, other = "the old harbour bridge", "книга"
    sets = [([bridge], [other]), ([other], [bridge]), ([other], [])]
    lines = [{"query": "old bridge", "positives": good, "negatives": bad} for good, bad in sets]
    write_lines(tmp_path / "x.en.jsonl", *lines)
    arguments = ["--teacher", "lexical", "--encoder", str(CHECKPOINT), "--label-weight", "100"]
    assert run(tmp_path / "x.en.jsonl", tmp_path / "scored", *arguments) == 0
    assert "The teacher ranks a positive passage first for 66.7% of 3 queries" in capsys.readouterr().err


def test_the_lexical_teacher_accepts_splade_encoders(data: Path, tmp_path: Path) -> None:
    """It uses the checkpoint's tokens and scores."""
    splade = GOLDEN / "en_lsr"
    assert run(data, tmp_path / "scored", "--teacher", "lexical", "--encoder", str(splade)) == 0
    teacher = LexicalScorer(load_encoder(splade, "cpu", "float32"))
    teacher.read(RetrievalFile(data))
    for one in examples(tmp_path / "scored"):
        scores = teacher.score([(one.query, passage) for passage in (*one.positives, *one.negatives)])
        np.testing.assert_allclose((*(one.positive_scores or ()), *(one.negative_scores or ())), scores, rtol=1e-4)
        assert (scores > 0).any()


class CountingTeacher:
    """Scores with the length of the passage, counts its calls, and can fail after some."""

    identity = "counting"

    def __init__(self, fail_after: int | None = None) -> None:
        self.calls = 0
        self.fail_after = fail_after

    def read(self, source: RetrievalSource) -> None:
        """Do nothing."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray:
        """Return a score for each pair."""
        self.calls += 1
        if self.fail_after is not None and self.calls > self.fail_after:
            raise KeyboardInterrupt
        return np.array([float(len(passage)) for _, passage in pairs])


def test_label_weight_is_added_to_positives() -> None:
    """Only to their scores."""
    one = RetrievalExample("und", "q", ("aa", "a"), ("aaaa",))
    (scored,) = score_examples([one], CountingTeacher(), 5.0)
    assert (scored.positive_scores, scored.negative_scores) == ((7.0, 6.0), (4.0,))


def test_an_interrupted_run_resumes_after_its_last_part(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete parts are not scored again, and the result equals that of an uninterrupted run."""
    monkeypatch.setattr(scoring, "PART_SIZE", 4)
    teachers = [CountingTeacher(), CountingTeacher(fail_after=3), CountingTeacher()]
    complete, parts = (
        ScoreOptions(data=(str(data),), output=tmp_path / name, teacher="counting") for name in ("complete", "parts")
    )
    score_training_set(complete, teachers[0])
    with pytest.raises(KeyboardInterrupt):
        score_training_set(parts, teachers[1])
    assert not (tmp_path / "parts" / "mined.ja.jsonl.gz").exists()
    score_training_set(parts, teachers[2])
    assert [teacher.calls for teacher in teachers] == [7, 4, 4]
    files = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("complete", "parts")]
    assert files[0] == files[1] == ["manifest.json", "mined.ja.jsonl.gz"]
    written = [(tmp_path / name / "mined.ja.jsonl.gz").read_bytes() for name in ("complete", "parts")]
    assert written[0] == written[1]


def test_changed_sources_and_teachers_need_another_output(
    data: Path, tmp_path: Path, reranker: Path, capsys: pytest.CaptureFixture
) -> None:
    """A different number of examples, or another teacher, is refused."""
    arguments = ("--teacher", str(reranker), "--max-length", "64")
    assert run(data, tmp_path / "scored", *arguments) == 0
    assert run(data, tmp_path / "scored", "--teacher", "lexical", "--encoder", str(CHECKPOINT)) == 2
    assert "was begun with teacher" in capsys.readouterr().err
    write_lines(data, {"query": "q", "positive": "p"})
    assert run(data, tmp_path / "scored", *arguments) == 2
    assert "was begun with examples {'mined.ja.jsonl.gz': 25}, not" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, why",
    [
        (["--teacher", "./nowhere"], "no teacher at './nowhere'"),
        (["--teacher", "some/model"], "not in the local cache"),
        (["--teacher", "lexical", "--encoder", "/nowhere"], "no encoder at '/nowhere'"),
        (["--teacher", "lexical", "--bm25-weight", "0", "--encoder-weight", "0"], "--bm25-weight 0 and "),
        (["--teacher", "lexical", "--max-length", "2"], "--max-length 2"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture, more: list[str], why: str
) -> None:
    """In one line, with exit code 2."""
    assert run(data, tmp_path / "scored", *more) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "scored").exists()


def test_other_models_are_refused_as_cross_encoders(tmp_path: Path, reranker: Path) -> None:
    """Several logits; a language model, whose head would be random; more tokens than positions."""
    with pytest.raises(MilcoError, match="has 3 logits"):
        CrossEncoder(str(make_reranker(tmp_path / "three", labels=3)), 64, device="cpu")
    config = XLMRobertaConfig.from_pretrained(reranker)
    shutil.copytree(reranker, tmp_path / "lm")
    XLMRobertaForMaskedLM(config).save_pretrained(tmp_path / "lm")
    with pytest.raises(MilcoError, match=r"is not a cross-encoder: it lacks classifier"):
        CrossEncoder(str(tmp_path / "lm"), 64, device="cpu")
    with pytest.raises(MilcoError, match=r"max_length=65.* 64 "):
        CrossEncoder(str(reranker), 65, device="cpu")
