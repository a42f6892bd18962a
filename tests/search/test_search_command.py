"""The command milco search."""

import gzip
import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from synthetic_stores import synthetic_batch, synthetic_queries, write_plain, write_store

from milco_pyserini.cli.search import SearchOptions, main
from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.index import Index, build_index, find_engine, open_index
from milco_pyserini.index.protocol import ENGINES, SEARCH
from milco_pyserini.io.runs import read_run
from milco_pyserini.sparse import open_store


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exact index of 200 documents whose encoder has hashes."""
    root = tmp_path_factory.mktemp("search")
    store = open_store(write_store(root / "vectors", *synthetic_batch(200), weight_hash="w1", english_prefix=""))
    return build_index(store, find_engine("exact"), root / "indexes" / "tiny.exact").path


def test_help_names_settings_that_engines_have() -> None:
    """The names for which messages print --set, and each NAME=VALUE of the help text."""
    (settings,) = (field for field in fields(SearchOptions) if field.name == "set")
    known = {name for engine in ENGINES.values() for name in engine.settings(SEARCH)}
    named = re.findall(r"(\w+)=\d", settings.metadata["help"])
    assert named and {*settings.metadata["parameters"], *named} <= known


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    """Twelve encoded topics in no order; the fourth has no terms, the sixth only unknown ones."""
    queries = synthetic_queries(12)
    queries[3], queries[5] = {}, {"never": 1.0}
    order = np.random.default_rng(0).permutation(12).tolist()
    vectors = {f"q{order[n]}": {t: round(w * 100) for t, w in query.items()} for n, query in enumerate(queries)}
    return write_plain(tmp_path / "topics.jsonl", vectors)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command with invalid input (exit code 2, nothing on stdout), and return its line on stderr."""
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("milco search: error: ")
    assert err.count("\n") == 1
    return err


def ranking(run: Path) -> list[tuple[str, str, int]]:
    """Topic, docid and rank of every line of a TREC run."""
    return [(parts[0], parts[2], int(parts[3])) for parts in map(str.split, run.read_text("utf-8").splitlines())]


def test_remove_query_drops_the_document_with_the_topics_id(index: Path, topics: Path, tmp_path: Path) -> None:
    """The other documents move up; the number of hits is the same."""
    record = json.loads(topics.read_text().splitlines()[0])
    whole, without = tmp_path / "whole.txt", tmp_path / "without.txt"
    one = write_plain(tmp_path / "one.jsonl", {record["id"]: record["vector"]})
    assert main(["--index", str(index), "--topics", str(one), "--output", str(whole), "--k", "6"]) == 0
    best = [docid for _, docid, _ in ranking(whole)]
    named = write_plain(tmp_path / "named.jsonl", {best[1]: record["vector"]})
    common = ["--index", str(index), "--topics", str(named), "--k", "5"]
    assert main([*common, "--output", str(without), "--remove-query"]) == 0
    assert ranking(without) == [(best[1], docid, rank) for rank, docid in enumerate([best[0], *best[2:6]], 1)]


