"""The record next to a run: how it was made, and what milco eval shows of it."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden_set import make_reranker
from synthetic_stores import synthetic_batch, write_plain, write_store

from milco_pyserini.cli.eval import main as evaluate_command
from milco_pyserini.cli.search import main
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import compare, evaluate
from milco_pyserini.index import Index, build_index, find_engine
from milco_pyserini.io import runs
from milco_pyserini.io.runs import default_tag, option_text, read_run_record
from milco_pyserini.sparse import open_store

Capture = pytest.CaptureFixture[str]
DOCUMENTS = {"d1": "The Nile is a river.", "d2": "Bell patented the telephone.", "d3": "Ein Fluss in Afrika."}


class KilledError(BaseException):
    """Ends a command as a signal does: nothing catches it."""


def killed(*_: object, **__: object) -> None:
    """Fail as a process that is killed at this call."""
    raise KilledError


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of milco-mini's vectors with a field, and topics and qrels."""
    root = tmp_path_factory.mktemp("records")
    documents = [{"id": name, "text": text, "lang": "en"} for name, text in DOCUMENTS.items()]
    Index.build(documents, root / "texts.exact", "exact", encoder="mini")
    (root / "topics.tsv").write_text("1\twhich river\n2\twho invented the telephone\n")
    (root / "qrels.txt").write_text("1 0 d1 1\n2 0 d2 1\n")
    return root


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of vectors with topics and qrels, which are searched without an encoder."""
    root = tmp_path_factory.mktemp("vectors")
    ids, batch = synthetic_batch(20)
    store = open_store(write_store(root / "vectors", ids, batch, weight_hash="w1"))
    build_index(store, find_engine("exact"), root / "index")
    write_store(root / "topics", ["1", "2"], batch.take([0, 1]), kind="topics", weight_hash="w1")
    (root / "qrels.txt").write_text(f"1 0 {ids[0]} 1\n2 0 {ids[1]} 1\n")
    return root


@pytest.fixture
def search(vectors: Path, tmp_path: Path) -> Callable[..., Path]:
    """Search the vectors, and return the path of the run."""

    def command(name: str, *options: str) -> Path:
        given = ["--index", str(vectors / "index"), "--topics", str(vectors / "topics")]
        assert main([*given, "--output", str(tmp_path / name), *options]) == 0
        return tmp_path / name

    return command


def record_of(run: Path) -> dict[str, Any]:
    """The JSON next to a run."""
    return json.loads(run.with_name(run.name + ".json").read_text("utf-8"))


def tag_of(run: Path) -> str:
    """The last column of the first line."""
    return run.read_text("utf-8").split("\n")[0].rpartition(" ")[2]


def test_a_record_states_how_a_run_was_made(texts: Path, tmp_path: Path) -> None:
    """Options, index, encoders, topics, versions, date and time."""
    run, topics = tmp_path / "a.txt", texts / "topics.tsv"
    given = ["--index", str(texts / "texts.exact"), "--topics", str(topics), "--output", str(run)]
    assert main([*given, "--alpha", "0.3", "--filter", "lang=en", "--balance", "lang=0.5"]) == 0
    record = record_of(run)
    options = record["options"]
    assert (options["alpha"], options["k"], options["filters"]) == (0.3, 1000, {"lang": ["en"]})
    assert options["remove_query"] is False and "output" not in options
    assert tag_of(run) == record["tag"] == "milco-exact-filters=lang=en-balance=lang=0.5-alpha=0.3"
    (index,) = record["indexes"]
    opened = Index.open(texts / "texts.exact")
    assert (index["engine"], index["documents"], index["generation"]) == ("exact", 3, opened.generation)
    assert index["vectors"]["weight_hash"] == opened.vectors.weight_hash == index["query_encoder"]["weight_hash"]
    assert (index["query_encoder"]["encoder"], index["query_encoder"]["alpha"]) == ("mini", 0.3)
    assert not index["vectors"].keys() & {"files", "parts"}
    assert record["topics"] | {"digest": ""} == {"name": str(topics), "count": 2, "digest": ""}
    assert {"milco_pyserini", "torch", "pyserini"} <= record["versions"].keys()
    assert record["date"].endswith("+00:00") and record["seconds"] > 0


def test_the_tag_differs_if_the_options_do(search: Callable[..., Path]) -> None:
    """The plain tag stays; options that do not change the hits, and the default, are not in it; --tag replaces it."""
    plain = search("a.txt")
    assert tag_of(plain) == "milco-exact"
    for number, same in enumerate((["--threads", "2", "--batch-size", "1"], ["--hits", "1000"])):
        assert search(f"same{number}.txt", *same).read_bytes() == plain.read_bytes()
    assert tag_of(search("b.txt", "--hits", "5", "--remove-query")) == "milco-exact-k=5-remove_query"
    assert tag_of(search("c.txt", "--hits", "5", "--tag", "mine")) == "mine"


def test_tags_have_no_white_space_and_stay_short() -> None:
    """Options that do not fit are a hash, the same each time; the benchmark of the training data comes last."""
    changed = {"filters": {"title": ["two words"]}}
    tag = default_tag("lucene", "miracl", changed)
    assert tag == default_tag("lucene", "miracl", changed)
    assert len(tag.split()) == 1 and "words" not in tag and tag.endswith("-trained-on-miracl")
    assert tag != default_tag("lucene", "miracl", {"filters": {"title": ["other words"]}})
    assert len(default_tag("lucene", "", {"query_encoder": "x" * 500})) < 40
    assert default_tag("lucene", "", {"alpha": 0.0}) == "milco-lucene-alpha=0"
    assert option_text({"a": ["b", "c"], "n": {"<": 2}}) == "a=b,c,n<2"


def test_an_identical_rerun_writes_the_same_run(search: Callable[..., Path]) -> None:
    """Dates are in the record only."""
    run = search("a.txt", "--hits", "5")
    content, first = run.read_bytes(), record_of(run)
    search("a.txt", "--hits", "5", "--overwrite")
    again = record_of(run)
    assert run.read_bytes() == content
    for name in ("date", "seconds", "checksum"):
        first.pop(name), again.pop(name)
    assert first == again


def test_the_record_of_a_compressed_run_is_that_of_its_text(search: Callable[..., Path], tmp_path: Path) -> None:
    """So that it also describes the decompressed file."""
    packed = search("a.txt.gz", "--hits", "5")
    assert record_of(packed)["run_checksum"] == record_of(search("a.txt", "--hits", "5"))["run_checksum"]
    assert read_run_record(packed).options["k"] == 5
    assert gzip.decompress(packed.read_bytes()) == (tmp_path / "a.txt").read_bytes()


def test_stdout_has_no_record(search: Callable[..., Path], tmp_path: Path, capsys: Capture) -> None:
    """The run alone."""
    run = search("a.txt")
    capsys.readouterr()
    assert main(["fuse", "--runs", str(run), str(run), "--output", "-"]) == 0
    assert capsys.readouterr().out.startswith("1 Q0 ")
    assert not Path("-.json").exists()


def test_a_killed_search_leaves_no_wrong_pair(
    search: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Killed before the run: the old pair; between run and record: the old record does not count."""
    run = search("a.txt")
    old = record_of(run)

    with monkeypatch.context() as patched:
        patched.setattr(runs, "write_hits", killed)
        with pytest.raises(KilledError):
            search("a.txt", "--hits", "5", "--overwrite")
    assert read_run_record(run).tag == "milco-exact" and record_of(run) == old
    with monkeypatch.context() as patched:
        patched.setattr(runs, "write_checked", killed)
        with pytest.raises(KilledError):
            search("b.txt")
        with pytest.raises(KilledError):
            search("a.txt", "--hits", "5", "--overwrite")
    assert not (tmp_path / "b.txt.json").exists() and read_run_record(tmp_path / "b.txt").tag == ""
    capsys.readouterr()
    assert read_run_record(run).options == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "a.txt.json", "b.txt"]


