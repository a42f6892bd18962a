"""Who receives a key, and how long a server is waited for."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from opensearch_cluster import Cluster
from search_proxy import search_proxy
from search_servers import fill
from search_service import search_service

from milco_pyserini.cli.main import main
from milco_pyserini.errors import MilcoError, Unreachable
from milco_pyserini.export.access import API_KEY, URL, Access, deadline
from milco_pyserini.index import open_index
from milco_pyserini.io.manifest import MANIFEST, read_checked, write_checked
from milco_pyserini.sparse import VectorStore

pytest.importorskip("msgspec", reason="needs msgspec (pip install '.[elasticsearch]')")
from milco_pyserini.export.faults import FAULTS, ServerError, server_errors
from milco_pyserini.export.rest import Rest


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration directory of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def scripted() -> Iterator[Callable[..., str]]:
    """Start servers: each answers every request by a function of its handler, and yields its URL."""
    servers = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        handler = type("Handler", (BaseHTTPRequestHandler,), {"do_GET": answer, "do_POST": answer})
        handler.log_message = lambda *_: None
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_key_goes_only_to_servers_that_the_user_named_or_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL in an index directory is that of whoever wrote it."""
    monkeypatch.setenv(API_KEY, "TOPSECRET")
    assert Access.found(["http://evil:9200"]).key is None
    Access.named(["https://me:secret@mine:9200"]).remember()
    assert Access.found(["https://me@mine:9200"]).key == "TOPSECRET"
    assert Access.found(["https://me@mine:9200", "http://evil"]).key is None
    assert Access.found(["http://mine:9200"]).key is None
    monkeypatch.setenv(URL, "http://evil:9200 http://me:S3c ret@other")
    assert Access.found(["https://mine:9200"]) == Access(("http://evil:9200", "http://me:S3c ret@other"), "TOPSECRET")


