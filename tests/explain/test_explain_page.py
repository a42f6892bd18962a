"""Promises of the page: everything is on it, nothing is fetched, no text becomes markup, and browsers show it."""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from golden_set import encoder

from milco_pyserini.errors import MilcoError
from milco_pyserini.explain import Explanation, compare, explain_texts
from milco_pyserini.explain.page import language_of, report_page
from milco_pyserini.explain.parts import Hit
from milco_pyserini.explain.sources import example_queries
from milco_pyserini.serve import app
from milco_pyserini.serve.app import Collection, ExplainServer, open_server

EVIL = '<script>alert("x")</script> & <b>نهر النيل</b> ナイル川 \'"'


def explanations(query: str = EVIL, texts: Sequence[str] = (EVIL, f"{EVIL} more", "x")) -> list[Explanation]:
    """What the tiny encoder makes of some texts."""
    return explain_texts(encoder("distillation"), query, texts)


class Tags(HTMLParser):
    """The tags of a page, what stands open at its end, and its text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """What was opened last is closed first."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect what a reader sees."""
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def test_no_text_becomes_markup() -> None:
    """A text full of tags is on the page as text, whole, and every tag of ours is closed."""
    ones = explanations()
    page = report_page(EVIL, ones, compare(*ones[:2]))
    tags = Tags(page)
    assert tags.open == []
    assert tags.seen.count("script") == 1
    assert "b" not in tags.seen
    assert tags.text.count(EVIL) >= 3
    assert "mark" in tags.seen


def test_a_page_needs_nothing_else() -> None:
    """No address, no import, no link: it reads the same on a machine without a network."""
    page = report_page(EVIL, explanations())
    tags = Tags(page)
    assert not {"link", "img", "iframe"} & set(tags.seen)
    assert not {"src", "href"} & {name for name, _ in tags.attributes}
    assert not re.search(r"https?://|url\(|@import", page)


def test_texts_find_their_own_direction() -> None:
    """dir=auto on both texts, and every term by itself."""
    tags = Tags(report_page("q", explanations()))
    assert tags.attributes.count(("dir", "auto")) == 2 * 3
    assert tags.seen.count("bdi") > tags.seen.count("tr") - 10


def test_marks_and_terms_belong_together() -> None:
    """Every number that a mark names is a term's button."""
    page = report_page("q", explanations())
    for article in re.findall(r"<article>.*?</article>", page, re.DOTALL):
        buttons = set(re.findall(r'data-part="(\d+)"', article))
        named = {number for group in re.findall(r'data-parts="([\d ]+)"', article) for number in group.split()}
        assert named <= buttons
        assert all(0.15 <= float(strength) <= 1 for strength in re.findall(r"--s:([\d.]+)", article))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("ペニシリンを薬にした", "ja"),
        ("谁发现了青霉素？", "zh"),
        ("누가 발견했나", "ko"),
        ("the word 木 is tree", ""),
        ("", ""),
    ],
)
def test_texts_are_marked_with_the_language_that_their_script_tells(text: str, language: str) -> None:
    """So that a browser takes the right font; of others nothing is claimed, since the page itself is in English."""
    assert language_of(text) == language
    assert f'lang="{language}">{text}</bdi>' in report_page(text, [])


def test_nothing_found_is_said() -> None:
    """An empty page is a sentence."""
    assert "No document has a term" in report_page("q", [])
    assert "No term of the query" in report_page("q", explanations("", ["x"]))


class Served:
    """A server with two hits, and the tiny encoder's explanations, behind it."""

    def __init__(self, server: ExplainServer) -> None:
        self.server = server
        self.asked: list[Any] = []
        server.search, server.explain = self.search, self.explain
        server.collection = Collection("docs", 1234, "<mini>", (EVIL, "誰ですか"))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def search(self, query: str) -> list[Hit]:
        """Two documents, whatever is asked: the second's text is long."""
        self.asked.append(query)
        return [Hit("text 1", 7.0, 100.0, f"{query} ナイル川"), Hit("text 2", 5.0, 100.0, f"{'long ' * 200}end")]

    def explain(self, query: str, docids: Sequence[str]) -> list[Explanation]:
        """Some texts, whatever is asked; an error for one name."""
        self.asked.append((query, list(docids)))
        if "nope" in docids:
            raise MilcoError("no <document> nope")
        return explanations(query, ["one", query][-len(docids) :])

    def get(self, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str, dict[str, str]]:
        """Status, body and headers."""
        port = self.server.server_address[1]
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body, dict(response.headers)


