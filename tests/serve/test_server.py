"""The server of milco serve: the search page, its limits, and what it does with other sites and slow clients."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from explained_set import index, queries
from pages import EVIL, Tags, explanations

from milco_pyserini.cli.serve import main
from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain import Explanation
from milco_pyserini.index.protocol import Hit
from milco_pyserini.search.documents import CachedDocuments, CorpusLookup
from milco_pyserini.serve import app
from milco_pyserini.serve.app import (
    IndexDescription,
    address,
    allowed_hosts,
    create_app,
    create_server,
    example_queries,
    listen,
)

QUERY = queries(50)[7]


class Served:
    """A server of two hits, and of explanations by the tiny encoder. calls: what the backend was called with."""

    def __init__(self, listener: socket.socket) -> None:
        self.calls: list[Any] = []
        self.failing = ["nope"]
        self.port = listener.getsockname()[1]
        self.address = address(listener)
        description = IndexDescription("docs", 1234, "<mini>", 100.0, (EVIL, "誰ですか"))
        self.server = create_server(create_app(self, description, hosts=allowed_hosts(listener)))
        self.thread = threading.Thread(target=self.server.run, args=([listener],), daemon=True)
        self.thread.start()

    def search(self, query: str, k: int) -> list[Hit]:
        """Return two documents for any query, the second with a long text."""
        self.calls.append(query)
        return [
            Hit("text 1", 7.0, Document("text 1", "", f"{query} ナイル川")),
            Hit("text 2", 5.0, Document("text 2", "", f"{'long ' * 200}end")),
        ]

    def explain(self, query: str, docids: Sequence[str]) -> list[Explanation]:
        """Explain some texts for any docids but those that fail."""
        self.calls.append((query, list(docids)))
        if set(self.failing) & set(docids):
            raise MilcoError("no <document> nope")
        return explanations(query, ["one", query][-len(docids) :])

    def get(self, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str, dict[str, str]]:
        """Return status, body and headers."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, headers={"Host": host or f"127.0.0.1:{self.port}"})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body, dict(response.headers)


@contextlib.contextmanager
def running() -> Iterator[Served]:
    """Run a server at a free port."""
    with listen("127.0.0.1", 0) as listener:
        served = Served(listener)
        yield served
        served.server.should_exit = True
        served.thread.join(10)


@pytest.fixture(scope="module")
def running_server() -> Iterator[Served]:
    """Run one server for all tests."""
    with running() as served:
        yield served


@pytest.fixture
def served(running_server: Served) -> Served:
    """Return the server, its calls forgotten."""
    running_server.calls.clear()
    running_server.failing = ["nope"]
    return running_server


def test_the_first_page_links_example_queries(served: Served) -> None:
    """Nothing is searched yet, and nothing may be loaded from elsewhere."""
    status, body, headers = served.get("/")
    assert (status, served.calls) == (200, [])
    assert 'name="q"' in body
    assert "1,234 documents, encoded by &lt;mini&gt;." in body
    tags = Tags(body)
    links = [value or "" for name, value in tags.attributes if name == "href"]
    assert [served.get(link)[0] for link in links] == [200, 200]
    assert served.calls == [EVIL, "誰ですか"]
    assert ("lang", "ja") in tags.attributes
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy


def test_results_are_not_explained_yet(served: Served) -> None:
    """A page of results costs a search; long texts are shortened, and all links work without a script."""
    status, body, _ = served.get(f"/?q={quote(EVIL)}")
    assert (status, served.calls) == (200, [EVIL])
    tags = Tags(body)
    assert tags.open == []
    assert {"mark", "table"}.isdisjoint(tags.seen)
    assert "lon …" in tags.text
    assert "end" not in tags.text
    assert ("value", EVIL) in tags.attributes
    links = [value or "" for name, value in tags.attributes if name == "href"]
    assert [served.get(link)[0] for link in links] == [200] * 5
    assert sorted({tuple(one[1]) for one in served.calls[1:]}) == [("text 1",), ("text 1", "text 2"), ("text 2",)]
    assert served.get("/?q=x", method="HEAD")[:2] == (200, "")


