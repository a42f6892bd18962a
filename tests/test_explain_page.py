"""Promises of the page: everything is on it, nothing is fetched, no text becomes markup, and browsers show it."""

import re
import threading
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from golden_set import encoder

from milco_pyserini.errors import MilcoError
from milco_pyserini.explain import Explanation, compare, explain_texts
from milco_pyserini.explain.page import report_page
from milco_pyserini.explain.serve import ExplainServer, ServeOptions, open_server, serve_command

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


def test_nothing_found_is_said() -> None:
    """An empty page is a sentence."""
    assert "No document has a term" in report_page("q", [])
    assert "No term of the query" in report_page("q", explanations("", ["x"]))


class Served:
    """A server with the tiny encoder's explanations behind it."""

    def __init__(self, server: ExplainServer) -> None:
        self.server = server
        self.asked: list[Any] = []
        server.answer = self.answer
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, query: str, docids: Sequence[str], hits: int) -> list[Explanation]:
        """Two texts, whatever is asked; an error for one name."""
        self.asked.append((query, list(docids), hits))
        if "nope" in docids:
            raise MilcoError("no <document> nope")
        return explanations(query, ["one", query])

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


def test_the_served_page_answers_queries(served: Served) -> None:
    """A form; results with links to each document and to the comparison; the query in the field again."""
    status, body, headers = served.get("/")
    assert (status, served.asked) == (200, [])
    assert 'name="q"' in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    status, body, _ = served.get(f"/?q={quote(EVIL)}")
    assert status == 200
    assert served.asked == [(EVIL, [], 10)]
    tags = Tags(body)
    assert tags.open == []
    assert ("value", EVIL) in tags.attributes
    links = [value for name, value in tags.attributes if name == "href"]
    assert any(value and value.count("doc=") == 2 for value in links)
    for link in links:
        assert served.get(link or "")[0] == 200
    assert served.asked[-1][1] == ["text 2"]
    assert served.get("/?q=x", method="HEAD")[1] == ""


def test_bad_requests_are_answered_in_words(served: Served) -> None:
    """An id that is not there or is there twice, another path, a query that is none."""
    status, body, _ = served.get("/?q=x&doc=nope")
    assert status == 400
    assert "no &lt;document&gt; nope" in body
    status, body, _ = served.get("/?q=x&doc=one&doc=one")
    assert status == 400
    assert "document &#x27;one&#x27; is named twice" in body
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


def test_a_port_in_use_is_one_line(served: Served) -> None:
    """Before anything is loaded; other addresses that cannot be had are errors too."""
    port = served.server.server_address[1]
    with pytest.raises(MilcoError, match=f"--port {port} is in use: choose another"):
        open_server("127.0.0.1", port)
    with pytest.raises(MilcoError, match="--port 70000: must be from 0 to 65,535"):
        open_server("127.0.0.1", 70000)
    with pytest.raises(MilcoError, match=r"cannot listen at --host 203\.0\.113\.7"):
        open_server("203.0.113.7", 0)
    with pytest.raises(MilcoError, match="--hits 0: must be from 1 to 100"):
        serve_command(ServeOptions(hits=0))


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
def test_a_browser_searches_by_keyboard(browser: Any, served: Served) -> None:
    """Type, Enter, results; the page's own script is let through by its policy, and folds open."""
    page = browser.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(served.server.address)
    page.keyboard.type("ab ナイル川")
    page.keyboard.press("Enter")
    page.wait_for_selector("article")
    assert page.locator("article").count() == 2
    summary = page.locator("article summary").last
    summary.focus()
    page.keyboard.press("Enter")
    page.goto(f"{served.server.address}?q=ab&doc=1")
    page.locator("button.term").first.click()
    assert page.locator("button[aria-pressed=true]").count() == 1
    assert [problem for problem in problems if "favicon" not in problem] == []
    page.close()
