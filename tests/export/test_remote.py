"""The contract of an index of a filled collection: the hits of engine lucene, from the server."""

import itertools
import json
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from opensearch_cluster import Cluster
from search_servers import Server, fill
from search_service import search_service
from synthetic_stores import synthetic_queries

from milco_pyserini.cli.main import main
from milco_pyserini.errors import MilcoError, Unreachable
from milco_pyserini.export import ExportJob, find_target
from milco_pyserini.export.access import URL
from milco_pyserini.export.protocol import ImpactDocument, ImpactStore
from milco_pyserini.index import open_index
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.hits import Hits
from milco_pyserini.index.protocol import SEARCH
from milco_pyserini.io.runs import read_run_record
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse import VectorStore
from milco_pyserini.sparse.quantization import quantize_vector

ALL = 1000
QUERIES: list[dict[str, float]] = [*synthetic_queries(5), {}, {"no such term": 1.0}, {"w3": 0.01}]
NAMES = (f"remote_{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def index(server: Server, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the store, filled by milco export."""
    path = tmp_path_factory.mktemp("index") / "index"
    assert fill(server, store, next(NAMES), "--output", str(path)) == 0
    return path


def expected(store: Path, query: dict[str, float], k: int) -> list[tuple[str, float]]:
    """Return docid and score of the best documents, from the store itself."""
    impacts = quantize_vector(query, 100)
    sums = {
        docid: sum(impacts[term] * vector[term] for term in impacts.keys() & vector.keys())
        for docid, vector in VectorStore.open(store).vectors()
    }
    ranked = sorted((-score, docid) for docid, score in sums.items() if score)
    return [(docid, float(np.float32(-score))) for score, docid in ranked[:k]]


def pairs(hits: Hits) -> list[tuple[str, float]]:
    """Return docid and score of hits."""
    return [(hit.docid, hit.score) for hit in hits]


def test_hits_are_the_exact_integer_scores_with_ties_by_docid(index: Path, store: Path) -> None:
    """Wherever k truncates equal scores, and however many threads search; unknown terms and empty queries are none."""
    with open_index(index).searcher() as searcher:
        for k, threads in ((1, 1), (2, 4), (7, 2), (50, 1), (ALL, 1)):
            found = searcher.search(QUERIES, k, threads=threads)
            assert [pairs(hits) for hits in found] == [expected(store, query, k) for query in QUERIES]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda _: searcher.search(QUERIES, 7), range(8)))
    assert {str([pairs(hits) for hits in found]) for found in together} == {
        str([expected(store, query, 7) for query in QUERIES])
    }
    with pytest.raises(MilcoError, match=f"{index} is closed: open it again"):
        searcher.search(QUERIES, 7)


def test_an_approximate_search_has_exact_scores(server: Server, index: Path, store: Path) -> None:
    """In two steps, of OpenSearch and Elasticsearch; where no term is weak, nothing is missed."""
    query, request = QUERIES[0], SearchRequest(5, approximate=True)
    exact = expected(store, query, ALL)
    with open_index(index).searcher({"prune_ratio": 0.9, "window_size": 100}) as searcher:
        if Capability.APPROXIMATE not in find_target(server[0]).capabilities:
            with pytest.raises(MilcoError, match="cannot trade recall for speed, elasticsearch and opensearch can"):
                searcher.rank([query], request)
            return
        hits = pairs(searcher.rank([query], request)[0])
        assert len(hits) == 5 and set(hits) <= set(exact) and hits == sorted(hits, key=lambda hit: (-hit[1], hit[0]))
        assert hits != exact[:5]
        assert pairs(searcher.search([query], 5)[0]) == exact[:5]
        with pytest.raises(MilcoError, match=r"k=101: .* up to window_size=100 hits, .* Set window_size=505"):
            searcher.validate(SearchRequest(101, approximate=True))
        # Steps, such as --remove-query, need more hits than the user gets.
        assert set(pairs(searcher.rank([query], SearchRequest(101, approximate=True))[0])) <= set(exact)
        strong = dict.fromkeys(query, 1.0)
        assert pairs(searcher.rank([strong], request)[0]) == expected(store, strong, 5)