def test_a_hit_is_explained_on_demand(served: Served) -> None:
    """A fold's address returns the part of the page that belongs into it."""
    addresses = [value for name, value in Tags(served.get("/?q=Nile")[1]).attributes if name == "data-from"]
    assert addresses == ["/explain?q=Nile&doc=text+1", "/explain?q=Nile&doc=text+2"]
    status, body, headers = served.get(addresses[1] or "")
    assert (status, served.calls[-1]) == (200, ("Nile", ["text 2"]))
    tags = Tags(body)
    assert tags.open == []
    assert {"mark", "table", "summary"} <= set(tags.seen)
    assert {"html", "h2", "script"}.isdisjoint(tags.seen)
    assert "sum of the contributions" in body[body.index("<summary>") :]
    assert "default-src 'none'" in headers["content-security-policy"]
    for path in ("/explain?q=Nile&doc=nope", "/explain?q=Nile", "/explain?doc=text+1"):
        status, body, _ = served.get(path)
        assert (status, body[:16]) == (400, '<p class="error"')


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/?q=x&doc=nope", 400, "no &lt;document&gt; nope"),
        ("/etc/passwd", 404, "There is one page: /"),
        (f"/?q={'x' * 3000}", 400, "the query has 3,000 characters: it may have up to 2,000"),
        (f"/?q=x{''.join(f'&doc={n}' for n in range(101))}", 400, "101 documents are named: up to 100"),
        ("/?q=%20", 200, "encoded by"),
    ],
)
def test_bad_requests_are_answered_with_a_message(served: Served, path: str, status: int, message: str) -> None:
    """On a page that searches again."""
    found, body, _ = served.get(path)
    assert (found, message in body, 'name="q"' in body) == (status, True, True)


def test_another_sites_name_is_refused(served: Served) -> None:
    """A page elsewhere cannot read the documents by pointing its own name at this machine."""
    assert served.get("/?q=x", host=f"evil.example:{served.port}")[0] == 403
    assert served.get("/?q=x", host="evil.example")[0] == 403
    assert served.calls == []
    assert served.get("/", host=f"localhost:{served.port}")[0] == 200


def test_every_loopback_address_checks_host_names() -> None:
    """Addresses that other machines reach answer to any name."""
    with listen("127.0.0.2", 0) as listener:
        assert "127.0.0.2" in allowed_hosts(listener)
        assert "evil.example" not in allowed_hosts(listener)
    with listen("0.0.0.0", 0) as listener:
        assert allowed_hosts(listener) == ()


def test_500_parallel_requests_are_answered(served: Served) -> None:
    """One at a time by the backend."""
    with ThreadPoolExecutor(100) as pool:
        assert {status for status, _, _ in pool.map(lambda _: served.get("/?q=x"), range(500))} == {200}
    assert served.calls == ["x"] * 500


def test_a_slow_client_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is for the complete head of a request, however it trickles in."""
    monkeypatch.setattr(app, "HEAD_SECONDS", 0.3)
    with running() as served, socket.create_connection(("127.0.0.1", served.port)) as client:
        client.settimeout(0.02)
        with pytest.raises((ConnectionError, EOFError)):
            for _ in range(1000):
                client.send(b"G")
                with contextlib.suppress(TimeoutError):
                    if client.recv(1) == b"":
                        raise EOFError


@pytest.mark.parametrize("passages", [False, True])
def test_cached_documents_equal_those_of_the_corpus(passages: bool) -> None:
    """Found by docid, or by the docid of a passage; unknown docids are left out."""
    wanted = [f"{name}#3" if passages else name for name in ("ja-07", "nope", "ja-50", "ja-01")]
    cached = CachedDocuments(open_corpus("sample-ja"), passages)
    expected = CorpusLookup(open_corpus("sample-ja"), passages).find(wanted)
    found = cached.find(wanted)
    assert {docid: document.contents for docid, document in found.items()} == {
        docid: document.contents for docid, document in expected.items()
    }
    assert len(found) == 3
    cached.close()


def test_topics_next_to_a_corpus_are_examples(tmp_path: Path) -> None:
    """The sample's in six languages; of a path, those of a file named queries or topics, unless it is broken."""
    assert len({query[:2] for query in example_queries({"corpus": "sample"})}) == 6
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "contents": "x"}')
    assert example_queries({"corpus": str(corpus)}) == []
    (tmp_path / "queries.tsv").write_text("".join(f"{number}\tquery {number}\n" for number in range(100)))
    for name in (corpus, tmp_path):
        assert example_queries({"corpus": str(name)})[:2] == ["query 0", "query 17"]
    (tmp_path / "queries.tsv").write_text("broken")
    assert example_queries({"corpus": str(corpus)}) == example_queries({"corpus": "miracl-ar"}) == []


