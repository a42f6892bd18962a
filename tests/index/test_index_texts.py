"""An index of texts in one call: encoded, indexed and stored, of any iterable."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from built import INDEXES
from golden_set import GOLDEN

from milco_pyserini import Index, MilcoEncoder, Searcher, VectorStore
from milco_pyserini.corpora import Document
from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError

CHECKPOINT = str(GOLDEN / "ckpt_distillation")
TEXTS = ["Alexander Graham Bell patented the telephone.", "The Nile is a long river in Africa."]


@pytest.fixture(scope="module")
def encoder() -> MilcoEncoder:
    return MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="float32")


def test_three_lines_from_texts_to_hits(tmp_path: Path) -> None:
    """A generator and the name of an encoder; only the index remains, and it has the texts."""
    index = Index.build(iter(TEXTS), tmp_path / "indexes" / "two", "exact", encoder=CHECKPOINT)
    with Searcher.open(index.path) as searcher:
        hit = searcher.search("who invented the telephone", k=1)[0]
        assert (hit.docid, hit.text) == ("0", TEXTS[0])
    assert [path.name for path in index.path.parent.iterdir()] == ["two"]


def test_messages_name_the_index_and_not_its_temporary_store(
    encoder: MilcoEncoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a program's log nor an error shows names that the user cannot know, nor advice on torch's threads."""
    with caplog.at_level("INFO", "milco_pyserini"):
        Index.build(TEXTS, tmp_path / "index", "exact", encoder=encoder)
    with pytest.raises(MilcoError, match="the given corpus holds no document") as error:
        Index.build(["", " "], tmp_path / "empty", "exact", encoder=encoder)
    shown = [*caplog.messages, str(error.value)]
    assert not [message for message in shown if ".partial-" in message or "spin" in message]
    assert any(f"into {tmp_path / 'index'} in" in message for message in shown)


def test_texts_that_are_cut_are_reported(
    encoder: MilcoEncoder, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their number and the first, when an index is built and when texts are added; paths are those given."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", "milco_pyserini")
    index = Index.build(["short", *["river " * 600] * 2], Path("indexes/cut"), "exact", encoder=encoder)
    assert "truncated 2 texts to 512 tokens, the first is '1'" in caplog.messages
    index.add([("a", "short"), ("b", "river " * 600)], encoder=encoder)
    assert "truncated 1 text to 512 tokens, the first is 'b'" in caplog.messages
    lines = [message for message in caplog.messages if "into" in message]
    assert lines and not [line for line in caplog.messages if str(tmp_path) in line], caplog.messages


def test_an_index_of_texts_is_that_of_their_store(encoder: MilcoEncoder, tmp_path: Path) -> None:
    """Built again it is up to date; other texts need overwrite, which is known before they are encoded."""
    plan = EncodePlan(prune=("top-k:20",))
    encode_corpus(TEXTS, tmp_path / "vectors", plan, encoder=encoder)
    store = VectorStore.open(tmp_path / "vectors")
    options: dict[str, Any] = {"engine": "exact", "prune": ["top-k:20"], "encoder": encoder}
    index = Index.build(TEXTS, tmp_path / "index", **options)
    assert index.vectors == store.manifest
    assert Index.build(pd.DataFrame({"text": TEXTS}), tmp_path / "index", **options).generation == index.generation
    with pytest.raises(MilcoError, match=r"index was begun with other texts\. Choose"):
        Index.build(["other"], tmp_path / "index", engine="exact", encoder="no/such/encoder")
    assert Index.build(["other"], tmp_path / "index", overwrite=True, **options).manifest.documents == 1


