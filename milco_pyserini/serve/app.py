"""milco explain serve --index ...: a page on this machine to search and see why.

Handlers run in threads of their own, since a browser holds connections open that it does not use; whatever touches
the index or the encoder runs in one thread, one question at a time.
"""

import contextlib
import errno
import io
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from milco_pyserini.console import counted, say
from milco_pyserini.errors import MilcoError, shown, validate_unique
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.explain.parts import Explanation, Hit

# Questions are short; a longer line is no question.
_LONGEST_QUERY = 2000
_MOST_HITS = 100
_MOST_CONNECTIONS = 64
# For all of a request's head, and for all of its answer.
_HEAD_SECONDS = 5
_ANSWER_SECONDS = 60
_PAGE, _FRAGMENT = "/", "/explain"
_NOTHING = "<p>No document has a term of this query.</p>"


@dataclass(frozen=True)
class ServeOptions:
    """A page on this machine: type a query in any language, see what an index finds and why.

    Ctrl-C ends it. Whoever can reach --host can read the documents; by default that is this machine alone.
    """

    index: Path | None = option(None, help="directory of the index (default: the only one in indexes/)")
    port: int = option(8000, minimum=0, maximum=65535, help="port of the page; 0 for one that is free")
    host: str = option(
        "127.0.0.1",
        help="address to listen at; other than a loopback address, it opens the page to a network under any host name",
    )
    hits: int = option(10, minimum=1, maximum=_MOST_HITS, help="documents for each query")
    alpha: float | None = option(
        None,
        minimum=0,
        maximum=1,
        help="weigh queries' views as search --alpha does: alpha x pivot + (1 - alpha) x source",
    )
    corpus: str | None = option(None, help="where the index's documents are now (default: where they were encoded)")
    encoder: str | None = option(None, help="where the index's encoder is now; for vectors that others wrote, which")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16")


def serve_command(options: ServeOptions) -> None:
    """Serve until Ctrl-C. Raises MilcoError if the port is in use, before the encoder is loaded."""
    from milco_pyserini.cli.explain import only_index
    from milco_pyserini.encode import open_query_encoder
    from milco_pyserini.explain.explainer import Explainer, check_alpha
    from milco_pyserini.explain.sources import ShelvedTexts, corpus_of, example_queries
    from milco_pyserini.index import open_index

    index = open_index(options.index or only_index(), sparse=True)
    corpus = corpus_of(index.vectors, options.corpus)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(open_server(options.host, options.port))
        encoder = open_query_encoder(index.vectors, options.encoder, options.device, options.dtype)
        check_alpha(options.alpha, encoder.views)
        texts = ShelvedTexts(corpus) if corpus else None
        if texts:
            stack.callback(texts.close)
        explainer = Explainer(index, encoder, texts, alpha=options.alpha)
        worker = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(worker.submit, _let_java_go)
        server.search = lambda query: worker.submit(explainer.search, query, options.hits).result()
        server.explain = lambda query, docids: worker.submit(explainer.explain, query, docids).result()
        server.collection = Collection(
            index.path.resolve().name, index.manifest["documents"], encoder.encoder.name, example_queries(index.vectors)
        )
        say(f"{server.address} (Ctrl-C ends it)")
        if not server.names:
            say(f"whoever reaches --host {options.host} can read the documents, by whatever host name")
        server.serve_forever()


@dataclass(frozen=True)
class Collection:
    """What is searched: the index's name, its number of documents, its encoder's name, and some queries to try."""

    name: str = "index"
    documents: int = 0
    encoder: str = ""
    examples: Sequence[str] = ()


