"""Serve a page to search an index and see why its documents match."""

import asyncio
import contextlib
import errno
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from milco_pyserini.console import log
from milco_pyserini.corpora import open_topics
from milco_pyserini.corpora.catalog import local_corpus_name
from milco_pyserini.encode import open_query_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.explainer import Explainer
from milco_pyserini.explain.explanation import compare, explanation_fragment
from milco_pyserini.explain.render import content_security_policy, render
from milco_pyserini.index import Index, open_index
from milco_pyserini.index.protocol import DocumentLookup
from milco_pyserini.search.documents import CachedDocuments, CorpusLookup, open_lookup

MAX_QUERY_CHARACTERS = 2000
MAX_HITS = 100
# For all of a request's head, however slowly its bytes arrive.
HEAD_SECONDS = 5.0
# Connections that the kernel queues; beyond, clients see resets.
_BACKLOG = 1024
_PAGE, _FRAGMENT = "/", "/explain"
_TOPICS = re.compile(r"(queries|topics)(?![a-z])", re.IGNORECASE)
_EXAMPLES = 6


@dataclass(frozen=True)
class IndexDescription:
    """An index as the page shows it: name, number of documents, encoder, the scores' unit, queries to try."""

    name: str
    documents: int
    encoder: str
    unit: float
    examples: Sequence[str] = ()


def serve(
    index: Index | str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    hits: int = 10,
    alpha: float | None = None,
    corpus: str | None = None,
    encoder: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> None:
    """Serve the search page of an index until Ctrl-C.

    Whoever can reach the host can read the documents; by default, that is this machine only.

    Args:
        index: An open index of terms, or the directory of one.
        port: 0 for a free one.
        hits: Documents per query.
        alpha: Weight of a query's pivot view; its source view has 1 - alpha (default: both count in full).
        corpus: Name or path of the index's documents (default: where they were encoded).
        encoder: Where the index's encoder is now (default: the manifest's).

    Raises:
        MilcoError: the port is in use, which is reported before the encoder is loaded.
    """
    if not isinstance(index, Index):
        index = open_index(index, sparse=True)
    searcher = index.searcher()
    lookup: DocumentLookup | None = open_lookup(index, searcher, corpus)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(host, port))
        query_encoder = open_query_encoder(index.vectors, encoder, device, dtype).with_alpha(alpha)
        if isinstance(lookup, CorpusLookup):
            cached = CachedDocuments(lookup.corpus, bool(index.vectors.get("split_passages")))
            lookup = stack.enter_context(contextlib.closing(cached))
        explainer = Explainer(index, query_encoder, lookup, searcher=searcher)
        description = IndexDescription(
            index.path.resolve().name,
            index.manifest["documents"],
            query_encoder.encoder.name,
            explainer.unit,
            example_queries(index.vectors),
        )
        worker = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(worker.submit, _detach_from_java)
        app = create_app(explainer, description, hits, allowed_hosts(listener), worker)
        log(f"Serving {index.path} at {address(listener)} (stop with Ctrl-C)")
        if not allowed_hosts(listener):
            log(f"Anyone who can reach --host {host} can read the documents, under any host name")
        create_server(app).run(sockets=[listener])