def test_the_corpus_as_topics_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its documents are probably not meant as queries; other topics are, whatever their ids."""
    for name in ("docs", "topics"):
        (tmp_path / f"{name}.jsonl").write_text('{"id": "a", "text": "a river"}\n{"id": "b", "text": "the sea"}\n')
    encode_corpus(tmp_path / "docs.jsonl", tmp_path / "vectors", EncodePlan(encoder="mini"))
    index = Index.build(tmp_path / "vectors", tmp_path / "index", "exact").path
    for name, times in (("docs", 1), ("topics", 0)):
        command = ["--index", str(index), "--topics", str(tmp_path / f"{name}.jsonl")]
        assert main([*command, "--output", str(tmp_path / f"{name}.txt")]) == 0
        assert capsys.readouterr().err.count("docs.jsonl is the corpus of") == times


def test_a_run_contains_the_hits_of_the_searcher(
    index: Path, topics: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In order of topics; queries without hits are counted."""
    run = tmp_path / "runs" / "run.txt"
    assert main(["--index", str(index), "--topics", str(topics), "--output", str(run), "--k", "20"]) == 0
    records = [json.loads(line) for line in topics.read_text().splitlines()]
    vectors = [{term: impact / 100 for term, impact in record["vector"].items()} for record in records]
    found = open_index(index).searcher().search(vectors, 20)
    assert ranking(run) == [
        (record["id"], docid, rank)
        for record, hits in zip(records, found, strict=True)
        for rank, docid in enumerate(hits.docids, 1)
    ]
    assert run.read_text("utf-8").splitlines()[0].endswith(" milco-exact-k=20")
    out, err = capsys.readouterr()
    assert out == ""
    assert "12/12 queries" in err
    assert "2 queries without hits, 1 of them without terms" in err


