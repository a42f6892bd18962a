"""Run milco serve: open the index, listen, and stop gracefully; or talk to one agent on stdin and stdout."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address, ip_network
from logging import StreamHandler, makeLogRecord
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError, ParameterError, parameter
from milco_pyserini.io.files import STDOUT
from milco_pyserini.serve.app import create_app
from milco_pyserini.serve.memory import Memory
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.service import SearchService

TOKEN_VARIABLE = "MILCO_TOKEN"
# For requests in progress when the server is stopped.
STOP_SECONDS = 10
_MIN_TOKEN = 16
# Connections that the kernel queues; beyond, clients see resets.
_BACKLOG = 1024
# Beyond, requests are answered 503.
_CONNECTIONS = 900


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
        opened: as for Searcher.open(): encoder, alpha, corpus, device, dtype; fuse and weights.

    Raises:
        MilcoError: the port is in use, the token is missing or short, or the log cannot be written: before the encoder
            is loaded.
    """
    token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
    validate_token(host, token)
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
        server = create_server(app, trust_proxy)
        with _stopped_by_sigterm(server):
            server.run(sockets=[listener])


def serve_stdio(
    index: str | Path | Sequence[str | Path], threads: int = 2, memory: bool = False, **opened: Any
) -> None:
    """Answer one agent by MCP on stdin and stdout until stdin is closed. Arguments as for serve()."""
    try:
        from milco_pyserini.serve.agents import create_mcp_server
    except ImportError as error:
        raise ParameterError("mcp", None, f"needs the package mcp 2 ({error}): pip install '.[serve]'") from None
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


def create_server(app: FastAPI, trust_proxy: Sequence[str] = ()) -> uvicorn.Server:
    """Create a server that logs no queries. It does not time clients: where they are not trusted, a proxy does.

    trust_proxy: as for serve().
    """
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            backlog=_BACKLOG,
            limit_concurrency=_CONNECTIONS,
            server_header=False,
            proxy_headers=bool(trust_proxy),
            forwarded_allow_ips=list(trust_proxy),
            timeout_keep_alive=60,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
    )


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


def validate_token(host: str, token: str) -> None:
    """Raise MilcoError if a host that others can reach has no token, or if the token is easily guessed."""
    if not token and not _is_loopback(host):
        fix = f"Set {TOKEN_VARIABLE} to one (openssl rand -hex 16), or give " + parameter("token")
        raise ParameterError("host", host, "other machines can reach it, so that requests must carry a token", fix)
    if token and (len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise MilcoError(f"the token needs at least {_MIN_TOKEN} ASCII characters without spaces: openssl rand -hex 16")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at host:port. Raises MilcoError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
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
