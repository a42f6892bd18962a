"""The server of milco serve: addresses, tokens, many clients, a graceful stop, and the page in a browser."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from browsing import is_light, opened
from pages import EVIL
from served_set import index, searcher, service

from milco_pyserini.errors import MilcoError
from milco_pyserini.request import SearchRequest
from milco_pyserini.serve.app import create_app
from milco_pyserini.serve.cli import main
from milco_pyserini.serve.server import address, allowed_hosts, create_server, listen, open_access_log, validate_token


class Served:
    """A server of the small index at a free port. explained: the docids that were explained."""

    def __init__(self, listener: socket.socket) -> None:
        self.explained: list[str] = []
        self.failing: set[str] = set()
        self.port = listener.getsockname()[1]
        self.address = address(listener)
        self.service = service(queue=600)
        self.service.opened.searcher = self.service.opened.primary = self  # type: ignore[assignment]
        self.server = create_server(create_app(self.service, allowed_hosts(listener)), listener)
        self.thread = threading.Thread(target=self.server.run, args=([listener],), daemon=True)
        self.thread.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(searcher(), name)

    @property
    def explainer(self) -> Any:
        """An explainer, unless the docid is to fail."""
        explainer = searcher().one().explainer

        def explain(text: str, docids: list[str], request: SearchRequest) -> Any:
            self.explained += docids
            if self.failing.intersection(docids):
                raise MilcoError("no <document> nope")
            return explainer.explain(text, docids, request)

        return SimpleNamespace(explain=explain)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body, on a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body


@contextlib.contextmanager
def running() -> Iterator[Served]:
    """Run a server at a free port."""
    with listen("127.0.0.1", 0) as listener:
        served = Served(listener)
        yield served
        served.server.should_exit = True
        served.thread.join(20)
        assert not served.thread.is_alive()
        served.service.close()


@pytest.fixture(scope="module")
def running_server() -> Iterator[Served]:
    """Run one server for all tests."""
    with running() as served:
        yield served


@pytest.fixture
def served(running_server: Served) -> Served:
    """Return the server, its calls forgotten."""
    running_server.explained.clear()
    running_server.failing.clear()
    return running_server


def test_every_loopback_address_checks_host_names() -> None:
    """Addresses that other machines reach answer to any name."""
    with listen("127.0.0.2", 0) as listener:
        assert "127.0.0.2" in allowed_hosts(listener)
        assert "evil.example" not in allowed_hosts(listener)
    with listen("0.0.0.0", 0) as listener:
        assert allowed_hosts(listener) == ()


@pytest.mark.slow
def test_500_parallel_requests_are_answered(served: Served) -> None:
    """On connections of their own."""
    with ThreadPoolExecutor(100) as pool:
        assert {status for status, _ in pool.map(lambda _: served.get("/search?q=river"), range(500))} == {200}


def test_requests_in_work_are_finished_when_the_server_stops() -> None:
    """Idle connections do not hold it up."""
    with running() as served:
        started = threading.Event()
        work = searcher().rank

        def slowly(*arguments: Any, **options: Any) -> Any:
            started.set()
            time.sleep(0.5)
            return work(*arguments, **options)

        served.rank = slowly  # type: ignore[attr-defined]
        idle = socket.create_connection(("127.0.0.1", served.port))
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(served.get, "/search?q=river")
            assert started.wait(20)
            served.server.should_exit = True
            assert answer.result()[0] == 200
        idle.close()


HALF = b"POST /encode HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 22\r\n"


@pytest.mark.parametrize(
    ("requests", "sent"),
    [(0, b""), (0, HALF), (1, HALF), (0, HALF + b'\r\n{"texts":'), (1, HALF + b'\r\n{"texts":')],
    ids=["nothing", "half a head", "half a second head", "half a body", "half a second body"],
)
def test_a_request_that_takes_too_long_to_arrive_ends_its_connection(
    requests: int, sent: bytes, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that wait for their next request stay open. requests: those before the slow one."""
    monkeypatch.setattr("milco_pyserini.serve.server.REQUEST_SECONDS", 0.3)
    slow, idle = (HTTPConnection("127.0.0.1", served.port, timeout=60) for _ in range(2))
    for connection in [idle, *[slow] * requests]:
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
    if not requests:
        slow.connect()
    slow.sock.sendall(sent)
    with contextlib.suppress(ConnectionResetError):
        assert slow.sock.recv(1) == b""
    idle.request("GET", "/search?q=river")
    assert idle.getresponse().status == 200
    slow.close()
    idle.close()


