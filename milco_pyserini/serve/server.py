"""Run milco serve: open the index, listen, and stop gracefully; or talk to one agent on stdin and stdout."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from ipaddress import ip_address, ip_network
from logging import StreamHandler, makeLogRecord
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError, ParameterError, installed_by, parameter
from milco_pyserini.io.files import STDOUT
from milco_pyserini.serve.app import create_app
from milco_pyserini.serve.memory import Memory
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.service import SearchService

__all__ = ["serve"]

try:
    import resource
except ImportError:
    # Windows.
    resource = None  # type: ignore[assignment]

TOKEN_VARIABLE = "MILCO_TOKEN"
# For requests in progress when the server is stopped.
STOP_SECONDS = 10
# From the first byte of a request, or from the connection, to the last byte of the request.
REQUEST_SECONDS = 20.0
# For a request to arrive, however many connections there are.
_MIN_SECONDS = 0.25
_MIN_TOKEN = 16
# Connections that the kernel queues.
_BACKLOG = 1024
_CONNECTIONS = 900
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def serve(
    index: str | Path | Sequence[str | Path],
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    k: int = 10,
    threads: int = 2,
    queue: int = 128,
    title: str = "",
    access_log: str | Path | None = None,
    trust_proxy: Sequence[str] = (),
    memory: bool = False,
    **opened: Any,
) -> None:
    """Serve the API and the search page of an index until Ctrl-C or SIGTERM; requests in progress are completed.

    An index that is updated or replaced is opened again, at once on SIGHUP.

    Args:
        index: the directory of an index of terms; or a list of several, of which one is of terms, with fuse.
        host: other than this machine's own addresses, it needs a token: who can reach it could read the documents.
        port: 0 for a free one.
        token: requests must carry it (default: MILCO_TOKEN of the environment, if it is set).
        k, threads, queue, title: as for SearchService.
        access_log: a file to which a line of JSON is appended for every request; "-" for stdout (default: no log).
        trust_proxy: addresses and networks of proxies, which state a client's address in X-Forwarded-For.
        memory: the index is a memory, which open_memory() returned: agents write it.
        opened: as for Searcher.open(): encoder, alpha, device, dtype; fuse and weights.

    Raises:
        MilcoError: the port is in use, the token is missing or short, or the log cannot be written: before the encoder
            is loaded.
    """
    token = validate_token(host, token)
    for proxy in trust_proxy:
        try:
            ip_network(proxy)
        except ValueError as error:
            fix = "Give an address or a network: 10.0.0.0/8."
            raise ParameterError("trust_proxy", proxy, f"{error}", fix) from None
    with (
        open_access_log(access_log) as write_access,
        listen(host, port) as listener,
        contextlib.closing(SearchService(IndexSnapshot.open(index, **opened), threads, queue, k, title)) as service,
    ):
        notes = Memory(service) if memory else None
        app = create_app(service, allowed_hosts(listener), token, write_access, notes)
        url, name = address(listener), service.opened.searcher.name
        log(f"Serving {name} at {url} (API: {url}docs; stop with Ctrl-C)")
        server = create_server(app, listener, trust_proxy)
        with _stopped_by_sigterm(server):
            server.run(sockets=[listener])


def serve_stdio(
    index: str | Path | Sequence[str | Path], threads: int = 2, memory: bool = False, **opened: Any
) -> None:
    """Answer one agent by MCP on stdin and stdout until stdin is closed. Arguments as for serve()."""
    with installed_by("'.[serve]'"):
        from milco_pyserini.serve.agents import create_mcp_server
    with contextlib.closing(SearchService(IndexSnapshot.open(index, **opened), threads)) as service:
        server = create_mcp_server(service, Memory(service) if memory else None)
        log(f"Serving {service.opened.searcher.name} by MCP on stdin and stdout")

        async def answer() -> None:
            async with service.watching():
                await server.run_stdio_async()

        asyncio.run(answer())


@contextlib.contextmanager
def open_access_log(path: str | Path | None) -> Iterator[Callable[[str], object]]:
    """Yield what appends a line to a file, or to a new one once it was renamed, as logrotate does.

    Args:
        path: "-" for stdout; None for no log.

    Raises:
        MilcoError: the file cannot be written.
    """
    if path is None:
        yield lambda line: None
        return
    try:
        handler = StreamHandler(sys.stdout) if Path(path) == STDOUT else WatchedFileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ParameterError("access_log", path, f"cannot be written: {error.strerror or error}") from None
    with contextlib.closing(handler):
        # A full disk is reported on stderr, and fails no request.
        yield lambda line: handler.handle(makeLogRecord({"msg": line}))


class Listener(socket.socket):
    """A listening socket that leaves a quarter of the descriptors (ulimit -n) to files, and accepts 900 connections.

    Before it accepts more, it closes the connection that has been without a request for the longest time.

    Attributes:
        connections: The open connections of the server.
    """

    connections: Collection[Any] = ()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return a connection and its address. Raises BlockingIOError if there is none, or none can be accepted yet."""
        try:
            if len(self.connections) < _CONNECTIONS and self._has_descriptors():
                return super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
        idle = [connection for connection in self.connections if not connection.is_answering]
        oldest = min(idle, key=lambda connection: connection.idle_since, default=None)
        if oldest and oldest.idle_since < time.monotonic() - _MIN_SECONDS:
            oldest.transport.abort()
        else:
            # The event loop calls again at once.
            time.sleep(0.001)
        raise BlockingIOError

    def _has_descriptors(self) -> bool:
        if resource is None:
            return True
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # A connection would get the same number.
        os.close(number := os.dup(self.fileno()))
        return limit == resource.RLIM_INFINITY or number < limit * 3 // 4