def test_an_unavailable_address_is_one_line(served: Served) -> None:
    """With another port as the fix."""
    with pytest.raises(MilcoError, match=f"--port {served.port} is in use: choose another"):
        listen("127.0.0.1", served.port)
    with pytest.raises(MilcoError, match=r"cannot listen at --host 203\.0\.113\.7"):
        listen("203.0.113.7", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "70000"), "--port 70000: must be from 0 to 65,535"),
        (("--hits", "0"), "--hits 0: must be from 1 to 100"),
        (("--alpha", "-1"), "--alpha -1: must be from 0 to 1"),
        (("--index", "nowhere"), "no index at nowhere"),
    ],
)
def test_bad_options_are_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, before anything is loaded."""
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("milco serve: error: ")
    assert message in err


@pytest.mark.integration
def test_milco_serve_runs_until_ctrl_c() -> None:
    """It prints its address, answers with the index's texts, and exits with code 130."""
    program = [sys.executable, "-m", "milco_pyserini.serve", "--port", "0", "--alpha", "0.3"]
    process = subprocess.Popen(
        [*program, "--device", "cpu", "--index", str(index("exact").path)], stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := re.search(r"http://\S+", line)))
        with urlopen(f"{url}?q={quote(QUERY)}", timeout=120) as response:
            page = response.read().decode()
        assert "<article>" in page
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
    """A fold fetches its explanation once, as the page's policy allows, and keeps the focus."""
    page = browser.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(served.address)
    page.keyboard.type("ab ナイル川")
    page.keyboard.press("Enter")
    page.wait_for_selector("article")
    assert page.locator("article").count() == 2
    assert page.locator("mark").count() == 0
    page.locator("article summary").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("mark")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("button[aria-pressed=true]").count() == 1
    calls = len(served.calls)
    page.locator("article summary").first.click()
    page.locator("article summary").first.click()
    assert len(served.calls) == calls
    assert [problem for problem in problems if "favicon" not in problem] == []
    page.close()


@pytest.mark.integration
def test_a_browser_shows_why_a_hit_is_not_explained(browser: Any, served: Served) -> None:
    """The fold has the server's message, and tries again when it is unfolded again."""
    page = browser.new_page()
    page.goto(f"{served.address}?q=ab")
    served.failing = ["text 1"]
    page.locator("article summary").first.click()
    page.wait_for_selector("article .error")
    assert page.locator("article .error").text_content() == "no <document> nope"
    served.failing = []
    page.locator("article summary").first.click()
    page.locator("article summary").first.click()
    page.wait_for_selector("mark")
    page.close()


@pytest.mark.integration
def test_a_phone_never_scrolls_sideways(browser: Any, served: Served) -> None:
    """At 375 px with everything unfolded; a wide table scrolls by itself."""
    page = browser.new_page(viewport={"width": 375, "height": 700})
    for path in ("", "?q=ab", "?q=ab&doc=1", "?q=ab&doc=1&doc=2"):
        page.goto(served.address + path)
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        if path == "?q=ab":
            page.wait_for_selector("mark")
        assert page.evaluate("document.documentElement.scrollWidth") == 375, path
    page.close()