@pytest.fixture
def served() -> Iterator[Served]:
    """A server at a free port of this machine."""
    with open_server("127.0.0.1", 0) as server:
        yield Served(server)
        server.shutdown()


def test_the_page_begins_with_queries_of_the_collection(served: Served) -> None:
    """Each is a link to its results; nothing is searched yet, and nothing may be loaded but from here."""
    status, body, headers = served.get("/")
    assert (status, served.asked) == (200, [])
    assert 'name="q"' in body
    assert "1,234 documents, encoded by &lt;mini&gt;." in body
    tags = Tags(body)
    links = [value or "" for name, value in tags.attributes if name == "href"]
    assert [served.get(link)[0] for link in links] == [200, 200]
    assert served.asked == [EVIL, "誰ですか"]
    assert ("lang", "ja") in tags.attributes
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy


def test_a_page_of_results_explains_nothing(served: Served) -> None:
    """It costs the search; texts are shown in part, and every address on it leads on without a script."""
    status, body, _ = served.get(f"/?q={quote(EVIL)}")
    assert (status, served.asked) == (200, [EVIL])
    tags = Tags(body)
    assert tags.open == []
    assert {"mark", "table"}.isdisjoint(tags.seen)
    assert "long …" in tags.text and "end" not in tags.text
    assert ("value", EVIL) in tags.attributes
    links = [value or "" for name, value in tags.attributes if name == "href"]
    assert [served.get(link)[0] for link in links] == [200] * 5
    assert sorted({tuple(one[1]) for one in served.asked[1:]}) == [("text 1",), ("text 1", "text 2"), ("text 2",)]
    assert served.get("/?q=x", method="HEAD")[1] == ""


def test_a_hit_is_explained_when_it_is_asked_for(served: Served) -> None:
    """The address of a fold gives what belongs into the page: highlights, terms, and how they add up; no page."""
    addresses = [value for name, value in Tags(served.get("/?q=Nile")[1]).attributes if name == "data-from"]
    assert addresses == ["/explain?q=Nile&doc=text+1", "/explain?q=Nile&doc=text+2"]
    status, body, headers = served.get(addresses[1] or "")
    assert (status, served.asked[-1]) == (200, ("Nile", ["text 2"]))
    tags = Tags(body)
    assert tags.open == []
    assert {"mark", "table", "summary"} <= set(tags.seen)
    assert {"html", "h2", "script"}.isdisjoint(tags.seen)
    assert "sum of the contributions" in body[body.index("<summary>") :]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    for address in ("/explain?q=Nile&doc=nope", "/explain?q=Nile", "/explain?doc=text+1"):
        status, body, _ = served.get(address)
        assert (status, body[:16]) == (400, '<p class="error"')


def test_bad_requests_are_answered_in_words(served: Served) -> None:
    """An id that is not there or is there twice, another path, a query that is none."""
    status, body, _ = served.get("/?q=x&doc=nope")
    assert status == 400
    assert "no &lt;document&gt; nope" in body
    status, body, _ = served.get("/?q=x&doc=one&doc=one")
    assert status == 400
    assert "document &#x27;one&#x27; is given twice" in body
    assert served.get("/etc/passwd")[0] == 404
    assert served.get(f"/?q={'x' * 3000}")[0] == 400
    assert served.get("/?q=%20")[0] == 200


def test_another_sites_name_does_not_lead_here(served: Served) -> None:
    """A page elsewhere cannot read the documents by pointing its own name at this machine."""
    port = served.server.server_address[1]
    assert served.get("/?q=x", host=f"evil.example:{port}")[0] == 403
    assert served.get("/?q=x", host="evil.example")[0] == 403
    assert served.asked == []
    assert served.get("/", host=f"localhost:{port}")[0] == 200


def test_every_loopback_address_checks_the_name_it_is_called_by() -> None:
    """127.0.0.2 as well; at other addresses any name is answered."""
    with open_server("127.0.0.2", 0) as server:
        assert "127.0.0.2" in server.names
        assert "evil.example" not in server.names
    with open_server("0.0.0.0", 0) as server:
        assert server.names == ()