def test_an_index_is_tuned_without_its_vectors(
    server: Server, store: Path, changed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The server searches exactly, too; runs record the recall, and --since keeps the settings, but not the recall."""
    if Capability.APPROXIMATE not in find_target(server[0]).capabilities:
        pytest.skip("only OpenSearch and Elasticsearch have approximate searches")
    monkeypatch.setattr("milco_pyserini.index.recall._SAMPLE_TOPICS", 3)
    name, path = next(NAMES), Path("index")
    assert fill(server, store, name, "--output", str(path)) == 0
    tune, topics = ["index", "tune", "--index", str(path), "--recall", ".99"], ["--topics", str(store)]
    assert main(tune) == 2
    assert "--topics is missing" in capsys.readouterr().err
    assert main([*tune, *topics]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["window_size", "prune_ratio", "recall@10", "milliseconds"]
    settings, recall = open_index(path).manifest.search_settings, open_index(path).manifest.recall
    assert [f"{settings[name]:g}" for name in ("window_size", "prune_ratio")] in [row.split()[:2] for row in rows]
    assert recall is not None and recall["recall@10"] >= 0.99
    assert main(tune) == 0
    Path("topics.jsonl").write_text(json.dumps({"id": "q1", "vector": QUERIES[0]}))
    search = f"search --index {path} --topics topics.jsonl --overwrite --output run.txt --k 10".split()
    for options, stated in (
        (["--approximate"], recall),
        (["--approximate", "--set", "prune_ratio=1"], None),
        ([], None),
    ):
        assert main([*search, *options]) == 0
        assert ("(approximate)" in capsys.readouterr().err) == ("--approximate" in options)
        record = read_run_record(Path("run.txt"))
        assert record is not None and record.options["approximate"] == bool(options)
        assert (record.indexes[0].recall is None) == (stated is None)
    assert fill(server, changed, name, "--since", str(store), "--output", str(path)) == 0
    assert open_index(path).manifest.search_settings == open_index(path).engine.settings(SEARCH)
    assert open_index(path).manifest.recall is None


def test_the_impacts_of_a_document_are_those_that_were_exported(index: Path, store: Path) -> None:
    """The impacts of the requested terms that it has; a document that the server lacks has none."""
    vectors = [(docid, vector) for docid, vector in VectorStore.open(store).vectors() if len(vector) > 3]
    with open_index(index).searcher() as searcher:
        for docid, vector in vectors[::20]:
            terms = ["w1", "no such term", *list(vector)[1:]]
            asked = {term: impact for term, impact in vector.items() if term in terms}
            assert searcher.weights(docid, terms) == asked
            assert searcher.weights(docid, []) == {}
        found = searcher.term_impacts([*(docid for docid, _ in vectors), "missing"], ["w1"])
        assert found == {docid: {"w1": vector["w1"]} if "w1" in vector else {} for docid, vector in vectors}
        assert searcher.weights("missing", ["w1"]) is searcher.weights("", ["w1"]) is None


def test_a_run_is_written(index: Path, store: Path, capsys: pytest.CaptureFixture) -> None:
    """By milco search, of encoded topics; milco verify knows the files of the index."""
    (Path("topics.jsonl")).write_text(json.dumps({"id": "q1", "vector": QUERIES[0]}))
    assert main(["search", "--index", str(index), "--topics", "topics.jsonl", "--k", "5", "--output", "-"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[2] for row in rows] == [docid for docid, _ in expected(store, QUERIES[0], 5)]
    assert main(["verify", str(index)]) == 0


def test_a_collection_that_was_changed_needs_its_new_index(
    server: Server, store: Path, changed: Path, capsys: pytest.CaptureFixture
) -> None:
    """--since replaces the directory; a copy of the old one would search with other terms or texts, and is refused."""
    name, path = next(NAMES), Path("index")
    assert fill(server, store, name, "--output", str(path)) == 0
    assert f"Wrote {path}" in capsys.readouterr().err
    written = (path / "manifest.json").stat().st_mtime_ns
    assert fill(server, store, name, "--output", str(path)) == 0
    assert f"{path} is up to date" in capsys.readouterr().err
    assert (path / "manifest.json").stat().st_mtime_ns == written
    shutil.copytree(path, "old")
    assert fill(server, changed, name, "--since", str(store), "--output", str(path)) == 0
    with open_index(path).searcher() as searcher:
        assert pairs(searcher.search(QUERIES[:1], 9)[0]) == expected(changed, QUERIES[0], 9)
    with pytest.raises(MilcoError, match=f"{name} of .* does not hold the vectors of old"):
        open_index("old").searcher()
    assert fill(server, store, next(NAMES), "--output", str(path)) == 2
    error = capsys.readouterr().err
    assert f"{path} was begun with collection {name}, not " in error and "start over with --overwrite" in error


def test_an_index_without_a_field_of_docids_is_completed_and_searched(server: Server, store: Path) -> None:
    """One that files were loaded into, or that an earlier version filled: its docids are _id."""
    require_elasticsearch(server)
    name, documents = next(NAMES), ExportJob(ImpactStore.open(store), "any")
    mapping = find_target(server[0]).mapping(f">{documents.statement}")
    send(server, "PUT", name, mapping)
    write(server, name, list(documents.changed())[::2])
    assert fill(server, store, name, "--output", "index") == 0
    with open_index("index").searcher() as searcher:
        assert pairs(searcher.search(QUERIES[:1], ALL)[0]) == expected(store, QUERIES[0], ALL)


def test_a_document_of_another_program_is_an_error(server: Server, store: Path) -> None:
    """In an index that has a field of docids, a hit without one has no name."""
    require_elasticsearch(server)
    name = next(NAMES)
    assert fill(server, store, name, "--output", "index") == 0
    first = next(iter(ImpactStore.open(store)))
    write(server, name, [first])
    with open_index("index").searcher() as searcher, pytest.raises(MilcoError, match="which another program wrote"):
        searcher.search([dict.fromkeys(first.terms, 1.0)], ALL)


def require_elasticsearch(server: Server) -> None:
    """Skip a test of what Elasticsearch and OpenSearch have in common."""
    if server[0] not in ("elasticsearch", "opensearch"):
        pytest.skip("others read the docid from its own column or payload")


def write(server: Server, index: str, vectors: list[ImpactDocument]) -> None:
    """Index documents as they are in the files of an export."""
    lines = [line for vector in vectors for line in ({"index": {"_id": vector.id}}, {"vector": vector.weights})]
    assert not send(server, "POST", f"{index}/_bulk?refresh", *lines)["errors"]


def send(server: Server, method: str, path: str, *lines: object) -> dict:
    """Return the answer to a request with lines of JSON."""
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server[1]}/{path}", content, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_a_damaged_directory_is_written_again(server: Server, store: Path, capsys: pytest.CaptureFixture) -> None:
    """By the same command, though its manifest is that of the collection."""
    name = next(NAMES)
    assert fill(server, store, name, "--output", "index") == 0
    Path("index/vocabulary.json").write_text("{}")
    assert fill(server, store, name, "--output", "index") == 0
    assert "Wrote index" in capsys.readouterr().err
    assert main(["verify", "index"]) == 0


def test_an_unreachable_server_is_one_line(
    index: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Its URL is that of the environment, whose password is not shown."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    scheme = "postgresql" if server[0] == "pgvector" else "http"
    monkeypatch.setenv(URL, f"{scheme}://me:secret@{place}")
    with pytest.raises(Unreachable, match=f"cannot connect to .* at {scheme}://me@{place}"):
        open_index(index).searcher()
    assert main(["search", "--index", str(index), "--query", "text"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_server_that_was_restarted_is_searched_again(
    postgres: tuple[str, Path], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one error; its URL may be parameters with white space."""
    psycopg = pytest.importorskip("psycopg", reason="needs psycopg (pip install '.[pgvector]')")
    assert fill(("pgvector", postgres[0]), store, "restarted", "--output", "restarted") == 0
    monkeypatch.setenv(URL, f"{postgres[0]}&application_name=milco")
    with open_index("restarted").searcher() as searcher:
        with psycopg.connect(postgres[0], autocommit=True) as other:
            other.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and "
                "datname = current_database()"
            )
        with pytest.raises(Unreachable, match="terminating connection"):
            searcher.search(QUERIES[:1], 9)
        assert pairs(searcher.search(QUERIES[:1], 9)[0]) == expected(store, QUERIES[0], 9)


