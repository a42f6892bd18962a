"""Copies of what ir_datasets fetches else, in their publishers' layouts: read without a network, never written to."""

import gzip
import json
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from milco_pyserini.corpora import Document, Query, open_answers, open_corpus, open_qrels, open_topics
from milco_pyserini.corpora.families import COPIED_CORPORA, COPIED_TOPICS, CORPORA, FAMILIES, TOPICS
from milco_pyserini.errors import MilcoError


def written(path: Path, content: str | bytes) -> Path:
    """The file, with the folders above it; gzip if its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def json_lines(*rows: dict) -> str:
    """Objects, one a line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read(corpus: str, topics: str, copy: Path) -> tuple:
    """Documents, queries and judgements of two names, from a copy."""
    return (
        list(open_corpus(f"{corpus}@{copy}")),
        list(open_topics(f"{topics}@{copy}")),
        open_qrels(f"{topics}@{copy}"),
    )


def lay_out_scifact(folder: Path) -> Path:
    """A collection of BEIR, whose splits share a file of queries."""
    documents = json_lines(
        {"_id": "4", "title": "T", "text": "x", "metadata": {}}, {"_id": "5", "title": "", "text": "y", "metadata": {}}
    )
    written(folder / "corpus.jsonl", documents)
    written(folder / "queries.jsonl", json_lines({"_id": "0", "text": "q"}, {"_id": "1", "text": "of train"}))
    written(folder / "qrels/test.tsv", "query-id\tcorpus-id\tscore\n0\t4\t1\n")
    written(folder / "qrels/train.tsv", "query-id\tcorpus-id\tscore\n1\t5\t1\n")
    return folder


SCIFACT = ([Document("4", "T", "x"), Document("5", "", "y")], [Query("0", "q")], {"0": {"4": 1}})


@pytest.mark.parametrize("layout", ["archive", "folder of the archive", "unpacked", "inside", "another name", "gzip"])
def test_beir_is_read_from_its_archive_or_unpacked(tmp_path: Path, layout: str) -> None:
    """As the publisher packs it; the folder alone may have any name."""
    folder = lay_out_scifact(tmp_path / "scifact")
    copy = tmp_path
    if layout.endswith("archive"):
        with zipfile.ZipFile(tmp_path / "scifact.zip", "w") as archive:
            for file in sorted(folder.rglob("*.*")):
                archive.write(file, file.relative_to(tmp_path).as_posix())
        shutil.rmtree(folder)
        copy = tmp_path / "scifact.zip" if layout == "archive" else tmp_path
    elif layout == "inside":
        copy = folder
    elif layout == "another name":
        copy = folder.rename(tmp_path / "my data")
    elif layout == "gzip":
        written(folder / "corpus.jsonl.gz", (folder / "corpus.jsonl").read_bytes())
        (folder / "corpus.jsonl").unlink()
    assert read("beir-scifact", "beir-scifact-test", copy) == SCIFACT
    assert [query.text for query in open_topics(f"beir-scifact-train@{copy}")] == ["of train"]


def test_a_collection_of_beir_with_one_split_has_all_its_queries(tmp_path: Path) -> None:
    """As ir_datasets reads them: judged or not. CQADupStack's twelve are folders of one archive."""
    folder = tmp_path / "cqadupstack/android"
    lay_out_scifact(folder)
    for copy in (tmp_path, tmp_path / "cqadupstack", folder):
        documents, queries, qrels = read("beir-cqadupstack-android", "beir-cqadupstack-android-test", copy)
        assert (documents, qrels) == (SCIFACT[0], SCIFACT[2])
        assert [query.id for query in queries] == ["0", "1"]


def test_passages_of_mkqa_are_those_of_nq_in_beir(tmp_path: Path) -> None:
    """One folder may hold the passages and the archive of the questions."""
    lay_out_scifact(tmp_path)
    with zipfile.ZipFile(tmp_path / "MKQA_test-data.zip", "w") as archive:
        archive.writestr("de.jsonl", json_lines({"id": "1", "question": "Wer?", "answers": ["x"]}))
    assert list(open_corpus(f"mkqa@{tmp_path}")) == SCIFACT[0]
    assert list(open_topics(f"mkqa-de-test@{tmp_path}")) == [Query("1", "Wer?")]
    assert open_answers(f"mkqa-de-test@{tmp_path}") == {"1": ["x"]}


