"""The contract of filling a real OpenSearch: settings while it is loaded, and one line for each fault."""

import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from opensearch_cluster import Cluster
from search_proxy import search_proxy
from synthetic_stores import write_store

from milco_pyserini.cli.main import main
from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.export import ExportJob, find_target, server
from milco_pyserini.export.access import Access
from milco_pyserini.export.protocol import ImpactStore
from milco_pyserini.io.files import write_json
from milco_pyserini.sparse import SparseBatch, VectorStore, Vocabulary

pytestmark = pytest.mark.cluster
pytest.importorskip("msgspec", reason="needs msgspec (pip install '.[opensearch]')")


@pytest.fixture
def index(request: pytest.FixtureRequest) -> str:
    """A name of an index that is the test's own."""
    return request.node.name[:50]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory in which the indexes of filled collections are written."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def failed(capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """Return a function that fills an index, and returns the one line of the error."""

    def run(*arguments: object) -> str:
        assert fill(*arguments) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
        assert len(lines) == 1
        return lines[0]

    return run


def fill(url: object, path: object, index: object, *more: object) -> int:
    """Run milco export --url; return its exit code."""
    given = ["--to", "opensearch", "--vectors", path, "--url", url, "--collection", index, *more]
    return main(["export", *map(str, given)])


def settings_of(opensearch: Cluster, index: str) -> tuple[str | None, ...]:
    """Return the number of replicas and the refresh interval of an index."""
    settings = opensearch.request("GET", f"/{index}?flat_settings=true")[index]["settings"]
    return tuple(settings.get(f"index.{name}") for name in ("number_of_replicas", "refresh_interval"))


def test_an_index_has_no_replica_and_no_refresh_while_it_is_loaded(
    opensearch: Cluster, store: Path, index: str, capsys: pytest.CaptureFixture
) -> None:
    """It then has those that an index template gives it, and the shards that were asked for."""
    template = {
        "index_patterns": [index],
        "template": {"settings": {"number_of_replicas": 2, "refresh_interval": "30s"}},
    }
    opensearch.request("PUT", f"/_index_template/{index}", template)
    loading = set()

    def watch(method: str, path: str) -> None:
        if path.endswith("/_bulk"):
            loading.add(settings_of(opensearch, index))

    with search_proxy(opensearch.urls[0], watch) as proxy:
        assert fill(f"http://{proxy}", store, index, "--shards", "3") == 0
    assert loading == {("0", "-1")}
    assert settings_of(opensearch, index) == ("2", "30s")
    about = opensearch.request("GET", f"/{index}?flat_settings=true")[index]
    assert about["settings"]["index.number_of_shards"] == "3"
    assert about["settings"]["index.codec"] == "best_compression"
    assert about["mappings"]["_meta"] == {"milco": ImpactStore.open(store).fingerprint}
    assert "159 documents of about" in capsys.readouterr().err


def test_the_run_that_completes_an_index_restores_its_settings(
    opensearch: Cluster, store: Path, index: str, failed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an interruption; what was set meanwhile is kept, unless the command asks for something else."""
    monkeypatch.setattr(server, "BATCH", 20)
    requests = []

    def cut_off(method: str, path: str) -> None:
        requests.append(path)
        if sum(path.endswith("/_bulk") for path in requests) > 3:
            raise ConnectionError

    with search_proxy(opensearch.urls[0], cut_off) as proxy:
        assert "Run the same command again: it resumes." in failed(f"http://{proxy}", store, index)
    assert settings_of(opensearch, index) == ("0", "-1")
    opensearch.request("PUT", f"/{index}/_settings", {"index": {"refresh_interval": "7s"}})
    opensearch.request("PUT", f"/{index}/_mapping", {"_meta": meta_of(opensearch, index) | {"owner": "me"}})
    assert fill(opensearch.urls[0], store, index) == 0
    assert settings_of(opensearch, index) == ("1", "7s")
    assert meta_of(opensearch, index) == {"milco": ImpactStore.open(store).fingerprint, "owner": "me"}
    assert fill(opensearch.urls[0], store, index, "--replicas", "0") == 0
    assert settings_of(opensearch, index) == ("0", "7s")
    assert "--shards 2: " in failed(opensearch.urls[0], store, index, "--shards", "2")


def meta_of(opensearch: Cluster, index: str) -> dict:
    """Return the _meta of the mapping."""
    return opensearch.request("GET", f"/{index}")[index]["mappings"]["_meta"]


