"""Names: the sample, benchmarks and ids of ir_datasets (without a network), paths, and unknown names."""

import doctest
import gzip
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from pyarrow import parquet

from milco_pyserini import corpora
from milco_pyserini.corpora import catalog, open_corpus, open_qrels, open_topics
from milco_pyserini.corpora.catalog import BENCHMARKS, CORPORA, TOPICS, corpus_language
from milco_pyserini.corpora.ir_datasets import DatasetDocuments, DatasetQueries
from milco_pyserini.corpora.sample import ROOT
from milco_pyserini.errors import MilcoError

Opener = Callable[[str], object]
OPENERS: list[Opener] = [open_corpus, open_topics, open_qrels]


def gzip_lines(path: Path, *objects: dict) -> None:
    """Write gzip JSON lines, and the directories above them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(value) + "\n" for value in objects).encode()))


def text_file(path: Path, content: str) -> None:
    """Write content, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def lay_out_miracl(home: Path) -> None:
    """Write Arabic, in its five files of documents, and Yoruba, in one (which ir_datasets calls docs-1)."""
    arabic, yoruba = home / "miracl/v1.0/ar", home / "miracl/v1.0/yo"
    for number in range(5):
        document = {"docid": f"{number}#0", "title": "ماء" if number else "", "text": f"نص {number}"}
        gzip_lines(arabic / f"docs/docs-{number}.jsonl.gz", document)
    text_file(arabic / "dev/topics.tsv", "29\tما هي المسألة؟\n31\tأين النيل\n")
    text_file(arabic / "dev/qrels.tsv", "29\tQ0\t1#0\t1\n29\tQ0\t2#0\t0\n31\tQ0\t4#0\t1\n")
    text_file(arabic / "test-b/topics.tsv", "7\tسؤال\n")
    gzip_lines(yoruba / "docs/docs-1.jsonl.gz", *[{"docid": "7#0", "title": "Odò", "text": "omi"}] * 2)


def lay_out_others(home: Path) -> None:
    """Write one tiny dataset of each other benchmark, as ir_datasets stores it."""
    swahili = home / "mr-tydi/sw.data/mrtydi-v1.0-swahili"
    text_file(home / "mr-tydi/irds_version.txt", "v2")
    gzip_lines(swahili / "collection/docs.jsonl.gz", {"id": "26#0", "contents": "Akiolojia\n\nni elimu"})
    text_file(swahili / "topic.test.tsv", "3\tJe, akiolojia ni nini?\n")
    text_file(swahili / "qrels.test.txt", "3 Q0 26#0 1\n")

    scifact = home / "beir/scifact"
    scifact.mkdir(parents=True)
    with zipfile.ZipFile(scifact / "source.zip", "w") as archive:
        archive.writestr("scifact/corpus.jsonl", '{"_id": "4", "title": "T", "text": "x", "metadata": {}}\n')
        archive.writestr("scifact/queries.jsonl", '{"_id": "0", "text": "q"}\n{"_id": "1", "text": "other split"}\n')
        archive.writestr("scifact/qrels/test.tsv", "query-id\tcorpus-id\tscore\n0\t4\t1\n")

    news = {"id": "n1", "title": "标题", "text": "正文", "url": "u", "time": "t", "cc_file": "f"}
    gzip_lines(home / "neuclir/1/zho/docs.jsonl.gz", news)
    topic = {"topic_title": "Floods", "topic_description": "d", "topic_narrative": "n"}
    translations = [
        {"lang": "eng", "source": "original", **topic},
        {"lang": "zho", "source": "human translation", **topic},
        {"lang": "zho", "source": "google translation", **topic},
    ]
    text_file(home / "neuclir/trec-2022/topics.jsonl", json.dumps({"topic_id": "1", "topics": translations}) + "\n")
    text_file(home / "neuclir/trec-2022/qrels", "1 zho n1 3\n1 rus r1 3\n")

    bright = home / "bright"
    bright.mkdir()
    post = {"id": "biology/a_1.txt", "content": "Moths fly to lamps."}
    parquet.write_table(pa.Table.from_pylist([post]), bright / "biology.docs.parquet")
    query = {"id": "0", "query": "Why lamps?", "reasoning": "r", "gold_answer": "x", "gold_ids_long": ["biology/a"]}
    query |= {"gold_ids": ["biology/a_1.txt"], "excluded_ids": ["biology/b_1.txt"]}
    for name in ("Gemini-1.0", "claude-3-opus", "gpt4", "grit", "llama3-70b", ""):
        reasoner = f"{name}_reason." if name else ""
        parquet.write_table(pa.Table.from_pylist([query]), bright / f"biology.{reasoner}queries.parquet")


