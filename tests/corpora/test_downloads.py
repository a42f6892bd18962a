"""Downloads from a server in this process that interrupts, is busy, changes its files or is absent."""

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from milco_pyserini.corpora.remote import WebFile, locate, remote_lines
from milco_pyserini.defaults import data_home
from milco_pyserini.errors import MilcoError, Unreachable
from milco_pyserini.io.downloads import download

CONTENT = bytes(range(256)) * 40


@dataclass
class Server:
    """The state of the server.

    Args:
        breaks: for each number, one answer that ends after so many bytes.
        codes: status codes of the first answers.
        requests: how many there were.
    """

    url: str = ""
    content: bytes = CONTENT
    breaks: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    requests: int = 0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A local server, which requests must not reach through a proxy of the environment."""
    monkeypatch.setenv("no_proxy", "*")
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests += 1
            if state.codes:
                self.send_error(state.codes.pop(0))
            elif self.path != "/file":
                self.send_error(404)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(state.content)))
                self.end_headers()
                self.wfile.write(state.content[: state.breaks.pop(0)] if state.breaks else state.content)

        def log_message(self, *_: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
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
    assert server.requests == 1
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    assert capsys.readouterr().err == f"Fetching {server.url} to {target}\n"


def test_concurrent_downloads_fetch_a_file_once(server: Server, tmp_path: Path) -> None:
    """The others wait."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: download(server.url, tmp_path / "file"), range(4)))
    assert server.requests == 1


def test_an_interrupted_transfer_is_begun_again(server: Server, tmp_path: Path) -> None:
    """After four attempts the file is absent, also in part."""
    server.breaks = [100, 50]
    download(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == 3
    server.breaks = [100] * 4
    with pytest.raises(Unreachable, match="the transfer was interrupted"):
        download(server.url, tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_another_checksum_is_refused(server: Server, tmp_path: Path) -> None:
    """The error has both, and nothing is kept; those recorded by others may be MD5."""
    with pytest.raises(MilcoError, match=f"{hashlib.sha256(CONTENT).hexdigest()}, expected"):
        download(server.url, tmp_path / "file", "0" * 64)
    assert not list(tmp_path.iterdir())
    download(server.url, tmp_path / "file", hashlib.md5(CONTENT).hexdigest())
    with pytest.raises(MilcoError, match="its MD5 is"):
        download(server.url, tmp_path / "other", "0" * 32)


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
    with pytest.raises(Unreachable, match="500 Internal Server Error"):
        download(server.url, tmp_path / "other")
    assert pauses == [1, 2, 1, 2, 4]


def test_missing_files_and_unreachable_servers_are_different_errors(server: Server, tmp_path: Path) -> None:
    """Only the second names what to do without a network."""
    with pytest.raises(MilcoError, match="404 Not Found"):
        download(server.url + "s", tmp_path / "file")
    with pytest.raises(Unreachable, match=r"refused.*NAME@PATH"):
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
