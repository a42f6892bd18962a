"""The paper's training sets for contrastive training, read from small files in the layout of the hub."""

import itertools
from pathlib import Path

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milco_pyserini.errors import MilcoError
from milco_pyserini.train.data.retrieval import ALL, REPOSITORY, REVISION, RetrievalExample, open_retrieval
from milco_pyserini.train.data.streams import RetrievalStream


def row(name: str, negatives: int = 2) -> dict:
    """Return a row with every column of the dataset."""
    return {
        "query": name,
        "pos": [f"{name}+"],
        "neg": [f"{name}-{number}" for number in range(negatives)],
        "pos_scores": [90.75],
        "neg_scores": [80.5 - number for number in range(negatives)],
        "prompt": "Given a question, retrieve passages that answer it.",
        "type": "normal",
    }


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub with some of the collections; the list has what was downloaded."""
    layout = {
        "en_fever/train/0000.parquet": [row("f0"), row("f1")],
        "en_fever/train/0001.parquet": [row("f2")],
        "zh_dureader/train/0000.parquet": [row("d0"), row("blank") | {"pos": [""]}, row("d1")],
        "multilingual_miracl/ja_train/0000.parquet": [row("m-ja")],
        "multilingual_miracl/sw_train/0000.parquet": [row("m-sw")],
    }
    for name, rows in layout.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    unscored = [{name: row("n")[name] for name in ("query", "pos", "neg", "prompt")}]
    (tmp_path / "en_nq" / "train").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(unscored), tmp_path / "en_nq" / "train" / "0000.parquet")
    fetched: list[str] = []

    def snapshot_download(name: str, repo_type: str, revision: str, allow_patterns: list[str], **_: object) -> str:
        assert (name, repo_type, revision) == (REPOSITORY, "dataset", REVISION)
        fetched.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return fetched


def test_a_collection_is_read_file_by_file(hub: list[str]) -> None:
    """Nothing is downloaded before it is needed."""
    (source,) = open_retrieval(["en_fever-fever"])
    assert (source.name, source.language, hub) == ("en_fever-fever", "en", [])
    assert source.stats.examples == 3 and hub == ["en_fever/train/*.parquet"]
    examples = list(source.examples())
    assert examples[0] == RetrievalExample("en", "f0", ("f0+",), ("f0-0", "f0-1"), (90.75,), (80.5, 79.5))
    assert [example.query for example in examples] == ["f0", "f1", "f2"] and len(hub) == 1


def test_a_multilingual_collection_has_a_source_per_language(hub: list[str]) -> None:
    """Only the languages requested are downloaded."""
    assert len(open_retrieval(["multilingual_miracl"])) == 16
    assert len(open_retrieval(["multilingual_mrtydi"])) == 11
    sources = open_retrieval(["multilingual_miracl"], ["ja", "sw"])
    assert [source.name for source in sources] == ["multilingual_miracl.ja", "multilingual_miracl.sw"]
    assert [next(iter(source.examples())).query for source in sources] == ["m-ja", "m-sw"]
    assert hub == ["multilingual_miracl/ja_train/*.parquet", "multilingual_miracl/sw_train/*.parquet"]


def test_bge_names_all_sixteen() -> None:
    """Fourteen monolingual ones, and two with 11 and 16 languages."""
    sources = open_retrieval([ALL])
    assert len(sources) == 14 + 11 + 16
    assert {source.language for source in open_retrieval([ALL], ["zh", "te"])} == {"zh", "te"}


def test_rows_without_text_are_skipped_and_reported(hub: list[str], capsys: pytest.CaptureFixture) -> None:
    """They do not end a training run."""
    (source,) = open_retrieval(["zh_dureader"])
    assert [example.query for example in source.examples()] == ["d0", "d1"]
    assert "zh_dureader: skipped 1 row, the first: 0000.parquet, row 2: 'pos[0]' is empty" in capsys.readouterr().err


def test_a_stream_reads_collections_on_the_hub(hub: list[str], tmp_path: Path) -> None:
    """A row without scores ends a distillation that needs them."""
    stream = RetrievalStream(open_retrieval(["en_fever-fever"]), 3, 1, scored=True)
    assert {group.query for group in itertools.islice(stream, 3)} == {"f0", "f1", "f2"}
    with pytest.raises(MilcoError, match="en_nq: query 'n' has no teacher scores"):
        next(iter(RetrievalStream(open_retrieval(["en_nq"]), 3, 1, scored=True)))


def test_an_unreachable_collection_is_reported() -> None:
    """Offline with an empty cache."""
    (source,) = open_retrieval(["en_scidocs"])
    with pytest.raises(MilcoError, match="en_scidocs is not in the local cache and the hub cannot be reached"):
        _ = source.stats
