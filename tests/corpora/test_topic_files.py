"""Queries and qrels from files: every format, every error, and the real ones of MIRACL."""

import gzip
import os
from pathlib import Path

import pytest

from milco_pyserini.corpora import Query, open_qrels, open_topics
from milco_pyserini.errors import MilcoError

TWO = [Query("1", "where does the Nile rise"), Query("q-2", "ما هي المسألة؟")]
TREC = """<?xml version="1.0"?>
<top>
<num> Number: 1
<title> where does the
 Nile   rise

<desc> Description:
More words.
</top>

<TOP><num>q-2</num>
<title>ما هي المسألة؟</title></TOP>
"""


def write(path: Path, content: str | bytes) -> str:
    """Write content to path; return the path as a name."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "1\twhere does the Nile rise\nq-2\tما هي المسألة؟\n"),
        ("t.txt", "\ufeff1\twhere does the Nile rise\r\nq-2\tما هي المسألة؟\r\n"),
        ("t.tsv", "query_id\tquery\n1\twhere does the Nile rise\nq-2\tما هي المسألة؟"),
        ("t.jsonl", '{"_id": 1, "text": "where does the Nile rise"}\n{"qid": "q-2", "query": "ما هي المسألة؟"}'),
        (
            "t.json",
            '{"query_id": "1", "contents": "where does the Nile rise"}\n{"id": "q-2", "title": "ما هي المسألة؟"}',
        ),
        ("t.trec", TREC),
        ("topics.301-450", TREC.partition("\n")[2]),
        ("t.trec", TREC.replace("\n", "\r\n")),
    ],
)
def test_every_format_gives_the_same_queries(tmp_path: Path, name: str, content: str) -> None:
    """TSV, JSONL and TREC topics; plain and gzip; read twice."""
    for topics in (
        open_topics(write(tmp_path / name, content)),
        open_topics(write(tmp_path / f"{name}.gz", gzip.compress(content.encode()))),
    ):
        assert topics.check().records == 2
        assert list(topics) == list(topics) == TWO


def test_a_title_may_contain_angle_brackets(tmp_path: Path) -> None:
    """It ends at the next tag."""
    content = "<top>\n<num> 1\n<title> Topic: p < 0.05 & 1<2\n<desc> More.\n</top>\n"
    assert list(open_topics(write(tmp_path / "t.trec", content))) == [Query("1", "p < 0.05 & 1<2")]


@pytest.mark.parametrize(
    ("name", "content", "where", "why"),
    [
        ("t.tsv", "1\ta\n2\n", 2, "1 column between tabs"),
        ("t.jsonl", '{"id": "1", "txt": "a"}', 1, "no field 'text', 'query', 'contents' or 'title'"),
        ("t.jsonl", '{"text": "a"}', 1, "no field 'id', '_id', 'qid' or 'query_id'"),
        ("t.trec", "<top>\n<title> a\n</top>", 1, "this <top> has no <num>"),
        ("t.trec", "\n<top>\n<num> 1\n</top>", 2, "this <top> has no <title>"),
        ("t.trec", "<top>\n<num> 1\n<title> a\n<top>\n", 1, "not closed"),
        ("t.trec", b"<top>\n<num> 1\n<title> \xff\n</top>", 1, "not UTF-8"),
        ("t.trec", TREC.partition("\n")[2].replace("\n", "\r"), 1, "several <top> in one line"),
    ],
)
def test_a_malformed_topic_is_reported_with_its_place(
    tmp_path: Path, name: str, content: str | bytes, where: int, why: str
) -> None:
    """The line of a TREC topic is that of its <top>."""
    with pytest.raises(MilcoError) as caught:
        open_topics(write(tmp_path / name, content)).check()
    assert str(caught.value).startswith(f"{tmp_path / name}:{where}: ")
    assert why in str(caught.value)


def test_skipped_topics_are_listed(tmp_path: Path) -> None:
    """As skipped documents are."""
    broken = TREC + "<top>\n<num> 3\n</top>\n<top>\n"
    report = open_topics(write(tmp_path / "t.trec", broken), skip_bad_lines=True).check()
    assert report.records == 2
    assert [line.split(": ")[0] for line in report.skipped] == [f"{tmp_path / 't.trec'}:{n}" for n in (13, 16)]


def test_a_duplicate_topic_id_is_reported_with_both_places(tmp_path: Path) -> None:
    """A run could not tell them apart."""
    with pytest.raises(MilcoError, match=r"duplicate id '1': .*t\.tsv:1 and .*t\.tsv:3"):
        open_topics(write(tmp_path / "t.tsv", "1\ta\n2\tb\n1\tc\n")).check()


def test_ids_of_qrels_may_have_the_white_space_that_those_of_runs_may_have(tmp_path: Path) -> None:
    """Only ASCII white space separates columns, as in trec_eval."""
    content = "q1 0 a\u00a0b 1\nq1 0 c\u3000d 0\n"
    assert open_qrels(write(tmp_path / "qrels.txt", content)) == {"q1": {"a\u00a0b": 1, "c\u3000d": 0}}


RANGE = "grades are from -1,000 to 1,000. Check which column holds the grade."
QRELS = {"q1": {"d1": 1, "d#2": 0}, "2": {"d1": -2}}


@pytest.mark.parametrize(
    "content",
    [
        "q1 0 d1 1\nq1 0 d#2 0\n2 0 d1 -2\n",
        "q1\tQ0\td1\t1\r\nq1\tQ0\td#2\t0\r\n2\tQ0\td1\t-2\r\n",
        "\ufeffq1  Q0  d1  1\n\nq1 0 d#2 0\nq1 0 d#2 0\n2 0 d1 -2",
        "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td#2\t0\n2\td1\t-2\n",
        "q1\td1\t1\nq1\td#2\t0\n2\td1\t-2\n",
    ],
)
def test_every_format_gives_the_same_qrels(tmp_path: Path, content: str) -> None:
    """TREC's four columns with spaces or tabs, BEIR's three; plain and gzip."""
    assert open_qrels(write(tmp_path / "qrels.txt", content)) == QRELS
    assert open_qrels(write(tmp_path / "qrels.gz", gzip.compress(content.encode()))) == QRELS


_NO_JUDGMENTS = " holds no judgments: expected query, 0, docid, grade (TREC) or query, docid, grade"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("q d\n", ":1: 2 columns: expected 4 (TREC) or 3 (BEIR)"),
        ("q 0 d 1\nq 0 d\n", ":2: 3 columns: the lines before have 4"),
        ("q 0 d 1.0\n", ":1: the grade '1.0' is not an integer"),
        ("q 0 1 1001\n", f":1: the grade is '1001': {RANGE}"),
        (f"q 0 d {'9' * 5000}\n", f":1: the grade is '{'9' * 59}…': {RANGE}"),
        ("q 0 d 1\nq 0 d 2\n", ":2: q d has the grade 2, and 1 in an earlier line"),
        (b"q 0 d 1\nq 0 \xff 1\n", ":2: not UTF-8"),
        ("", _NO_JUDGMENTS),
        ("query-id\tcorpus-id\tscore\n", _NO_JUDGMENTS),
    ],
)
def test_a_malformed_judgment_is_reported_with_its_place(tmp_path: Path, content: str | bytes, message: str) -> None:
    """Grades are never guessed."""
    name = write(tmp_path / "qrels.txt", content)
    with pytest.raises(MilcoError) as caught:
        open_qrels(name)
    assert str(caught.value) == f"{name}{message}"


def test_qrels_must_be_regular_files(tmp_path: Path) -> None:
    """A pipe may never end, and a device never does."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(MilcoError, match=f"{path} is not a regular file"):
            open_qrels(str(path))


def test_a_directory_of_qrels_is_refused(tmp_path: Path) -> None:
    """It may hold several splits."""
    with pytest.raises(MilcoError, match="is a directory"):
        open_qrels(str(tmp_path))


@pytest.mark.parametrize(
    ("line", "is_document"),
    [
        ('{"id": "1", "title": "Nile", "text": "a river"}', True),
        ('{"id": "1", "contents": "a river"}', True),
        ('{"_id": "1", "text": "a river", "metadata": {}}', False),
        ('{"id": "1", "title": "a river", "description": "the Nile"}', False),
    ],
)
def test_a_corpus_that_is_read_as_topics_is_reported(
    line: str, is_document: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the fields that documents have: each of them would be a query."""
    name = write(tmp_path / "mine.jsonl", line)
    assert len(list(open_topics(name))) == 1
    assert (f"{name} looks like a corpus, by the fields of its first line" in caplog.text) is is_document
