"""Pyserini's own commands with MILCO: encode, index and search, each as a user starts it."""

import asyncio
import contextlib
import csv
import importlib
import importlib.metadata
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from milco_pyserini.cli.encode import main as encode
from milco_pyserini.cli.index import main as index
from milco_pyserini.encode.contract import MilcoDocumentEncoder, MilcoQueryEncoder
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.integrations.pyserini import java, start_java
from milco_pyserini.integrations.pyserini.cli import main
from milco_pyserini.integrations.pyserini.commands import is_command
from milco_pyserini.integrations.pyserini.encoders import is_milco
from milco_pyserini.io.manifest import write_checked
from milco_pyserini.search import Searcher
from milco_pyserini.sparse import open_store

OLD = Version(importlib.metadata.version("pyserini")) < Version("2.4")
GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "ckpt_distillation"
# The parts of a name by which Pyserini's commands pick other encoders.
TRAP = "ance-auto-clip-contriever-dpr-dse-sentence-transformers-splade-tct_colbert"
DOCUMENTS = [
    {"id": "d1", "title": "Music", "text": "the orchestra played in the old hall"},
    {"id": "d2", "title": "", "text": "la música clásica en Madrid"},
    {"id": "d3", "title": "音乐", "text": "古典音乐在北京"},
    {"id": "d4", "title": "Sin texto", "text": ""},
    {"id": "d5", "title": "Длинный", "text": "старый зал " * 150},
    {"id": "d6", "title": "", "text": ""},
]
BATCH = 3
TOPICS = {"q1": "orchestra hall", "q2": "古典音乐", "q3": 'la "música" clásica ☕', "q4": "старый зал"}
PLAIN = (
    "import runpy; from milco_pyserini.integrations.pyserini import start_java; start_java(); "
    "runpy.run_module('pyserini.search.lucene', run_name='__main__', alter_sys=True)"
)

integration = pytest.mark.integration
Vectors = dict[str, dict[str, int]]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a corpus, topics and a checkpoint whose path misleads."""
    workspace = tmp_path_factory.mktemp("pyserini")
    (workspace / "corpus").mkdir()
    with (workspace / "corpus" / "documents.jsonl").open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(document) + "\n" for document in DOCUMENTS)
    with (workspace / "topics.tsv").open("w", encoding="utf-8") as lines:
        lines.writelines(f"{name}\t{text}\n" for name, text in TOPICS.items())
    MilcoEncoder.from_pretrained(GOLDEN).save_pretrained(workspace / TRAP)
    return workspace


@pytest.fixture(scope="module")
def documents(workspace: Path) -> Vectors:
    """The vectors that pyserini.encode writes for the corpus."""
    source = ["input", "--corpus", str(workspace / "corpus"), "--fields", "title", "text"]
    encoder = ["encoder", "--encoder", str(workspace / TRAP), "--fields", "title", "text", "--batch-size", str(BATCH)]
    with here():
        assert main(["encode", *source, "output", "--embeddings", str(workspace / "vectors"), *encoder]) == 0
    lines = (workspace / "vectors" / "embeddings.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["id"]: record["vector"] for record in map(json.loads, lines)}


@pytest.fixture(scope="module")
def built(workspace: Path, documents: Vectors) -> Path:
    """The Lucene index that pyserini.index.lucene makes of them."""
    vectors = ["--collection", "JsonVectorCollection", "--input", "vectors", "--impact", "--pretokenized"]
    launch(workspace, "index.lucene", *vectors, "--index", "index", "--generator", "DefaultLuceneDocumentGenerator")
    return workspace / "index"


@pytest.fixture(scope="module")
def queries(workspace: Path) -> MilcoQueryEncoder:
    return MilcoQueryEncoder(str(workspace / TRAP))


@pytest.fixture(scope="module")
def own(workspace: Path) -> Path:
    """A Lucene index of this package's, and the topics encoded, both with their manifests."""
    corpus = str(workspace / "corpus" / "documents.jsonl")
    for kind, source in (("--corpus", corpus), ("--topics", str(workspace / "topics.tsv"))):
        assert (
            encode([kind, source, "--encoder", str(workspace / TRAP), "--output", str(workspace / f"own{kind}")]) == 0
        )
    assert (
        index(["--vectors", str(workspace / "own--corpus"), "--store", "--output", str(workspace / "own.lucene")]) == 0
    )
    return workspace / "own.lucene"


