"""The BM25 engine equals Pyserini's, with one analyzer for documents and queries."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from milco_pyserini.cli import index as index_command
from milco_pyserini.cli import search as search_command
from milco_pyserini.corpora import Document, open_corpus, open_topics
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import build_index, find_engine, open_index
from milco_pyserini.index.baselines import TextDocuments, find_analyzer
from milco_pyserini.integrations.pyserini import start_java

pytestmark = pytest.mark.integration

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    """Java, before anything imports jnius."""
    pytest.importorskip("pyserini", reason="Pyserini is not installed")
    start_java()
    find_engine("bm25").available()


def build(*arguments: object) -> Path:
    """Build an index by the command; the last argument is its directory."""
    assert index_command.main(["--engine", "bm25", *map(str, arguments)]) == 0
    return Path(str(arguments[-1]))


def run_of(index: Path, *arguments: object) -> list[tuple[str, str, float]]:
    """Topic, docid and score of every line of the run that the search command writes."""
    run = index.with_suffix(".run")
    search = ["--index", str(index), "--output", str(run), "--overwrite", *map(str, arguments)]
    assert search_command.main(search) == 0
    rows = [line.split() for line in run.read_text("utf-8").splitlines()]
    return [(row[0], row[2], float(row[4])) for row in rows]


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the sample's English passages, by the command."""
    return build("--corpus", "sample-en", "--output", tmp_path_factory.mktemp("bm25") / "sample-en.bm25")


@pytest.mark.parametrize("language", ["en", "ar", "zh", "sw"])
def test_docids_and_scores_are_pyserinis(language: str, tmp_path: Path) -> None:
    """LuceneIndexer and LuceneSearcher, for a language analyzer, English, bigrams and white space."""
    from pyserini.index.lucene import LuceneIndexer
    from pyserini.search.lucene import LuceneSearcher

    name = f"sample-{language}"
    ours = run_of(build("--corpus", name, "--threads", 2, "--output", tmp_path / "ours"), "--topics", name, "--k", 9)
    indexer = LuceneIndexer(args=["-index", str(tmp_path / "theirs"), "-language", language], threads=1)
    for document in open_corpus(name):
        indexer.add_doc_dict({"id": document.id, "contents": document.contents})
    indexer.close()
    for directory in ("theirs", "ours"):
        searcher = LuceneSearcher(str(tmp_path / directory))
        searcher.set_language(language)
        theirs = [
            (query.id, hit.docid, hit.score) for query in open_topics(name) for hit in searcher.search(query.text, 9)
        ]
        assert [row[:2] for row in ours] == [row[:2] for row in theirs]
        assert [row[2] for row in ours] == pytest.approx([row[2] for row in theirs], abs=1e-5)


def test_a_full_disk_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    """Anserini only logs that the end of an index could not be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    arguments = ["--engine", "bm25", "--corpus", "sample-en", "--output", str(tmp_path / "index")]
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        code = index_command.main(arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 2
    assert f"error: {tmp_path / 'index'}: File too large. Free some space" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_threads_do_not_change_hits(english: Path) -> None:
    """Batches of queries in Java give the hits of single queries; --max-passage works as for other engines."""
    alone = run_of(english, "--topics", "sample-en", "--k", 50)
    assert run_of(english, "--topics", "sample-en", "--k", 50, "--threads", 3, "--batch-size", 7) == alone
    folded = run_of(english, "--topics", "sample-en", "--max-passage", "--max-passage-hits", 50)
    assert [row[:2] for row in folded] == [row[:2] for row in alone]


@pytest.mark.parametrize("language", ["yo", "ha"])
def test_documents_and_queries_share_one_analyzer(language: str, tmp_path: Path) -> None:
    """Pyserini indexes Yoruba as English and searches it by white space: such words would never be found."""
    corpus, topics = tmp_path / "corpus.jsonl", tmp_path / "topics.tsv"
    corpus.write_text('{"id": "a", "text": "Running dogs"}\n{"id": "b", "text": "running the dogs"}\n')
    topics.write_text("capital\tRunning\nsmall\tthe\n")
    index = build("--corpus", corpus, "--set", f"language={language}", "--output", tmp_path / "index")
    assert [row[:2] for row in run_of(index, "--topics", topics)] == [("capital", "a"), ("small", "b")]


def test_a_tokenizer_serves_all_languages(tmp_path: Path) -> None:
    """The index contains the tokenizer: the checkpoint is not needed again."""
    index = build("--corpus", "sample", "--set", "tokenizer=mini", "--output", tmp_path / "index")
    assert open_index(index).manifest["texts"]["tokenizer"] == "mini"
    searcher = open_index(index).searcher()
    topic = next(iter(open_topics("sample-zh")))
    assert searcher.search([topic.text], 5)[0].docids[0] == "zh-01"
    assert [len(hits) for hits in searcher.search(["", " \n"], 5)] == [0, 0]
    (index / "tokenizer.json").write_text("{")
    with pytest.raises(MilcoError, match=r"damaged \(tokenizer.json: 1 bytes, not "):
        open_index(index).searcher()


def test_documents_without_words_are_skipped_and_counted(tmp_path: Path) -> None:
    """Only blanks and control characters; lone surrogates and NUL are allowed; ties are in order of docid."""
    rows = {"z": "dog", "blank": " \u3000", "control": "\x01", "y": "dog", "half": "a\ud800b \x00 cat", "none": ""}
    documents = [Document(name, "", text) for name, text in rows.items()]
    store = TextDocuments(tmp_path, {"language": "en", "tokenizer": None}, documents)
    index = build_index(store, find_engine("bm25"), tmp_path / "index")
    assert (index.manifest["documents"], index.manifest["empty_documents"]) == (3, 3)
    found = index.searcher().search(["dog \ud800", "cat", "the"], 10**9)
    assert [hits.docids for hits in found] == [["y", "z"], ["half"], []]


def test_long_queries_are_not_truncated(english: Path) -> None:
    """More words than Lucene's limit of clauses."""
    words = " ".join(f"word{number}" for number in range(3000))
    topic = next(iter(open_topics("sample-en")))
    searcher = open_index(english).searcher()
    assert searcher.search([f"{words} {topic.text}"], 3)[0].docids == searcher.search([topic.text], 3)[0].docids