def test_parallel_requests_are_all_answered(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few of them are served at a time: others wait to be accepted."""
    served.server._free = threading.Semaphore(3)
    with ThreadPoolExecutor(60) as pool:
        assert {status for status, _, _ in pool.map(lambda _: served.get("/?q=x"), range(60))} == {200}


def test_a_client_that_trickles_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is for all of the head: a byte now and then does not prolong it."""
    monkeypatch.setattr(app, "_HEAD_SECONDS", 0.3)
    with open_server("127.0.0.1", 0) as server, socket.create_connection(server.server_address) as client:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        client.settimeout(0.02)
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                client.send(b"G")
                with contextlib.suppress(TimeoutError):
                    assert client.recv(1) == b""
        server.shutdown()


def test_topics_next_to_a_corpus_are_examples(tmp_path: Path) -> None:
    """The sample's in six languages; of a path those of a file that is named so, unless it is broken."""
    assert len({query[:2] for query in example_queries({"corpus": "sample"})}) == 6
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "contents": "x"}')
    assert example_queries({"corpus": str(corpus)}) == []
    (tmp_path / "queries.tsv").write_text("".join(f"{number}\tquery {number}\n" for number in range(100)))
    for name in (corpus, tmp_path):
        assert example_queries({"corpus": str(name)})[:2] == ["query 0", "query 17"]
    (tmp_path / "queries.tsv").write_text("broken")
    assert example_queries({"corpus": str(corpus)}) == example_queries({"corpus": "miracl-ar"}) == []


def test_a_port_in_use_is_one_line(served: Served) -> None:
    """Before anything is loaded; other addresses that cannot be had are errors too."""
    port = served.server.server_address[1]
    with pytest.raises(MilcoError, match=f"--port {port} is in use: choose another"):
        open_server("127.0.0.1", port)
    with pytest.raises(MilcoError, match=r"cannot listen at --host 203\.0\.113\.7"):
        open_server("203.0.113.7", 0)


@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page(browser: Any, tmp_path: Path, scheme: str) -> None:
    """No error and no request; Arabic runs from the right; the keyboard reaches a term and shows its marks."""
    path = tmp_path / "page.html"
    arabic = "أين نهر النيل"
    path.write_text(report_page(arabic, explanations(arabic, [arabic, "ナイル川"])), encoding="utf-8")
    page = browser.new_context(color_scheme=scheme).new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    text = page.locator("p.text").first
    assert text.evaluate("element => getComputedStyle(element).direction") == "rtl"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "term"
    assert page.locator("mark.on").count() == 0
    page.keyboard.press("Enter")
    assert page.locator("button[aria-pressed=true]").count() == 1
    assert page.locator("mark.on").count() >= 1
    page.keyboard.press("Escape")
    assert page.locator("mark.on").count() == 0
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    assert (problems, len(requests)) == ([], 1)
    page.context.close()


@pytest.mark.integration
def test_a_browser_searches_and_unfolds_by_keyboard(browser: Any, served: Served) -> None:
    """Type, Enter, results; a fold fetches its explanation, once, past the page's policy, and keeps the focus."""
    page = browser.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(served.server.address)
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
    asked = len(served.asked)
    page.locator("article summary").first.click()
    page.locator("article summary").first.click()
    assert len(served.asked) == asked
    assert [problem for problem in problems if "favicon" not in problem] == []
    page.close()


@pytest.mark.integration
def test_a_browser_shows_why_a_hit_is_not_explained(browser: Any, served: Served) -> None:
    """The server's reason is in the fold, which tries again when it is unfolded again."""
    page = browser.new_page()
    page.goto(f"{served.server.address}?q=ab")
    served.server.explain = lambda query, docids: served.explain(query, ["nope"])
    page.locator("article summary").first.click()
    page.wait_for_selector("article .error")
    assert page.locator("article .error").text_content() == "no <document> nope"
    served.server.explain = served.explain
    page.locator("article summary").first.click()
    page.locator("article summary").first.click()
    page.wait_for_selector("mark")
    page.close()


@pytest.mark.integration
def test_a_phone_never_scrolls_sideways(browser: Any, served: Served) -> None:
    """375 px, with everything unfolded; a wide table scrolls by itself."""
    page = browser.new_page(viewport={"width": 375, "height": 700})
    for address in ("", "?q=ab", "?q=ab&doc=1", "?q=ab&doc=1&doc=2"):
        page.goto(served.server.address + address)
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        if address == "?q=ab":
            page.wait_for_selector("mark")
        assert page.evaluate("document.documentElement.scrollWidth") == 375, address
    page.close()