def test_an_interrupted_encoding_of_a_generator_continues_with_the_same_texts(
    encoder: MilcoEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their digest is known before the first is encoded; with others the store is refused."""
    plan = EncodePlan(part_size=1)
    encode_corpus(TEXTS, tmp_path / "vectors", plan, encoder=encoder, shard_id=1, shard_num=2)
    with pytest.raises(MilcoError, match="was begun with other documents"):
        encode_corpus(["x", "y"], tmp_path / "vectors", plan, encoder=encoder)
    assert encode_corpus(iter(TEXTS), tmp_path / "vectors", plan, encoder=encoder) is not None
    assert "resuming, 1 of 2 parts exist" in capsys.readouterr().err


@pytest.mark.parametrize("engine", [kind for kind in INDEXES if kind.values[0] in ("exact", "lucene", "qdrant")])
def test_texts_are_added_replaced_and_deleted(engine: str, encoder: MilcoEncoder, tmp_path: Path) -> None:
    """Encoded as those of the index were; the result is that of an index of all texts, with their fields."""
    records = [{"id": f"d{number}", "text": text, "year": number} for number, text in enumerate(TEXTS)]
    index = Index.build(records, tmp_path / "index", engine, encoder=encoder, prune=["top-k:20"])
    more = [{"id": "new", "text": "Orchestras play music.", "year": 7}, ("d1", "The Rhine is a river in Europe.")]
    with pytest.raises(MilcoError, match="has a document 'd1': add"):
        index.add(more)
    index = index.add(iter(more[:1]), encoder=encoder)
    index = index.update(pd.DataFrame([more[1]], columns=["id", "text"]), delete=(docid for docid in ["d0", "no"]))
    assert index.vectors.pruning == "top-k:20" and index.manifest.fields == {"year": "number"}
    expected = Index.build(more, tmp_path / "anew", engine, encoder=encoder, prune=["top-k:20"])
    with Searcher.open(index.path) as updated, Searcher.open(expected.path) as anew:
        for query in (*TEXTS, "music of the Rhine"):
            pairs = [
                [(hit.docid, hit.score, hit.text, hit.fields) for hit in one.search(query)] for one in (updated, anew)
            ]
            assert pairs[0] == pairs[1] and pairs[0]
    with Searcher.open(index.path, encoder=encoder) as searcher:
        found = lambda: {hit.docid for hit in searcher.search("orchestras play music")}  # noqa: E731
        assert "new" in found()
        # A search sees what another Index has changed, and a second change begins with the first.
        index.add([("late", "Orchestras play music on tour.")], encoder=encoder)
        assert {"new", "late"} <= found()
        assert index.delete(["new"]).manifest.documents == 2
        assert "late" in found() and "new" not in found()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["anew", "index"]


def test_texts_that_cannot_update_an_index_are_refused(encoder: MilcoEncoder, tmp_path: Path) -> None:
    """Before anything is encoded."""
    index = Index.build(TEXTS, tmp_path / "index", encoder=encoder)
    for options, message in (
        ({"source": TEXTS, "prune": ["top-k:3"]}, "prune is for vectors, not for texts"),
        ({"source": TEXTS, "since": "vectors"}, "since is for vectors, not for texts"),
        ({"source": ["a", ("0", "b")]}, "duplicate id '0'"),
        ({"source": TEXTS, "encoder": "mini"}, "does not fit: the vectors were encoded by"),
        ({"source": [Document("d", "", "x", {"raw": 1})]}, "a store cannot hold a field named 'raw'"),
    ):
        with pytest.raises(MilcoError, match=message):
            index.update(**options)


def test_a_text_in_place_of_texts_is_refused(encoder: MilcoEncoder, tmp_path: Path) -> None:
    """It would be taken for a path; and so are texts in place of the path, and misspelled options."""
    with pytest.raises(MilcoError, match=r"nothing at 'hello world'\. Give a text in a list"):
        Index.build("hello world", tmp_path / "index", encoder=encoder)
    with pytest.raises(MilcoError, match=r"nothing at 'hello hello .*…'\. Give a text in a list"):
        Index.build("hello " * 1000, tmp_path / "index", encoder=encoder)
    with pytest.raises(TypeError, match=r"path is list, expected the directory of the index, .*Index\.build\(source"):
        Index.build(str(tmp_path / "index"), TEXTS, encoder=encoder)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unknown keyword 'overwrit': did you mean 'overwrite'"):
        Index.build(TEXTS, tmp_path / "index", encoder=encoder, overwrit=True)  # type: ignore[call-arg]
    index = Index.build(TEXTS, tmp_path / "index", "exact", encoder=encoder)
    for change in (index.add, index.update):
        with pytest.raises(MilcoError, match=r"'new'.* Give a text in a list: \[text\]"):
            change("new")
    with Searcher.open(index.path) as searcher, pytest.raises(MilcoError, match="text is empty"):
        searcher.search(" ")


def test_lone_surrogates_are_reported(encoder: MilcoEncoder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With their number, where texts are indexed and where they are encoded."""
    line = "1 text with lone surrogates, each encoded as U+FFFD"
    Index.build([*TEXTS, "a \ud800"], tmp_path / "index", "exact", encoder=encoder)
    assert caplog.messages.count(line) == 1
    encoder.encode_query("\ud800")
    encoder.encode_document([*TEXTS, "é", "\ud83d\ude00 \udc00"])
    assert caplog.messages.count(line) == 3


def test_arguments_that_texts_do_not_take_are_refused(tmp_path: Path) -> None:
    """Before anything is encoded or written."""
    for options, message in (
        ({"ids": ["a", "b"]}, "ids is for vectors, not for texts"),
        ({"shard_num": 2}, "shard_num is for vectors"),
        ({"prune": ["top:3"]}, "unknown pruning 'top'"),
    ):
        with pytest.raises(MilcoError, match=message):
            Index.build(TEXTS, tmp_path / "index", encoder="no/such/encoder", **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