def refused(command: Callable[[list[str]], int], capsys: Capture, *arguments: object) -> str:
    """Run a command with invalid input, and return its one line."""
    capsys.readouterr()
    assert command([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_invalid_input_is_one_line_and_writes_nothing(tmp_path: Path, capsys: Capture) -> None:
    """No corpus, no language, two ways to make words, shards, options of vectors, a duplicate document."""
    output = tmp_path / "out" / "index"
    twice = tmp_path / "twice.jsonl"
    twice.write_text('{"id": "d", "text": "one"}\n{"id": "d", "text": "two"}\n')
    cases = {
        (): "--engine bm25 needs --corpus",
        ("--corpus", "sample"): "the language of sample is not known: give --set language=...",
        ("--corpus", twice, "--set", "language=en"): "two documents have the id 'd'",
        ("--corpus", "sample-de", "--set", "language=german"): "unknown language 'german': valid are ar,",
        ("--corpus", "sample-ar", "--set", "language=ar", "tokenizer=mini"): "omit --set language=...",
        ("--corpus", "sample-ar", "--shard-num", "2"): "--shard-num 2: bm25 has no shards, its idf depends on all",
        ("--corpus", "sample-ar", "--set", "n_postings=3"): "unknown setting of bm25 'n_postings'",
    }
    for arguments, message in cases.items():
        line = refused(index_command.main, capsys, "--engine", "bm25", *arguments, "--output", output)
        assert message in line, line
    line = refused(index_command.main, capsys, "--corpus", "sample", "--output", output)
    assert "--engine lucene needs --vectors, not --corpus" in line
    assert not output.exists() and not any(tmp_path.glob("out/.*"))


def test_a_language_that_this_java_cannot_split_is_refused(tmp_path: Path) -> None:
    """Thai needs locale data, which a small Java lacks: Anserini would skip every document silently."""
    try:
        find_analyzer("th")
    except MilcoError as error:
        assert "let JAVA_HOME name a full Java" in str(error) and "`tokenizer`" in str(error)
        store = TextDocuments(tmp_path, {"language": "th", "tokenizer": None}, open_corpus("sample-en"))
        with pytest.raises(MilcoError, match="`language=th`"):
            find_engine("bm25").build(store, tmp_path, 1)
    else:
        pytest.skip("this Java splits Thai")


def test_encoded_topics_and_encoder_options_are_refused(english: Path, tmp_path: Path, capsys: Capture) -> None:
    """Queries of a BM25 index are texts."""
    topics = tmp_path / "topics.jsonl"
    topics.write_text('{"id": "q", "vector": {"dog": 1}}\n')
    to = ["--index", english, "--output", tmp_path / "run"]
    assert "was built by engine bm25, whose queries are texts" in refused(
        search_command.main, capsys, *to, "--topics", topics
    )
    for name, value in (("--encoder", "mini"), ("--alpha", 0.5)):
        line = refused(search_command.main, capsys, *to, "--topics", "sample-en", name, value)
        assert f"{name} {value}: bm25 searches for the words of a query" in line
    assert "`language=en`: it is fixed when the index is built" in refused(
        search_command.main, capsys, *to, "--topics", "sample-en", "--set", "language=en"
    )


def test_commands_for_sparse_vectors_refuse_a_bm25_index(english: Path, capsys: Capture) -> None:
    """explain and tune."""
    from milco_pyserini.cli.explain import main as explain

    with pytest.raises(MilcoError, match="bm25 index"):
        open_index(english, sparse=True)
    line = refused(explain, capsys, "--index", english, "--query", "x")
    assert "is a bm25 index" in line
    assert "nothing to tune" in refused(index_command.main, capsys, "tune", "--index", english)
