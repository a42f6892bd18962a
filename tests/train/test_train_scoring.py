"""Teacher scores: a cross-encoder's logits, the lexical teacher, and runs that were interrupted."""

import gzip
import json
import shutil
from collections.abc import Sequence
from math import log
from pathlib import Path

import numpy as np
import orjson
import pytest
import torch
from golden_set import GOLDEN, encoder
from numpy.typing import NDArray
from transformers import AutoTokenizer, XLMRobertaConfig, XLMRobertaForMaskedLM, XLMRobertaForSequenceClassification

from milco_pyserini.cli.parser import run_command
from milco_pyserini.encode import open_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.train import rewriting, scoring
from milco_pyserini.train.cross_encoder import CrossEncoder
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalFile, RetrievalSource
from milco_pyserini.train.data.retrieval_stream import RetrievalStream, open_retrieval
from milco_pyserini.train.lexical_scorer import K1, B, LexicalScorer
from milco_pyserini.train.scoring import ScoreOptions, score_command, score_examples

CHECKPOINT = GOLDEN / "ckpt_distillation"
WORDS = "old harbour 小さな 市場 первая книга Brücke خريطة train river bridge marché".split()


def text(number: int, length: int) -> str:
    """Words that repeat in a rhythm of their own."""
    return " ".join(WORDS[number * step % len(WORDS)] for step in range(1, length + 1))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Twenty-five queries with one or two positives and up to four negatives, of many lengths."""
    path = tmp_path / "data" / "mined.ja.jsonl.gz"
    path.parent.mkdir()
    lines = [
        {
            "query": text(n, 1 + n % 4),
            "positives": [text(n + 1, 3 + n), text(n + 2, 5)][: 1 + n % 2],
            "negatives": [text(n + k, 2 * k + n % 7) for k in range(3, 3 + n % 5)],
        }
        for n in range(1, 26)
    ]
    path.write_bytes(gzip.compress(b"".join(orjson.dumps(line) + b"\n" for line in lines)))
    return path


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny cross-encoder with random weights, in the layout of BAAI/bge-reranker-v2-m3."""
    return make_reranker(tmp_path_factory.mktemp("reranker"), labels=1)


def make_reranker(path: Path, labels: int) -> Path:
    """Save a classifier with so many logits, and a tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(GOLDEN / "m_encoder")
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=66,
        type_vocab_size=1,
        num_labels=labels,
        initializer_range=0.5,
    )
    XLMRobertaForSequenceClassification(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def run(data: Path, output: Path, *more: str) -> int:
    """The command."""
    argv = ["--data", str(data), "--output", str(output), "--device", "cpu", "--dtype", "float32", *more]
    return run_command("milco train score", ScoreOptions, score_command, argv)


def examples(path: Path) -> list[RetrievalExample]:
    """Every example of a file or below a directory."""
    return [example for source in open_retrieval([path]) for example in source.examples()]


def test_every_passage_has_the_cross_encoders_logit(data: Path, tmp_path: Path, reranker: Path) -> None:
    """Each pair alone through the model gives what the command wrote, to six digits; texts stay as they were."""
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


def test_scored_data_can_be_trained_on(data: Path, tmp_path: Path, reranker: Path) -> None:
    """The output's directory is data for distillation: its manifest is not taken for any."""
    assert run(data, tmp_path / "scored", "--teacher", str(reranker), "--max-length", "64") == 0
    assert json.loads((tmp_path / "scored" / "manifest.json").read_text())["teacher"] == str(reranker)
    assert RetrievalStream(open_retrieval([tmp_path / "scored"]), 1, 1, scored=True).sizes == [25]


def test_the_lexical_teacher_adds_bm25_and_the_encoders_score(data: Path) -> None:
    """Both by definition, over pieces and over vectors, for every pair."""
    model = encoder("distillation")
    source = RetrievalFile(data)
    passages = list(dict.fromkeys(p for one in source.examples() for p in (*one.positives, *one.negatives)))
    teacher = LexicalScorer(model, bm25_weight=2.0, encoder_weight=0.5)
    teacher.read(source)
    queries = [one.query for one in source.examples()]
    pairs = [(query, passage) for query in queries for passage in passages]

    marks = set(model.tokenizer.special_ids)
    pieces = {t: [piece for piece in model.tokenizer.ids([t])[0] if piece not in marks] for t in (*passages, *queries)}
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