@pytest.fixture
def elasticsearch() -> Iterator[str]:
    """The URL of a service."""
    pytest.importorskip("msgspec", reason="needs msgspec (pip install '.[elasticsearch]')")
    with search_service() as url:
        yield url


def test_no_password_is_written(
    elasticsearch: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Neither to the directory nor to the terminal; that of MILCO_URL is taken. A cluster has several URLs."""
    url = elasticsearch.replace("//", "//me:secret@")
    assert fill(("elasticsearch", url), store, "news", "--url", url.replace("127.0.0.1", "localhost")) == 0
    path = Path("indexes/news.elasticsearch")
    assert "secret" not in (path / "manifest.json").read_text() + capsys.readouterr().err
    assert open_index(path).manifest.urls[0] == elasticsearch.replace("//", "//me@")
    monkeypatch.setenv(URL, url)
    with open_index(path).searcher() as searcher:
        assert pairs(searcher.search(QUERIES[:1], 3)[0]) == expected(store, QUERIES[0], 3)


@pytest.mark.cluster
def test_an_alias_is_searched_and_never_filled(opensearch: Cluster, store: Path, capsys: pytest.CaptureFixture) -> None:
    """The name of a collection may become an alias of a copy of it."""
    server, name, copy = ("opensearch", opensearch.urls[0]), next(NAMES), next(NAMES)
    assert fill(server, store, name, "--output", "index") == 0
    opensearch.request("PUT", f"/{name}/_settings", {"index.blocks.write": True})
    opensearch.request("POST", f"/{name}/_clone/{copy}?wait_for_active_shards=1")
    opensearch.request("DELETE", f"/{name}")
    opensearch.request("POST", "/_aliases", {"actions": [{"add": {"index": copy, "alias": name}}]})
    with open_index("index").searcher() as searcher:
        assert pairs(searcher.search(QUERIES[:1], 3)[0]) == expected(store, QUERIES[0], 3)
    assert fill(server, store, name, "--output", "index") == 2
    assert f"{name} is an alias of {copy}" in capsys.readouterr().err
    opensearch.request("DELETE", f"/{copy}")
    with pytest.raises(MilcoError, match=f"{name} of .* does not exist"):
        open_index("index").searcher()


@pytest.mark.cluster
def test_more_hits_than_a_search_returns_are_read_by_scrolling(
    opensearch: Cluster, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request returns up to 10,000, and more may tie with the last one."""
    monkeypatch.setattr("milco_pyserini.export.elasticsearch_server.WINDOW", 20)
    assert fill(("opensearch", opensearch.urls[0]), store, next(NAMES), "--output", "index") == 0
    with open_index("index").searcher() as searcher:
        for k in (15, 30, ALL):
            assert [pairs(hits) for hits in searcher.search(QUERIES, k)] == [
                expected(store, query, k) for query in QUERIES
            ]


@pytest.mark.cluster
def test_fewer_hits_than_the_collection_has_are_an_error(opensearch: Cluster, store: Path) -> None:
    """A shard is missing, or a query has more terms than the server takes: one line each."""
    name = next(NAMES)
    template = {"index_patterns": [name], "template": {"settings": {"number_of_shards": 2, "number_of_replicas": 0}}}
    opensearch.request("PUT", "/_index_template/two", template)
    assert fill(("opensearch", opensearch.urls[0]), store, name, "--output", "index") == 0
    with open_index("index").searcher() as searcher:
        assert pairs(searcher.search(QUERIES[:1], 5)[0]) == expected(store, QUERIES[0], 5)
        opensearch.request("PUT", "/_cluster/settings", {"transient": {"indices.query.bool.max_clause_count": 3}})
        with pytest.raises(MilcoError, match=r"OpenSearch at .*Raise indices.query.bool.max_clause_count"):
            searcher.search(QUERIES[:1], 5)
        opensearch.request("PUT", "/_cluster/settings", {"transient": {"indices.query.bool.max_clause_count": None}})
        opensearch.request("PUT", f"/{name}/_settings", {"index.routing.allocation.enable": "none"})
        cancelled = {"index": name, "shard": 0, "node": "node0", "allow_primary": True}
        opensearch.request("POST", "/_cluster/reroute", {"commands": [{"cancel": cancelled}]})
        with pytest.raises(MilcoError, match=r"OpenSearch at .*shards of the index are missing. Start the nodes"):
            searcher.search(QUERIES[:1], 5)
