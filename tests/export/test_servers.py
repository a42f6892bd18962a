"""The contract of filling a running server; search_servers.py has the servers."""

import json
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from search_servers import NEEDS, fill
from search_service import search_service
from synthetic_stores import write_store

from milco_pyserini.cli.main import main
from milco_pyserini.errors import MilcoError
from milco_pyserini.export import ExportJob, find_target
from milco_pyserini.export.access import Access, public_url
from milco_pyserini.export.protocol import Collection, ImpactStore
from milco_pyserini.sparse import VectorStore


def test_a_server_is_filled_and_checked(
    server: tuple[str, str], store: Path, changed: Path, capsys: pytest.CaptureFixture
) -> None:
    """All scores are those of exact search; --since turns one store into another or itself, once more without harm."""
    assert fill(server, store, "filled", "--topics", str(changed)) == 0
    first = capsys.readouterr().err
    queries = re.search(r"Checked: the 10 best scores of (\d+) queries", first)
    assert queries is not None and int(queries[1]) > 70
    for _ in range(2):
        assert fill(server, changed, "filled", "--since", str(store)) == 0
        err = capsys.readouterr().err
        assert "Checked: the 10 best scores" in err and "2 documents to delete" in err
    assert fill(server, changed, "filled", "--since", str(changed)) == 0