def test_a_record_of_another_run_is_ignored_with_one_line(
    search: Callable[..., Path], vectors: Path, capsys: Capture
) -> None:
    """Also one that is damaged; the figures are those of the run."""
    run = search("a.txt", "--hits", "5")
    kept, place = record_of(run), run.with_name("a.txt.json")
    qrels = ["--qrels", str(vectors / "qrels.txt")]
    assert evaluate_command(["--run", str(run), *qrels]) == 0
    out = capsys.readouterr().out
    run.write_text(run.read_text().replace("exact", "other"))
    for content, reason in (
        (json.dumps(kept), "checksum mismatch"),
        (place.read_text(), f"{run} is another run than the one that it describes"),
        ("[]", "contains list, not a JSON object"),
        ("{", "not JSON"),
    ):
        place.write_text(content)
        assert evaluate_command(["--run", str(run), *qrels]) == 0
        printed = capsys.readouterr()
        assert printed.out == out
        assert printed.err.count(f"warning: {place} is ignored: ") == 1 and reason in printed.err


def test_a_file_that_is_no_record_is_never_replaced(vectors: Path, tmp_path: Path, capsys: Capture) -> None:
    """Before the search, with or without --overwrite."""
    (tmp_path / "a.txt.json").write_text('{"mine": 1}')
    given = ["--index", str(vectors / "index"), "--topics", str(vectors / "topics")]
    assert main([*given, "--output", str(tmp_path / "a.txt"), "--overwrite"]) == 2
    assert "a.txt.json, which is not a record" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt.json"]


