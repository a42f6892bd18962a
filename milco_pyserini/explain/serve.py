"""python -m milco_pyserini.explain serve --index ...: a page on this machine to search and see why.

Handlers run in threads of their own, since a browser holds connections open that it does not use; whatever touches
the index or the encoder runs in one thread, one question at a time.
"""

import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from milco_pyserini.console import say
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.explain.parts import Explanation

# Questions are short; a longer line is no question.
_LONGEST_QUERY = 2000
_MOST_HITS = 100
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_IDLE_SECONDS = 60

Answer = Callable[[str, Sequence[str], int], "list[Explanation]"]


@dataclass(frozen=True)
class ServeOptions:
    """A page on this machine: type a query in any language, see what an index finds and why.

    Ctrl-C ends it. Whoever can reach --host can read the documents; by default that is this machine alone.
    """

    index: Path | None = option(None, help="directory of the index (default: the only one in indexes/)")
    port: int = option(8000, help="port of the page; 0 for one that is free")
    host: str = option("127.0.0.1", help="address to listen at; another than 127.0.0.1 opens the page to a network")
    hits: int = option(10, help="documents for each query")
    alpha: float | None = option(
        None, help="weigh queries' views as search --alpha does: alpha x pivot + (1 - alpha) x source"
    )
    corpus: str | None = option(None, help="where the index's documents are now (default: where they were encoded)")
    encoder: str | None = option(None, help="where the index's encoder is now; for vectors that others wrote, which")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16")


def serve_command(options: ServeOptions) -> None:
    """Serve until Ctrl-C. Raises MilcoError if the port is in use, before the encoder is loaded."""
    from milco_pyserini.encode import open_query_encoder
    from milco_pyserini.explain.__main__ import check_range, only_index
    from milco_pyserini.explain.explainer import IndexExplainer, check_alpha
    from milco_pyserini.explain.sources import ShelvedTexts, corpus_of
    from milco_pyserini.index import open_index
    from milco_pyserini.index.protocol import TERMS

    if not 1 <= options.hits <= _MOST_HITS:
        raise MilcoError(f"--hits {options.hits}: must be from 1 to {_MOST_HITS}")
    check_range(options.alpha)
    index = open_index(options.index or only_index(), TERMS)
    corpus = corpus_of(index.vectors, options.corpus)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(open_server(options.host, options.port))
        encoder = open_query_encoder(index.vectors, options.encoder, options.device, options.dtype)
        check_alpha(options.alpha, encoder.views)
        texts = ShelvedTexts(corpus) if corpus else None
        if texts:
            stack.callback(texts.close)
        explain = IndexExplainer(index, encoder, texts, alpha=options.alpha).explain
        worker = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(worker.submit, _let_java_go)
        server.answer = lambda *question: worker.submit(explain, *question).result()
        server.hits, server.title = options.hits, index.path.resolve().name
        say(f"{server.address} (Ctrl-C ends it)")
        server.serve_forever()


class ExplainServer(ThreadingHTTPServer):
    """The page's server. answer: (query, docids, hits) to explanations, called from several threads."""

    daemon_threads = True
    answer: Answer
    hits = 10
    title = "index"

    def __init__(self, host: str, port: int) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    @property
    def address(self) -> str:
        """What to type into a browser."""
        host = self.server_address[0]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{self.server_address[1]}/"

    @property
    def names(self) -> tuple[str, ...]:
        """What a browser may call this server, where it listens to this machine alone."""
        return (*_LOOPBACK, "[::1]") if str(self.server_address[0]) in _LOOPBACK else ()