def test_the_lexical_teacher_needs_no_download(data: Path, tmp_path: Path) -> None:
    """--teacher lexical, with a checkpoint of ours; a passage that answers word for word has the highest score."""
    path = tmp_path / "x.ja.jsonl"
    line = {"query": "old harbour bridge", "positives": ["the old harbour bridge"], "negatives": ["книга", "train"]}
    path.write_bytes(orjson.dumps(line))
    assert run(path, tmp_path / "scored", "--teacher", "lexical", "--encoder", str(CHECKPOINT)) == 0
    (one,) = examples(tmp_path / "scored")
    assert one.positive_scores and one.negative_scores
    assert one.positive_scores[0] > max(one.negative_scores)


def test_it_is_told_how_often_the_teacher_agrees_with_the_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the weight of the label; a query without negatives agrees."""
    bridge, other = "the old harbour bridge", "книга"
    sets = [([bridge], [other]), ([other], [bridge]), ([other], [])]
    lines = [{"query": "old bridge", "positives": good, "negatives": bad} for good, bad in sets]
    (tmp_path / "x.en.jsonl").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    arguments = ["--teacher", "lexical", "--encoder", str(CHECKPOINT), "--label-weight", "100"]
    assert run(tmp_path / "x.en.jsonl", tmp_path / "scored", *arguments) == 0
    assert "the teacher puts a positive passage first for 66.7% of 3 queries" in capsys.readouterr().err


def test_the_lexical_teacher_takes_encoders_of_every_kind(data: Path, tmp_path: Path) -> None:
    """A SPLADE checkpoint's pieces and scores, as the scorer over open_encoder() gives them."""
    splade = GOLDEN / "en_lsr"
    assert run(data, tmp_path / "scored", "--teacher", "lexical", "--encoder", str(splade)) == 0
    teacher = LexicalScorer(open_encoder(splade, "cpu", "float32"))
    teacher.read(RetrievalFile(data))
    for one in examples(tmp_path / "scored"):
        scores = teacher.score([(one.query, passage) for passage in (*one.positives, *one.negatives)])
        np.testing.assert_allclose((*(one.positive_scores or ()), *(one.negative_scores or ())), scores, rtol=1e-4)
        assert (scores > 0).any()


class CountingTeacher:
    """Gives the length of the passage, remembers what it was asked, and fails when told to."""

    identity = "counting"

    def __init__(self, fail_after: int | None = None) -> None:
        self.asked = 0
        self.fail_after = fail_after

    def read(self, source: RetrievalSource) -> None:
        """It needs to know nothing."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray:
        """One score for each pair."""
        self.asked += 1
        if self.fail_after is not None and self.asked > self.fail_after:
            raise KeyboardInterrupt
        return np.array([float(len(passage)) for _, passage in pairs])


def test_positives_may_be_given_what_their_label_is_worth() -> None:
    """--label-weight is added to their scores alone."""
    one = RetrievalExample("und", "q", ("aa", "a"), ("aaaa",))
    (scored,) = score_examples([one], CountingTeacher(), 5.0)
    assert (scored.positive_scores, scored.negative_scores) == ((7.0, 6.0), (4.0,))


def test_an_interrupted_run_goes_on_where_it_stopped(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole parts are not scored again, and the result is that of a run in one go."""
    monkeypatch.setattr(scoring, "_PART_SIZE", 4)
    teachers = [CountingTeacher(), CountingTeacher(fail_after=3), CountingTeacher()]
    given = iter(teachers)
    monkeypatch.setattr(scoring, "_teacher", lambda options: next(given))
    arguments = ("--teacher", "counting")
    assert run(data, tmp_path / "whole", *arguments) == 0
    assert run(data, tmp_path / "broken", *arguments) == 130
    assert not (tmp_path / "broken" / "mined.ja.jsonl.gz").exists()
    assert run(data, tmp_path / "broken", *arguments) == 0
    assert [teacher.asked for teacher in teachers] == [7, 4, 4]
    files = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("whole", "broken")]
    assert files[0] == files[1] == ["manifest.json", "mined.ja.jsonl.gz"]
    assert examples(tmp_path / "whole") == examples(tmp_path / "broken")
    written = [(tmp_path / name / "mined.ja.jsonl.gz").read_bytes() for name in ("whole", "broken")]
    assert written[0] == written[1]


