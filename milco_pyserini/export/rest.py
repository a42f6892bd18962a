"""Send requests to the nodes of a search server over HTTP: with a deadline, a limit on answers, and types for them.

An answer is not trusted. It ends by the deadline however slowly it arrives, has a maximum size, and is decoded into a
declared type or reported in one line.
"""

import base64
import os
import re
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import httpcore
import msgspec

from milco_pyserini.errors import MilcoError
from milco_pyserini.export.access import Access, deadline, public_url, remaining
from milco_pyserini.export.faults import ServerError

# The name of a variable in the environment, as OpenSSL has it: a file of certificates of trusted authorities.
CA_FILE = "SSL_CERT_FILE"
BAD_REQUEST, FORBIDDEN, NOT_FOUND, BUSY = 400, 403, 404, 429
# From proxies and nodes: another node may answer.
_FAILING = (502, 503, 504)
# Seconds to connect, for one attempt, and for a request with its repetitions while a server is busy.
_CONNECT, _ATTEMPT, _REQUEST = 10.0, 120.0, 300.0
# A node that failed is asked last for these seconds.
_REST = 60.0
_MOST_BYTES = 128 * 2**20
_CHUNK = 2**16
T = TypeVar("T")


class Answer(NamedTuple):
    """Status, media type and body of an answer, which is complete and not compressed."""

    status: int
    media: str
    content: bytes