def test_miracl_is_read_from_its_two_repositories(tmp_path: Path) -> None:
    """Passages of all files in order; a folder of one language will do, or of both; a missing file is named."""
    passages, topics = tmp_path / "miracl-corpus/miracl-corpus-v1.0-fi", tmp_path / "miracl/miracl-v1.0-fi"
    for number in range(4):
        row = {"docid": f"{number}#0", "title": "Joki" if number else "", "text": f"vesi {number}"}
        written(passages / f"docs-{number}.jsonl.gz", json_lines(row))
    written(topics / "topics/topics.miracl-v1.0-fi-dev.tsv", "7\tMikä joki?\n")
    written(topics / "qrels/qrels.miracl-v1.0-fi-dev.tsv", "7\tQ0\t1#0\t1\n7\tQ0\t2#0\t0\n")
    for copy in (passages.parent, passages, tmp_path):
        found = [(document.id, document.contents) for document in open_corpus(f"miracl-fi@{copy}")]
        assert found == [("0#0", "vesi 0"), ("1#0", "Joki vesi 1"), ("2#0", "Joki vesi 2"), ("3#0", "Joki vesi 3")]
    for copy in (topics.parent, topics, tmp_path):
        assert list(open_topics(f"miracl-v1.0-fi-dev@{copy}")) == [Query("7", "Mikä joki?")]
        assert open_qrels(f"miracl-fi-dev@{copy}") == {"7": {"1#0": 1, "2#0": 0}}
    (passages / "docs-3.jsonl.gz").unlink()
    with pytest.raises(MilcoError) as caught:
        list(open_corpus(f"miracl-fi@{passages.parent}"))
    assert str(caught.value) == (
        f"{passages.parent} holds no miracl-corpus-v1.0-fi/docs-3.jsonl.gz: a copy must have the layout of "
        "miracl/miracl-corpus on the Hugging Face hub"
    )
    with pytest.raises(MilcoError, match=r"docs-0\.jsonl\.gz is one file, where 4 are read: give the folder of miracl"):
        list(open_corpus(f"miracl-fi@{passages / 'docs-0.jsonl.gz'}"))


@pytest.mark.parametrize("layout", ["archive", "folder of the archive", "unpacked", "unpacked, inside"])
def test_mr_tydi_is_read_from_its_archive_or_unpacked(tmp_path: Path, layout: str) -> None:
    """The archive is a tar file, and holds the passages as gzip."""
    folder = tmp_path / "mrtydi-v1.0-swahili"
    rows = [{"id": f"{number}#0", "contents": "Akiolojia\n\nni elimu"} for number in range(3)]
    written(folder / "collection/docs.jsonl.gz", json_lines(*rows))
    written(folder / "topic.test.tsv", "3\tJe, akiolojia ni nini?\n")
    written(folder / "qrels.test.txt", "3 Q0 2#0 1\n")
    archive = tmp_path / "mrtydi-v1.0-swahili.tar.gz"
    if layout.endswith("archive"):
        with tarfile.open(archive, "w:gz") as opened:
            opened.add(folder, folder.name)
        shutil.rmtree(folder)
    copy = {"archive": archive, "unpacked, inside": folder}.get(layout, tmp_path)
    documents, queries, qrels = read("mrtydi-sw", "mrtydi-sw-test", copy)
    assert documents == [Document(f"{number}#0", "", "Akiolojia\n\nni elimu") for number in range(3)]
    assert (queries, qrels) == ([Query("3", "Je, akiolojia ni nini?")], {"3": {"2#0": 1}})
    if layout == "archive":
        with pytest.raises(MilcoError, match=r"swahili\.tar\.gz holds no mrtydi-v1\.0-swahili/topic\.dev\.tsv"):
            list(open_topics(f"mrtydi-sw-dev@{copy}"))
        archive.write_bytes(archive.read_bytes()[:-40])
        with pytest.raises(MilcoError, match=r"swahili\.tar\.gz is no whole tar file"):
            list(open_topics(f"mrtydi-sw-dev@{copy}"))
    else:
        where = r"holds neither mrtydi-v1\.0-thai/collection/docs\.jsonl\.gz nor mrtydi-v1\.0-thai\.tar\.gz"
        with pytest.raises(MilcoError, match=where):
            list(open_corpus(f"mrtydi-th@{copy}"))