def test_settings_that_are_changed_while_an_index_is_loaded_are_kept(
    opensearch: Cluster, store: Path, index: str, capsys: pytest.CaptureFixture
) -> None:
    """A line names them."""

    def change(method: str, path: str) -> None:
        if path.endswith("/_bulk"):
            opensearch.request("PUT", f"/{index}/_settings", {"index": {"number_of_replicas": 3}})

    with search_proxy(opensearch.urls[0], change) as proxy:
        assert fill(f"http://{proxy}", store, index) == 0
    assert settings_of(opensearch, index) == ("3", None)
    assert f"{index} keeps number_of_replicas 3, which was set while it was filled" in capsys.readouterr().err


def test_changes_leave_the_settings_of_an_index_alone(
    opensearch: Cluster, store: Path, changed: Path, index: str
) -> None:
    """With --since it may be searched meanwhile."""
    assert fill(opensearch.urls[0], store, index) == 0
    seen = set()

    def watch(method: str, path: str) -> None:
        if path.endswith("/_bulk"):
            seen.add(settings_of(opensearch, index))

    with search_proxy(opensearch.urls[0], watch) as proxy:
        assert fill(f"http://{proxy}", changed, index, "--since", store) == 0
    assert seen == {("1", None)}


def test_a_busy_cluster_is_waited_for(opensearch: Cluster, store: Path, index: str) -> None:
    """It answers 429 to requests that are too many."""
    answers = iter([429])

    def busy(method: str, path: str) -> int | None:
        return next(answers, None) if path.endswith("/_bulk") else None

    with search_proxy(opensearch.urls[0], busy) as proxy:
        assert fill(f"http://{proxy}", store, index) == 0
    assert next(answers, "answered") == "answered"