def test_a_run_is_a_file_a_gzip_file_or_stdout(
    index: Path, topics: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the name of --output; the lines are the same, and stdout has nothing else."""
    common = ["--index", str(index), "--topics", str(topics), "--output"]
    assert main([*common, str(tmp_path / "run.txt")]) == 0
    assert main([*common, str(tmp_path / "run.txt.gz")]) == 0
    assert gzip.decompress((tmp_path / "run.txt.gz").read_bytes()) == (tmp_path / "run.txt").read_bytes()
    assert read_run(tmp_path / "run.txt.gz") == read_run(tmp_path / "run.txt")
    capsys.readouterr()
    assert main([*common, "-"]) == 0
    assert capsys.readouterr().out == (tmp_path / "run.txt").read_text("utf-8")


def test_runs_do_not_depend_on_batches_and_threads(index: Path, topics: Path, tmp_path: Path) -> None:
    """The same bytes from any --batch-size and any --threads."""
    runs = []
    for number, extra in enumerate([[], ["--batch-size", "1"], ["--batch-size", "5", "--threads", "3"]]):
        output = tmp_path / f"{number}.txt"
        assert main(["--index", str(index), "--topics", str(topics), "--output", str(output), *extra]) == 0
        runs.append(output.read_bytes())
    assert runs[0] == runs[1] == runs[2]


def test_topics_may_be_a_vector_store(index: Path, tmp_path: Path) -> None:
    """Encoded topics are searched with their float weights: a document is its own best match."""
    ids, batch = synthetic_batch(200)
    rows = np.flatnonzero(batch.lengths() > 20)[:5]
    store = write_store(
        tmp_path / "topics",
        [f"q{row}" for row in rows],
        batch.take(rows),
        parquet=True,
        kind="topics",
        weight_hash="w1",
    )
    run = tmp_path / "run.txt"
    assert main(["--index", str(index), "--topics", str(store), "--output", str(run)]) == 0
    first = {topic: docid for topic, docid, rank in ranking(run) if rank == 1}
    documents = dict(zip(ids, batch.to_dicts(open_store(store).vocabulary), strict=True))  # type: ignore[union-attr]
    for row in rows:
        vector = documents[ids[row]]
        best = documents[first[f"q{row}"]]
        product = sum(weight * best.get(term, 0) for term, weight in vector.items())
        assert product >= sum(weight**2 for weight in vector.values()) * (1 - 1e-6)


def test_passages_are_ranked_as_documents(tmp_path: Path) -> None:
    """--max-passage lists each document once, by its best passage; here in MS MARCO's format."""
    vectors = {"a#0": {"x": 1}, "a#1": {"x": 9}, "b#0": {"x": 5}, "c#0": {"y": 1}}
    store = open_store(write_plain(tmp_path / "v.jsonl", vectors), plain=True)
    path = build_index(store, find_engine("exact"), tmp_path / "index").path
    topics = write_plain(tmp_path / "topics.jsonl", {"q": {"x": 1}})
    run = tmp_path / "run.tsv"
    options = ["--max-passage", "--k", "1", "--format", "msmarco"]
    assert main(["--index", str(path), "--topics", str(topics), "--output", str(run), *options]) == 0
    assert run.read_text() == "q\ta\t1\nq\tb\t2\n"


def test_max_passage_needs_an_index_of_passages(
    index: Path, topics: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They need docids of encode --split-passages; other docids could mean anything."""
    to = ["--topics", topics, "--output", tmp_path / "run.txt", "--max-passage"]
    assert "does not hold passages (encode --split-passages)" in refused(capsys, "--index", index, *to)
    assert not (tmp_path / "run.txt").exists()
    split_before = [str(argument) for argument in ("--index", index, *to, "--max-passage-delimiter", "#")]
    assert main([*split_before, "--overwrite"]) == 0
    (tmp_path / "run.txt").unlink()
    store = open_store(write_store(tmp_path / "vectors", *synthetic_batch(20), split_passages=True))
    passages = build_index(store, find_engine("exact"), tmp_path / "index").path
    assert main([str(argument) for argument in ("--index", passages, *to)]) == 0


def test_default_names_follow_from_the_inputs(
    index: Path, topics: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only index in indexes/; runs/INDEX.TOPICS.txt."""
    monkeypatch.chdir(index.parent.parent)
    assert main(["--topics", str(topics)]) == 0
    assert Path("runs/tiny.exact.topics.txt").is_file()
    capsys.readouterr()
    monkeypatch.chdir(topics.parent)
    assert "which --index? there is none in indexes/. Build one with" in refused(capsys, "--topics", topics)


def test_invalid_input_is_one_line_and_writes_nothing(
    index: Path, topics: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong indexes, topics that do not fit, ids that no run can hold, and numbers out of range."""
    run = tmp_path / "out" / "run.txt"
    foreign = write_store(tmp_path / "foreign", *synthetic_batch(5), kind="topics", weight_hash="w2")
    spaced = write_plain(tmp_path / "spaced.jsonl", {"q 1": {"w1": 1}})
    nameless = tmp_path / "nameless.jsonl"
    nameless.write_text('{"contents": "a query", "vector": {"w1": 1}}\n')
    twice = tmp_path / "twice.jsonl"
    twice.write_text('{"id": "q", "vector": {"w1": 1}}\n{"id": "q", "vector": {"w2": 1}}\n')
    nothing = write_store(tmp_path / "nothing", [], synthetic_batch(5)[1].take([]), kind="topics")
    documents = open_store(write_plain(tmp_path / "v.jsonl", {"a": {"x": 1}, "b c": {"x": 1}}), plain=True)
    with_space = build_index(documents, find_engine("exact"), tmp_path / "with_space").path
    capsys.readouterr()
    for given, message in (
        ({"--topics": foreign}, "weight_hash is 'w2', the documents' is 'w1'"),
        ({"--topics": spaced}, "id 'q 1' holds white space"),
        ({"--topics": nameless}, 'expected {"id"'),
        ({"--topics": twice}, "has the topic id 'q' 2 times"),
        ({"--topics": nothing}, "holds no topics"),
        ({"--topics": "no-such-topics"}, "no-such-topics"),
        ({"--encoder": "mini"}, "which are not encoded"),
        ({"--alpha": 0.5}, "holds vectors, which are not encoded"),
        ({"--alpha": 1.5}, "must be from 0 to 1"),
        ({"--index": with_space}, "docid 'b c' has white space"),
        ({"--output": tmp_path}, "is a directory"),
        ({"--output": spaced / "run.txt"}, "nothing can be written below it"),
    ):
        options = {"--index": index, "--topics": topics, "--output": run} | given
        assert message in refused(capsys, *(word for pair in options.items() for word in pair), "--overwrite")
    assert not run.parent.exists() or not list(run.parent.iterdir())