def test_a_search_creates_nothing(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """An index directory of somebody else may name any path."""
    pytest.importorskip("qdrant_client", reason="needs qdrant_client (pip install '.[qdrant]')")
    assert fill(("qdrant", str(tmp_path / "local")), store, "any", "--output", "index") == 0
    manifest = read_checked(Path("index", MANIFEST))
    write_checked(Path("index", MANIFEST), manifest | {"urls": [str(tmp_path / "created/deep")]})
    capsys.readouterr()
    assert main(["search", "--index", "index", "--topics", str(store), "--output", "-"]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "created").exists()


def test_documents_that_others_deleted_are_reported(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The manifest has their number."""
    with search_service() as url:
        assert fill(("elasticsearch", url), store, "any", "--output", "index") == 0
        docid = next(docid for docid, vector in VectorStore.open(store).vectors() if vector)
        rest = Rest(Access((url,)))
        rest.request("POST", "/any/_bulk", dict, json.dumps({"delete": {"_id": docid}}).encode() + b"\n")
        rest.close()
        open_index("index").searcher().close()
    assert "holds 155 documents, index lists 156" in caplog.text


@pytest.mark.parametrize(
    "part", [b"", b"HTTP/1.1 200 OK\r\nContent-", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
)
def test_an_answer_that_does_not_come_ends_at_the_deadline(part: bytes, scripted: Callable[..., str]) -> None:
    """Before its first byte, within its head or its body, however slowly it comes."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(part)
        for _ in range(100 if part else 0):
            handler.wfile.write(b" " if part.endswith(b"{") else b"x")
            time.sleep(0.1)
        time.sleep(0 if part else 10)

    rest, started = Rest(Access((scripted(drip),))), time.monotonic()
    with (
        pytest.raises(Unreachable, match="does not answer in time"),
        server_errors("x", "", Unreachable),
        deadline(0.5),
    ):
        rest.request("GET", "/", dict)
    assert time.monotonic() - started < 5


def test_another_node_answers_for_one_that_hangs(scripted: Callable[..., str]) -> None:
    """The one that hung is asked last from then on."""
    asked: list[int] = []

    def hang(handler: BaseHTTPRequestHandler) -> None:
        asked.append(1)
        time.sleep(10)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        handler.wfile.write(b"{}")

    rest = Rest(Access((scripted(hang), scripted(answer))))
    for _ in range(4):
        with deadline(2):
            assert rest.request("GET", "/", dict) == {}
    assert len(asked) == 1


def test_a_busy_server_is_waited_for_until_the_deadline(scripted: Callable[..., str]) -> None:
    """A search waits as a fill does; then the error names the status."""
    rest = Rest(Access((scripted(lambda handler: handler.send_error(429)),)))
    with pytest.raises(Unreachable, match="it is busy"), server_errors("x", "", Unreachable), deadline(0.5):
        rest.request("GET", "/", dict)


@pytest.mark.parametrize(
    ("status", "kind", "reason", "fix"),
    [
        (401, "security_exception", "missing authentication", "Check user and password"),
        (400, "index_closed_exception", "closed", "_open"),
        (503, "search_phase_execution_exception", "all shards failed", "Start the nodes"),
        (400, "search_phase_execution_exception", "all shards failed: out of range for a long", ""),
        (413, "", "status 413", "http.max_content_length"),
        (403, "cluster_block_exception", "blocked by: [FORBIDDEN/5/index read-only (api)];", "Remove the block"),
        (503, "cluster_manager_not_discovered_exception", "null", "Start the nodes"),
        (302, "redirect", "it redirects to http://other/", "URL of the server itself"),
    ],
)
def test_each_fault_has_its_own_fix(status: int, kind: str, reason: str, fix: str) -> None:
    """A node that stopped is not the cause of a bad filter, and no fix is better than a wrong one."""
    with pytest.raises(MilcoError) as failure, server_errors("OpenSearch", "put its URL into"):
        raise ServerError(reason, kind, status)
    assert fix in failure.value.hint and bool(fix) == bool(failure.value.hint)
    assert "put its URL into" not in str(failure.value)


def test_faults_format() -> None:
    """Every row of the table renders, with and without the advice to resume."""
    for _, _, fix in FAULTS:
        assert "{" not in fix.format(again="Run the same command again: it resumes.")


def test_replicas_need_nodes(store: Path, capsys: pytest.CaptureFixture) -> None:
    """More than the cluster can ever assign are refused, for a new index and for one that exists."""
    with search_service() as url:
        for _ in range(2):
            assert fill(("elasticsearch", url), store, "any", "--replicas", "99") == 2
            assert "--replicas 99" in capsys.readouterr().err
            assert fill(("elasticsearch", url), store, "any") == 0


def test_a_server_that_fails_while_an_index_is_opened_is_one_line(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a damaged directory, whichever of the requests fails."""
    with search_service() as url:
        assert fill(("elasticsearch", url), store, "any", "--output", "index") == 0
        for part in ("/_count", "/_cluster/settings"):
            with search_proxy(url, lambda _, path, part=part: 500 if part in path else None) as proxy:
                monkeypatch.setenv(URL, f"http://{proxy}")
                with pytest.raises(MilcoError, match=f"Elasticsearch at http://{proxy}: status 500"):
                    open_index("index").searcher()


def test_no_secret_is_in_a_representation() -> None:
    """Tracebacks and logs of a program show objects."""
    assert "secret" not in repr(Access(("http://me:secret@h",), "secret"))


@pytest.mark.cluster
def test_a_query_with_more_terms_than_the_server_takes_keeps_the_strongest(
    opensearch: Cluster, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other queries of the run are answered, and one warning at the end names how many were truncated."""
    server = ("opensearch", opensearch.urls[0])
    setting = "indices.query.bool.max_clause_count"
    assert fill(server, store, "truncated", "--output", "index") == 0
    opensearch.request("PUT", "/_cluster/settings", {"persistent": {setting: 3}})
    try:
        with open_index("index").searcher() as searcher:
            long = {"w1": 3.0, "w2": 2.0, "w3": 1.0, "w4": 0.5, "w5": 0.1}
            best, strongest = searcher.search([long, {name: long[name] for name in ("w1", "w2", "w3")}], 9)
            assert best.docids == strongest.docids and np.array_equal(best.scores, strongest.scores)
    finally:
        opensearch.request("PUT", "/_cluster/settings", {"persistent": {setting: None}})
    assert "1 query had more than the 3 terms" in caplog.text
