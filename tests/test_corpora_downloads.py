"""Files from a publisher's server: here one of our own, that breaks off, changes its mind, or is not there."""

import hashlib
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from milco_pyserini import locks
from milco_pyserini.corpora import open_corpus
from milco_pyserini.corpora.downloads import data_home, download
from milco_pyserini.corpora.families import CORPORA
from milco_pyserini.corpora.origin import CorpusOrigin, documents
from milco_pyserini.corpora.remote import WebFile, lines, located
from milco_pyserini.corpora.squad import first_question, squad_documents
from milco_pyserini.errors import MilcoError

CONTENT = bytes(range(256)) * 40


@dataclass
class Server:
    """What it serves, and how. breaks: send so many bytes and then no more, once for each number in the list."""

    url: str = ""
    content: bytes = CONTENT
    etag: str | None = '"one"'
    breaks: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on this machine, which a proxy of the environment must not keep us from."""
    monkeypatch.setenv("no_proxy", "*")
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            state.asked.append(wanted)
            if self.path != "/file":
                self.send_error(404)
                return
            fresh = not wanted or self.headers.get("If-Range") != state.etag
            start = 0 if fresh else int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start and start >= len(state.content):
                self.send_error(416)
                return
            body = state.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            if state.etag:
                self.send_header("ETag", state.etag)
            self.end_headers()
            self.wfile.write(body[: state.breaks.pop(0)] if state.breaks else body)

        def log_message(self, *_: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{running.server_port}/file"
    yield state
    running.shutdown()
    running.server_close()


def test_a_file_is_fetched_once(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Then it lies under MILCO_DATA, with nothing beside it, and the server is asked no more."""
    target = tmp_path / "folder" / "file"
    for _ in range(2):
        download(server.url, target, hashlib.sha256(CONTENT).hexdigest())
    assert target.read_bytes() == CONTENT
    assert server.asked == [""]
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    assert capsys.readouterr().err == f"fetching {server.url} to {target}\n"


def test_several_processes_fetch_a_file_once(server: Server, tmp_path: Path) -> None:
    """The others wait for the one that began, and for no other file of the folder."""
    with locks.alone_at(tmp_path / "other.part"), ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: download(server.url, tmp_path / "file"), range(4)))
    assert server.asked == [""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other.part"]


def test_a_transfer_that_breaks_off_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    """In the same command, and in a later one."""
    server.breaks = [100, 50, 0, 0]
    target = tmp_path / "file"
    with pytest.raises(MilcoError, match=re.escape(f"{server.url} could not be reached (the transfer broke off)")):
        download(server.url, target)
    assert not target.exists()
    download(server.url, target)
    assert target.read_bytes() == CONTENT
    assert server.asked == ["", "bytes=100-", "bytes=150-", "bytes=150-", "bytes=150-"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    """No file is put together from two: the entity tag tells."""
    server.breaks = [100, 0, 0, 0]
    target = tmp_path / "file"
    with pytest.raises(MilcoError, match="broke off"):
        download(server.url, target)
    server.content, server.etag = CONTENT[::-1], '"two"'
    download(server.url, target)
    assert target.read_bytes() == CONTENT[::-1]


def test_without_an_entity_tag_nothing_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    """Nobody could say whether the rest is of the same file."""
    server.etag, server.breaks = None, [100]
    download(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["", ""]


def test_what_is_whole_already_is_not_asked_for_again_and_again(server: Server, tmp_path: Path) -> None:
    """A part that has every byte (killed before it got its name) is fetched anew, not refused for ever."""
    (tmp_path / "file.part").write_bytes(CONTENT)
    (tmp_path / "file.part.etag").write_text('"one"')
    download(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_another_content_than_the_known_one_is_refused(server: Server, tmp_path: Path) -> None:
    """Both hashes are told, and nothing is kept."""
    with pytest.raises(
        MilcoError, match=f"is not what it was: its SHA-256 is {hashlib.sha256(CONTENT).hexdigest()}, not"
    ):
        download(server.url, tmp_path / "file", "0" * 64)
    assert not (tmp_path / "file").exists() and not (tmp_path / "file.part").exists()


def test_what_a_server_lacks_and_a_server_that_is_not_there_are_told(server: Server, tmp_path: Path) -> None:
    """With what can be done without a network."""
    with pytest.raises(MilcoError, match="cannot be fetched: the server answers 404 Not Found"):
        download(server.url + "s", tmp_path / "file")
    with pytest.raises(MilcoError, match=r"could not be reached \(.*refused.*give a copy as NAME@PATH, or put one in"):
        download("http://127.0.0.1:9/file", tmp_path / "file")


def test_a_web_file_lies_under_milco_data(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its folder, fetched or put there by hand; without the variable, in the user's cache directory."""
    monkeypatch.setenv("MILCO_DATA", str(tmp_path / "data"))
    server.content = b"one\r\n\r\ntwo\n"
    file = WebFile(server.url, "folder", "a/file.txt")
    assert list(lines(file, None)) == [(1, b"one"), (3, b"two")]
    assert located(file, None) == tmp_path / "data/folder/a/file.txt"
    monkeypatch.delenv("MILCO_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_home() == tmp_path / "cache/milco_pyserini"


def test_a_name_is_fetched_when_it_is_read(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the name to documents over the network; the second time without it. Opening alone fetches nothing."""
    monkeypatch.setenv("MILCO_DATA", str(tmp_path))
    server.content = b'{"data": [{"paragraphs": [{"context": "agua", "qas": [{"id": "q", "question": "que"}]}]}]}'
    file = WebFile(server.url, "xquad", "xquad.es.json")
    read = documents(squad_documents(first_question), "context", file)
    monkeypatch.setitem(CORPORA, "xquad-es", CorpusOrigin(read, 1))
    corpus = open_corpus("xquad-es")
    assert not server.asked
    assert corpus.check().documents == 1
    assert [document.text for document in corpus] == ["agua"]
    assert server.asked == [""]
