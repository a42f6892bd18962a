"""Forms of --topics: each is detected, and refused clearly if it does not fit."""

from pathlib import Path

import pytest
from synthetic_stores import synthetic_batch, write_plain, write_store

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, build_index, find_engine
from milco_pyserini.search.topics import SearchTopics, read_topics
from milco_pyserini.sparse import open_store


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An exact index of 20 documents; its query scale is 100."""
    root = tmp_path_factory.mktemp("topics")
    store = open_store(write_store(root / "vectors", *synthetic_batch(20), weight_hash="w1", lowercase=True))
    return build_index(store, find_engine("exact"), root / "index")


def test_integers_are_impacts_and_other_numbers_are_weights(index: Index, tmp_path: Path) -> None:
    """One fraction in a file makes all its numbers weights; only positive ones are kept."""
    whole = write_plain(tmp_path / "whole.jsonl", {"p": {"a": 150, "b": 2.0}, "q": {"a": 0, "c": -1}})
    assert read_topics(str(whole), index).vectors == [{"a": 1.5, "b": 0.02}, {}]
    floats = write_plain(tmp_path / "floats.jsonl", {"p": {"a": 150, "b": 0.25}, "q": {"a": -0.5, "c": 1}})
    assert read_topics(str(floats), index) == SearchTopics(["p", "q"], vectors=[{"a": 150.0, "b": 0.25}, {"c": 1.0}])


WEIGHT = '{"id": "q", "vector": {"a": %s}}', "weight .* of term 'a' is not a number"
ID = '{"id": %s, "vector": {"a": 1}}', "the id "


@pytest.mark.parametrize(
    ("record", "why", "value"),
    [
        *((*WEIGHT, value) for value in ("true", '"1"', "null", "[1]")),
        *((*ID, value) for value in ("null", "true", "1.5", "[1]", '""', '"a b"')),
    ],
)
def test_invalid_vectors_are_reported_with_their_line(
    index: Index, tmp_path: Path, record: str, why: str, value: str
) -> None:
    """Weights are numbers; an id is a string without white space, or an integer, as those of texts are."""
    topics = tmp_path / "topics.jsonl"
    topics.write_text('{"id": 12, "vector": {"a": 1}}\n\n' + record % value + "\n")
    with pytest.raises(MilcoError, match=rf"topics\.jsonl:3: {why}"):
        read_topics(str(topics), index)


def test_directories_of_texts_vectors_and_stores_are_distinguished(index: Index, tmp_path: Path) -> None:
    """BEIR's layout and directories of topic files are texts, as in encode; vectors without a manifest are vectors."""
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    (beir / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "a document"}\n')
    (beir / "queries.jsonl").write_text('{"_id": "q", "text": "a query"}\n')
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    assert read_topics(str(beir), index) == SearchTopics(["q"], texts=["a query"])
    several = tmp_path / "several"
    several.mkdir()
    (several / "a.tsv").write_text("1\tone\n")
    (several / "b.tsv").write_text("2\ttwo\n")
    assert read_topics(str(several), index) == SearchTopics(["1", "2"], texts=["one", "two"])
    write_plain(tmp_path / "parts" / "part-00000.jsonl", {"p": {"a": 1}})
    write_plain(tmp_path / "parts" / "part-00001.jsonl", {"q": {"a": 2}})
    assert read_topics(str(tmp_path / "parts"), index) == SearchTopics(["p", "q"], vectors=[{"a": 0.01}, {"a": 0.02}])


def test_an_unfinished_store_is_not_read_as_texts(index: Index, tmp_path: Path) -> None:
    """It has a plan and no manifest yet."""
    (tmp_path / "begun" / "parts").mkdir(parents=True)
    (tmp_path / "begun" / "plan.json").write_text("{}")
    with pytest.raises(MilcoError, match="not finished"):
        read_topics(str(tmp_path / "begun"), index)


def test_the_error_for_other_encoders_has_the_command_to_encode_again(index: Index, tmp_path: Path) -> None:
    """With the options that the documents were encoded with."""
    foreign = write_store(tmp_path / "foreign", *synthetic_batch(5), kind="topics", corpus="t.tsv", weight_hash="w2")
    with pytest.raises(MilcoError) as refused:
        read_topics(str(foreign), index)
    command = f"--topics t.tsv --encoder mini --lowercase --output {foreign} --overwrite"
    assert refused.value.message.endswith(f"encode them again with milco encode {command}")