@pytest.mark.integration
def test_half_open_connections_do_not_keep_a_server_from_answering(tmp_path: Path) -> None:
    """More of them than descriptors are permitted: searches are answered, then and afterwards, without an error."""
    pytest.importorskip("resource", reason="Windows limits no descriptors")
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))"
    program = f"{limited}; from milco_pyserini.cli.main import main; main()"
    arguments = ["serve", "--port", "0", "--device", "cpu", "--index", str(index().path)]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE, encoding="utf-8", cwd=tmp_path
    )
    try:
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := re.search(r"http://[\d.:]+/", line)))
        port = int(url.rpartition(":")[2].strip("/"))
        with contextlib.ExitStack() as stack:
            for _ in range(150):
                half = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
                half.sendall(HALF)
            with urlopen(f"{url}search?q=river", timeout=60) as answer:
                assert answer.status == 200
        with urlopen(f"{url}search?q=river", timeout=60) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_an_unavailable_address_is_one_line(served: Served) -> None:
    """With another port as the fix."""
    with pytest.raises(MilcoError, match=f"port={served.port}"):
        listen("127.0.0.1", served.port)
    with pytest.raises(MilcoError, match=r"host='203\.0\.113\.7'"):
        listen("203.0.113.7", 0)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "203.0.113.7", ""])
def test_a_host_that_others_reach_needs_a_token(host: str) -> None:
    """One that cannot be guessed."""
    with pytest.raises(MilcoError, match=r"host='.*MILCO_TOKEN.*token"):
        validate_token(host, "")
    with pytest.raises(MilcoError, match="at least 16 ASCII characters"):
        validate_token(host, "secret")
    validate_token(host, "0123456789abcdef")
    for loopback in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        validate_token(loopback, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "70000"), "--port 70000"),
        (("--k", "0"), "--k 0"),
        (("--alpha", "-1"), "--alpha -1"),
        (("--index", "nowhere"), "no index at nowhere"),
        (("--index", "a", "b"), "Pass --fuse rrf to search them together"),
        (("--index", "a", "b", "--fuse", "rrf", "--alpha", "0.5"), "--alpha applies to a single ranking"),
        (("--index", "nowhere", "b", "--fuse", "rrf"), "no index at nowhere"),
        (("--host", "0.0.0.0", "--index", "nowhere"), "--host 0.0.0.0"),
        (("--token", "short", "--index", "nowhere"), "at least 16 ASCII characters"),
        (("--access-log", "nowhere/access.log", "--index", "nowhere"), "--access-log nowhere/access.log: cannot be"),
        (("--trust-proxy", "10.0.0.1", "proxy.example", "--index", "nowhere"), "--trust-proxy proxy.example"),
        (("--mcp", "--host", "0.0.0.0"), "--mcp and --host exclude each other"),
    ],
)
def test_bad_options_are_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, before anything is loaded."""
    assert main((*arguments, *(() if "--port" in arguments or "--mcp" in arguments else ("--port", "0")))) == 2
    err = capsys.readouterr().err
    assert err.startswith("milco serve: error: ")
    assert message in err


def test_the_access_log_is_appended_to_and_may_be_renamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As logrotate does, which needs no signal; or it is stdout."""
    path = tmp_path / "access.log"
    for line in ("first", "second"):
        with open_access_log(path) as write:
            write(line)
    with open_access_log(path) as write:
        path.rename(tmp_path / "access.log.1")
        write("third")
    assert (tmp_path / "access.log.1").read_text() == "first\nsecond\n"
    assert path.read_text() == "third\n"
    with open_access_log("-") as write:
        write("fourth %s")
    assert capsys.readouterr().out == "fourth %s\n"


def test_only_a_trusted_proxy_states_the_client() -> None:
    """Others are logged by their own address, also on this machine."""
    for trusted, client in (((), "127.0.0.1"), (("10.0.0.0/8",), "127.0.0.1"), (("127.0.0.0/8",), "6.6.6.6")):
        lines: list[str] = []
        with listen("127.0.0.1", 0) as listener, contextlib.closing(service()) as opened:
            server = create_server(create_app(opened, (), "", lines.append), listener, trusted)
            thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
            thread.start()
            with urlopen(Request(f"{address(listener)}healthz", headers={"X-Forwarded-For": "6.6.6.6"}), timeout=60):
                pass
            server.should_exit = True
            thread.join(20)
        assert [json.loads(line)["client"] for line in lines] == [client]


@pytest.mark.integration
def test_milco_serve_runs_until_ctrl_c() -> None:
    """It prints its address, answers with the index's texts and its alpha, and exits with code 130."""
    program = [sys.executable, "-m", "milco_pyserini", "serve", "--port", "0", "--alpha", "0.3"]
    process = subprocess.Popen(
        [*program, "--device", "cpu", "--index", str(index().path)], stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := re.search(r"http://[\d.:]+/", line)))
        with urlopen(f"{url}?q={quote('ナイル川')}", timeout=120) as response:
            page = response.read().decode()
        assert "<article" in page
        explained = re.search(r'data-from="/([^"]+)"', page)
        assert explained is not None
        with urlopen(url + unescape(explained[1]), timeout=120) as response:
            assert "alpha 0.3" in response.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        assert process.stderr.read() == "\nmilco serve: interrupted; the server stopped\n"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.integration
