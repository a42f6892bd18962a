"""milco serve and an index that changes: the new one answers without a failed request, a damaged one never does."""

import asyncio
import gc
import json
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from fastapi.testclient import TestClient
from golden_set import encoder
from served_set import searcher

from milco_pyserini.corpora import Document
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.index import Index
from milco_pyserini.request import SearchRequest
from milco_pyserini.serve import service as service_module
from milco_pyserini.serve.app import create_app
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.service import SearchService

HOST = "127.0.0.1:8000"
OLD = {"nile": "The river Nile flows north.", "stone": "Stones of the river lie here."}
NEW = {"nile": "The river Nile flows through Egypt.", "volga": "The river Volga flows to the sea.", "sea": "A sea."}


@pytest.fixture(autouse=True)
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at manifests often."""
    monkeypatch.setattr(service_module, "WATCH_SECONDS", 0.05)


def own_encoder() -> MilcoEncoder:
    """Return the encoder of the indexes, loaded once."""
    return searcher().query_encoder.encoder  # type: ignore[union-attr]


def build(path: Path, texts: dict[str, str], engine: str = "exact", by: MilcoEncoder | None = None) -> Index:
    """Build an index of texts, or replace it."""
    by = by or own_encoder()
    documents = [Document(docid, docid.title(), text, {"lang": "en"}) for docid, text in texts.items()]
    vectors = by.encode_document([document.contents for document in documents])
    return Index.build(vectors, path, engine, ids=documents, encoder=by, overwrite=True)


def opened(path: Path) -> IndexSnapshot:
    """Open an index."""
    return IndexSnapshot.open(path, encoder=own_encoder())


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens in another thread."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def test_a_manifest_that_cannot_be_read_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without descriptors, for example."""
    build(tmp_path / "index", OLD)
    has_changed, errors = IndexSnapshot.has_changed, [OSError("Too many open files")]
    monkeypatch.setattr(IndexSnapshot, "has_changed", lambda self: raise_first(errors) or has_changed(self))
    with closing(SearchService(opened(tmp_path / "index"))) as service, TestClient(create_app(service)):
        until(lambda: not errors)
        build(tmp_path / "index", NEW)
        until(lambda: service.about.documents == 3)


def raise_first(errors: list[OSError]) -> None:
    """Raise each error once."""
    if errors:
        raise errors.pop()


@pytest.mark.parametrize("engine", ["exact", pytest.param("lucene", marks=pytest.mark.integration)])
def test_an_updated_index_is_served_without_a_failed_request(tmp_path: Path, engine: str) -> None:
    """Hits, documents, explanations, health and metrics are of the new one; every request meanwhile is answered."""
    path = tmp_path / "index"
    build(path, OLD, engine)
    statuses: list[int] = []
    with (
        closing(SearchService(opened(path))) as service,
        TestClient(create_app(service, (HOST,)), f"http://{HOST}") as client,
    ):

        def get(address: str) -> Any:
            answer = client.get(address)
            statuses.append(answer.status_code)
            return answer.json()

        before = get("/healthz")
        assert (before["index"], before["documents"]) == ("index", 2)
        stop = threading.Event()

        def ask() -> None:
            while not stop.wait(0.05):
                get("/search?q=river")
                get("/explain?q=river&docid=nile")

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            index = build(path, NEW, engine)
            until(lambda: get("/healthz")["generation"] == index.generation)
        finally:
            stop.set()
            asking.join()
        assert set(statuses) == {200}
        assert get("/healthz")["documents"] == 3
        hits = {hit["docid"]: hit for hit in get("/search?q=river")["hits"]}
        assert {"nile", "volga"} <= set(hits)
        assert get("/documents/nile")["text"] == NEW["nile"]
        explained = get("/explain?q=river&docid=nile")
        assert explained["sum"] == pytest.approx(hits["nile"]["score"])
        assert explained["text"].endswith(NEW["nile"])
        assert (
            client.get("/documents/stone").status_code == client.get("/explain?q=river&docid=stone").status_code == 404
        )
        pytest.importorskip("prometheus_client")
        metrics = client.get("/metrics").text
        assert (
            f'milco_index_info{{encoder="{before["encoder"]}",generation="{index.generation}",name="index"}} 1.0'
            in metrics
        )
        assert "milco_documents 3.0" in metrics


