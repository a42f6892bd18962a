"""Documents from files: every format, every error, and memory that does not grow."""

import gzip
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from milco_pyserini.corpora import Corpus, Document, Query, open_corpus, open_topics
from milco_pyserini.errors import MilcoError

TWO = [Document("a", "Nile", "a river"), Document("b", "", "陌生 text")]
TWO_JSONL = '{"id": "a", "title": "Nile", "text": "a river"}\n{"id": "b", "text": "陌生 text"}\n'


def corpus_of(path: Path, content: str | bytes, **options: bool) -> Corpus:
    """Write content to path and open it as a corpus."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return open_corpus(str(path), **options)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"id": 12, "contents": "x"}', Document("12", "", "x")),
        ('{"_id": "7#0", "title": "T", "text": "x"}', Document("7#0", "T", "x")),
        ('{"docid": "7#0", "title": "T", "text": null}', Document("7#0", "T", "")),
        ('{"id": "1", "contents": "x", "title": "T"}', Document("1", "", "x", {"title": "T"})),
        ('{"id": "1", "title": null, "text": "y", "url": 3}', Document("1", "", "y", {"url": 3})),
        ('{"id": "1", "text": "", "a": {"id": true, "b": 1.5}}', Document("1", "", "", {"a.id": True, "a.b": 1.5})),
        ('{"id": "1", "text": "", "tags": ["a"], "no": [1], "not": null}', Document("1", "", "", {"tags": ["a"]})),
        ('{"id": "1", "text": "", "raw": "r", "vector": {"a": 1}}', Document("1", "", "")),
        ('{"id": "1", "title": "T", "text": ""}', Document("1", "T", "")),
        ('{"id": "1", "contents": ""}', Document("1", "", "")),
        ('{"id": "1", "contents": "a\\u2028b\\nc"}', Document("1", "", "a\u2028b\nc")),
    ],
)
def test_jsonl_fields_are_read_as_documented(tmp_path: Path, line: str, expected: Document) -> None:
    """Ids of three names, numbers too; contents wins, null counts as absent, empty text and line ends are kept."""
    assert list(corpus_of(tmp_path / "c.jsonl", line)) == [expected]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.jsonl", TWO_JSONL),
        ("c.json", TWO_JSONL),
        ("c.ndjson", TWO_JSONL),
        ("c.txt", TWO_JSONL),
        ("c", TWO_JSONL),
        ("c.jsonl", TWO_JSONL.replace("\n", "\r\n")),
        ("c.jsonl", "\ufeff" + TWO_JSONL.rstrip("\n")),
        ("c.tsv", "\ufeffa\tNile\ta river\n\ufeffb\t\t陌生 text\n"),
        ("c.jsonl", "\n" + TWO_JSONL.replace("\n", "\n \n")),
        ("c.tsv", "a\tNile\ta river\nb\t\t陌生 text\n"),
        ("c.txt", "a\tNile\ta river\r\nb\t\t陌生 text\r\n"),
        ("c.tsv", "\ufeffid\ttext\ttitle\na\ta river\tNile\nb\t陌生 text\t\n"),
    ],
)
def test_every_format_gives_the_same_documents(tmp_path: Path, name: str, content: str) -> None:
    """JSONL and TSV, BOM, CRLF, blank lines, headers; plain and gzip."""
    assert list(corpus_of(tmp_path / name, content)) == TWO
    assert list(corpus_of(tmp_path / f"{name}.gz", gzip.compress(content.encode()))) == TWO
    assert list(corpus_of(tmp_path / "unsaid" / name, gzip.compress(content.encode()))) == TWO


def test_columns_of_a_table_are_id_text_and_fields(tmp_path: Path) -> None:
    """The header names them; two columns without one are id and text, where quotes have no special meaning."""
    corpus = corpus_of(tmp_path / "b.tsv", '0\t"quoted" text\n1\t\n')
    assert list(corpus) == [Document("0", "", '"quoted" text'), Document("1", "", "")]
    assert corpus.field_rule == "title + ' ' + text"
    content = "docid\tlang\ttitle\tpassage\turl\na\ten\tNile\ta river\thttps://a/b\n"
    (document,) = corpus_of(tmp_path / "c.tsv", content)
    assert document == Document("a", "Nile", "a river", {"lang": "en", "url": "https://a/b"})


def test_a_directory_is_read_in_sorted_order(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture
) -> None:
    """Hidden files and files with other endings are skipped; links to directories are followed, once."""
    (tmp_path / "README.md").write_text("not a document")
    (tmp_path / ".hidden.jsonl").write_text("not a document")
    corpus_of(tmp_path / ".ipynb_checkpoints" / "docs-1-checkpoint.jsonl", '{"id": "old", "text": "older"}')
    corpus_of(tmp_path / "docs-1.jsonl", '{"id": "b", "text": "陌生 text"}')
    (tmp_path / "docs-0.jsonl.gz").write_bytes(gzip.compress(TWO_JSONL.splitlines()[0].encode()))
    corpus_of(tmp_path / "inner" / "docs-2.json", '{"id": "c", "text": "last"}')
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    corpus_of(elsewhere / "docs-3.JSONL", '{"id": "d", "text": "linked"}')
    (tmp_path / "linked").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(tmp_path)
    assert list(open_corpus(str(tmp_path))) == [*TWO, Document("c", "", "last"), Document("d", "", "linked")]
    assert "not read as corpus: README.md" in capsys.readouterr().err
    (tmp_path / "docs-4.jsonl.zst").touch()
    with pytest.raises(MilcoError, match=r"docs-4\.jsonl\.zst"):
        open_corpus(str(tmp_path))


QUERY_JSONL = '{"_id": "q", "text": "a query"}'
LAYOUTS = {
    "BEIR": {
        "corpus.jsonl": TWO_JSONL,
        "queries.jsonl": QUERY_JSONL,
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\ta\t1\n",
        "docs.jsonl": '{"id": "c", "text": "not in the layout"}',
    },
    "formats tell them apart": {
        "corpus.zh.jsonl": TWO_JSONL,
        "queries.zh.tsv": "q\ta query",
        "qrels.zh.txt": "q 0 a 1",
    },
    "one format": {
        "docs/1.jsonl": TWO_JSONL,
        "Topics.dev.jsonl": QUERY_JSONL,
        "answers.jsonl": '{"id": "x", "text": ""}',
    },
    "directories": {"corpus/ar.tsv": "a\tNile\ta river\nb\t\t陌生 text", "topics/ar.tsv": "q\ta query"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_directory_may_hold_corpus_and_topics(tmp_path: Path, layout: str, capsys: pytest.CaptureFixture) -> None:
    """Queries among the documents would distort every score; the files read and skipped are reported."""
    for name, content in LAYOUTS[layout].items():
        corpus_of(tmp_path / name, content)
    assert list(open_corpus(str(tmp_path))) == TWO
    line = capsys.readouterr().err
    assert f"reading 1 file: {min(LAYOUTS[layout], key=lambda name: not name.startswith(('corpus', 'docs/')))}" in line
    assert "not read as corpus: " in line
    assert list(open_topics(str(tmp_path))) == [Query("q", "a query")]


BROKEN = [
    ("c.jsonl", "garbage", "not JSON: unexpected character"),
    ("c.jsonl", '{"id": "x", "text": ', "not JSON: unexpected end of data"),
    ("c.jsonl", "[", "the beginning of JSON in several lines: write one object per line"),
    ("c.jsonl", '{"text": "no id"}', "no field 'id', '_id' or 'docid'"),
    ("c.jsonl", '{"id": "", "text": "y"}', "the id '' is empty"),
    ("c.jsonl", '{"id": "' + "long " * 99 + '", "text": "y"}', "long long…' holds white space"),
    ("c.jsonl", '{"id": "' + "x" * 40_000 + '", "text": "y"}', "xxx…' has 40,000 bytes: the limit is 32,700"),
    ("c.jsonl", '{"id": "x", "body": "y"}', "no field 'contents' or 'text' among 'id', 'body'"),
    ("c.jsonl", '{"id": "x", "text": null}', "'text' is null"),
    ("c.jsonl", b'{"id": "x", "text": "\xff\xfe"}', "not UTF-8"),
    ("c.tsv", "b\ttext\twith a tab", "3 columns between tabs: the lines before have 2"),
    ("c.tsv", "alone", "1 column between tabs"),
    ("c.tsv", b"b\t\xff", "not UTF-8 (byte 3 of the line)"),
    ("c.tsv", "b\t日本".encode("shift_jis"), "from its encoding (Shift_JIS, "),
    ("c.tsv", "b\tx\rc\ty\r", "carriage returns between columns"),
]


@pytest.mark.parametrize(("name", "line", "why"), BROKEN)
def test_a_malformed_line_is_reported_with_its_place(tmp_path: Path, name: str, line: str | bytes, why: str) -> None:
    """By check() and by iterating; line numbers include blank lines."""
    encoded = line.encode() if isinstance(line, str) else line
    good = b"a\ttext" if name == "c.tsv" else b'{"id": "a", "text": "x"}'
    corpus = corpus_of(tmp_path / name, b"\n" + good + b"\n" + encoded + b"\n")
    for read in (corpus.check, lambda: list(corpus)):
        with pytest.raises(MilcoError) as caught:
            read()
        assert str(caught.value).startswith(f"{tmp_path / name}:3: ")
        assert why in str(caught.value)
        assert len(str(caught.value)) < 300


def test_skipped_lines_are_listed(tmp_path: Path) -> None:
    """Nothing is lost silently: check() lists the lines that iterating skips; without another line it is an error."""
    content = TWO_JSONL.replace("\n", '\n{"id": 3}\n', 1).encode() + b"\xff\n"
    corpus = corpus_of(tmp_path / "c.jsonl", content, skip_bad_lines=True)
    report = corpus.check()
    where = tmp_path / "c.jsonl"
    assert report.records == 2
    assert [line.split(": ")[0] for line in report.skipped] == [f"{where}:2", f"{where}:4"]
    assert list(corpus) == TWO
    with pytest.raises(MilcoError, match=r"2 lines .*c\.jsonl:1: "):
        corpus_of(where, "x\ny\n", skip_bad_lines=True).check()


@pytest.mark.parametrize("skip_bad_lines", [False, True])
def test_a_duplicate_id_is_reported_with_both_places(tmp_path: Path, skip_bad_lines: bool) -> None:
    """Across files, for a number and a string, and if malformed lines are skipped."""
    corpus_of(tmp_path / "1.jsonl", TWO_JSONL + '{"id": 7, "text": "x"}')
    corpus_of(tmp_path / "2.jsonl", '{"id": "c", "text": "x"}\n{"id": "7", "text": "y"}')
    with pytest.raises(MilcoError) as caught:
        open_corpus(str(tmp_path), skip_bad_lines=skip_bad_lines).check()
    assert str(caught.value) == f"duplicate id '7': {tmp_path / '1.jsonl'}:3 and {tmp_path / '2.jsonl'}:2"


def test_hash_collisions_are_not_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated hash is confirmed by rereading."""
    monkeypatch.setattr("milco_pyserini.corpora.records.hash", lambda value: 1, raising=False)
    assert corpus_of(tmp_path / "c.jsonl", TWO_JSONL).check().records == 2
    with pytest.raises(MilcoError, match=r"duplicate id 'a': .*:1 and .*:3"):
        corpus_of(tmp_path / "c.jsonl", TWO_JSONL + TWO_JSONL).check()


