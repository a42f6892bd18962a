"""Statistics of vector stores, and their reports."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from golden_set import GOLDEN
from synthetic_stores import NASTY, synthetic_batch, vocabulary, write_plain, write_store

from milco_pyserini.analysis.cli import main
from milco_pyserini.analysis.statistics import token_kind
from milco_pyserini.cli.encode import main as encode
from milco_pyserini.corpora import Document
from milco_pyserini.corpora.sample import ROOT
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.sparse import SparseBatch, open_store

Stats = Callable[..., tuple[int, str, str]]
TINY = str(GOLDEN / "ckpt_distillation")
LANGUAGES = ("ar", "en", "zh")


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with corpus/ (three of the sample's languages, 8 documents each) and vectors/ of it."""
    directory = tmp_path_factory.mktemp("encoded")
    (directory / "corpus").mkdir()
    for code in LANGUAGES:
        lines = (ROOT / "corpus" / f"{code}.jsonl").read_text(encoding="utf-8").splitlines()[:8]
        (directory / "corpus" / f"{code}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus, output = str(directory / "corpus"), str(directory / "vectors")
    assert encode(["--corpus", corpus, "--encoder", TINY, "--output", output, "--device", "cpu"]) == 0
    return directory


@pytest.fixture
def stats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Stats:
    """Run the command in an empty directory: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(vectors: Path | str, *more: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["statistics", "--vectors", str(vectors), *more])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def report(stats: Stats) -> Callable[..., dict]:
    """Return the statistics as JSON."""

    def run(vectors: Path | str, *more: str) -> dict:
        code, out, err = stats(vectors, "--format", "json", *more)
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.mark.parametrize("parquet", [False, True])
def test_statistics_agree_with_a_dense_matrix(report: Callable[..., dict], tmp_path: Path, parquet: bool) -> None:
    """Terms per document, lengths of posting lists and inactive columns."""
    ids, batch = synthetic_batch(250)
    value = report(write_store(tmp_path / "v", ids, batch, parquet=parquet))
    matrix = np.zeros((250, len(vocabulary())), bool)
    matrix[batch.row_numbers(), batch.columns] = True
    for view, part in (("pivot", matrix[:, :200]), ("source", matrix[:, 200:]), ("both", matrix)):
        terms, postings = part.sum(1), part.sum(0)
        found, lists = value["terms_per_document"][view], value["posting_lists"][view]
        assert found["mean"] == pytest.approx(terms.mean())
        assert (found["min"], found["median"], found["max"]) == (terms.min(), np.median(terms), terms.max())
        assert found["without"] == np.count_nonzero(terms == 0) > 0
        assert (lists["columns"], lists["active"]) == (part.shape[1], np.count_nonzero(postings))
        assert lists["never_active"] == np.count_nonzero(postings == 0)
        assert lists["postings"] == part.sum()
        assert lists["length"]["mean"] == pytest.approx(postings[postings > 0].mean())
    assert value["postings"] == matrix.sum()
    assert value["languages"] is value["length"] is None


def test_the_most_frequent_terms_come_first(report: Callable[..., dict], tmp_path: Path) -> None:
    """With document counts and mean weights; the lower column of equal ones is first."""
    columns, weights = [3, 7, 7, 201, 3, 5, 7], [1, 2, 4, 1, 2, 1, 3]
    batch = SparseBatch(np.asarray([0, 2, 4, 7]), np.asarray(columns, np.int32), np.float32(weights), 200)
    value = report(write_store(tmp_path / "v", ["a", "b", "c"], batch))
    found = [tuple(each[key] for key in ("term", "documents", "mean_weight")) for each in value["frequent"]["pivot"]]
    assert found == [("w7", 3, 3.0), ("w3", 2, 1.5), ("w5", 1, 1.0)]
    assert [each["documents"] for each in value["frequent"]["source"]] == [1]
    assert value["never_active"]["pivot"]["words"]["never_active"] == 197
    assert value["never_active"]["pivot"]["words"]["examples"][:4] == ["w0", "w1", "w2", "w4"]


def test_terms_are_shown_as_tokens(stats: Stats, report: Callable[..., dict], tmp_path: Path) -> None:
    """Without the index's prefix of source terms, with the tokenizer's prefix of words."""
    columns = [1, 200 + NASTY.index("a b"), 200 + NASTY.index("▁陌")]
    batch = SparseBatch(np.asarray([0, 3]), np.asarray(columns, np.int32), np.ones(3, np.float32), 200)
    value = report(write_store(tmp_path / "v", ["ja-1"], batch))
    assert [each["term"] for each in value["frequent"]["source"]] == ["a b", "▁陌"]
    assert value["languages"][0]["frequent"] == {"pivot": ["w1"], "source": ["a b", "▁陌"]}
    assert r"'\x1c'" in value["never_active"]["source"]["punctuation"]["examples"]
    assert "m_" not in stats("v")[1]


def test_languages_are_read_from_ids(report: Callable[..., dict], encoded: Path) -> None:
    """Means by language agree with the mean of all documents."""
    value = report(encoded / "vectors")
    assert [each["language"] for each in value["languages"]] == list(LANGUAGES)
    assert [each["documents"] for each in value["languages"]] == [8, 8, 8]
    mean = np.mean([each["terms"]["both"] for each in value["languages"]])
    assert value["terms_per_document"]["both"]["mean"] == pytest.approx(mean)
    assert all(each["tokens"] > 5 and len(each["frequent"]["source"]) == 5 for each in value["languages"])


def test_one_id_without_a_language_makes_all_languages_unknown(report: Callable[..., dict], tmp_path: Path) -> None:
    """Ids that begin with ar- by chance are not Arabic; counts are of all documents."""
    _, batch = synthetic_batch(20)
    ids = [f"ar-{number}" for number in range(20)]
    assert [each["language"] for each in report(write_store(tmp_path / "all", ids, batch))["languages"]] == ["ar"]
    value = report(write_store(tmp_path / "but-one", [*ids[:19], "x-1"], batch))
    assert value["languages"] is None
    assert value["postings"] == len(batch.columns)


def test_lengths_are_counted_in_the_encoders_tokens(report: Callable[..., dict], encoded: Path) -> None:
    """The texts are those in the store; at most ten bins have all documents."""
    length = report(encoded / "vectors")["length"]
    assert length["documents"] == 24
    assert sum(each["documents"] for each in length["bins"]) == 24
    assert all(before["to"] < after["from"] for before, after in zip(length["bins"], length["bins"][1:], strict=False))
    assert -1 <= length["correlation"]["both"]["spearman"] <= 1


def test_lengths_end_at_the_maximum_length(report: Callable[..., dict], encoded: Path) -> None:
    """Truncated texts have the maximum length; passages have lengths of their own."""
    corpus = str(encoded / "corpus")
    made = ["--corpus", corpus, "--encoder", TINY, "--device", "cpu", "--max-length", "12"]
    assert encode([*made, "--output", "cut"]) == encode([*made, "--output", "split", "--split-passages"]) == 0
    cut, split = report("cut"), report("split")
    assert cut["length"]["truncated"] > 0
    assert cut["length"]["tokens"]["max"] == split["length"]["tokens"]["max"] == 12
    assert (split["unit"], split["length"]["truncated"]) == ("passages", 0)
    assert split["length"]["documents"] == split["documents"]
    assert split["documents"] > cut["documents"] == 24


def test_texts_of_other_encoders_have_lengths(report: Callable[..., dict], encoded: Path) -> None:
    """In tokens of their own tokenizer; another tokenizer is an error."""
    directory, corpus = str(GOLDEN / "en_lsr"), str(encoded / "corpus")
    assert encode(["--corpus", corpus, "--encoder", directory, "--output", "v", "--device", "cpu"]) == 0
    value = report("v")
    assert value["length"]["documents"] == 24
    assert list(value["length"]["correlation"]) == ["pivot"]
    texts = [json.loads(line) for code in LANGUAGES for line in (encoded / "corpus" / f"{code}.jsonl").open()]
    tokens = Checkpoint.open(directory).tokenizer.ids(
        [f"{text.get('title', '')} {text['text']}".strip() for text in texts]
    )
    assert value["length"]["tokens"]["max"] == min(max(map(len, tokens)), open_store(Path("v")).manifest.max_length)
    assert main(["statistics", "--vectors", "v", "--encoder", str(GOLDEN / "m_encoder")]) == 2


def test_pruning_and_a_single_view_are_reported(stats: Stats, report: Callable[..., dict], encoded: Path) -> None:
    """Columns of a view that was not encoded are not inactive."""
    made = ["--corpus", str(encoded / "corpus"), "--encoder", TINY, "--device", "cpu"]
    assert encode([*made, "--output", "p", "--prune", "top-k:5", "--views", "pivot"]) == 0
    value = report("p")
    assert list(value["posting_lists"]) == list(value["never_active"]) == value["views"] == ["pivot"]
    assert value["terms_per_document"]["pivot"]["max"] <= 5
    assert ", pruned: top-k:5; " in stats("p")[1]


def test_external_vectors_have_terms_without_views(stats: Stats, report: Callable[..., dict], tmp_path: Path) -> None:
    """Unknown values are null in JSON and a dash in text."""
    write_plain(tmp_path / "plain.jsonl", {"a": {"x": 3, "y": 1}, "b": {"x": 2}, "c": {}})
    value = report("plain.jsonl", "--plain")
    assert value["terms_per_document"]["terms"]["without"] == 1
    assert value["posting_lists"]["terms"]["columns"] is value["never_active"] is value["views"] is None
    assert [(each["term"], each["documents"]) for each in value["frequent"]["terms"]] == [("x", 2), ("y", 1)]
    text = " ".join(stats("plain.jsonl", "--plain")[1].split())
    assert "longest 1 % (%) terms - 2 - - 1.5 1 1 2 2 2 66.7" in text


def test_lengths_of_external_vectors_need_an_encoder(stats: Stats, report: Callable[..., dict], tmp_path: Path) -> None:
    """Their tokens are not known otherwise."""
    documents = [Document("a", "", "one two three"), Document("b", "", "one")]
    write_plain(tmp_path / "plain.jsonl", {"a": {"x": 3, "y": 1}, "b": {"x": 2}}, documents)
    assert report("plain.jsonl", "--plain")["length"] is None
    length = report("plain.jsonl", "--plain", "--encoder", TINY)["length"]
    assert length["documents"] == 2 and length["tokens"]["max"] > length["tokens"]["min"]


def test_missing_texts_skip_only_the_lengths(stats: Stats, encoded: Path, tmp_path: Path) -> None:
    """The reason is on stderr."""
    made = ["--corpus", str(encoded / "corpus"), "--encoder", TINY, "--device", "cpu"]
    assert encode([*made, "--output", "v", "--no-store"]) == 0
    code, out, err = stats("v")
    assert code == 0
    assert "v does not hold the texts" in err
    assert "length in tokens" not in out


def test_the_report_has_all_tables(stats: Stats, encoded: Path) -> None:
    """Each with its head."""
    code, out, _ = stats(encoded / "vectors")
    assert code == 0
    for head in (
        *("terms per document", "posting lists", "most frequent: pivot", "most frequent: source"),
        *("inactive columns", "length in tokens", "language"),
    ):
        assert f"\n{head}  " in out
    assert "Spearman's" in out


def test_empty_vectors_have_statistics(stats: Stats, tmp_path: Path) -> None:
    """No division by zero."""
    empty = SparseBatch(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 200)
    write_store(tmp_path / "v", ["en-1", "en-2", "fr-1"], empty)
    code, out, err = stats("v")
    assert code == 0, err
    assert "v: 3 documents, encoded by mini; 0 postings" in out


@pytest.mark.parametrize(
    ("piece", "word_begins", "kind"),
    [
        ("river", False, "words"),
        ("##ing", False, "continuations"),
        ("[PAD]", False, "special"),
        ("▁river", True, "words"),
        ("ing", True, "continuations"),
        ("ে", True, "continuations"),
        ("▁…", True, "punctuation"),
        ("<s>", True, "special"),
        ("[", False, "punctuation"),
    ],
)
def test_tokens_are_classified(piece: str, word_begins: bool, kind: str) -> None:
    """In both kinds of vocabulary."""
    assert token_kind(piece, word_begins) == kind


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vectors", "nothing"], "no vectors at nothing"),
        (["--vectors", "v", "--scale", "2"], "--scale requires --plain"),
        (["--vectors", "v", "--encoder", "nobody"], "no encoder at 'nobody'"),
        (["--vectors", "v", "--encoder", TINY], "has other tokens than v"),
        (["--vectors", "v", "--format", "csv"], "--format csv: must be one of"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, arguments: list[str], message: str
) -> None:
    """Exit code 2, nothing on stdout."""
    monkeypatch.chdir(tmp_path)
    ids, batch = synthetic_batch(20)
    write_store(tmp_path / "v", ids, batch, documents=[Document(docid, "", "text") for docid in ids])
    assert main(["statistics", *arguments]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert message in shown.err