def test_passwords_and_a_certificate_authority_of_ones_own(
    opensearch: Cluster, store: Path, index: str, tmp_path: Path, failed: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each error names what to set, and shows no password."""
    certificate, key = str(tmp_path / "ca.pem"), str(tmp_path / "key.pem")
    about = ["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, *about]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with search_proxy(opensearch.urls[0], password="me:right", context=context) as proxy:
        assert "CERTIFICATE_VERIFY_FAILED" in (error := failed(f"https://me:right@{proxy}", store, index))
        assert "set SSL_CERT_FILE to the authority's certificate" in error and "right" not in error
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert "Unauthorized. Check user and password" in (error := failed(f"https://me:wrong@{proxy}", store, index))
        assert f"https://me@{proxy}" in error and "wrong" not in error
        assert fill(f"https://me:right@{proxy}", store, index) == 0


def test_a_missing_shard_is_one_line(
    opensearch: Cluster, store: Path, changed: Path, index: str, failed: Callable[..., str]
) -> None:
    """With the same command again, and with changes; once it is back, both complete."""
    assert fill(opensearch.urls[0], store, index, "--shards", "2") == 0
    # With none it stays without a node.
    recoveries = "cluster.routing.allocation.node_initial_primaries_recoveries"
    opensearch.request("PUT", "/_cluster/settings", {"transient": {recoveries: 0}})
    try:
        cancelled = {"index": index, "shard": 0, "node": "node0", "allow_primary": True}
        opensearch.request("POST", "/_cluster/reroute", {"commands": [{"cancel": cancelled}]})
        assert "shards of the index are missing. Start the nodes" in failed(opensearch.urls[0], store, index)
    finally:
        opensearch.request("PUT", "/_cluster/settings", {"transient": {recoveries: None}})
    opensearch.request("GET", f"/_cluster/health/{index}?wait_for_no_initializing_shards=true&wait_for_status=yellow")
    assert fill(opensearch.urls[0], store, index) == 0
    assert fill(opensearch.urls[0], changed, index, "--since", store) == 0


def test_a_full_disk_is_one_line(
    opensearch: Cluster, store: Path, changed: Path, index: str, failed: Callable[..., str]
) -> None:
    """OpenSearch blocks the index; without the block the same command completes it."""
    assert fill(opensearch.urls[0], store, index) == 0
    block = "index.blocks.read_only_allow_delete"
    opensearch.request("PUT", f"/{index}/_settings", {block: True})
    error = failed(opensearch.urls[0], changed, index, "--since", store)
    assert "disk usage exceeded flood-stage watermark" in error and f"set {block} to null" in error
    opensearch.request("PUT", f"/{index}/_settings", {block: None})
    assert fill(opensearch.urls[0], changed, index, "--since", store) == 0


def test_documents_that_are_refused_are_one_line(
    opensearch: Cluster, store: Path, index: str, failed: Callable
) -> None:
    """The first of them, and why."""

    def block(method: str, path: str) -> None:
        if path.endswith("/_bulk"):
            opensearch.request("PUT", f"/{index}/_settings", {"index.blocks.read_only": True})

    with search_proxy(opensearch.urls[0], block) as proxy:
        error = failed(f"http://{proxy}", store, index)
    assert ": document '" in error and "index read-only (api)]" in error and "{" not in error
    opensearch.request("PUT", f"/{index}/_settings", {"index.blocks.read_only": None})
    assert fill(opensearch.urls[0], store, index) == 0


def test_fields_that_the_server_refuses_are_one_line(
    opensearch: Cluster, store: Path, index: str, failed: Callable[..., str], tmp_path: Path
) -> None:
    """Nothing is left at the server, and no one is asked to run the same command again."""
    ids, batch = VectorStore.open(store).load()
    documents = [Document(docid, "", "t", {"a": 1, "a.b": 2}) for docid in ids]
    stored = write_store(tmp_path / "stored", ids, batch, documents=documents)
    error = failed(opensearch.urls[0], stored, index, "--store")
    assert "mapper [a] cannot be changed" in error and "resumes" not in error
    assert index not in opensearch.request("GET", "/_aliases")


def test_an_alias_and_another_mapping_are_refused(
    opensearch: Cluster, store: Path, index: str, failed: Callable[..., str]
) -> None:
    """The error names the index of the alias."""
    assert fill(opensearch.urls[0], store, index) == 0
    opensearch.request("PUT", f"/{index}/_alias/{index}_alias")
    assert f"{index}_alias is an alias of {index}. Choose another --collection" in failed(
        opensearch.urls[0], store, f"{index}_alias"
    )
    opensearch.request("PUT", f"/{index}/_mapping", {"properties": {"title": {"type": "text"}}})
    assert "milco export did not make it or its schema was changed" in failed(opensearch.urls[0], store, index)


def test_the_commands_of_an_export_load_its_files(opensearch: Cluster, store: Path, index: str, tmp_path: Path) -> None:
    """The server unpacks them; milco export finds nothing to add, and checks the scores."""
    command = ["export", "--to", "opensearch", "--vectors", str(store), "--collection", index, "--output"]
    assert main([*command, str(tmp_path / "out"), "--topics", str(store)]) == 0
    readme = (tmp_path / "out/README.md").read_text("utf-8")
    commands = readme.split("```sh\n")[1].split("```")[0].replace("http://localhost:9200", opensearch.urls[0])
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path / "out", check=True, capture_output=True)
    assert meta_of(opensearch, index) == {"milco": ImpactStore.open(store).fingerprint}
    assert fill(opensearch.urls[0], store, index) == 0


def test_a_query_with_too_many_terms_is_one_line(
    opensearch: Cluster, index: str, tmp_path: Path, failed: Callable[..., str]
) -> None:
    """The error names the setting of the cluster."""
    vocabulary = Vocabulary([f"w{number}" for number in range(1025)], [])
    batch = SparseBatch(
        np.array([0, 1025]), np.arange(1025, dtype=np.int32), np.ones(1025, np.float32), 1025, vocabulary
    )
    path = write_store(tmp_path / "v", ["d"], batch, parquet=True)
    write_json(path / "vocabulary.json", vocabulary.to_json())
    error = failed(opensearch.urls[0], path, index, "--topics", path)
    assert "maxClauseCount is set to 1024. Raise indices.query.bool.max_clause_count" in error


def test_several_machines_fill_one_index(opensearch: Cluster, store: Path, index: str) -> None:
    """At the same time, each a shard of the documents: the last one completes it, with its settings restored."""
    target, errors, access = find_target("opensearch"), [], Access((opensearch.urls[0],))

    def run(number: int) -> None:
        try:
            server.fill(ExportJob(ImpactStore.open(store), index, shard_id=number, shard_num=2), target, access)
        except MilcoError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert meta_of(opensearch, index) == {"milco": ImpactStore.open(store).fingerprint}
    assert settings_of(opensearch, index) == ("1", None)


def test_a_killed_node_loses_nothing(
    opensearch: Cluster, store: Path, index: str, failed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is back, the same command completes the index."""
    monkeypatch.setattr(server, "BATCH", 20)
    sent = []

    def kill(method: str, path: str) -> None:
        sent.append(path)
        if sum(path.endswith("/_bulk") for path in sent) == 4:
            opensearch.kill(0)

    try:
        with search_proxy(opensearch.urls[0], kill) as proxy:
            assert "Run the same command again: it resumes." in failed(f"http://{proxy}", store, index)
    finally:
        opensearch.start(0)
        opensearch.wait()
    opensearch.request("GET", f"/_cluster/health/{index}?wait_for_status=yellow")
    assert fill(opensearch.urls[0], store, index) == 0