class Rest:
    """JSON over HTTP to one server, or to the nodes of a cluster in turn. Threads may share it.

    A node that fails is replaced by the next one. A request is repeated while a server is busy (429); one that was not
    answered in time is not repeated at the same node.
    """

    def __init__(self, access: Access, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        """Connect at the first request. headers: of every request."""
        self._nodes = [_Node.of(url, headers) for url in access.urls]
        self._failed: dict[str, float] = {}
        self._turns = count()
        context = None
        if any(node.url.startswith("https:") for node in self._nodes):
            authorities = os.environ.get(CA_FILE)
            try:
                context = ssl.create_default_context(cafile=authorities)
            except OSError as error:
                raise MilcoError(f"{CA_FILE}={authorities}: {error.strerror or error}") from None
        self._pool = httpcore.ConnectionPool(
            ssl_context=context, max_connections=None, keepalive_expiry=30, network_backend=_Backend()
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def request(self, method: str, path: str, kind: type[T], body: Any = None, at: Sequence[str] = ()) -> T:
        """Return the answer to a JSON body, or to bytes of JSON lines, decoded into a type of msgspec.

        at: names of nested objects, if only a part of the answer is read. Raises ServerError for another answer,
        OSError or httpcore's errors if no node answers.
        """
        content = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        answer = self.send(method, path, content, "x-ndjson" if isinstance(body, bytes) else "json")
        if not 200 <= answer.status < 300 or "json" not in answer.media:
            raise error_of(answer)
        try:
            part = answer.content
            for name in at:
                part = msgspec.json.decode(part, type=dict[str, msgspec.Raw]).get(name, msgspec.Raw(b"null"))
            return msgspec.json.decode(part, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ServerError(f"the answer to {path.partition('?')[0]} is not a valid one: {error}") from None

    def find(self, path: str, kind: type[T]) -> T | None:
        """Return the answer to a GET request; None if the server has no such thing (404)."""
        try:
            return self.request("GET", path, kind)
        except ServerError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    def send(self, method: str, path: str, content: bytes | None = None, media: str = "json") -> Answer:
        """Return the answer of a node that answers, whatever it is; a busy server is waited for."""
        headers = [("Accept", "application/json"), ("Content-Type", f"application/{media}")]
        with deadline(_REQUEST):
            pauses = (min(2.0**attempt, 30.0) for attempt in count())
            while (answer := self._ask(method, path, content, headers)).status == BUSY:
                # A full disk is reported as busy, and stays full.
                if b"cluster_block" in answer.content or (pause := next(pauses)) >= remaining():
                    break
                time.sleep(pause)
        return answer

    def _ask(self, method: str, path: str, content: bytes | None, headers: list[tuple[str, str]]) -> Answer:
        """Return the first answer of the nodes, each of which has its share of the time."""
        turn, now = next(self._turns), time.monotonic()
        nodes = [self._nodes[(turn + number) % len(self._nodes)] for number in range(len(self._nodes))]
        # Nodes that failed come last. A second round asks again after broken connections.
        nodes.sort(key=lambda node: self._failed.get(node.url, 0) > now)
        failure: Exception | None = None
        silent: set[str] = set()
        for left, node in zip(range(2 * len(nodes), 0, -1), [*nodes, *nodes], strict=True):
            if node.url in silent:
                continue
            try:
                with deadline(remaining(_ATTEMPT) / max(1, left - len(nodes))):
                    answer = self._exchange(node, method, path, content, headers)
            except (OSError, httpcore.TimeoutException) as error:
                silent.add(node.url)
                failure = error
            except (httpcore.NetworkError, httpcore.ProtocolError) as error:
                failure = error
            else:
                failure = None
                if answer.status not in _FAILING or left == 1:
                    return answer
            self._failed[node.url] = time.monotonic() + _REST
        if failure is None:
            return answer
        raise failure

    def _exchange(
        self, node: "_Node", method: str, path: str, content: bytes | None, headers: list[tuple[str, str]]
    ) -> Answer:
        extensions = {"timeout": {"pool": remaining()}}
        chunks, size = [], 0
        with self._pool.stream(
            method, node.url + path, headers=[*headers, *node.headers], content=content, extensions=extensions
        ) as response:
            given = {name.lower(): value.decode("latin1") for name, value in response.headers}
            if given.get(b"content-encoding", "identity") != "identity":
                raise ServerError("the answer is compressed, which was not asked for")
            for chunk in response.iter_stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > _MOST_BYTES:
                    raise ServerError(f"the answer has more than {_MOST_BYTES // 2**20} MB")
            if 300 <= response.status < 400:
                raise ServerError(f"it redirects to {_shown_location(given)}", "redirect", response.status)
            return Answer(response.status, given.get(b"content-type", ""), b"".join(chunks))


class _Node(NamedTuple):
    """The URL of a node without user and query, and the headers that name the user."""

    url: str
    headers: list[tuple[str, str]]

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str]) -> "_Node":
        """Return the node of a URL."""
        parts = urlsplit(url)
        user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        basic = {} if user == ":" else {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
        place = parts.netloc.rpartition("@")[2]
        return cls(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", [*(basic | dict(headers)).items()])


class _Stream(httpcore.NetworkStream):
    """A connection whose every step ends by the deadline, not only each by a timeout of its own."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, remaining())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _CHUNK):
            self._stream.write(buffer[start : start + _CHUNK], remaining())

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, remaining(_CONNECT)))

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    """Makes connections that end by the deadline."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(super().connect_tcp(host, port, remaining(_CONNECT), local_address, socket_options))


def error_of(answer: Answer) -> ServerError:
    """Return the error that an answer reports, or that it is not JSON."""
    about: Any = None
    if "json" in answer.media:
        try:
            about = msgspec.json.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            about = None
    elif answer.media.startswith("text/html"):
        return ServerError(f"it answers with a page of HTML (status {answer.status})", "html", answer.status)
    kind, reason = cause_of(about)
    text = " ".join(re.sub("<[^>]*>", " ", answer.content[:300].decode(errors="replace")).split())
    return ServerError(reason or f"status {answer.status} {'' if about else text}".strip(), kind, answer.status)


def cause_of(about: Any) -> tuple[str, str]:
    """Return kind and reason of an error as Elasticsearch and OpenSearch report it, whatever its JSON is."""
    error = about.get("error", about) if isinstance(about, dict) else about
    if not isinstance(error, dict):
        return "", error if isinstance(error, str) else ""
    roots = error.get("root_cause")
    causes = [error, *(roots if isinstance(roots, list) else ()), error.get("caused_by")]
    named = [cause for cause in causes if isinstance(cause, dict)]
    kinds, reasons = (
        dict.fromkeys(cause[name] for cause in named if isinstance(cause.get(name), str) and cause[name])
        for name in ("type", "reason")
    )
    return " ".join(kinds), ": ".join(reasons or kinds)


def _shown_location(headers: dict[bytes, str]) -> str:
    """Return where a redirect leads, without secrets."""
    try:
        return public_url(headers.get(b"location", "")) or "no place"
    except MilcoError:
        return "a place that is not a URL"