def test_an_index_that_cannot_be_opened_is_not_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damaged, of another encoder or gone, it is reported in one line, and the old one answers until it is mended."""
    path = tmp_path / "index"
    good, mended = build(tmp_path / "good", OLD), build(tmp_path / "mended", NEW)
    other = build(tmp_path / "other", NEW, by=encoder("alignment"))
    damaged = build(tmp_path / "damaged", NEW)
    (damaged.path / "weights.npy").write_bytes(b"")
    said = ""

    def replace_by(index: Path) -> None:
        (tmp_path / "link").symlink_to(index)
        (tmp_path / "link").replace(path)

    replace_by(good.path)
    with (
        closing(SearchService(opened(path))) as service,
        TestClient(create_app(service, (HOST,)), f"http://{HOST}") as client,
    ):
        capsys.readouterr()
        messages = {damaged.path: "is damaged (weights.npy", other.path: "does not fit", tmp_path / "no": "no index at"}
        for replacement, message in messages.items():
            replace_by(replacement)

            def is_reported(message: str = message) -> bool:
                nonlocal said
                said += capsys.readouterr().err
                return message in said

            until(is_reported)
            assert client.get("/healthz").json()["generation"] == good.generation
            assert client.get("/search?q=stones").json()["hits"][0]["docid"] == "stone"
        replace_by(mended.path)
        until(lambda: client.get("/healthz").json()["generation"] == mended.generation)
    lines = [line for line in said.splitlines() if "is not opened again, the old index still answers: " in line]
    assert len(lines) == len(messages), said


@pytest.mark.parametrize("has_sighup", [True, False], ids=["posix", "windows"])
def test_requests_in_work_finish_on_the_index_that_they_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_sighup: bool
) -> None:
    """It is closed after the last of them, and not before; also where there is no SIGHUP."""
    if not has_sighup:
        monkeypatch.delattr(signal, "SIGHUP")
    path = tmp_path / "index"
    build(path, OLD)
    begun, go = threading.Event(), threading.Event()

    async def work(service: SearchService) -> tuple[Any, Any, Any]:
        old, loop = service.opened, asyncio.get_running_loop()
        engine = weakref.ref(old.searcher.engine_searcher)
        search = old.searcher.rank

        def slowly(*arguments: Any, **options: Any) -> Any:
            begun.set()
            assert go.wait(60)
            return search(*arguments, **options)

        old.searcher.rank = slowly  # type: ignore[method-assign]
        del old
        async with service.watching():
            answer = asyncio.create_task(service.search("river", SearchRequest()))
            await loop.run_in_executor(None, begun.wait, 60)
            index = build(path, NEW)
            while service.about.generation != index.generation:
                await asyncio.sleep(0.02)
            after = await service.explain("river", ["volga"], SearchRequest())
            is_open = engine() is not None
            go.set()
            found = await answer
        return [shown.hit.docid for shown in found.hits], (is_open, engine), after

    with closing(SearchService(opened(path))) as service:
        docids, (is_open, engine), (explained,) = asyncio.run(work(service))
    assert set(docids) == {"nile", "stone"}
    assert explained.docid == "volga"
    assert is_open
    gc.collect()
    assert engine() is None


@pytest.mark.integration
def test_sighup_opens_the_index_again_and_sigterm_is_a_success(tmp_path: Path) -> None:
    """A supervisor that stops the server sees exit code 0."""
    path = tmp_path / "index"
    build(path, OLD)
    options = ["--port", "0", "--device", "cpu", "--encoder", str(own_encoder().name), "--index", str(path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "milco_pyserini", "serve", *options], stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := re.search(r"http://[\d.:]+/", line)))
        with urlopen(f"{url}healthz", timeout=120) as response:
            assert json.load(response)["documents"] == 2
        process.send_signal(signal.SIGHUP)
        assert (
            next(line for line in process.stderr if line.startswith("Opened")) == f"Opened {path} again: 2 documents\n"
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