def test_a_fused_run_has_the_records_of_its_inputs(search: Callable[..., Path], tmp_path: Path) -> None:
    """One without a record has its checksum. A rerun that finds its run writes only a record that is missing."""
    made = search("a.txt", "--hits", "5")
    foreign = tmp_path / "b.txt"
    foreign.write_text("1 Q0 x 1 2.0 other\n")
    output = tmp_path / "fused.txt"
    command = ["fuse", "--runs", str(made), str(foreign), "--output", str(output), "--weights", "2", "1"]
    assert main(command) == 0
    record = record_of(output)
    assert tag_of(output) == "milco-rrf-weights=2,1" == record["tag"]
    assert (record["options"]["method"], record["options"]["weights"]) == ("rrf", [2.0, 1.0])
    known, unknown = record["inputs"]
    assert known["options"]["k"] == 5 and known["indexes"][0]["engine"] == "exact"
    assert unknown.keys() == {"name", "run_checksum"}
    place = output.with_name("fused.txt.json")
    content = place.read_bytes()
    assert main(command) == 0
    assert place.read_bytes() == content
    place.unlink()
    assert main(command) == 0
    assert read_run_record(output).options == record["options"]


def test_a_fused_search_has_a_record_of_each_index(texts: Path, tmp_path: Path) -> None:
    """With their engines and encoders; --fuse is in the name of the system."""
    documents = [{"id": name, "text": text} for name, text in DOCUMENTS.items()]
    Index.build(documents, tmp_path / "other", "exact", encoder="mini")
    run, indexes = tmp_path / "run.txt", [str(texts / "texts.exact"), str(tmp_path / "other")]
    topics = ["--topics", str(texts / "topics.tsv"), "--output", str(run)]
    assert main(["--index", *indexes, "--fuse", "rrf", *topics]) == 0
    record = record_of(run)
    assert tag_of(run) == "milco-rrf"
    assert [index["name"] for index in record["indexes"]] == indexes
    assert record["options"]["fuse"] == "rrf"


def test_a_reranked_run_has_a_record(texts: Path, tmp_path: Path) -> None:
    """The cross-encoder with its weights, topics, and the run that it scored."""
    make_reranker(tmp_path / "model")
    run, output = tmp_path / "a.txt", tmp_path / "new.txt"
    run.write_text("1 Q0 d1 1 2.0 other\n2 Q0 d2 1 2.0 other\n")
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in DOCUMENTS.items()))
    given = {"--run": run, "--topics": texts / "topics.tsv", "--corpus": tmp_path / "docs.jsonl", "--k": 2}
    words = [str(word) for pair in given.items() for word in pair]
    model = ["--encoder", str(tmp_path / "model"), "--max-length", "64", "--device", "cpu"]
    assert main(["rerank", *words, *model, "--output", str(output)]) == 0
    record = record_of(output)
    assert tag_of(output) == "milco-rerank-k=2-max_length=64"
    assert record["encoder"]["weight_hash"] and record["options"]["encoder"] == str(tmp_path / "model")
    assert (record["inputs"][0]["name"], record["topics"]["count"]) == (str(run), 2)


def test_encoded_topics_are_recorded_with_their_encoder(
    search: Callable[..., Path], vectors: Path, tmp_path: Path
) -> None:
    """The manifest of their store without its files; JSONL vectors state only their digest."""
    record = record_of(search("a.txt"))
    assert record["topics"]["vectors"]["weight_hash"] == "w1" and "parts" not in record["topics"]["vectors"]
    assert "query_encoder" not in record["indexes"][0]
    plain, run = write_plain(tmp_path / "topics.jsonl", {"q": {"x": 1}}), tmp_path / "b.txt"
    assert main(["--index", str(vectors / "index"), "--topics", str(plain), "--output", str(run)]) == 0
    assert record_of(run)["topics"].keys() == {"name", "count", "digest"}


