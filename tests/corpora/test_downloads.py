"""Files from a publisher's server: here one of our own, that breaks off, changes its mind, or is not there."""

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from milco_pyserini.corpora import open_corpus
from milco_pyserini.corpora.benchmark import BenchmarkCorpus
from milco_pyserini.corpora.catalog import CORPORA
from milco_pyserini.corpora.readers import first_question_id, squad_documents
from milco_pyserini.corpora.remote import RemoteRecords, WebFile, locate, remote_lines
from milco_pyserini.errors import MilcoError
from milco_pyserini.io import locks
from milco_pyserini.io.downloads import data_home, download

CONTENT = bytes(range(256)) * 40


@dataclass
class Server:
    """What it serves, and how.

    breaks: send so many bytes and then no more, once for each number in the list. codes: answer with these first.
    length, range: what it says of them in place of what is true; "" for nothing. drip: seconds before each byte.
    """

    url: str = ""
    content: bytes = CONTENT
    etag: str | None = '"one"'
    breaks: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    length: str | None = None
    range: str | None = None
    kind: str = "application/json"
    drip: float = 0.0
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
            if self.path == "/elsewhere":
                self.send_response(302)
                self.send_header("Location", "ftp://127.0.0.1/file")
                self.end_headers()
                return
            if state.codes:
                self.send_error(state.codes.pop(0))
                return
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
            told = {
                "Content-Type": state.kind,
                "Content-Length": str(len(body)) if state.length is None else state.length,
                "Content-Range": f"bytes {start}-{len(state.content) - 1}/{len(state.content)}" if start else "",
                "ETag": state.etag or "",
            }
            if start and state.range is not None:
                told["Content-Range"] = state.range
            for name, value in told.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            body = body[: state.breaks.pop(0)] if state.breaks else body
            with contextlib.suppress(ConnectionError):
                for byte in body if state.drip else ():
                    time.sleep(state.drip)
                    self.wfile.write(bytes([byte]))
                self.wfile.write(b"" if state.drip else body)

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
    with locks.locked_file(tmp_path / "other.part"), ThreadPoolExecutor(4) as pool:
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


def test_a_known_md5_is_checked_too(server: Server, tmp_path: Path) -> None:
    """What others recorded of a file is not always its SHA-256."""
    download(server.url, tmp_path / "file", hashlib.md5(CONTENT).hexdigest())
    with pytest.raises(MilcoError, match="its MD5 is"):
        download(server.url, tmp_path / "other", "0" * 32)


@pytest.mark.parametrize("claimed", ["bytes 0-10239/10240", "bytes 99-10239/10240", "nonsense", ""])
def test_another_part_than_the_one_asked_for_is_not_appended(server: Server, tmp_path: Path, claimed: str) -> None:
    """What was fetched is dropped, and the whole file is asked for."""
    server.breaks, server.range = [100], claimed
    download(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["", "bytes=100-", ""]


@pytest.mark.parametrize("length", ["abc", "-1", ""])
def test_a_server_that_does_not_send_the_size_is_reported(
    server: Server, tmp_path: Path, length: str, capsys: pytest.CaptureFixture
) -> None:
    """A cut transfer shows in the checksum only; what is known to be right needs no word."""
    server.length = length
    download(server.url, tmp_path / "file", hashlib.sha256(CONTENT).hexdigest())
    assert "would not be noticed" not in capsys.readouterr().err
    download(server.url, tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == CONTENT
    assert "a cut transfer would not be noticed" in capsys.readouterr().err
    server.breaks = [100]
    with pytest.raises(MilcoError, match="is not what it was"):
        download(server.url, tmp_path / "third", hashlib.sha256(CONTENT).hexdigest())


def test_a_server_that_is_busy_is_asked_again(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After growing pauses; at the end its answer is told."""
    pauses: list[float] = []
    monkeypatch.setattr("milco_pyserini.io.downloads.time.sleep", pauses.append)
    server.codes = [503, 429]
    download(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    server.codes = [500] * 4
    with pytest.raises(MilcoError, match=r"could not be reached \(the server answers 500 Internal Server Error\)"):
        download(server.url, tmp_path / "other")
    assert pauses == [1, 2, 1, 2, 4]


def test_a_server_that_drips_is_given_up(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No single wait is long, and it would take days."""
    monkeypatch.setattr("milco_pyserini.io.downloads.PATIENCE", 0.1)
    server.drip = 0.02
    with pytest.raises(MilcoError, match=r"could not be reached \(the server sent \d+ bytes in 0 s\)"):
        download(server.url, tmp_path / "file")
    assert [wanted != "" for wanted in server.asked] == [False, True, True, True]


def test_a_web_page_in_place_of_a_file_is_refused(server: Server, tmp_path: Path) -> None:
    """As a server sends where one has to log in."""
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(MilcoError, match=r"the server answers with a web page \(it may want a login\)"):
        download(server.url, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_redirects_leave_https_for_nothing_else(server: Server, tmp_path: Path) -> None:
    """Here http for ftp: the scheme stays, or becomes https."""
    with pytest.raises(MilcoError, match=r"/elsewhere redirects to ftp://127\.0\.0\.1/file"):
        download(server.url.replace("file", "elsewhere"), tmp_path / "file")


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
    assert list(remote_lines(file, None)) == [(1, b"one"), (3, b"two")]
    assert locate(file, None) == tmp_path / "data/folder/a/file.txt"
    monkeypatch.delenv("MILCO_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_home() == tmp_path / "cache/milco_pyserini"


def test_a_name_is_fetched_when_it_is_read(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the name to documents over the network; the second time without it. Opening alone fetches nothing."""
    monkeypatch.setenv("MILCO_DATA", str(tmp_path))
    server.content = b'{"data": [{"paragraphs": [{"context": "agua", "qas": [{"id": "q", "question": "que"}]}]}]}'
    file = WebFile(server.url, "xquad", "xquad.es.json")
    source = RemoteRecords(squad_documents(first_question_id), [file], "context")
    monkeypatch.setitem(CORPORA, "xquad-es", BenchmarkCorpus(source, "es", 1))
    corpus = open_corpus("xquad-es")
    assert not server.asked
    assert corpus.check().documents == 1
    assert [document.text for document in corpus] == ["agua"]
    assert server.asked == [""]