def test_long_stretches_of_blank_lines_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small gzip file may have billions: whoever waits for the first record sees that the file is read."""
    monkeypatch.setattr("milco_pyserini.io.lines._REPORTED", 1000)
    (document,) = corpus_of(
        tmp_path / "blank.jsonl.gz", gzip.compress(b"\n" * 2500 + TWO_JSONL.splitlines()[0].encode())
    )
    assert document == TWO[0]
    assert f"{tmp_path / 'blank.jsonl.gz'}: read 2,000 lines, this one is blank\n" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"plain", lambda data: data + b"x"])
def test_a_damaged_gzip_file_is_an_error(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Truncated, not gzip, or with trailing bytes; skipping malformed lines does not hide it."""
    content = gzip.compress(os.urandom(5000).hex().encode().join([b'{"id": "a", "text": "', b'"}\n']))
    corpus = corpus_of(tmp_path / "c.jsonl.gz", damage(content), skip_bad_lines=True)
    with pytest.raises(MilcoError, match=r"c\.jsonl\.gz is not"):
        corpus.check()


@pytest.mark.parametrize("name", ["c.jsonl", "c.tsv", "c.jsonl.gz"])
def test_long_lines_are_refused_or_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No more than the limit is held in memory."""
    monkeypatch.setattr("milco_pyserini.io.lines.MAX_LINE_BYTES", 100_000)
    long = "x" * 8_000_000
    lines = [
        f"a\tx\nb\t{long}\nc\ty\n",
        f'{{"id":"a","text":"x"}}\n{{"id":"b","text":"{long}"}}\n{{"id":"c","text":"y"}}',
    ]
    content = lines["json" in name].encode()
    corpus = corpus_of(tmp_path / name, gzip.compress(content, 1) if name.endswith(".gz") else content)
    with pytest.raises(MilcoError, match=r":2: .*100,000 bytes"):
        corpus.check()
    skipping = open_corpus(str(tmp_path / name), skip_bad_lines=True)
    tracemalloc.start()
    try:
        report = skipping.check()
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert (report.records, len(report.skipped)) == (2, 1)
    assert [document.id for document in skipping] == ["a", "c"]


def test_the_digest_depends_on_ids_contents_and_order(tmp_path: Path) -> None:
    """It does not depend on the format or the name."""
    report = corpus_of(tmp_path / "c.jsonl", TWO_JSONL).check()
    assert report.first == TWO[0]
    assert len(report.digest) == 32
    same = "a\tNile\ta river\r\nb\t\t陌生 text\r\n"
    assert corpus_of(tmp_path / "same.tsv", same).check().digest == report.digest
    lines = TWO_JSONL.splitlines()
    changed = [
        "\n".join(reversed(lines)),
        lines[0],
        TWO_JSONL.replace("a river", "a rivers"),
        TWO_JSONL.replace('"b"', '"c"'),
        '{"id": "a", "text": "Nile a riverb"}\n{"id": "b", "text": "陌生 text"}',
    ]
    digests = {corpus_of(tmp_path / f"{n}.jsonl", content).check().digest for n, content in enumerate(changed)}
    assert len(digests | {report.digest}) == len(changed) + 1


@pytest.mark.parametrize(
    ("opened", "files", "message"),
    [
        ("", {"README.md": "x"}, r"holds no file that ends in \.jsonl"),
        ("", {"queries.tsv": "q\ta query"}, r"queries\.tsv"),
        ("", {"a.jsonl": TWO_JSONL, "b.jsonl": "", "inner/dev.tsv": "q\tx"}, r"inner/dev\.tsv .*a\.jsonl"),
        ("", {"a.jsonl": TWO_JSONL, "b.jsonl.zst": ""}, r"b\.jsonl\.zst"),
        ("c.jsonl", {"c.jsonl": ""}, "is empty"),
        ("c.txt", {"c.txt": "<top>\n<num> Number: 1\n"}, "TREC topics"),
        ("c.tsv", {"c.tsv": "d1\thttp://x\ttitle\tbody\n"}, r"c.tsv:1: 4 columns"),
        ("c.tsv", {"c.tsv": "id\ttext\tcontents\na\tb\tc\n"}, "two columns for 'text'"),
        ("c.bin", {"c.bin": b"PAR1..."}, "c.bin is a Parquet file: expected a file of lines"),
        ("c.bin", {"c.bin": b"PK\x03\x04..."}, "c.bin is a ZIP archive: expected a file of lines"),
        ("c.bin", {"c.bin": b"BZh91AY..."}, "bzip2: .* first .bunzip2 "),
        ("c.bin", {"c.bin": b"\x28\xb5\x2f\xfd\x04..."}, "zstd: .* first .zstd -d "),
        ("c.bin", {"c.bin": "a\ttext\n".encode("utf-16")}, "UTF-16: .* first .iconv -f utf-16 -t utf-8 "),
    ],
)
def test_what_is_not_a_corpus_is_named(
    tmp_path: Path, opened: str, files: dict[str, str | bytes], message: str
) -> None:
    """Directories without documents or with two formats, topics, and other formats with the program that converts."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(MilcoError, match=message):
        open_corpus(str(tmp_path / opened)).check()


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """It would be empty when the documents are encoded."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MilcoError, match="not a regular file"):
        open_corpus(str(tmp_path / "pipe"))


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """Except for the 8 bytes that check() needs for each of the 20,000 documents."""
    text = "x" * 400
    with gzip.open(tmp_path / "c.jsonl.gz", "wt", compresslevel=1) as handle:
        handle.writelines(f'{{"id": "{number}", "text": "{text}"}}\n' for number in range(20_000))
    corpus = open_corpus(str(tmp_path / "c.jsonl.gz"))
    next(iter(corpus))
    tracemalloc.start()
    try:
        assert sum(1 for _ in corpus) == 20_000
        iterating = tracemalloc.get_traced_memory()[1]
        assert corpus.check().records == 20_000
        checking = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert iterating < 1_500_000
    assert checking < 3_000_000