class _Connection(H11Protocol):
    """A connection that is closed if a request takes longer than REQUEST_SECONDS to arrive.

    idle_since: when its last request had arrived, or when it was made.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._late = self.loop.call_later(REQUEST_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_answering:
            self.idle_since = self.loop.time()
            self._late.cancel()
        elif self._late.cancelled():
            self._late = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)

    @property
    def is_answering(self) -> bool:
        """True if a request has arrived and is not answered."""
        return self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()


def create_server(app: FastAPI, listener: Listener, trust_proxy: Sequence[str] = ()) -> uvicorn.Server:
    """Create a server that logs no queries, to run with the listener as its socket.

    It does not limit how slowly clients read answers: where they are not trusted, a proxy does.

    trust_proxy: as for serve().
    """
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            # Another loop would not call Listener.accept().
            loop="asyncio",
            http=_Connection,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            backlog=_BACKLOG,
            server_header=False,
            proxy_headers=bool(trust_proxy),
            forwarded_allow_ips=list(trust_proxy),
            timeout_keep_alive=60,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
    )
    listener.connections = server.server_state.connections
    return server


@contextlib.contextmanager
def _stopped_by_sigterm(server: uvicorn.Server) -> Iterator[None]:
    """Return from a server that SIGTERM stopped: uvicorn raises the signal again, which would end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        server.should_exit = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def validate_token(host: str, token: str | None) -> str:
    """Return the token, or that of the environment; "" for none.

    Raises MilcoError if a host that others can reach has none, or if it is easily guessed.
    """
    token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
    if not token and not _is_loopback(host):
        fix = f"Set {TOKEN_VARIABLE} to one (openssl rand -hex 16), or give " + parameter("token")
        raise ParameterError("host", host, "other machines can reach it, so that requests must carry a token", fix)
    if token and (len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise MilcoError(f"the token needs at least {_MIN_TOKEN} ASCII characters without spaces: openssl rand -hex 16")
    return token


def listen(host: str, port: int) -> Listener:
    """Return a socket that listens at host:port. Raises MilcoError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return Listener(fileno=socket.create_server((host, port), family=family, backlog=_BACKLOG).detach())
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ParameterError("port", port, "already in use", "Choose another, or 0 for a free one.") from None
        raise ParameterError("host", host, f"cannot listen there: {error.strerror or error}") from None


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


def _is_loopback(host: str) -> bool:
    """Return whether a host is one of this machine's own addresses. A name counts as its addresses."""
    try:
        return all(ip_address(found[4][0]).is_loopback for found in socket.getaddrinfo(host or "0.0.0.0", None))
    except OSError:
        # listen() reports it.
        return True