@contextlib.contextmanager
def here() -> Iterator[None]:
    """Let main() run in this process, where Pyserini is loaded once, and take back all that it changes."""
    start_java()
    import pyserini.encode
    from pyserini.search.lucene import LuceneImpactSearcher

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(sys, "argv", sys.argv)
        changed.setenv("PATH", os.environ["PATH"])
        changed.setattr(pyserini.encode, "AutoQueryEncoder", pyserini.encode.AutoQueryEncoder)
        by_name = LuceneImpactSearcher._init_query_encoder_from_str
        changed.setattr(LuceneImpactSearcher, "_init_query_encoder_from_str", staticmethod(by_name))
        yield


@pytest.fixture
def in_process(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let main() run in this process and in the workspace."""
    monkeypatch.chdir(workspace)
    with here():
        yield


def launch(workspace: Path, *arguments: str) -> str:
    """Run the launcher as a user does; returns its stderr."""
    return start(workspace, "-m", "milco_pyserini", "pyserini", *arguments)


def start(workspace: Path, *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=workspace, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def read_run(path: Path) -> dict[str, list[tuple[str, float]]]:
    """Docid and score of each query's hits, in the order of the file."""
    hits: dict[str, list[tuple[str, float]]] = {}
    for query, _, docid, rank, score, _ in csv.reader(path.open(encoding="utf-8"), delimiter=" "):
        hits.setdefault(query, []).append((docid, float(score)))
        assert int(rank) == len(hits[query])
    return hits


def exact(query: dict[str, int], documents: Vectors) -> list[tuple[str, float]]:
    """The reference: every document with a term of the query by its dot product, best first."""
    scores = {
        docid: sum(weight * vector.get(term, 0) for term, weight in query.items())
        for docid, vector in documents.items()
    }
    return sorted(((docid, score) for docid, score in scores.items() if score), key=lambda hit: (-hit[1], hit[0]))


def assert_exact(hits: list[tuple[str, float]], query: dict[str, int], documents: Vectors) -> None:
    expected = exact(query, documents)
    assert [docid for docid, _ in hits] == [docid for docid, _ in expected]
    assert [score for _, score in hits] == pytest.approx([score for _, score in expected], abs=0.01)


@integration
def test_encode_writes_the_vectors_of_the_document_encoder(workspace: Path, documents: Vectors) -> None:
    """At the checkpoint's length, also if the path contains names of other encoders."""
    encoder = MilcoDocumentEncoder(str(workspace / TRAP))
    expected: list[dict[str, int]] = []
    for start in range(0, len(DOCUMENTS), BATCH):
        batch = DOCUMENTS[start : start + BATCH]
        expected += encoder.encode([one["text"] for one in batch], [one["title"] for one in batch])
    assert documents == dict(zip([one["id"] for one in DOCUMENTS], expected, strict=True))
    assert documents["d6"] == {}
    assert documents["d5"] != encoder.encode([DOCUMENTS[4]["text"]], [DOCUMENTS[4]["title"]], max_length=256)[0]


@integration
def test_search_gives_exact_dot_products(
    in_process: None, documents: Vectors, built: Path, queries: MilcoQueryEncoder, capsys: pytest.CaptureFixture
) -> None:
    """encode, index.lucene and search.lucene give a run of exact scores, common terms included."""
    search = ["search.lucene", "--index", str(built), "--topics", "topics.tsv", "--impact"]
    assert main([*search, "--encoder", TRAP, "--output", "run"]) == 0
    assert "--min-idf -1" in capsys.readouterr().err
    hits = read_run(Path("run"))
    assert list(hits) == list(TOPICS)
    filled = {docid: vector for docid, vector in documents.items() if vector}
    for name, text in TOPICS.items():
        query = queries.encode(text)
        assert any(all(term in vector for vector in filled.values()) for term in query)
        assert_exact(hits[name], query, documents)


@integration
def test_a_searcher_takes_the_query_encoder_as_an_object(
    documents: Vectors, built: Path, queries: MilcoQueryEncoder
) -> None:
    """LuceneImpactSearcher(index, MilcoQueryEncoder(...), min_idf=-1) scores exactly, one by one and in batches."""
    start_java()
    from pyserini.search.lucene import LuceneImpactSearcher

    searcher = LuceneImpactSearcher(str(built), queries, min_idf=-1)
    together = searcher.batch_search(list(TOPICS.values()), list(TOPICS), k=10, threads=2)
    for name, text in TOPICS.items():
        for hits in (searcher.search(text, k=10), together[name]):
            assert_exact([(hit.docid, hit.score) for hit in hits], queries.encode(text), documents)


@integration
def test_encode_query_repeats_terms_by_impact(in_process: None, queries: MilcoQueryEncoder) -> None:
    """Without further options, at the scale of documents."""
    assert main(["encode.query", "--topics", "topics.tsv", "--encoder", TRAP, "--output", "repeated.tsv"]) == 0
    lines = [line.split("\t") for line in Path("repeated.tsv").read_text(encoding="utf-8").splitlines()]
    assert {name: Counter(terms.split(" ")) for name, terms in lines} == {
        name: queries.encode(text) for name, text in TOPICS.items()
    }


@integration
def test_encode_query_uses_given_ranges(in_process: None, queries: MilcoQueryEncoder) -> None:
    """--weight-range and --quant-range mean what they mean for other encoders: weight / range x quant, rounded."""
    ranges = ["--weight-range", "5", "--quant-range", "50"]
    assert main(["encode.query", "--topics", "topics.tsv", "--encoder", TRAP, "--output", "coarse.tsv", *ranges]) == 0
    _, terms = Path("coarse.tsv").read_text(encoding="utf-8").splitlines()[0].split("\t")
    coarse = {term: round(impact / 100 / 5 * 50) for term, impact in queries.encode(TOPICS["q1"]).items()}
    assert Counter(terms.split(" ")) == {term: impact for term, impact in coarse.items() if impact}


@integration
def test_search_uses_the_encoder_of_the_index(in_process: None, own: Path, queries: MilcoQueryEncoder) -> None:
    """search.lucene --impact without --encoder; Pyserini reads the index like its own."""
    assert (
        main(["search.lucene", "--impact", "--index", str(own), "--topics", "topics.tsv", "--output", "own.run"]) == 0
    )
    hits = read_run(Path("own.run"))
    for name, text in TOPICS.items():
        assert_exact(hits[name], queries.encode(text), dict(open_store(Path("own--corpus")).vectors()))


@pytest.mark.slow
@integration
def test_plain_pyserini_searches_encoded_topics(in_process: None, workspace: Path, own: Path) -> None:
    """A part of a topics store is --encoder for a Pyserini that knows nothing of MILCO: the same run, byte for byte."""
    part = "own--topics/parts/part-00000.jsonl"
    search = ["--impact", "--index", str(own), "--topics", "topics.tsv", "--encoder", part]
    start(workspace, "-c", PLAIN, *search, "--min-idf", "-1", "--output", "plain.run")
    assert main(["search.lucene", *search, "--output", "known.run"]) == 0
    assert Path("plain.run").read_bytes() == Path("known.run").read_bytes()
    hits = read_run(Path("plain.run"))
    for name, query in open_store(Path("own--topics")).vectors():
        assert_exact(hits[name], query, dict(open_store(Path("own--corpus")).vectors()))


@integration
def test_invalid_input_is_one_line_and_exit_code_2(
    in_process: None, workspace: Path, own: Path, capsys: pytest.CaptureFixture
) -> None:
    """An engine that Pyserini cannot read, a class or a writer that does not fit, a missing checkpoint."""
    manifest = json.loads((own / "manifest.json").read_text(encoding="utf-8"))
    manifest["vectors"]["encoder"] = "./moved"
    Path("moved.lucene").mkdir()
    write_checked(Path("moved.lucene", "manifest.json"), manifest)
    assert index(["--vectors", "own--corpus", "--engine", "exact", "--output", "own.exact"]) == 0
    source = ["encode", "input", "--corpus", "corpus", "output", "--embeddings", "never"]
    capsys.readouterr()
    for arguments, expected in (
        (["search.lucene", "--impact", "--index", "own.exact", "--topics", "topics.tsv"], "engine 'exact'"),
        ([*source, "encoder", "--encoder", TRAP, "--encoder-class", "splade"], "omit --encoder-class"),
        ([*source, "--to-faiss", "encoder", "--encoder", TRAP], "omit --to-faiss"),
        (["search.lucene", "--impact", "--index", "index", "--encoder", "./no/milco"], "no encoder at './no/milco'"),
        (["search.lucene", "--impact", "--index", "moved.lucene"], "no encoder at './moved'"),
        (
            ["search.lucene", "--impact", "--index", "index", "--topics", "topics.tsv"],
            "topics.tsv are texts",
        ),
        (["search.lucene", "--impact", "--index", "index", "--topics", "no.tsv"], "--topics no.tsv: Pyserini cannot"),
        (["fusion", "--runs", "no.run", "--output", "never"], "pyserini.fusion: FileNotFoundError: "),
    ):
        assert main(arguments) == 2
        line = capsys.readouterr().err
        assert line.startswith("milco pyserini: error: ") and expected in line and line.count("\n") == 1
    assert not Path("never").exists()


@integration
def test_trec_eval_runs_with_our_java(workspace: Path, built: Path) -> None:
    """eval.trec_eval starts a java by name: it is the one that Pyserini was started with."""
    (workspace / "figures.run").write_text("q1 Q0 d1 1 2.0 run\nq1 Q0 d2 2 1.0 run\n", encoding="utf-8")
    (workspace / "figures.qrels").write_text("q1 0 d2 1\n", encoding="utf-8")
    command = [sys.executable, "-m", "milco_pyserini", "pyserini", "eval.trec_eval", "-m", "recip_rank"]
    done = subprocess.run([*command, "figures.qrels", "figures.run"], cwd=workspace, capture_output=True, text=True)
    assert done.stdout.split()[-3:] == ["recip_rank", "all", "0.5000"], done.stderr


def test_an_unknown_command_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture) -> None:
    """The nearest command is suggested."""
    assert main(["search.lucen", "--index", "x"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("milco pyserini: error: unknown command 'search.lucen': ")
    assert "did you mean 'search.lucene'?" in err and err.count("\n") == 1


def test_the_help_page_loads_neither_java_nor_torch(capsys: pytest.CaptureFixture) -> None:
    """It lists the commands; without a command, too."""
    code = (
        "import sys; from milco_pyserini.integrations.pyserini.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(code or sorted({'jnius', 'pyserini', 'torch', 'transformers'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "search.lucene" in done.stdout
    assert main([]) == 0
    assert capsys.readouterr().out == done.stdout


def test_checkpoints_are_recognized_by_their_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By config.json, not by the words of a path, locally and on the hub."""
    other = tmp_path / "milco" / "splade"
    other.mkdir(parents=True)
    (other / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    (tmp_path / "milco.jsonl").write_text("", encoding="utf-8")
    assert not is_milco(str(other))
    assert not is_milco(str(tmp_path / "milco.jsonl"))
    assert not is_milco(str(tmp_path / "milco"))
    assert is_milco(str(GOLDEN))
    assert is_milco("mini")
    assert is_milco("omai-research/MILCO-650m")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file, **_: str(GOLDEN / file))
    assert is_milco("someone/renamed")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file, **_: str(other / file))
    assert not is_milco("someone/else")


@integration
def test_any_program_of_pyserini_is_a_command(in_process: None, capsys: pytest.CaptureFixture) -> None:
    """By the name of its module, with its arguments; what it imports and lacks is named."""
    Path("msmarco.run").write_text("q1\td2\t1\n", encoding="utf-8")
    convert = ["eval.convert_msmarco_run_to_trec_run", "--input", "msmarco.run", "--output", "trec.run"]
    assert main(convert) == 0
    assert Path("trec.run").read_text(encoding="utf-8").startswith("q1 Q0 d2 1 ")
    assert is_command("2cr.miracl") and not is_command("../search") and not is_command("server.nothing")
    with pytest.MonkeyPatch.context() as changed:
        changed.setitem(sys.modules, "faiss", None)
        assert main(["index.faiss", "--input", "x", "--output", "y"]) == 2
    assert "imports faiss, which is not installed. Run pip install faiss-cpu" in capsys.readouterr().err


LISTS = """
import json
from urllib.request import urlopen

class Table:
    _info = None
    _aliases = {}

    def __getitem__(self, name):
        if name in self._aliases:
            return self[self._aliases[name]]
        if self._info is None:
            self._info = {one["name"]: one for one in json.load(urlopen("https://lists.example", timeout=10))}
        return self._info[name]

SINGLE = Table()
OLD = {"old": SINGLE["new"]}
ALL = Table()
ALL._sources = (SINGLE, OLD)
"""


def test_lists_of_prebuilt_indexes_are_downloaded_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the import, which needs no network then; old names find what they name now."""
    (tmp_path / "lists_of_indexes.py").write_text(LISTS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(java, "PREBUILT", "lists_of_indexes")
    monkeypatch.setattr(java.jvm, "start", lambda: None)
    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: io.StringIO('[{"name": "new", "size": 7}]'))
    start_java()
    lists = importlib.import_module("lists_of_indexes")
    assert lists.ALL["new"] == lists.ALL["old"] == {"name": "new", "size": 7}


new_servers = pytest.mark.skipif(OLD, reason="needs Pyserini 2.4")


@new_servers
@integration
def test_rest_serves_an_index_with_its_encoder(
    in_process: None, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The hits and documents of Searcher, at the loopback address unless another is given."""
    pytest.importorskip("faiss", reason="Pyserini's servers import faiss")
    from fastapi.testclient import TestClient

    served = {}
    monkeypatch.setattr("uvicorn.run", lambda app, **options: served.update(options, app=app))
    assert main(["server.rest", "--index", str(own), "--port", "8099"]) == 0
    assert (served["host"], served["port"]) == ("127.0.0.1", 8099)
    assert "serving own" in capsys.readouterr().err
    searcher, texts = Searcher.open(own), {one["id"]: one["text"] for one in DOCUMENTS}
    with TestClient(served["app"]) as client:
        for text in TOPICS.values():
            found = client.get("/v1/own/search", params={"query": text, "hits": 3}).json()["candidates"]
            assert [(one["docid"], one["rank"]) for one in found] == [
                (hit.docid, rank) for rank, hit in enumerate(searcher.search(text, 3), 1)
            ]
            assert all(texts[one["docid"]] in str(one["doc"]) for one in found)
            assert [one["score"] for one in found] == pytest.approx(searcher.search(text, 3).scores.tolist(), abs=0.01)
    assert main(["server.rest", "--index", str(own), "--host", "0.0.0.0"]) == 0
    assert served["host"] == "0.0.0.0"


@new_servers
@integration
def test_mcp_serves_the_indexes_of_a_configuration(
    in_process: None, built: Path, own: Path, queries: MilcoQueryEncoder, documents: Vectors
) -> None:
    """Also an index that Anserini built, whose encoder the configuration names."""
    pytest.importorskip("faiss", reason="Pyserini's servers import faiss")
    from fastmcp import Client, FastMCP

    texts = {"path": str(own), "index_type": "tf"}
    impact = {"path": str(built), "index_type": "impact", "encoder": TRAP, "base_index": "texts"}
    Path("server.yaml").write_text(json.dumps({"indexes": {"built": impact, "texts": texts}}), encoding="utf-8")
    answers: dict[str, str] = {}

    def run(server: FastMCP, transport: str) -> None:
        async def ask() -> None:
            async with Client(server) as client:
                for text in TOPICS.values():
                    answer = await client.call_tool("search", {"query": text, "index": "built"})
                    answers[text] = " ".join(one.text for one in answer.content)

        asyncio.run(ask())

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(FastMCP, "run", run)
        assert main(["server.mcp", "--config", "server.yaml"]) == 0
    for text in TOPICS.values():
        best, score = exact(queries.encode(text), documents)[0]
        assert f"DocID: {best} | Score: {score}" in answers[text]


@integration
def test_servers_name_what_they_cannot_serve(in_process: None, own: Path, capsys: pytest.CaptureFixture) -> None:
    """No index, two sources of indexes, a missing file; or an older Pyserini, which serves no local index."""
    older = "the servers of Pyserini"
    for arguments, expected in (
        (["--index", "nowhere"], "no index at nowhere"),
        (["--index", str(own), "--config", "x.yaml"], "--index and --config both name the indexes"),
        (["--config", "x.yaml"], "--config x.yaml: Config file not found"),
    ):
        for server in ("server.rest", "server.mcp"):
            assert main([server, *arguments]) == 2
            line = capsys.readouterr().err
            assert (older if OLD else expected) in line and line.count("\n") == 1