def test_neuclir_is_read_from_the_hub_and_from_the_track(tmp_path: Path) -> None:
    """Titles in English; of 2022 those that were judged in the language; judgements of 2023 in their archive."""
    for language, identity in (("zho", "z"), ("fas", "f"), ("rus", "r")):
        row = {"id": identity, "title": "T", "text": language, "url": "u", "time": "t", "cc_file": "c"}
        written(tmp_path / f"data/{language}-00000-of-00001.jsonl.gz", json_lines(row))
    assert list(open_corpus(f"neuclir-fa@{tmp_path}")) == [Document("f", "T", "fas")]
    assert [document.id for document in open_corpus(f"neuclir-multi@{tmp_path}")] == ["z", "f", "r"]

    def topic(number: str, title: str) -> dict:
        others = [{"lang": "zho", "topic_title": "洪水"}, {"lang": "eng", "topic_title": title}]
        return {"topic_id": number, "topics": others}

    written(tmp_path / "topics.0720.utf8.jsonl", json_lines(topic("1", "Floods"), topic("2", "Not in Chinese")))
    written(tmp_path / "2022-qrels.all", "1 zho z 3\n1 rus r 1\n2 rus r 1\n")
    assert list(open_topics(f"neuclir-zho-2022@{tmp_path}")) == [Query("1", "Floods")]
    assert open_qrels(f"neuclir-zho-2022@{tmp_path}") == {"1": {"z": 3}}
    assert open_qrels(f"neuclir-ru-2022@{tmp_path}") == {"1": {"r": 1}, "2": {"r": 1}}
    with pytest.raises(MilcoError, match=r"^2022-qrels\.all holds no judgement$"):
        open_qrels(f"neuclir-fa-2022@{tmp_path}")
    written(tmp_path / "neuclir-2023-topics.0605.jsonl", json_lines(topic("200", "Trade")))
    with tarfile.open(tmp_path / "neuclir-2023-qrels.final.tar.gz", "w:gz") as archive:
        for name, line in (("qrels.final.gains", "200 0 f 1\n"), ("qrels.final.gains.zho", "200 0 z 3\n")):
            archive.add(written(tmp_path / "packed" / name, line), name)
    assert list(open_topics(f"neuclir-multi-2023@{tmp_path}")) == [Query("200", "Trade")]
    assert open_qrels(f"neuclir-multi-2023@{tmp_path}") == {"200": {"f": 1}}
    assert open_qrels(f"neuclir-zh-2023@{tmp_path}") == {"200": {"z": 3}}
    assert list(open_topics(f"neuclir-zh-2023@{tmp_path}")) == [Query("200", "Trade")]


def test_everything_that_has_a_name_can_be_read_from_a_copy() -> None:
    """Also what ir_datasets fetches where no copy is given."""
    assert {place for place in CORPORA.values() if isinstance(place, str)} == COPIED_CORPORA.keys()
    assert {place for place in TOPICS.values() if isinstance(place, str)} == COPIED_TOPICS.keys()


def test_a_copy_that_lacks_a_file_is_neither_completed_nor_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every name says what it looked for, without asking a server, and an empty folder stays empty."""

    def refuse(*_: object) -> None:
        raise AssertionError("a server was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in CORPORA.keys() - FAMILIES["sample"].corpora.keys():
        with pytest.raises(MilcoError, match=f"^{tmp_path} holds (no|neither) .*: a copy must have the layout of "):
            next(iter(open_corpus(f"{name}@{tmp_path}")))
    for name in TOPICS.keys() - FAMILIES["sample"].topics.keys():
        with pytest.raises(MilcoError, match=f"^{tmp_path} holds (no|neither) .*: a copy must have the layout of "):
            next(iter(open_topics(f"{name}@{tmp_path}")))
        with pytest.raises(MilcoError, match=f"^{tmp_path} holds (no|neither) |is judged by the answers"):
            open_qrels(f"{name}@{tmp_path}")
    for opener in (open_corpus, open_topics, open_qrels):
        with pytest.raises(MilcoError, match="the sample is embedded and has no copies"):
            opener(f"sample@{tmp_path}")
    assert not list(tmp_path.iterdir())


def test_reading_a_copy_leaves_ir_datasets_alone(tmp_path: Path) -> None:
    """It would make its folders in the home of whoever asks. A copy may be one that nobody can write to."""
    folder = lay_out_scifact(tmp_path / "scifact")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code = (
        "import sys; from milco_pyserini.corpora import open_corpus, open_qrels, open_topics;"
        "corpus, topics = (f'beir-scifact{split}@{sys.argv[1]}' for split in ('', '-test'));"
        "assert open_corpus(corpus).check().documents == 2;"
        "assert open_topics(topics).check().topics == len(open_qrels(topics)) == 1;"
        "print('ir_datasets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