def test_a_browser_searches_and_unfolds_by_keyboard(browser: Any, served: Served) -> None:
    """A fold fetches its explanation once, as the page's policy allows; keys lead from hit to hit."""
    with opened(browser, served.address) as page:
        page.wait_for_selector("input[type=search]:focus")
        page.keyboard.type("the river jk/ Nile")
        page.keyboard.press("Enter")
        page.wait_for_selector("article")
        assert page.locator("input[type=search]").input_value() == "the river jk/ Nile"
        assert page.locator("article").count() == 10
        assert page.locator("table").count() == 0
        for key in ("j", "ArrowDown", "j", "k"):
            page.keyboard.press(key)
        assert page.evaluate("[...document.querySelectorAll('article')].indexOf(document.activeElement)") == 1
        page.keyboard.press("Enter")
        page.wait_for_selector("article table")
        assert len(served.explained) == 1
        assert not page.locator("article").nth(1).locator(".snippet").is_visible()
        page.locator("button.term").first.focus()
        page.keyboard.press("Enter")
        assert page.locator("button[aria-pressed=true]").count() == 1
        page.locator("article").nth(1).locator("summary").first.click()
        assert page.locator("article").nth(1).locator(".snippet").is_visible()
        page.locator("article").nth(1).locator("summary").first.click()
        assert len(served.explained) == 1
        page.locator("h2 a").first.focus()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "q"


@pytest.mark.integration
def test_a_browser_shows_that_an_explanation_loads(browser: Any, served: Served) -> None:
    """The snippet stays until the explanation takes its place."""
    page = browser.new_page()
    page.goto(f"{served.address}?q=river")
    held: list[Any] = []
    page.route("**/explanation*", lambda route: held.append(route))
    article = page.locator("article").first
    article.locator("summary").click()
    page.wait_for_selector("details[aria-busy]")
    sign = "getComputedStyle(document.querySelector('article summary'), '::after').content"
    assert "loading" in page.evaluate(sign)
    assert article.locator(".snippet").is_visible() and not article.locator(".unscripted").is_visible()
    held[0].continue_()
    page.wait_for_selector("article table")
    assert "loading" not in page.evaluate(sign)
    assert not article.locator(".snippet").is_visible()
    page.close()


@pytest.mark.integration
def test_a_browser_shows_why_a_hit_is_not_explained(browser: Any, served: Served) -> None:
    """The fold has the server's message, and tries again when it is unfolded again."""
    page = browser.new_page()
    page.goto(f"{served.address}?q=river")
    served.failing = {"long"}
    fold = page.locator("article", has_text="Long").first.locator("summary")
    fold.click()
    page.wait_for_selector("article .error")
    assert page.locator("article .error").text_content() == "no <document> nope"
    served.failing = set()
    fold.click()
    fold.click()
    page.wait_for_selector("article table")
    assert page.locator("article .error").count() == 0
    page.close()


@pytest.mark.integration
def test_a_browser_shows_that_the_server_is_stopped(browser: Any) -> None:
    """The page stays, with its query."""
    page = browser.new_page()
    with running() as served:
        page.goto(f"{served.address}?q=river")
    page.fill("input", "the Nile")
    page.keyboard.press("Enter")
    page.wait_for_selector("main > .error")
    assert page.locator("main > .error").text_content() == "The server does not answer."
    assert page.locator("article").count() == 10
    page.close()


@pytest.mark.integration
def test_the_page_searches_without_a_script(browser: Any, served: Served) -> None:
    """The form, the pages and the explanations are links."""
    with opened(browser, served.address, java_script_enabled=False, color_scheme="light") as page:
        page.fill("input", "river")
        page.click("form button")
        assert page.locator("article").count() == 10
        page.click("a[rel=next]")
        assert page.locator(".pages span").text_content() == "Page 2"
        page.locator("h2 a").first.click()
        assert page.locator("table").count() >= 1


@pytest.mark.integration
def test_texts_have_their_direction_and_the_page_follows_the_scheme(browser: Any, served: Served) -> None:
    """Arabic from the right, whatever the page; light or dark."""
    with opened(browser, served.address, color_scheme="dark") as page:
        assert not is_light(page)
        page.goto(f"{served.address}?q={quote('نهر النيل')}")
        arabic = page.locator("article", has_text="القارة").first.locator(".snippet")
        assert arabic.evaluate("one => getComputedStyle(one).direction") == "rtl"
        assert page.locator("article .score").first.evaluate("one => getComputedStyle(one).direction") == "ltr"


@pytest.mark.integration
def test_a_phone_never_scrolls_sideways(browser: Any, served: Served) -> None:
    """At 375 px with everything unfolded; a wide table scrolls by itself. Terms have their bars."""
    page = browser.new_page(viewport={"width": 375, "height": 700})
    for path in ("", f"?q={quote(EVIL)}", "?q=river&doc=ja", "?q=river&doc=ja&doc=evil", "docs", f"?q={'x' * 500}"):
        page.goto(served.address + path)
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        if path.startswith(f"?q={quote(EVIL)}"):
            page.wait_for_selector("article table")
            assert page.locator("td.bars .bar").first.bounding_box()["width"] > 20
        assert page.evaluate("document.documentElement.scrollWidth") == 375, path
    page.close()