def test_a_killed_run_is_resumed(
    server: tuple[str, str], store: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """By the same command in another process; documents that the server has are not written again."""
    target, url = server
    # Milvus Lite lets one process at a time open a file.
    url = url if "://" in url else str(tmp_path / "killed.db")
    assert subprocess.run([sys.executable, "-c", _KILLED, target, url, str(store)], check=False).returncode == 9
    assert fill((target, url), store, "killed") == 0
    assert "Checked: the 10 best scores" in capsys.readouterr().err
    connected = find_target(target).connect(Access((url,)), ExportJob(ImpactStore.open(store), "killed").place)
    docids = [docid for docid, vector in VectorStore.open(store).vectors() if vector]
    assert connected.stated() == ImpactStore.open(store).fingerprint
    assert connected.present([*docids, "missing"]) == set(docids)
    connected.client.close()


_KILLED = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from milco_pyserini.export import ExportJob, find_target
from milco_pyserini.export.access import Access
from milco_pyserini.export.protocol import ImpactStore
name, url, store = sys.argv[1:]
export = ExportJob(ImpactStore.open(Path(store)), "killed")
server = find_target(name).connect(Access((url,)), export.place)
assert server.stated() is None
server.create(">" + export.documents.fingerprint)
server.write([vector for vector in export.changed()][::2])
os._exit(9)
"""


def test_shards_of_the_documents_fill_one_collection(
    server: tuple[str, str], store: Path, changed: Path, capsys: pytest.CaptureFixture
) -> None:
    """In any order, each by a command of its own: the one after which all documents are there completes it."""
    for number in (1, 0):
        assert fill(server, store, "shared", "--shard-id", str(number), "--shard-num", "2") == 0
        err = capsys.readouterr().err
        assert ("Checked: the 10 best scores" in err) == (number == 0)
        assert ("of 156 documents: the last of the 2 shards completes it" in err) == (number == 1)
    assert fill(server, store, "shared") == 0
    assert fill(server, changed, "shared", "--since", str(store), "--shard-id", "1", "--shard-num", "2") == 2
    assert "Omit --shard-num" in capsys.readouterr().err


def test_a_shard_whose_documents_are_all_empty_is_no_error(
    server: tuple[str, str], store: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """In any order: commands for the shards of a store do not know what is in them."""
    ids, batch = VectorStore.open(store).load()
    order = batch.lengths().argsort()
    empty = int((batch.lengths() == 0).sum())
    path = write_store(
        tmp_path / "v", [ids[place] for place in order[: 2 * empty]], batch.take(order[: 2 * empty]), empty
    )
    for shards in ((0, 1), (1, 0)):
        for number in shards:
            options = ["--shard-id", str(number), "--shard-num", "2"]
            assert fill(server, path, f"first_{shards[0]}", *options) == 0
        assert "Checked: the 10 best scores" in capsys.readouterr().err


def test_an_interrupted_run_is_completed_by_no_other(
    server: tuple[str, str], store: Path, changed: Path, capsys: pytest.CaptureFixture
) -> None:
    """With --since, the collection has documents of both stores: neither describes it."""
    write_half(server, ExportJob(ImpactStore.open(store), "halved"))
    assert fill(server, changed, "halved", "--since", str(store)) == 2
    assert "is incomplete: another export was interrupted. Run that command again first" in capsys.readouterr().err
    assert fill(server, store, "halved") == 0
    write_half(server, ExportJob(ImpactStore.open(changed), "halved", since=ImpactStore.open(store)))
    capsys.readouterr()
    for path, options in ((store, []), (changed, []), (store, ["--since", str(changed)])):
        assert fill(server, path, "halved", *options) == 2
        assert "is incomplete: another export was interrupted" in capsys.readouterr().err
    assert fill(server, changed, "halved", "--since", str(store)) == 0
    assert "Checked: the 10 best scores" in capsys.readouterr().err


def write_half(server: tuple[str, str], export: ExportJob) -> None:
    """Leave what a run leaves that is interrupted after half of its documents."""
    target, url = server
    connected = find_target(target).connect(Access((url,)), export.place)
    before = "" if export.since is None else export.since.fingerprint
    state = connected.create if export.since is None else connected.state
    state(f"{before}>{export.documents.fingerprint}")
    connected.write(list(export.changed())[::2])
    connected.client.close()


def test_a_collection_with_other_vectors_is_never_changed(
    server: tuple[str, str], store: Path, changed: Path, capsys: pytest.CaptureFixture
) -> None:
    """The error names the ways out; --since needs the collection. Nothing states that milco export made another's."""
    assert fill(server, store, "taken") == 0
    make_foreign(*server, "foreign")
    for arguments, message in (
        ((changed, "taken"), "--collection"),
        ((changed, "missing", "--since", str(store)), "--since needs missing"),
        ((store, "foreign"), "milco export did not make it"),
    ):
        assert fill(server, *arguments) == 2
        assert message in capsys.readouterr().err


def make_foreign(target: str, url: str, name: str) -> None:
    """Make a collection with the client itself."""
    if target == "pgvector":
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute(f'create table "{name}" (docid text, vector text)')
    elif target == "qdrant":
        import qdrant_client

        client = qdrant_client.QdrantClient(url) if "://" in url else qdrant_client.QdrantClient(path=url)
        client.create_collection(name, {})
        client.close()
    elif target == "milvus":
        import pymilvus

        client = pymilvus.MilvusClient(url)
        client.create_collection(name, dimension=4)
        client.close()
    else:
        body = json.dumps({"mappings": {"properties": {}}}).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{url}/{name}", body, headers, method="PUT")).close()


@pytest.mark.parametrize("target", NEEDS)
def test_an_unreachable_server_is_one_line(
    target: str, store: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the password of the URL, and before any work."""
    for module in NEEDS[target]:
        pytest.importorskip(module, reason=f"needs {module}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scheme = "postgresql" if target == "pgvector" else "http"
    assert fill((target, f"{scheme}://me:secret@127.0.0.1:{port}"), store, "any") == 2
    err = capsys.readouterr().err
    assert f"cannot connect to {find_target(target).title} at {scheme}://me@127.0.0.1:{port}" in err
    assert "secret" not in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "about", "message"),
    [
        ("elasticsearch", {"number": "8.18.3"}, "this is Elasticsearch 8.18.3: 8.19 or 9.1 or later is needed"),
        ("elasticsearch", {"number": "9.0.8"}, "this is Elasticsearch 9.0.8"),
        ("opensearch", {"distribution": "opensearch", "number": "2.13.0"}, "this is OpenSearch 2.13.0: 2.14 or"),
        ("opensearch", {"distribution": "other"}, "this is other 9.1.0, not OpenSearch"),
        ("opensearch", {}, "this is Elasticsearch 9.1.0, not OpenSearch. Use milco export --to elast"),
        ("elasticsearch", {"distribution": "opensearch"}, "this is OpenSearch 9.1.0, not Elasticsearch."),
    ],
)
def test_an_old_server_is_refused(
    target: str, about: dict[str, str], message: str, store: Path, capsys: pytest.CaptureFixture
) -> None:
    """Before anything is written."""
    pytest.importorskip(NEEDS[target][0])
    with search_service(**about) as url:
        assert fill((target, url), store, "any") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("http://localhost:6333", "http://localhost:6333"),
        ("http://me@corp.example:S3cretPw@h:9200/es", "http://me%40corp.example@h:9200/es"),
        ("https://TOKEN@h", "https://h"),
        ("http://h/?token=S3cretPw#S3cretPw", "http://h/"),
        ("http://admin:S3c ret@h", "http://admin@h"),
        ("postgresql://u:p%2Fw@127.0.0.1:1/x", "postgresql://u@127.0.0.1:1/x"),
        ("postgresql://u@/x?host=%2Ftmp%2Fpg&passw%6Frd=S3cret&PASSWORD=x", "postgresql://u@/x?host=%2Ftmp%2Fpg"),
        ("data/local", "data/local"),
    ],
)
def test_a_url_is_shown_and_stored_without_secrets(url: str, public: str) -> None:
    """Scheme, user, host, port and path are kept; a user without a password may be a token."""
    assert public_url(url) == public


@pytest.mark.parametrize(
    "url",
    [
        "admin:S3cretPw@h:9200",
        "http://u:S3cret/Pw@h",
        "http://u:12/S3cretPw@h",
        "http://u:S3cret?Pw@h",
        "host=h password='S3cret\\'s x'",
    ],
)
def test_a_url_that_may_hide_a_secret_is_refused_without_showing_it(url: str) -> None:
    """The message states the form of a URL."""
    with pytest.raises(MilcoError, match=r"scheme|of the form") as failure:
        public_url(url)
    assert "S3cret" not in str(failure.value)


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("localhost:6333", [], "--url localhost:6333"),
        (".", [], "--url ."),
        ("", [], "--url is empty. Give the URL of a running server"),
        ("local", ["--shards", "2"], "cannot have several nodes, shards and replicas, elasticsearch and opensearch"),
        ("local", ["--replicas", "2"], "cannot have several nodes, shards and replicas, elasticsearch and opensearch"),
    ],
)
def test_what_does_not_fit_a_server_is_refused(
    url: str, options: list[str], message: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Qdrant's local mode would write to any directory; shards and replicas are not of files, nor of every server."""
    pytest.importorskip("qdrant_client", reason="needs qdrant_client (pip install '.[qdrant]')")
    assert fill(("qdrant", str(tmp_path / url) if url == "local" else url), store, "any", *options) == 2
    assert message in capsys.readouterr().err
    if options:
        command = ["export", "--to", "opensearch", "--vectors", str(store), "--output", str(tmp_path / "out")]
        assert main([*command, *options]) == 2
        assert f"{options[0]} requires --url" in capsys.readouterr().err


def test_a_missing_client_names_the_package(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The extra of the target."""
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    assert fill(("qdrant", "http://127.0.0.1"), store, "any") == 2
    assert "qdrant_client" in capsys.readouterr().err


def test_topics_without_known_terms_are_reported(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The collection is complete; its scores cannot be compared."""
    pytest.importorskip("qdrant_client", reason="needs qdrant_client (pip install '.[qdrant]')")
    ids, batch = VectorStore.open(store).load()
    empty = next(place for place, length in enumerate(batch.lengths().tolist()) if not length)
    topics = write_store(tmp_path / "topics", [ids[empty]], batch.take([empty]))
    assert fill(("qdrant", str(tmp_path / "local")), store, "any", "--topics", str(topics)) == 2
    assert "is complete, but its scores were not compared: 1 topic of" in capsys.readouterr().err
    assert fill(("qdrant", str(tmp_path / "none")), topics, "any") == 2
    assert "holds no document with a term: nothing to export" in capsys.readouterr().err


def test_certificates_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With https only."""
    pytest.importorskip("httpcore", reason="needs httpcore (pip install '.[elasticsearch]')")
    (tmp_path / "ca.pem").write_text("none")
    for file in ("missing.pem", str(tmp_path / "ca.pem")):
        monkeypatch.setenv("SSL_CERT_FILE", file)
        with pytest.raises(MilcoError, match=f"SSL_CERT_FILE={file}"):
            find_target("elasticsearch").connect(Access(("https://search.example.org",)), Collection("any", 1))