def table(capsys: Capture, vectors: Path, *arguments: str) -> str:
    """Return the output of milco eval for runs."""
    capsys.readouterr()
    assert evaluate_command([*arguments, "--qrels", str(vectors / "qrels.txt"), "-m", "R@1", "--test", "none"]) == 0
    return capsys.readouterr().out


def test_eval_shows_the_options_in_which_runs_differ(
    search: Callable[..., Path], vectors: Path, tmp_path: Path, capsys: Capture
) -> None:
    """In every format, aligned; a run without a record has "-"; what is the same is not shown."""
    named = [str(search("a.txt")), str(search("b.txt", "--remove-query", "--hits", "5"))]
    foreign = tmp_path / "c.txt"
    foreign.write_text(Path(named[0]).read_text())
    given = ["--run", *named, str(foreign)]
    assert table(capsys, vectors, *given) == (
        "run  k     remove_query     R@1\na    1000  -             1.0000\nb    5     yes           1.0000\n"
        "c    -     -             1.0000\n"
    )
    csv = table(capsys, vectors, *given, "--format", "csv")
    assert csv == "run,k,remove_query,R@1\na,1000,-,1.0\nb,5,yes,1.0\nc,-,-,1.0\n"
    markdown = " ".join(table(capsys, vectors, *given, "--format", "markdown").split())
    assert markdown.startswith(r"| run | k | remove\_query | R@1 |") and "| b | 5 | yes | 1.0000 |" in markdown
    latex = " ".join(table(capsys, vectors, *given, "--format", "latex").split())
    assert r"run & k & remove\_query & R@1 \\" in latex and r"b & 5 & yes & 1.0000 \\" in latex
    rows = json.loads(table(capsys, vectors, *given, "--format", "json"))["results"]
    assert [row["options"] for row in rows] == [
        {"k": 1000, "remove_query": False},
        {"k": 5, "remove_query": True},
        {"k": None, "remove_query": None},
    ]
    assert "\n1      b    5     yes " in table(capsys, vectors, *given, "--per-query")


def test_eval_shows_no_options_without_records(
    search: Callable[..., Path], vectors: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Nor for a single record, whose options nothing differs from."""
    made, foreign = search("a.txt", "--hits", "5"), tmp_path / "c.txt"
    foreign.write_text(made.read_text())
    for given in ([made], [foreign], [made, foreign]):
        words = ["--run", *map(str, given)]
        assert table(capsys, vectors, *words).split()[:2] == ["run", "R@1"]
        assert "options" not in table(capsys, vectors, *words, "--format", "json")


def test_the_library_reads_records_of_paths(search: Callable[..., Path]) -> None:
    """evaluate() and compare() of paths; runs in memory have none."""
    one, two = search("a.txt"), search("b.txt", "--hits", "5")
    qrels = {"1": {"d1": 1}, "2": {"d2": 1}}
    assert evaluate(two, qrels).options["k"] == 5
    assert evaluate({"1": {"d1": 1.0}}, qrels).options == {}
    assert compare({"one": one, "two": two}, qrels).options == ("k",)


def test_options_of_several_datasets_are_those_of_each_run(
    search: Callable[..., Path], vectors: Path, tmp_path: Path, capsys: Capture
) -> None:
    """The row of the mean has the values of all; options that differ between datasets only are not shown."""
    other = tmp_path / "other.txt"
    other.write_text((vectors / "qrels.txt").read_text())
    runs = [str(search(f"{hits}.txt", "--hits", hits)) for hits in ("5", "6", "7")]
    more = ["--qrels", str(vectors / "qrels.txt"), str(other), "-m", "R@1", "--test", "none"]
    assert evaluate_command(["--run", *runs[:1], *runs, "--names", "x", "y", *more]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[2] for row in rows] == ["k", "5", "6", "5", "7", "5", "6/7"]
    assert evaluate_command(["--run", *runs[:2], *more]) == 0
    assert capsys.readouterr().out.split()[:2] == ["dataset", "R@1"]


def test_a_tag_with_white_space_is_refused_before_the_search(tmp_path: Path) -> None:
    """As it was; validate_run_output() has the rules of tag, run and record."""
    with pytest.raises(MilcoError, match="white space"):
        runs.validate_run_output(tmp_path / "a.txt", False, "two words")