def open_server(host: str, port: int) -> ExplainServer:
    """A server that listens at host:port. Raises MilcoError if it cannot."""
    if not 0 <= port < 65536:
        raise MilcoError(f"--port {port}: must be from 0 to 65,535")
    try:
        return ExplainServer(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MilcoError(f"--port {port} is in use: choose another, or 0 for one that is free") from None
        raise MilcoError(f"cannot listen at --host {host} --port {port}: {error.strerror or error}") from None


class _Handler(BaseHTTPRequestHandler):
    server: ExplainServer
    server_version = "milco_pyserini"
    sys_version = ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        """The page, with results where there is a query."""
        url = urlsplit(self.path)
        if not self._is_ours():
            self._send(HTTPStatus.FORBIDDEN, "Call this page by the address that it printed.")
        elif url.path != "/":
            self._send(HTTPStatus.NOT_FOUND, "There is but one page: /")
        else:
            self._send(*self._page(parse_qs(url.query)))

    def do_HEAD(self) -> None:
        """The headers of the page."""
        self.do_GET()

    def _is_ours(self) -> bool:
        """Whether the browser was sent here by name, and not by a page whose own name now points here."""
        names = self.server.names
        host = self.headers.get("Host", "")
        return not names or host.removesuffix(f":{self.server.server_address[1]}") in names

    def _page(self, fields: dict[str, list[str]]) -> tuple[HTTPStatus, str]:
        from milco_pyserini.explain.__main__ import refuse_twice

        query = " ".join(fields.get("q", [""])[0].split())
        docids = fields.get("doc", [])
        if not query:
            return HTTPStatus.OK, ""
        if len(query) > _LONGEST_QUERY or len(docids) > _MOST_HITS:
            return HTTPStatus.BAD_REQUEST, f"A query has up to {_LONGEST_QUERY:,} characters."
        try:
            refuse_twice(docids)
            return HTTPStatus.OK, results_html(query, docids, self.server.answer(query, docids, self.server.hits))
        except MilcoError as error:
            return HTTPStatus.BAD_REQUEST, f'<p class="error" role="alert">{escape(str(error))}</p>'

    def _send(self, status: HTTPStatus, inner: str) -> None:
        from milco_pyserini.explain.page import content_security_policy, whole_page

        fields = parse_qs(urlsplit(self.path).query)
        query = " ".join(fields.get("q", [""])[0].split())[:_LONGEST_QUERY]
        title = self.server.title
        page = whole_page(f"{query} – {title}" if query else title, form_html(title, query) + inner).encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(page))),
            ("Content-Security-Policy", content_security_policy()),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):
                self.wfile.write(page)

    def log_message(self, *_: Any) -> None:
        """Say nothing: what people ask is theirs."""


def form_html(title: str, query: str) -> str:
    """The head of the page: where queries are typed."""
    return (
        f'<h1>{escape(title)}</h1>\n<form role="search" action="/" method="get">'
        '<label class="hidden" for="q">Query</label>'
        f'<input type="search" id="q" name="q" dir="auto" required maxlength="{_LONGEST_QUERY}" '
        f'placeholder="a query in any language" value="{escape(query)}"{"" if query else " autofocus"}>'
        "<button>Search</button></form>\n"
    )


def results_html(query: str, docids: Sequence[str], explanations: "Sequence[Explanation]") -> str:
    """The documents with their explanations, folded where they are hits. Two that are named are compared."""
    from milco_pyserini.explain.page import comparison_html, explanation_html
    from milco_pyserini.explain.parts import compare

    if not explanations:
        return "<p>No document has a term of this query.</p>"
    blocks = [comparison_html(compare(*explanations))] if len(docids) == 2 else []
    for place, one in enumerate(explanations):
        links = [f'<a href="{_link(query, one.document.name)}"><bdi>{escape(one.document.name)}</bdi></a>']
        if not docids and place + 1 < len(explanations):
            following = explanations[place + 1].document.name
            links.append(
                f'<small><a href="{_link(query, one.document.name, following)}">why above the next</a></small>'
            )
        blocks.append(explanation_html(one, " ".join(links), folded=not docids))
    return "\n".join(blocks)


def _link(query: str, *docids: str) -> str:
    return escape("/?" + urlencode([("q", query), *(("doc", docid) for docid in docids)]))


def _let_java_go() -> None:
    """For the end of a thread that has called Java."""
    if "jnius" in sys.modules:
        sys.modules["jnius"].detach()