def test_sources_that_changed_are_not_mixed_with_what_is_done(
    data: Path, tmp_path: Path, reranker: Path, capsys: pytest.CaptureFixture
) -> None:
    """Another number of examples, or another teacher, is another output."""
    arguments = ("--teacher", str(reranker), "--max-length", "64")
    assert run(data, tmp_path / "scored", *arguments) == 0
    assert run(data, tmp_path / "scored", "--teacher", "lexical", "--encoder", str(CHECKPOINT)) == 2
    assert "was begun with teacher" in capsys.readouterr().err
    data.write_bytes(gzip.compress(orjson.dumps({"query": "q", "positive": "p"})))
    assert run(data, tmp_path / "scored", *arguments) == 2
    assert "was begun with examples {'mined.ja.jsonl.gz': 25}, not" in capsys.readouterr().err


def test_parts_are_whole_or_absent(tmp_path: Path) -> None:
    """What a killed run left of a part is removed, not read."""
    file = tmp_path / "x.jsonl.gz"
    parts = tmp_path / ".parts" / "x.jsonl.gz"
    parts.mkdir(parents=True)
    (parts / ".000000.jsonl.gz.partial-abc").write_bytes(b"half")
    one = RetrievalExample("und", "q", ("p",), ())
    rewriting.write_parts(file, [one] * 5, 2, lambda chunk: chunk)
    assert examples(file) == [one] * 5 and [path.name for path in tmp_path.iterdir()] == ["x.jsonl.gz"]


@pytest.mark.parametrize(
    "more, why",
    [
        (["--teacher", "bge"], "no teacher at 'bge'"),
        (["--teacher", "./nowhere"], "no teacher at './nowhere'"),
        (["--teacher", "some/model"], "not in the local cache"),
        (["--teacher", "lexical", "--encoder", "/nowhere"], "no encoder at '/nowhere'"),
        (["--teacher", "lexical", "--bm25-weight", "0", "--encoder-weight", "0"], "every score would be 0"),
        (["--teacher", "lexical", "--encoder-weight", "-1"], "--encoder-weight -1: must be at least 0"),
        (["--teacher", "lexical", "--batch-size", "0"], "--batch-size 0"),
        (["--teacher", "lexical", "--max-length", "2"], "--max-length 2"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture, more: list[str], why: str
) -> None:
    """One line, exit code 2, no output."""
    assert run(data, tmp_path / "scored", *more) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "scored").exists()


def test_a_model_that_is_no_cross_encoder_is_refused(tmp_path: Path, reranker: Path) -> None:
    """Several logits; a language model, whose ranking head would be random; more tokens than it has positions."""
    with pytest.raises(MilcoError, match="has 3 logits"):
        CrossEncoder(str(make_reranker(tmp_path / "three", labels=3)), 64, device="cpu")
    config = XLMRobertaConfig.from_pretrained(reranker)
    shutil.copytree(reranker, tmp_path / "lm")
    XLMRobertaForMaskedLM(config).save_pretrained(tmp_path / "lm")
    with pytest.raises(MilcoError, match=r"is no cross-encoder: it lacks classifier"):
        CrossEncoder(str(tmp_path / "lm"), 64, device="cpu")
    with pytest.raises(MilcoError, match=r"--max-length 65: teacher .* takes at most 64 tokens"):
        CrossEncoder(str(reranker), 65, device="cpu")


def test_code_from_a_checkpoint_is_never_run(tmp_path: Path, reranker: Path) -> None:
    """The paper's teacher brings its own code: the error says so, and what to use instead."""
    path = shutil.copytree(reranker, tmp_path / "own-code")
    config = json.loads((path / "config.json").read_text()) | {
        "model_type": "cost_wise_gemma",
        "architectures": ["CostWiseGemmaForCausalLM"],
        "auto_map": {
            "AutoConfig": "gemma_config.CostWiseGemmaConfig",
            "AutoModelForSequenceClassification": "gemma_model.CostWiseGemmaForSequenceClassification",
        },
    }
    (path / "config.json").write_text(json.dumps(config))
    for module in ("gemma_config", "gemma_model"):
        (path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(MilcoError, match=r"needs code from its own repository.*bge-reranker-v2-m3.*paper's"):
        CrossEncoder(str(path), 64, device="cpu")
    assert not (tmp_path / "ran").exists()