def create_app(
    backend: Explainer,
    description: IndexDescription,
    hits: int = 10,
    hosts: Sequence[str] = (),
    worker: ThreadPoolExecutor | None = None,
) -> FastAPI:
    """Create the application: the search page, and explanations of single hits for a page that is open.

    Args:
        backend: Searches and explains, for one request at a time.
        hosts: Host headers that are answered; () for all.
        worker: The one thread that calls the backend.
    """
    app = FastAPI(title="milco serve", docs_url=None, redoc_url=None, openapi_url=None)
    worker = worker or ThreadPoolExecutor(1)

    async def in_worker(function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(worker, function, *arguments)

    def page(query: str = "", **content: Any) -> str:
        values = {"error": "", "hits": None, "explanations": None, "comparison": None, **content}
        return render("search.html", query=query, description=description, max_query=MAX_QUERY_CHARACTERS, **values)

    def page_of(query: str, docids: Sequence[str]) -> str:
        if not query:
            return page()
        if not docids:
            return page(query, hits=backend.search(query, hits))
        explanations = backend.explain(query, docids)
        comparison = compare(*explanations) if len(explanations) == 2 else None
        return page(query, explanations=explanations, comparison=comparison)

    def fragment_of(query: str, docid: str) -> str:
        return explanation_fragment(backend.explain(query, [docid])[0])

    def error(request: Request, status: int, message: str) -> Response:
        if request.url.path == _FRAGMENT:
            return HTMLResponse(f'<p class="error" role="alert">{escape(message)}</p>', status)
        query = " ".join(request.query_params.get("q", "").split())
        return HTMLResponse(page(query[:MAX_QUERY_CHARACTERS], error=message), status)

    @app.middleware("http")
    async def secure(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        # Another site's page, whose own name now points to this machine, must not read the documents.
        if hosts and request.headers.get("host", "") not in hosts:
            response = error(request, HTTPStatus.FORBIDDEN, "Open this page at the address that milco serve printed.")
        else:
            response = await call_next(request)
        response.headers["Content-Security-Policy"] = content_security_policy()
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cache-Control"] = "no-store"
        return response

    @app.exception_handler(HTTPStatus.NOT_FOUND)
    async def not_found(request: Request, _: Exception) -> Response:
        return error(request, HTTPStatus.NOT_FOUND, f"There is one page: {_PAGE}")

    @app.exception_handler(MilcoError)
    async def bad_request(request: Request, failure: Exception) -> Response:
        return error(request, HTTPStatus.BAD_REQUEST, str(failure))

    @app.api_route(_PAGE, methods=["GET", "HEAD"])
    async def search_page(q: str = "", doc: Annotated[Sequence[str], Query()] = ()) -> Response:
        return HTMLResponse(await in_worker(page_of, _query(q), _docids(doc)))

    @app.api_route(_FRAGMENT, methods=["GET", "HEAD"])
    async def explanation(q: str = "", doc: Annotated[Sequence[str], Query()] = ()) -> Response:
        if not q.strip() or not doc:
            raise MilcoError(f"{_FRAGMENT} needs q and doc")
        return HTMLResponse(await in_worker(fragment_of, _query(q), _docids(doc)[0]))

    return app


class _DeadlineProtocol(H11Protocol):
    """HTTP/1.1 with one request per connection, whose head must arrive within HEAD_SECONDS."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self._close_without_request)

    def _close_without_request(self) -> None:
        if self.cycle is None:
            self.transport.close()


def create_server(app: FastAPI) -> uvicorn.Server:
    """Create a server that logs no queries, and that slow or idle clients do not hold up."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=_DeadlineProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            backlog=_BACKLOG,
            server_header=False,
            headers=[("Connection", "close")],
            timeout_graceful_shutdown=1,
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at host:port. Raises MilcoError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MilcoError(f"--port {port} is in use: choose another, or 0 for a free one") from None
        raise MilcoError(f"cannot listen at --host {host} --port {port}: {error.strerror or error}") from None


def address(listener: socket.socket) -> str:
    """Return the URL of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def allowed_hosts(listener: socket.socket) -> tuple[str, ...]:
    """Return the Host headers to answer at a loopback address; () for all, at an address that others can reach."""
    host, port = listener.getsockname()[:2]
    if not ip_address(host).is_loopback:
        return ()
    names = ("localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host)
    return (*names, *(f"{name}:{port}" for name in names))


def example_queries(vectors: Mapping) -> list[str]:
    """Return a few topics of the corpus that an index was built from, if they are on this machine.

    These are the sample's, or those of the first file next to the corpus that is named queries or topics.
    """
    name = local_corpus_name(vectors)
    if name is None or vectors.get("plain"):
        return []
    path = Path(name)
    if path.exists():
        directory = path if path.is_dir() else path.parent
        files = sorted(file for file in directory.iterdir() if file.is_file() and _TOPICS.match(file.name))
        if not files:
            return []
        name = str(files[0])
    try:
        queries = [query.text for query in islice(open_topics(name), 1000)]
    except MilcoError:
        return []
    # The sample's are sorted by language, and by subject within a language.
    return queries[:: len(queries) // _EXAMPLES + 1]


def _query(text: str) -> str:
    query = " ".join(text.split())
    if len(query) > MAX_QUERY_CHARACTERS:
        raise MilcoError(f"the query has {len(query):,} characters: it may have up to {MAX_QUERY_CHARACTERS:,}")
    return query


def _docids(docids: Sequence[str]) -> Sequence[str]:
    if len(docids) > MAX_HITS:
        raise MilcoError(f"{len(docids):,} documents are named: up to {MAX_HITS} can be explained at a time")
    return list(dict.fromkeys(docids))


def _detach_from_java() -> None:
    """End a thread that has called Java."""
    if "jnius" in sys.modules:
        sys.modules["jnius"].detach()