READ = """
import json, sys
from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.errors import MilcoError

def documents(name):
    corpus = open_corpus(name)
    first = list(corpus)
    assert list(corpus) == first and corpus.check().records == len(first)
    rows = [[document.id, document.title, document.text, *filter(None, [document.fields])] for document in first]
    return [corpus.field_rule, rows]

def queries(name):
    topics = open_topics(name)
    assert topics.check().records == len(list(topics))
    return [[query.id, query.text] for query in topics]

answers = []
for kind, name in json.loads(sys.argv[1]):
    try:
        answers.append({"corpus": documents, "topics": queries, "qrels": open_qrels}[kind](name))
    except MilcoError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An IR_DATASETS_HOME with tiny collections in it."""
    path = tmp_path_factory.mktemp("ir_datasets")
    lay_out_miracl(path)
    lay_out_others(path)
    return path


def read(home: Path, *asked: tuple[str, str]) -> list:
    """Open (kind, name) pairs in a new process without a network; its stdout must hold only the answers."""
    nowhere = "http://127.0.0.1:9"
    environment = {
        **os.environ,
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), nowhere),
        "IR_DATASETS_HOME": str(home),
        "IR_DATASETS_DL_TRIES": "1",
        "NO_PROXY": "",
        "no_proxy": "",
    }
    command = [sys.executable, "-c", READ, json.dumps(asked)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sys.stderr.write(done.stderr)
    return json.loads(done.stdout)


def test_miracl_is_read_through_ir_datasets(home: Path) -> None:
    """Documents of all files in order, queries and qrels; Pyserini's names are accepted."""
    corpus, topics, qrels, test_b, pyserini = read(
        home,
        ("corpus", "miracl-ar"),
        ("topics", "miracl-ar-dev"),
        ("qrels", "miracl-ar-dev"),
        ("topics", "miracl-ar-testB"),
        ("topics", "miracl-v1.0-ar-dev"),
    )
    documents = [[f"{number}#0", "ماء" if number else "", f"نص {number}"] for number in range(5)]
    assert corpus == ["title + ' ' + text", documents]
    assert topics == pyserini == [["29", "ما هي المسألة؟"], ["31", "أين النيل"]]
    assert qrels == {"29": {"1#0": 1, "2#0": 0}, "31": {"4#0": 1}}
    assert test_b == [["7", "سؤال"]]


def test_other_benchmarks_are_read_through_ir_datasets(home: Path) -> None:
    """Mr. TyDi, BEIR (whose splits share one file of queries), NeuCLIR and BRIGHT, by name and by id."""
    answers = read(
        home,
        ("corpus", "mrtydi-sw"),
        ("topics", "mrtydi-sw-test"),
        ("qrels", "mrtydi-sw-test"),
        ("corpus", "beir-scifact"),
        ("topics", "beir-scifact-test"),
        ("qrels", "beir/scifact/test"),
        ("corpus", "neuclir-zho"),
        ("topics", "ir_datasets:neuclir/1/zh/trec-2022"),
        ("qrels", "neuclir-zh-2022"),
        ("corpus", "bright-biology"),
        ("topics", "bright-biology"),
        ("qrels", "bright-biology"),
    )
    assert answers == [
        ["default_text of ir_datasets", [["26#0", "", "Akiolojia\n\nni elimu"]]],
        [["3", "Je, akiolojia ni nini?"]],
        {"3": {"26#0": 1}},
        ["title + ' ' + text", [["4", "T", "x"]]],
        [["0", "q"]],
        {"0": {"4": 1}},
        ["title + ' ' + text", [["n1", "标题", "正文", {"url": "u", "time": "t", "cc_file": "f"}]]],
        [["1", "Floods"]],
        {"1": {"n1": 3}},
        ["default_text of ir_datasets", [["biology/a_1.txt", "", "Moths fly to lamps."]]],
        [["0", "Why lamps?"]],
        {"0": {"biology/a_1.txt": 1, "biology/b_1.txt": -100}},
    ]


def test_errors_of_ir_datasets_name_the_fix(home: Path, capsys: pytest.CaptureFixture) -> None:
    """Absent, truncated and licensed files; what the library prints about an absent file is silenced."""
    damaged = home / "miracl/v1.0/te/docs/docs-0.jsonl.gz"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    expected = {
        ("corpus", "miracl-sw"): ("miracl/sw is not in ", f"copy {home}/miracl from a machine that has it"),
        ("corpus", "miracl-yo"): ("duplicate id '7#0': miracl/yo:1 and miracl/yo:2",),
        ("topics", "miracl/ar"): ("miracl/ar of ir_datasets has no topics. These have: miracl/ar/dev, ",),
        ("qrels", "miracl-ar-testA"): ("miracl/ar/test-a of ir_datasets has no qrels",),
        ("corpus", "ir_datasets:miracl/xx"): ("ir_datasets has no 'miracl/xx': did you mean 'miracl",),
        ("corpus", "miracl-te"): ("miracl/te cannot be read: ", f"Remove the damaged file in {home}/miracl"),
        ("corpus", "aquaint"): ("aquaint cannot be downloaded freely: ", "ir-datasets.com/aquaint.html#DataAccess"),
    }
    for answer, (start, *more) in zip(read(home, *expected), expected.values(), strict=True):
        assert answer.startswith(start) and all(part in answer for part in more)
    capsys.readouterr()
    read(home, ("corpus", "beir-nfcorpus"), ("topics", "beir-nfcorpus-test"), ("corpus", "mrtydi-fi"))
    assert capsys.readouterr().err == ""


def test_every_name_of_ir_datasets_has_documents_or_topics() -> None:
    """Qrels are missing only for the hidden tests of MIRACL."""
    import ir_datasets

    for name, corpus in CORPORA.items():
        if isinstance(corpus.source, DatasetDocuments):
            assert ir_datasets.load(corpus.source.identity).has_docs(), name
    for name, topics in TOPICS.items():
        if isinstance(topics.source, DatasetQueries):
            dataset = ir_datasets.load(topics.source.identity)
            assert dataset.has_queries(), name
            assert dataset.has_qrels() or "/test-" in topics.source.identity, name


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize(("name", "near"), [("mircl-ar{}", "miracl-ar{}"), ("smaple", "sample")])
def test_an_unknown_name_gets_the_nearest_match(opener: Opener, name: str, near: str) -> None:
    """With the command that lists those of the same benchmark; an unset shell variable is not the working directory."""
    split = "" if opener is open_corpus else "-dev"
    with pytest.raises(MilcoError) as caught:
        opener(name.format(split))
    assert f"did you mean {near.format(split)!r}? 'milco corpora show {near.partition('-')[0]}'" in str(caught.value)
    with pytest.raises(MilcoError, match=r"unknown .* ''"):
        opener("")


def test_topics_passed_as_a_corpus_are_recognized() -> None:
    """And a corpus passed as topics."""
    with pytest.raises(MilcoError, match="'miracl-ar-dev': it names topics"):
        open_corpus("miracl-ar-dev")
    with pytest.raises(MilcoError, match="'miracl-ar': it names a corpus"):
        open_topics("miracl-ar")


@pytest.mark.parametrize("opener", OPENERS)
def test_a_missing_path_gets_the_nearest_file(opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If one in the same directory is near."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "passages.jsonl").touch()
    with pytest.raises(MilcoError) as caught:
        opener("data/pasages.jsonl")
    assert str(caught.value) == ("data/pasages.jsonl: no such file or directory; did you mean 'data/passages.jsonl'?")
    with pytest.raises(MilcoError, match=r"^elsewhere/q\.tsv: "):
        opener("elsewhere/q.tsv")


def test_an_existing_path_takes_precedence_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For corpora, topics and qrels."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample").write_text("1\tmine\n")
    (tmp_path / "miracl-ar-dev").write_text("1 0 d 1\n")
    assert [document.text for document in open_corpus("sample")] == ["mine"]
    assert [query.text for query in open_topics("sample")] == ["mine"]
    assert open_qrels("miracl-ar-dev") == {"1": {"d": 1}}


def test_the_sample_is_complete() -> None:
    """Every language has as many documents and queries, and the qrels refer to existing ones."""
    languages = [f"sample-{code}" for code in BENCHMARKS["sample"].languages]
    assert {file.stem for file in ROOT.glob("*/*")} == set(BENCHMARKS["sample"].languages)
    assert len({open_corpus(name).check().records for name in languages}) == 1
    assert len({open_topics(name).check().records for name in languages}) == 1
    documents = {document.id for document in open_corpus("sample")}
    queries = {query.id for query in open_topics("sample")}
    qrels = open_qrels("sample")
    assert qrels.keys() == queries
    assert {document for grades in qrels.values() for document in grades} <= documents


def test_the_sample_is_its_languages_in_sorted_order() -> None:
    """For documents and queries; qrels of a language stay within it, the others are those of sample."""
    for opener in (open_corpus, open_topics):
        each = [record for code in sorted(BENCHMARKS["sample"].languages) for record in opener(f"sample-{code}")]
        assert list(opener("sample")) == each
    assert all(passage.fields == {"lang": passage.id[:2]} for passage in open_corpus("sample"))
    documents, every = {document.id for document in open_corpus("sample-ar")}, open_qrels("sample")
    within = {
        query.id: {d: g for d, g in every[query.id].items() if d in documents} for query in open_topics("sample-ar")
    }
    assert open_qrels("sample-ar") == within and all(within.values())


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("miracl-ar", "ar"),
        ("mldr-ar@/copy", "ar"),
        ("ir_datasets:neuclir/1/fa", "fa"),
        ("neuclir-zho", "zh"),
        ("neuclir-multi", None),
        ("mkqa", "en"),
        ("beir-trec-covid", "en"),
        ("mlqa-de-ar-test", "de"),
        ("mteb-mlqa-zho-eng-test", "zh"),
        ("belebele-pes_Arab", "fa"),
        ("sample-ja", "ja"),
        ("sample", None),
        ("some/file.jsonl", None),
    ],
)
def test_the_name_of_a_corpus_determines_its_language(name: str, language: str | None) -> None:
    """The language of the documents, not of the queries; None for several languages, and for paths."""
    assert corpus_language(name) == language


@pytest.mark.parametrize("module", [corpora, catalog])
def test_examples_in_docstrings_are_true(module: ModuleType) -> None:
    """Users copy them."""
    found = doctest.testmod(module)
    assert found.attempted and not found.failed
