"""Downloads from a server in this process that interrupts, stalls, changes its files or is absent."""

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
from milco_pyserini.errors import MilcoError, Unreachable
from milco_pyserini.io import locks
from milco_pyserini.io.downloads import data_home, download

CONTENT = bytes(range(256)) * 40


@dataclass
class Server:
    """The state of the server.

    Args:
        breaks: for each number, one answer that ends after so many bytes.
        codes: status codes of the first answers.
        length, range: headers to send in place of the true ones; "" for none.
        drip: seconds before each byte.
        asked: the Range header of each request.
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
    """A local server, which requests must not reach through a proxy of the environment."""
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
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(state.content)}")
                self.end_headers()
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
    """Later calls do not contact the server, and no other file is left in the directory."""
    target = tmp_path / "folder" / "file"
    for _ in range(2):
        download(server.url, target, hashlib.sha256(CONTENT).hexdigest())
    assert target.read_bytes() == CONTENT
    assert server.asked == [""]
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    assert capsys.readouterr().err == f"Fetching {server.url} to {target}\n"


def test_concurrent_downloads_fetch_a_file_once(server: Server, tmp_path: Path) -> None:
    """The others wait, but not for downloads of other files."""
    with locks.locked_file(tmp_path / "other.part"), ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: download(server.url, tmp_path / "file"), range(4)))
    assert server.asked == [""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other.part"]


def test_an_interrupted_transfer_is_resumed(server: Server, tmp_path: Path) -> None:
    """By the same call, and by a later one."""
    server.breaks = [100, 50, 0, 0]
    target = tmp_path / "file"
    with pytest.raises(Unreachable, match=re.escape(f"{server.url} cannot be reached (the transfer was interrupted)")):
        download(server.url, target)
    assert not target.exists()
    download(server.url, target)
    assert target.read_bytes() == CONTENT
    assert server.asked == ["", "bytes=100-", "bytes=150-", "bytes=150-", "bytes=150-"]


def test_a_file_that_changed_is_fetched_from_the_start(server: Server, tmp_path: Path) -> None:
    """The entity tag prevents a file made of two versions."""
    server.breaks = [100, 0, 0, 0]
    target = tmp_path / "file"
    with pytest.raises(Unreachable, match="interrupted"):
        download(server.url, target)
    server.content, server.etag = CONTENT[::-1], '"two"'
    download(server.url, target)
    assert target.read_bytes() == CONTENT[::-1]


def test_without_an_entity_tag_nothing_is_resumed(server: Server, tmp_path: Path) -> None:
    """The rest might belong to another version."""
    server.etag, server.breaks = None, [100]
    download(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["", ""]


@pytest.mark.parametrize(("more", "asked"), [(0, 1), (5, 2)])
def test_a_complete_part_is_not_fetched_again(server: Server, tmp_path: Path, more: int, asked: int) -> None:
    """A process was killed before the rename; the server answers 416 to the request for more. A longer part is not."""
    (tmp_path / "file.part").write_bytes(CONTENT + bytes(more))
    (tmp_path / "file.part.etag").write_text('"one"')
    download(server.url, tmp_path / "file", hashlib.sha256(CONTENT).hexdigest())
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(server.asked) == asked


def test_another_sha256_is_refused(server: Server, tmp_path: Path) -> None:
    """The error has both checksums, and nothing is kept."""
    with pytest.raises(
        MilcoError, match=f"has changed: its SHA-256 is {hashlib.sha256(CONTENT).hexdigest()}, expected"
    ):
        download(server.url, tmp_path / "file", "0" * 64)
    assert not (tmp_path / "file").exists() and not (tmp_path / "file.part").exists()


def test_another_md5_is_refused(server: Server, tmp_path: Path) -> None:
    """Checksums recorded by others may be MD5."""
    download(server.url, tmp_path / "file", hashlib.md5(CONTENT).hexdigest())
    with pytest.raises(MilcoError, match="its MD5 is"):
        download(server.url, tmp_path / "other", "0" * 32)


@pytest.mark.parametrize("claimed", ["bytes 0-10239/10240", "bytes 99-10239/10240", "nonsense", ""])
def test_another_range_than_requested_is_not_appended(server: Server, tmp_path: Path, claimed: str) -> None:
    """The part is dropped, and the complete file is requested."""
    server.breaks, server.range = [100], claimed
    download(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["", "bytes=100-", ""]


@pytest.mark.parametrize("length", ["abc", "-1", ""])
def test_a_missing_size_is_reported_unless_there_is_a_checksum(
    server: Server, tmp_path: Path, length: str, capsys: pytest.CaptureFixture
) -> None:
    """Only a checksum then reveals a truncated transfer."""
    server.length = length
    download(server.url, tmp_path / "file", hashlib.sha256(CONTENT).hexdigest())
    assert "would not be noticed" not in capsys.readouterr().err
    download(server.url, tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == CONTENT
    assert "a truncated transfer would not be noticed" in capsys.readouterr().err
    server.breaks = [100]
    with pytest.raises(MilcoError, match="has changed"):
        download(server.url, tmp_path / "third", hashlib.sha256(CONTENT).hexdigest())


def test_a_busy_server_is_retried_with_growing_pauses(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last answer is in the error."""
    pauses: list[float] = []
    monkeypatch.setattr("milco_pyserini.io.downloads.time.sleep", pauses.append)
    server.codes = [503, 429]
    download(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    server.codes = [500] * 4
    with pytest.raises(Unreachable, match=r"cannot be reached \(the server answers 500 Internal Server Error\)"):
        download(server.url, tmp_path / "other")
    assert pauses == [1, 2, 1, 2, 4]


def test_a_stalled_transfer_ends(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No single wait is long, but the transfer would take days."""
    monkeypatch.setattr("milco_pyserini.io.downloads.STALL_SECONDS", 0.1)
    server.drip = 0.02
    with pytest.raises(Unreachable, match=r"cannot be reached \(the server sent \d+ bytes in 0 s\)"):
        download(server.url, tmp_path / "file")
    assert [wanted != "" for wanted in server.asked] == [False, True, True, True]


def test_a_web_page_in_place_of_a_file_is_refused(server: Server, tmp_path: Path) -> None:
    """Servers that require a login send one."""
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(MilcoError, match=r"the server answers with a web page \(it may require a login\)"):
        download(server.url, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_redirects_keep_the_scheme_or_switch_to_https(server: Server, tmp_path: Path) -> None:
    """A redirect from http to ftp is refused."""
    with pytest.raises(MilcoError, match=r"/elsewhere redirects to ftp://127\.0\.0\.1/file"):
        download(server.url.replace("file", "elsewhere"), tmp_path / "file")


def test_missing_files_and_unreachable_servers_are_different_errors(server: Server, tmp_path: Path) -> None:
    """Only the second names what to do without a network."""
    with pytest.raises(MilcoError, match="cannot be fetched: the server answers 404 Not Found"):
        download(server.url + "s", tmp_path / "file")
    with pytest.raises(Unreachable, match=r"cannot be reached \(.*refused.*pass a copy as NAME@PATH, or put one in"):
        download("http://127.0.0.1:9/file", tmp_path / "file")


def test_downloads_are_kept_in_milco_data(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable, in the user's cache directory."""
    monkeypatch.setenv("MILCO_DATA", str(tmp_path / "data"))
    server.content = b"one\r\n\r\ntwo\n"
    file = WebFile(server.url, "folder", "a/file.txt")
    assert list(remote_lines(file, None)) == [(1, b"one"), (3, b"two")]
    assert locate(file, None) == tmp_path / "data/folder/a/file.txt"
    monkeypatch.delenv("MILCO_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_home() == tmp_path / "cache/milco_pyserini"


def test_a_benchmark_is_fetched_when_it_is_read(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; opening it fetches nothing."""
    monkeypatch.setenv("MILCO_DATA", str(tmp_path))
    server.content = b'{"data": [{"paragraphs": [{"context": "agua", "qas": [{"id": "q", "question": "que"}]}]}]}'
    file = WebFile(server.url, "xquad", "xquad.es.json")
    source = RemoteRecords(squad_documents(first_question_id), [file], "context")
    monkeypatch.setitem(CORPORA, "xquad-es", BenchmarkCorpus(source, "es", 1))
    corpus = open_corpus("xquad-es")
    assert not server.asked
    assert corpus.check().records == 1
    assert [document.text for document in corpus] == ["agua"]
    assert server.asked == [""]