class ExplainServer(ThreadingHTTPServer):
    """The page's server. search: query to hits. explain: (query, docids) to explanations. Several threads call them."""

    daemon_threads = True
    # Of a kernel whose queue is full, clients meet resets.
    request_queue_size = 1024
    search: Callable[[str], "list[Hit]"]
    explain: Callable[[str, Sequence[str]], "list[Explanation]"]
    collection = Collection()

    def __init__(self, host: str, port: int) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self._free = threading.Semaphore(_MOST_CONNECTIONS)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Wait until fewer than _MOST_CONNECTIONS are open: others stay in the listen queue."""
        self._free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    @property
    def address(self) -> str:
        """What to type into a browser."""
        host = self.server_address[0]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{self.server_address[1]}/"

    @property
    def names(self) -> tuple[str, ...]:
        """What a browser may call this server; () for any name, at an address that other machines reach."""
        host = str(self.server_address[0])
        shown = f"[{host}]" if ":" in host else host
        return ("localhost", "127.0.0.1", "[::1]", shown) if ip_address(host).is_loopback else ()


def open_server(host: str, port: int) -> ExplainServer:
    """A server that listens at host:port. Raises MilcoError if it cannot."""
    try:
        return ExplainServer(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MilcoError(f"--port {port} is in use: choose another, or 0 for one that is free") from None
        raise MilcoError(f"cannot listen at --host {host} --port {port}: {error.strerror or error}") from None


class _Head(io.RawIOBase):
    """What a client sends, up to one deadline for all of it: bytes that trickle do not prolong it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + _HEAD_SECONDS

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises TimeoutError after the deadline, which ends the connection."""
        self._connection.settimeout(max(self._deadline - time.monotonic(), 0.001))
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server: ExplainServer
    server_version = "milco_pyserini"
    sys_version = ""

    def setup(self) -> None:
        """Read under a deadline."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Head(self.connection))

    def do_GET(self) -> None:
        """The page with results or explanations, or the explanation of one hit for a page that is open."""
        self.connection.settimeout(_ANSWER_SECONDS)
        url = urlsplit(self.path)
        fields = parse_qs(url.query)
        query, docids = " ".join(fields.get("q", [""])[0].split()), fields.get("doc", [])
        if not self._is_host_allowed():
            status, html = HTTPStatus.FORBIDDEN, _error("Call this page by the address that it printed.")
        elif url.path not in (_PAGE, _FRAGMENT):
            status, html = HTTPStatus.NOT_FOUND, _error(f"There is one page: {_PAGE}")
        elif len(query) > _LONGEST_QUERY or len(docids) > _MOST_HITS:
            status, html = HTTPStatus.BAD_REQUEST, _error(f"A query has up to {_LONGEST_QUERY:,} characters.")
        elif url.path == _FRAGMENT and not (query and docids):
            status, html = HTTPStatus.BAD_REQUEST, _error(f"{_FRAGMENT} needs q and doc.")
        else:
            status, html = self._answer(query, docids, url.path == _FRAGMENT)
        self._send(status, html if url.path == _FRAGMENT else self._page(query[:_LONGEST_QUERY], html))

    def do_HEAD(self) -> None:
        """The headers of the page."""
        self.do_GET()

    def _is_host_allowed(self) -> bool:
        """Whether the browser was sent here by name, and not by a page whose own name now points here."""
        names = self.server.names
        host = self.headers.get("Host", "")
        return not names or host.removesuffix(f":{self.server.server_address[1]}") in names

    def _answer(self, query: str, docids: Sequence[str], is_fragment: bool) -> tuple[HTTPStatus, str]:
        from milco_pyserini.explain.page import explanation_body

        try:
            validate_unique("document", map(shown, docids))
            if not query:
                html = introduction_html(self.server.collection)
            elif is_fragment:
                html = explanation_body(self.server.explain(query, docids[:1])[0], foldable=True)
            elif docids:
                html = explained_html(query, self.server.explain(query, docids))
            else:
                html = results_html(query, self.server.search(query))
        except MilcoError as error:
            return HTTPStatus.BAD_REQUEST, _error(str(error))
        return HTTPStatus.OK, html

    def _page(self, query: str, html: str) -> str:
        from milco_pyserini.explain.page import whole_page

        name = self.server.collection.name
        return whole_page(f"{query} – {name}" if query else name, form_html(name, query) + html)

    def _send(self, status: HTTPStatus, html: str) -> None:
        from milco_pyserini.explain.page import content_security_policy

        body = html.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", content_security_policy()),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: what people ask is theirs."""


def form_html(name: str, query: str) -> str:
    """The head of the page: where queries are typed."""
    return (
        f'<h1>{escape(name)}</h1>\n<form role="search" action="{_PAGE}" method="get">'
        '<label class="hidden" for="q">Query</label>'
        f'<input type="search" id="q" name="q" dir="auto" lang="" required maxlength="{_LONGEST_QUERY}" '
        f'placeholder="a query in any language" value="{escape(query)}"{"" if query else " autofocus"}>'
        "<button>Search</button></form>\n"
    )


def introduction_html(collection: Collection) -> str:
    """The page before a query: what is searched, and queries to try."""
    from milco_pyserini.explain.page import language_of

    lines = [f"<p>{counted(collection.documents, 'document')}, encoded by {escape(collection.encoder)}.</p>"]
    if collection.examples:
        links = [
            f'<li><a href="{_link(_PAGE, query)}" dir="auto" lang="{language_of(query)}">{escape(query)}</a></li>'
            for query in collection.examples
        ]
        lines.append(f'<p>Some queries of this collection:</p>\n<ul class="examples">{"".join(links)}</ul>')
    return "\n".join(lines)


def results_html(query: str, hits: "Sequence[Hit]") -> str:
    """Hits, best first, each explained when it is unfolded."""
    from milco_pyserini.explain.page import hit_html

    articles = []
    for rank, hit in enumerate(hits, 1):
        alone = _link(_PAGE, query, hit.docid)
        links = [f'<a href="{alone}">explanation on its own page</a>']
        if rank < len(hits):
            links.insert(0, f'<a href="{_link(_PAGE, query, hit.docid, hits[rank].docid)}">why above the next</a>')
        name = f'<a href="{alone}"><bdi>{escape(hit.docid)}</bdi></a>'
        articles.append(hit_html(hit, rank, name, links, _link(_FRAGMENT, query, hit.docid)))
    return "\n".join(articles) or _NOTHING


def explained_html(query: str, explanations: "Sequence[Explanation]") -> str:
    """Documents that were named, explained; two are compared."""
    from milco_pyserini.explain.page import comparison_html, explanation_html
    from milco_pyserini.explain.parts import compare

    blocks = [f'<p><a href="{_link(_PAGE, query)}">All results</a></p>']
    if len(explanations) == 2:
        blocks.append(comparison_html(compare(*explanations)))
    for one in explanations:
        name = escape(one.document.name)
        blocks.append(
            explanation_html(one, f'<a href="{_link(_PAGE, query, one.document.name)}"><bdi>{name}</bdi></a>')
        )
    return "\n".join(blocks)


def _link(path: str, query: str, *docids: str) -> str:
    return escape(f"{path}?" + urlencode([("q", query), *(("doc", docid) for docid in docids)]))


def _error(message: str) -> str:
    return f'<p class="error" role="alert">{escape(message)}</p>'


def _let_java_go() -> None:
    """For the end of a thread that has called Java."""
    if "jnius" in sys.modules:
        sys.modules["jnius"].detach()
