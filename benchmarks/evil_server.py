"""A search service that answers as a malicious, a failing or an overloaded one does.

python benchmarks/evil_server.py        prints three URLs: as OpenSearch, as Elasticsearch, and of another host
curl -X PUT 'URL/_play/429%20always?step=search'
                                        searches are answered so from now on; URL/_play/ ends it
curl URL/_requests                      the requests since, with their headers

Service is the honest part: the requests of Elasticsearch and OpenSearch that milco sends, answered from memory. ANSWERS
has all that it plays in place of an honest answer.
"""

import contextlib
import copy
import functools
import gzip
import json
import socket
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

BLANKS, BOMB = 1_000_000_000, 600_000_000
OPENSEARCH, ELASTICSEARCH = "opensearch", "elasticsearch"
# Steps: what a request asks for.
INFO, EXISTS, ABOUT, COUNT, SEARCH, IMPACTS, STORED, BULK, CREATE, SETTINGS, OTHER = (
    *("info", "exists", "about", "count", "search", "impacts", "stored", "bulk", "create", "settings", "other"),
)
_JSON = "application/json; charset=UTF-8"
_VERSIONS: dict[str, dict[str, str]] = {
    OPENSEARCH: {"distribution": "opensearch", "number": "2.19.1"},
    ELASTICSEARCH: {"number": "9.1.0", "build_flavor": "default"},
}
# Until a client gives up, or another answer is played.
_PATIENCE = 900.0


class Service:
    """Indexes in memory: name -> mappings, settings and documents."""

    def __init__(self) -> None:
        self.indexes: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, path: str, content: str, flavor: str) -> tuple[str, int, Any]:
        """Return the step, the status and the JSON of an honest answer."""
        _, name, action = [*path.split("/"), ""][:3]
        index = self.indexes.get(name)
        if not name:
            return INFO, 200, {"name": "node0", "version": _VERSIONS[flavor], "tagline": "You Know, for Search"}
        if name == "_msearch":
            lines = list(map(json.loads, content.splitlines()))
            pairs = zip(lines[::2], lines[1::2], strict=True)
            answers = [self.search(self.indexes[header["index"]], body) for header, body in pairs]
            return SEARCH, 200, {"took": 1, "responses": answers}
        if name == "_cluster":
            limit: dict[str, Any] = {"indices.query.bool.max_clause_count": "1024"}
            limit["indices"] = {"query": {"bool": {"max_clause_count": "1024"}}}
            health = {"status": "green", "number_of_nodes": 1, "active_primary_shards": 1, "timed_out": False}
            settings = {"persistent": {}, "transient": {}, "defaults": limit}
            return OTHER, 200, health if action == "health" else settings
        if name.startswith("_"):
            return OTHER, 200, {"tokens": []}
        if method == "PUT" and not action:
            body = json.loads(content)
            settings = {"number_of_shards": 1, "number_of_replicas": 1} | body.get("settings", {}).get("index", {})
            self.indexes[name] = {"mappings": body["mappings"], "settings": settings, "documents": {}}
            return CREATE, 200, {"acknowledged": True}
        if method == "HEAD":
            return EXISTS, 404 if index is None else 200, None
        if index is None:
            return ABOUT, 404, error_of("index_not_found_exception", f"no such index [{name}]", 404)
        step, value = getattr(self, action.removeprefix("_") or "about")(index, content, name)
        return step, 200, value

    def about(self, index: dict, content: str, name: str) -> tuple[str, dict]:
        """Return mapping and settings, as strings."""
        settings = {f"index.{key}": str(value) for key, value in index["settings"].items() if value is not None}
        return ABOUT, {name: {"aliases": {}, "mappings": index["mappings"], "settings": settings}}

    def mapping(self, index: dict, content: str, name: str) -> tuple[str, dict]:
        """Change the _meta of the mapping."""
        index["mappings"] |= json.loads(content)
        return SETTINGS, {"acknowledged": True}

    def settings(self, index: dict, content: str, name: str) -> tuple[str, dict]:
        """Change settings."""
        index["settings"] |= json.loads(content)["index"]
        return SETTINGS, {"acknowledged": True}

    def bulk(self, index: dict, content: str, name: str) -> tuple[str, dict]:
        """Index and delete documents."""
        items, lines = [], iter(content.splitlines())
        for ((kind, about),) in map(dict.items, map(json.loads, lines)):
            known = index["documents"].pop(about["_id"], None)
            if kind == "index":
                index["documents"][about["_id"]] = json.loads(next(lines))
            items.append({kind: {"_id": about["_id"], "status": 404 if kind == "delete" and known is None else 200}})
        return BULK, {"errors": False, "items": items}

    def mget(self, index: dict, content: str, name: str) -> tuple[str, dict]:
        """Return documents without their vectors."""
        body, documents = json.loads(content), index["documents"]
        answers = []
        for docid in body["ids"] if "ids" in body else [one["_id"] for one in body["docs"]]:
            answer = {"_index": name, "_id": docid, "found": docid in documents}
            if docid in documents and "ids" in body:
                kept = documents[docid].items()
                answer["_source"] = {key: value for key, value in kept if key not in ("vector", "milco_docid")}
            answers.append(answer)
        return STORED, {"docs": answers}

    def refresh(self, index: dict, content: str, name: str) -> tuple[str, dict]:
        """Do nothing: documents are searchable at once."""
        return OTHER, {"_shards": {"total": 1, "successful": 1, "failed": 0}}

    def count(self, index: dict, content: str, name: str) -> tuple[str, dict]:
        """Return the number of documents."""
        return COUNT, {"count": len(index["documents"]), "_shards": {"total": 1, "successful": 1, "failed": 0}}

    def search(self, index: dict, content: Any, name: str = "") -> Any:
        """Answer a search; a request with its step, a search of a request of several without."""
        body = content if isinstance(content, dict) else json.loads(content)
        documents, query = index["documents"], body.get("query", {})
        named = "ids" in query.get("bool", {}).get("filter", {})
        if named:
            parts = {part["bool"]["_name"]: part["bool"]["must"] for part in query["bool"].get("should", ())}
            known = [docid for docid in query["bool"]["filter"]["ids"]["values"] if docid in documents]
            hits: list[dict] = [{"_id": docid, "_score": 1.0} for docid in known]
            for hit in hits:
                scores = {part: score_of(one, documents[hit["_id"]]) for part, one in parts.items()}
                hit["matched_queries"] = {part: score for part, score in scores.items() if score}
        else:
            query = query["bool"]["must"] if "bool" in query else query
            ranked = sorted(((-score_of(query, source), docid) for docid, source in documents.items()))
            found = [(docid, -score) for score, docid in ranked if score][: body["size"]]
            hits = [{"_score": score, "_id": docid} for docid, score in found]
            if body.get("stored_fields") == "_none_":
                hits = [{"_score": hit["_score"], "fields": {"milco_docid": [hit["_id"]]}} for hit in hits]
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        value = {"took": 1, "timed_out": False, "_shards": shards, "hits": {"max_score": 1.0, "hits": hits}}
        return ((IMPACTS if named else SEARCH), value) if name else value | {"status": 200}


def score_of(query: Mapping[str, Any], source: Mapping[str, Any]) -> float:
    """Return the score of a document for a query of weighted terms, or for a text."""
    ((kind, about),) = query.items()
    if kind == "multi_match":
        words = set(str(source.get("contents")).lower().replace("'", " ").split())
        return float(len(words & set(about["query"].lower().split())))
    weights = about["query_vector"] if kind == "sparse_vector" else about["vector"]["query_tokens"]
    vector = source["vector"]
    return float(sum(weights[term] * vector[term] for term in weights.keys() & vector.keys()))


class Exchange:
    """A request and the honest answer to it; number: how many requests were answered so before."""

    def __init__(self, handler: "_Handler", stage: "Stage", status: int, value: Any, number: int) -> None:
        self.handler, self.stage, self.status, self.value, self.number = handler, stage, status, value, number
        self.port = handler.port

    def send(self, status: int, content: bytes, kind: str = _JSON, **headers: str) -> None:
        """Send an answer."""
        self.head(status, kind, len(content), **headers)
        self.write(content)

    def head(self, status: int, kind: str, length: int | None, **headers: str) -> None:
        """Send the head of an answer."""
        self.handler.send_response(status)
        given = {"Content-Type": kind, "Content-Length": length, "X-Elastic-Product": self.product, **headers}
        for name, value in given.items():
            if value is not None:
                self.handler.send_header(name.replace("_", "-"), str(value))
        self.handler.end_headers()

    def write(self, content: bytes) -> None:
        """Send bytes."""
        if self.handler.command != "HEAD":
            self.handler.wfile.write(content)
            self.handler.wfile.flush()

    @property
    def product(self) -> str | None:
        """The header by which the client of Elasticsearch knows it."""
        return "Elasticsearch" if self.stage.is_elasticsearch(self.port) else None

    def honest(self) -> None:
        """Send the honest answer."""
        self.send(self.status, self.content)

    @property
    def content(self) -> bytes:
        """The honest answer."""
        return b"" if self.value is None else json.dumps(self.value).encode()

    def close(self) -> None:
        """Close the connection."""
        self.handler.close_connection = True
        with contextlib.suppress(OSError):
            self.handler.connection.shutdown(socket.SHUT_RDWR)

    def wait(self, seconds: float = _PATIENCE) -> bool:
        """Wait; return whether another answer is to be played."""
        return self.stage.changed.wait(seconds)


Play = Callable[[Exchange], None]


class Answer(NamedTuple):
    """An answer that the server plays.

    Attributes:
        kind: what it is counted with.
        steps: the requests that it is sensible for.
        true: "right" if the results have to be right, "either" if they have to be right or the answer is refused,
            "unknown" if nothing shows that it is false, "" if it has to be refused or warned of.
        is_slow: it takes as long as the client waits.
    """

    kind: str
    play: Play
    steps: Sequence[str] = (SEARCH,)
    true: str = ""
    is_slow: bool = False


def hang(exchange: Exchange) -> None:
    """Send nothing."""
    exchange.wait()
    exchange.close()


def hang_after(share: float) -> Play:
    """Return what sends the head and a part of the answer, and then nothing."""

    def play(exchange: Exchange) -> None:
        exchange.head(exchange.status, _JSON, len(exchange.content))
        exchange.write(exchange.content[: int(share * len(exchange.content))])
        hang(exchange)

    return play


def drip(exchange: Exchange) -> None:
    """Send a byte a second: no read of the client waits long."""
    content = exchange.content + b" " * 10_000
    exchange.head(exchange.status, _JSON, len(content))
    for byte in content:
        exchange.write(bytes([byte]))
        if exchange.wait(1):
            break
    exchange.close()


def drip_head(exchange: Exchange) -> None:
    """Send a byte of the head a second, without end."""
    exchange.write(b"HTTP/1.1 200 OK\r\nX-Any: ")
    while not exchange.wait(1):
        exchange.write(b"y")


def continue_forever(exchange: Exchange) -> None:
    """Send interim answers without end, which clients skip."""
    while not exchange.wait(0.01):
        exchange.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


def blanks(length: int | None) -> Play:
    """Return what sends a gigabyte of blanks before the answer; None: in chunks, without a length."""

    def play(exchange: Exchange) -> None:
        content, block = exchange.content, b" " * 1_000_000
        if length is None:
            exchange.head(exchange.status, _JSON, None, Transfer_Encoding="chunked")
        else:
            exchange.head(exchange.status, _JSON, length + len(content))
        for _ in range(BLANKS // len(block)):
            exchange.write(block if length is not None else b"%x\r\n%s\r\n" % (len(block), block))
            if exchange.stage.changed.is_set():
                return exchange.close()
        exchange.write(content if length is not None else b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))

    return play


@functools.cache
def bomb() -> bytes:
    """Return blanks, compressed."""
    packer, block = zlib.compressobj(1, zlib.DEFLATED, 31), b" " * 1_000_000
    return b"".join(packer.compress(block) for _ in range(BOMB // len(block))) + packer.flush()


def compressed(times: int) -> Play:
    """Return what sends the answer behind 600 MB of blanks that were compressed once, or twice."""

    def play(exchange: Exchange) -> None:
        content = bomb() + gzip.compress(exchange.content)
        for _ in range(times - 1):
            content = gzip.compress(content, 1)
        exchange.send(exchange.status, content, Content_Encoding=", ".join(["gzip"] * times))

    return play


def closed(share: float | None, reset: bool = False) -> Play:
    """Return what closes the connection after a part of the answer; None: before the head."""

    def play(exchange: Exchange) -> None:
        if share is not None:
            exchange.head(exchange.status, _JSON, len(exchange.content))
            exchange.write(exchange.content[: int(share * len(exchange.content))])
        if reset:
            linger = struct.pack("ii", 1, 0)
            exchange.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            exchange.handler.connection.close()
            exchange.handler.close_connection = True
        else:
            exchange.close()

    return play


def bytes_of(content: bytes | Callable[[bytes], bytes], kind: str = _JSON, status: int = 200, **headers: str) -> Play:
    """Return what sends these bytes, or what is made of the honest ones."""

    def play(exchange: Exchange) -> None:
        sent = content if isinstance(content, bytes) else content(exchange.content)
        exchange.send(status, sent, kind, **headers)

    return play


def raw(content: bytes) -> Play:
    """Return what sends bytes in place of head and body."""

    def play(exchange: Exchange) -> None:
        exchange.handler.wfile.write(content)
        exchange.close()

    return play


def once(play: Play, times: int = 1) -> Play:
    """Return what plays an answer for the first requests only."""
    return lambda exchange: play(exchange) if exchange.number < times else exchange.honest()


def redirected(status: int, to: Callable[[Exchange], str]) -> Play:
    """Return what sends the client to another address."""
    return lambda exchange: exchange.send(status, b"", "text/plain", Location=to(exchange))


def elsewhere(exchange: Exchange) -> str:
    """Return the address of the same request at another host."""
    return exchange.stage.urls[2] + exchange.handler.path


def changed(change: Callable[[Any], Any]) -> Play:
    """Return what sends the honest JSON after a change: in place, or the value that is returned."""

    def play(exchange: Exchange) -> None:
        value = copy.deepcopy(exchange.value)
        other = change(value)
        exchange.send(exchange.status, json.dumps(value if other is None else other).encode())

    return play


def value(given: Any) -> Play:
    """Return what sends a value as JSON."""
    return bytes_of(json.dumps(given).encode())


def in_answers(change: Callable[[dict], Any]) -> Play:
    """Return what changes the answer to each search of a request."""

    def change_all(found: Any) -> Any:
        if "responses" not in found:
            return change(found)
        for number, answer in enumerate(found["responses"]):
            other = change(answer)
            found["responses"][number] = answer if other is None else other
        return None

    return changed(change_all)


def in_hits(change: Callable[[list], Any]) -> Play:
    """Return what changes the list of hits of each search: in place, or to the value that is returned."""

    def change_hits(answer: dict) -> None:
        other = change(answer["hits"]["hits"]) if answer["hits"]["hits"] else None
        if other is not None:
            answer["hits"]["hits"] = other

    return in_answers(change_hits)


def in_first(change: Callable[[dict], Any]) -> Play:
    """Return what changes the first hit of each search."""

    def change_first(hits: list) -> None:
        other = change(hits[0])
        if other is not None:
            hits[0] = other

    return in_hits(change_first)


def field(name: str, given: Any) -> Callable[[dict], None]:
    """Return what gives a field a value."""

    def change(of: dict) -> None:
        of[name] = given

    return change


def without(name: str) -> Callable[[dict], None]:
    """Return what removes a field."""

    def change(of: dict) -> None:
        of.pop(name, None)

    return change


def score(given: Any) -> Play:
    """Return what gives the first hit a score."""
    return in_first(field("_score", given))


def score_text(text: str) -> Play:
    """Return what gives the first hit a score that Python would not write so."""
    marked = score("a score")

    def play(exchange: Exchange) -> None:
        send = exchange.send
        exchange.send = lambda status, content, *more: send(  # type: ignore[method-assign]
            status, content.replace(b'"a score"', text.encode()), *more
        )
        marked(exchange)

    return play


def docid(given: Any) -> Play:
    """Return what gives the first hit a docid."""
    return in_first(lambda hit: set_docid(hit, given))


def set_docid(hit: dict, given: Any) -> None:
    """Give a hit a docid."""
    if "fields" in hit:
        hit["fields"] = {"milco_docid": [given]}
    else:
        hit["_id"] = given


def renamed(hit: dict, number: int) -> dict:
    """Return a hit with another docid."""
    other = copy.deepcopy(hit)
    set_docid(other, f"more{number}")
    return other


def endless_ties(exchange: Exchange) -> None:
    """Send as many hits as asked for, all with one score: a client that looks for the last of them asks for more."""
    body = exchange.handler.content.splitlines()
    sizes = [json.loads(line).get("size") for line in body[1::2]] if len(body) > 1 else [10_000]
    hit = {"_score": 1.0, "_id": "", "fields": {"milco_docid": [""]}}
    start = exchange.number * 10_000
    answers = []
    for size in sizes:
        hits = [renamed(hit, start + number) for number in range(size or 10)]
        answers.append({"_shards": {"total": 1, "successful": 1, "skipped": 0}, "hits": {"hits": hits}, "status": 200})
    exchange.value = {"responses": answers} if len(body) > 1 else answers[0] | {"_scroll_id": "x"}
    exchange.status = 200
    exchange.honest()


def error_of(kind: str, reason: Any, status: int = 400, **more: Any) -> dict[str, Any]:
    """Return an error as both services report it."""
    cause = {"type": kind, "reason": reason}
    return {"error": cause | {"root_cause": [cause], **more}, "status": status}


def failed(status: int, kind: str, reason: Any, **more: Any) -> Play:
    """Return what reports an error."""
    return bytes_of(json.dumps(error_of(kind, reason, status, **more)).encode(), status=status)


def failed_searches(given: Any, status: int = 400) -> Play:
    """Return what reports an error for each search of a request."""
    return in_answers(lambda answer: {"error": given, "status": status})


def shards(**given: Any) -> Play:
    """Return what reports other numbers of shards."""
    return in_answers(lambda answer: answer["_shards"].update(given))


def page(title: str, status: int) -> Play:
    """Return what sends a page of HTML."""
    text = f"<!DOCTYPE html>\n<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>\n"
    return bytes_of(text.encode(), "text/html", status)


def version(given: Any, name: str = "number") -> Play:
    """Return what states another version."""
    return changed(lambda about: about["version"].update({name: given}))


def index(change: Callable[[dict], Any]) -> Play:
    """Return what changes what is known of an index."""
    return changed(lambda found: change(next(iter(found.values()))))


def in_stored(change: Callable[[dict], Any]) -> Play:
    """Return what changes the first stored document."""
    return changed(lambda found: change(found["docs"][0]))


def in_items(change: Callable[[dict], Any]) -> Play:
    """Return what changes how the first document of a bulk request was written."""
    return changed(lambda found: change(next(iter(found["items"][0].values()))))


ANY = (INFO, SEARCH)
(
    SLOW,
    CLOSED,
    GARBLED,
    STATUS,
    REDIRECT,
    TYPES,
    SCORES,
    DOCIDS,
    HITS,
    FAILED,
    OPENED,
    COUNTED,
    MATCHED,
    DOCUMENTS,
    FILLED,
) = (
    *("slow or huge", "closed", "not JSON", "status", "redirect", "wrong types", "scores", "docids", "hits"),
    *("failed searches", "version and mapping", "counts", "matched terms", "stored documents", "filling"),
)
_EVERY_STEP = (INFO, ABOUT, SEARCH, IMPACTS, STORED, BULK)
_OPENSEARCH_CAUSE = {"type": "query_shard_exception", "reason": "failed to create query: out of range for a long"}
_CAUSES = {"phase": "query", "grouped": True, "failed_shards": [{"shard": 0, "reason": _OPENSEARCH_CAUSE}]}
_CLAUSES = {"type": "too_many_clauses", "reason": "maxClauseCount is set to 1024"}
_EVIL_LINE = "d1\nq0 Q0 evil 1 99 x"

ANSWERS: dict[str, Answer] = {
    "hung before the first byte": Answer(SLOW, hang, (INFO, ABOUT, SEARCH, IMPACTS, STORED), is_slow=True),
    "hung after the head": Answer(SLOW, hang_after(0), ANY, is_slow=True),
    "hung in the middle": Answer(SLOW, hang_after(0.5), ANY, is_slow=True),
    "hung twice": Answer(SLOW, once(hang, 2), (), is_slow=True),
    "hung once": Answer(SLOW, once(hang), (SEARCH,), "either", is_slow=True),
    "one byte a second": Answer(SLOW, drip, ANY, is_slow=True),
    "a head of one byte a second": Answer(SLOW, drip_head, (SEARCH,), is_slow=True),
    "interim answers without end": Answer(SLOW, continue_forever, (SEARCH,), is_slow=True),
    "1 GB of blanks": Answer(SLOW, blanks(BLANKS), ANY, "either", is_slow=True),
    "1 GB of blanks in chunks": Answer(SLOW, blanks(None), (SEARCH, STORED), "either", is_slow=True),
    "600 MB of blanks, compressed": Answer(SLOW, compressed(1), ANY, "either", is_slow=True),
    "600 MB of blanks, compressed twice": Answer(SLOW, compressed(2), (SEARCH,), "either", is_slow=True),
    "ties without end": Answer(SLOW, endless_ties, (SEARCH,), is_slow=True),
    "closed before the head": Answer(CLOSED, closed(None), _EVERY_STEP),
    "closed once": Answer(CLOSED, once(closed(None)), ANY, "right"),
    "closed after the head": Answer(CLOSED, closed(0), ANY),
    "closed in the middle": Answer(CLOSED, closed(0.5), _EVERY_STEP),
    "reset": Answer(CLOSED, closed(None, reset=True), ANY),
    "another protocol": Answer(CLOSED, raw(b"SSH-2.0-OpenSSH_9.6\r\n"), ANY),
    "a header of 200 kB": Answer(CLOSED, raw(b"HTTP/1.1 200 OK\r\nX-Any: " + b"y" * 200_000 + b"\r\n\r\n"), ANY),
    "10,000 headers": Answer(CLOSED, raw(b"HTTP/1.1 200 OK\r\n" + b"X-Any: y\r\n" * 10_000 + b"\r\n"), ANY),
    "truncated JSON": Answer(GARBLED, bytes_of(lambda content: content[:-9]), _EVERY_STEP),
    "an empty body": Answer(GARBLED, bytes_of(b""), _EVERY_STEP),
    "204 without a body": Answer(GARBLED, bytes_of(b"", status=204), ANY),
    "nested 100,000 deep": Answer(GARBLED, bytes_of(b"[" * 100_000 + b"]" * 100_000), ANY),
    "damaged compression": Answer(GARBLED, bytes_of(b"\x1f\x8b\x08" + b"x" * 99, Content_Encoding="gzip"), ANY),
    "JSON as plain text": Answer(GARBLED, bytes_of(lambda content: content, "text/plain"), ANY, "either"),
    "an unknown media type": Answer(GARBLED, bytes_of(lambda content: content, "image/x-any"), ANY, "either"),
    "a page with 200": Answer(GARBLED, page("Sign in", 200), _EVERY_STEP),
    "a page with 502": Answer(STATUS, page("502 Bad Gateway", 502), _EVERY_STEP),
    "a page with 404": Answer(STATUS, page("404 Not Found", 404), _EVERY_STEP),
    "401": Answer(STATUS, bytes_of(b"Unauthorized", "text/plain", 401), _EVERY_STEP),
    "401 as JSON": Answer(STATUS, failed(401, "security_exception", "missing authentication credentials"), ANY),
    "403 as JSON": Answer(STATUS, failed(403, "security_exception", "no permissions for [indices:data/read]"), ANY),
    "a block of metadata": Answer(
        STATUS, failed(403, "cluster_block_exception", "index [docs] blocked by: [FORBIDDEN/9/];"), (ABOUT, EXISTS)
    ),
    "404 as JSON": Answer(STATUS, failed(404, "index_not_found_exception", "no such index [docs]"), (ABOUT, SEARCH)),
    "405": Answer(STATUS, bytes_of(b"", "text/plain", 405), ANY),
    "413": Answer(STATUS, page("413 Request Entity Too Large", 413), (SEARCH, BULK)),
    "429 once": Answer(STATUS, once(bytes_of(b"busy", "text/plain", 429)), _EVERY_STEP, "right"),
    "429 twice, as JSON": Answer(
        STATUS, once(failed(429, "rejected_execution_exception", "queue is full"), 2), (SEARCH,), "right"
    ),
    "429 always": Answer(STATUS, bytes_of(b"busy", "text/plain", 429), ANY, is_slow=True),
    "429 with Retry-After of a day": Answer(
        STATUS, bytes_of(b"busy", "text/plain", 429, Retry_After="86400"), (SEARCH,), is_slow=True
    ),
    "429 for each search, once": Answer(
        STATUS,
        once(failed_searches({"type": "rejected_execution_exception", "reason": "queue is full"}, 429)),
        (SEARCH,),
        "right",
    ),
    "500 as JSON": Answer(STATUS, failed(500, "null_pointer_exception", None), _EVERY_STEP),
    "500 with lines of a program": Answer(
        STATUS,
        bytes_of(b"java.lang.NullPointerException\n\tat org.any.Any.run(Any.java:7)\n" * 50, "text/plain", 500),
        ANY,
    ),
    "503 as JSON": Answer(STATUS, failed(503, "cluster_manager_not_discovered_exception", None), _EVERY_STEP),
    "503 once": Answer(STATUS, once(bytes_of(b"", "text/plain", 503)), ANY, "right"),
    "a status of 999": Answer(STATUS, bytes_of(b"", "text/plain", 999), ANY),
    "302 to another host": Answer(REDIRECT, redirected(302, elsewhere), (INFO, ABOUT, SEARCH, BULK)),
    "307 to another host": Answer(REDIRECT, redirected(307, elsewhere), (INFO, ABOUT, SEARCH, BULK)),
    "302 to a page": Answer(REDIRECT, redirected(302, lambda exchange: "https://sso.example.org/in?next=x"), ANY),
    "302 to a file": Answer(REDIRECT, redirected(302, lambda exchange: "file:///etc/passwd"), ANY),
    "a list": Answer(TYPES, value([]), (INFO, ABOUT, COUNT, SEARCH, IMPACTS, STORED, BULK)),
    "null": Answer(TYPES, value(None), (INFO, ABOUT, COUNT, SEARCH, IMPACTS, STORED, BULK)),
    "an empty object": Answer(TYPES, value({}), (INFO, ABOUT, COUNT, SEARCH, IMPACTS, STORED, BULK)),
    "responses is null": Answer(TYPES, changed(field("responses", None))),
    "a response is null": Answer(
        TYPES, changed(lambda found: field("responses", [None] * len(found["responses"]))(found))
    ),
    "no _shards": Answer(TYPES, in_answers(without("_shards")), (SEARCH, IMPACTS)),
    "no hits": Answer(TYPES, in_answers(without("hits")), (SEARCH, IMPACTS)),
    "hits.hits is null": Answer(TYPES, in_answers(field("hits", {"hits": None})), (SEARCH, IMPACTS)),
    "a hit is a string": Answer(TYPES, in_hits(lambda hits: ["any", *hits[1:]])),
    "no score": Answer(SCORES, in_first(without("_score"))),
    "a score of NaN": Answer(SCORES, score(float("nan"))),
    "a score of 1e400": Answer(SCORES, score_text("1e400")),
    "a score of 5,000 digits": Answer(SCORES, score_text("9" * 5_000)),
    "a score of 1e300": Answer(SCORES, score(1e300)),
    "a score of -5": Answer(SCORES, score(-5.0)),
    "a string as score": Answer(SCORES, score("7.5")),
    "no docid": Answer(DOCIDS, in_first(lambda hit: {"_score": hit["_score"]})),
    "two docids": Answer(DOCIDS, in_first(field("fields", {"milco_docid": ["d1", "d2"]}))),
    "null as docid": Answer(DOCIDS, docid(None)),
    "an empty docid": Answer(DOCIDS, docid("")),
    "a docid with a line of a run": Answer(DOCIDS, docid(_EVIL_LINE)),
    "a docid with a no-break space": Answer(DOCIDS, docid("a\u00a0b"), true="unknown"),
    "a docid with ESC": Answer(DOCIDS, docid("a\x1b[31mb"), true="unknown"),
    "a docid of 2 MB": Answer(DOCIDS, docid("x" * 2_000_000)),
    "a docid with a lone surrogate": Answer(DOCIDS, docid("a\ud800b")),
    "a docid twice": Answer(DOCIDS, in_hits(lambda hits: [hits[0], *hits[:-1]])),
    "a docid of no document": Answer(DOCIDS, docid("never-indexed"), true="unknown"),
    "more hits than asked": Answer(
        HITS, in_hits(lambda hits: [*hits, *(renamed(hits[-1], number) for number in range(50))]), true="either"
    ),
    "hits in reverse order": Answer(HITS, in_hits(lambda hits: hits[::-1]), true="either"),
    "fewer answers than queries": Answer(HITS, changed(lambda found: {"responses": found["responses"][:-1]})),
    "more answers than queries": Answer(HITS, changed(lambda found: found["responses"].append(found["responses"][0]))),
    "timed_out": Answer(FAILED, in_answers(field("timed_out", True)), (SEARCH, IMPACTS)),
    "terminated_early": Answer(FAILED, in_answers(field("terminated_early", True)), true="either"),
    "a shard failed": Answer(FAILED, shards(total=2, successful=1, failed=1), (SEARCH, IMPACTS)),
    "a shard failed, and is counted": Answer(FAILED, shards(total=2, successful=2, failed=1)),
    "more shards than there are": Answer(FAILED, shards(total=1, successful=2), true="either"),
    "missing shards": Answer(
        FAILED,
        failed(
            503,
            "search_phase_execution_exception",
            "Search rejected due to missing shards [[docs][0]]. Consider using `allow_partial_search_results` setting "
            "to bypass this error.",
        ),
        (SEARCH, IMPACTS),
    ),
    "missing shards, for each search": Answer(
        FAILED,
        failed_searches(
            error_of("search_phase_execution_exception", "Search rejected due to missing shards [[docs][0]]")["error"],
            503,
        ),
    ),
    "all shards failed: a bad filter": Answer(
        FAILED,
        failed_searches(
            {
                "type": "search_phase_execution_exception",
                "reason": "all shards failed",
                "root_cause": [_OPENSEARCH_CAUSE],
            }
            | _CAUSES
        ),
    ),
    "all shards failed: too many clauses": Answer(
        FAILED,
        failed_searches(
            {"type": "search_phase_execution_exception", "reason": "all shards failed", "root_cause": [_CLAUSES]},
        ),
    ),
    "a closed index": Answer(
        FAILED, failed_searches({"type": "index_closed_exception", "reason": "closed", "index": "docs"})
    ),
    "an error without reason": Answer(FAILED, failed_searches({"type": "index_not_found_exception"})),
    "an error as string": Answer(FAILED, failed_searches("something failed")),
    "an error with lines and ESC": Answer(
        FAILED, failed_searches({"type": "any", "reason": "a\nerror: b\x1b[2J\rc\u202e"})
    ),
    "an error of 5 MB": Answer(FAILED, failed_searches({"type": "any", "reason": "reason " * 700_000})),
    "an error with HTML": Answer(FAILED, failed_searches({"type": "any", "reason": "<html><body>no</body></html>"})),
    "an error without reason, with 400": Answer(
        FAILED,
        bytes_of(b'{"error": {"type": "any"}, "status": 400}', status=400),
        (ABOUT, SEARCH, IMPACTS, STORED, BULK),
    ),
    "no version": Answer(OPENED, changed(without("version")), (INFO,)),
    "words as version": Answer(OPENED, version("latest"), (INFO,)),
    "a version without dots": Answer(OPENED, version("99"), (INFO,), "either"),
    "a version of 5,000 digits": Answer(OPENED, version("9" * 5_000 + ".1"), (INFO,)),
    "a version with ESC": Answer(OPENED, version("1.0\x1b[31m\nerror: b"), (INFO,)),
    "an old version": Answer(OPENED, version("1.3.0"), (INFO,)),
    "another distribution": Answer(OPENED, version("other", "distribution"), (INFO,)),
    "no index": Answer(OPENED, bytes_of(b"", status=404), (EXISTS,)),
    "500 for an index": Answer(OPENED, bytes_of(b"", status=500), (EXISTS,)),
    "two indexes": Answer(OPENED, changed(lambda found: found.update(other=found["docs"])), (ABOUT,)),
    "an index of null": Answer(OPENED, changed(field("docs", None)), (ABOUT,)),
    "no mappings": Answer(OPENED, index(without("mappings")), (ABOUT,)),
    "no settings": Answer(OPENED, index(without("settings")), (ABOUT,), "either"),
    "a property of null": Answer(
        OPENED, index(lambda found: found["mappings"]["properties"].update(vector=None)), (ABOUT,)
    ),
    "properties without end": Answer(
        OPENED,
        index(
            lambda found: found["mappings"].update(
                properties=json.loads('{"properties":{"a":' * 900 + "{}" + "}}" * 900)
            )
        ),
        (ABOUT,),
    ),
    "another statement": Answer(OPENED, index(lambda found: found["mappings"]["_meta"].update(milco="f00")), (ABOUT,)),
    "an incomplete index": Answer(
        OPENED, index(lambda found: found["mappings"]["_meta"].update(milco=">f00")), (ABOUT,)
    ),
    "a count of -1": Answer(COUNTED, changed(field("count", -1)), (COUNT,)),
    "no count": Answer(COUNTED, changed(without("count")), (COUNT,)),
    "a count of NaN": Answer(COUNTED, changed(field("count", float("nan"))), (COUNT,)),
    "a document less": Answer(COUNTED, changed(lambda found: found.update(count=found["count"] - 1)), (COUNT,)),
    "a document more": Answer(COUNTED, changed(lambda found: found.update(count=found["count"] + 1)), (COUNT,)),
    "a count of half the shards": Answer(COUNTED, changed(lambda found: found["_shards"].update(total=2)), (COUNT,)),
    "matched_queries is null": Answer(MATCHED, in_first(field("matched_queries", None)), (IMPACTS,)),
    "matched terms of NaN": Answer(MATCHED, in_first(field("matched_queries", {"0": float("nan")})), (IMPACTS,)),
    "a negative matched term": Answer(MATCHED, in_first(field("matched_queries", {"0": -3.0})), (IMPACTS,)),
    "a matched term out of range": Answer(MATCHED, in_first(field("matched_queries", {"999999": 1.0})), (IMPACTS,)),
    "a matched term without number": Answer(MATCHED, in_first(field("matched_queries", {"evil": 1.0})), (IMPACTS,)),
    "matched terms of another document": Answer(MATCHED, in_first(field("_id", "never-asked")), (IMPACTS,)),
    "docs is null": Answer(DOCUMENTS, changed(field("docs", None)), (STORED,)),
    "a document of null": Answer(DOCUMENTS, changed(lambda found: found["docs"].__setitem__(0, None)), (STORED,)),
    "no found": Answer(DOCUMENTS, in_stored(without("found")), (STORED,), "unknown"),
    "a document is not found": Answer(DOCUMENTS, in_stored(field("found", False)), (STORED,), "unknown"),
    "an error for a document": Answer(DOCUMENTS, in_stored(field("error", {"type": "any"})), (STORED,)),
    "no _source": Answer(DOCUMENTS, in_stored(without("_source")), (STORED,)),
    "contents is a string": Answer(DOCUMENTS, in_stored(field("_source", {"contents": "text"})), (STORED,)),
    "contents in two languages": Answer(
        DOCUMENTS, in_stored(field("_source", {"contents": {"de": "a", "en": "b"}})), (STORED,)
    ),
    "contents with ESC": Answer(
        DOCUMENTS, in_stored(field("_source", {"contents": {"default": "a\x1b[2Jb\x07"}})), (STORED,), "unknown"
    ),
    "contents with a lone surrogate": Answer(
        DOCUMENTS, in_stored(field("_source", {"contents": {"default": "a\ud800b"}})), (STORED,), "unknown"
    ),
    "another document": Answer(DOCUMENTS, in_stored(field("_id", "never-asked")), (STORED,), "unknown"),
    "no items": Answer(FILLED, changed(without("items")), (BULK,)),
    "items is empty": Answer(FILLED, changed(field("items", [])), (BULK,)),
    "an item without status": Answer(FILLED, in_items(without("status")), (BULK,)),
    "an item without reason": Answer(
        FILLED, in_items(lambda item: item.update(status=400, error={"type": "any"})), (BULK,)
    ),
    "an item with an error, without _id": Answer(
        FILLED, in_items(lambda item: item.pop("_id") and item.update(status=400, error={"reason": "any"})), (BULK,)
    ),
    "an item with ESC and lines": Answer(
        FILLED, in_items(lambda item: item.update(status=400, error={"reason": "a\nb\x1b[2J", "type": "t"})), (BULK,)
    ),
    "an item that is busy, once": Answer(
        FILLED,
        once(in_items(lambda item: item.update(status=429, error={"reason": "busy", "type": "t"}))),
        (BULK,),
        "right",
    ),
    "an index that exists": Answer(
        FILLED, failed(400, "resource_already_exists_exception", "index [docs] already exists"), (CREATE,)
    ),
    "too many shards": Answer(
        FILLED, failed(400, "validation_exception", "this action would add [2] total shards"), (CREATE,)
    ),
    "an index without reason": Answer(FILLED, bytes_of(b'{"error": {"type": "any"}}', status=400), (CREATE,)),
    "a read-only index": Answer(
        FILLED,
        failed(403, "cluster_block_exception", "index [docs] blocked by: [FORBIDDEN/5/index read-only (api)];"),
        (BULK, SETTINGS),
    ),
    "a full disk": Answer(
        FILLED,
        failed(
            429,
            "cluster_block_exception",
            "index [docs] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has "
            "read-only-allow-delete block];",
        ),
        (SETTINGS,),
    ),
}


class Stage:
    """The answer that is played, its step, and the requests since."""

    def __init__(self) -> None:
        self.services, self.lock, self.urls = (Service(), Service()), threading.Lock(), ["", "", ""]
        self.changed = threading.Event()
        self.play()

    def play(self, name: str = "", step: str = "") -> None:
        """Play an answer from now on, without an index "fresh" of an earlier play; "" for honest answers."""
        self.changed.set()
        self.answer = ANSWERS[name] if name else None
        self.step, self.played = step, 0
        self.requests: list[dict[str, Any]] = []
        if name:
            for service in self.services:
                service.indexes.pop("fresh", None)
        self.changed = threading.Event()

    def is_elasticsearch(self, port: int) -> bool:
        """Return which service a port is."""
        return port == urlsplit(self.urls[1]).port


class _Handler(BaseHTTPRequestHandler):
    stage: Stage
    content = ""
    protocol_version = "HTTP/1.1"

    @property
    def port(self) -> int:
        """The port that the request came to."""
        return self.connection.getsockname()[1]

    def do(self) -> None:
        self.content = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        stage, url = self.stage, urlsplit(self.path)
        path = unquote(url.path)
        if path.startswith("/_play/"):
            stage.play(path.removeprefix("/_play/"), parse_qs(url.query).get("step", [""])[0])
            return self._send({"playing": path})
        if path == "/_requests":
            return self._send({"played": stage.played, "requests": stage.requests})
        with stage.lock:
            is_elasticsearch = stage.is_elasticsearch(self.port)
            flavor = ELASTICSEARCH if is_elasticsearch else OPENSEARCH
            try:
                found = stage.services[is_elasticsearch].answer(self.command, path, self.content, flavor)
                step, status, value = found
            except Exception as error:
                step, status, value = (
                    OTHER,
                    400,
                    error_of("illegal_argument_exception", f"{type(error).__name__} {error}"),
                )
            if path.endswith("_search/scroll") or "scroll=" in url.query:
                step = SEARCH
            stage.requests.append({"port": self.port, "path": self.path, "headers": dict(self.headers), "step": step})
            playing = stage.answer if stage.step == step and self.port != urlsplit(stage.urls[2]).port else None
            exchange = Exchange(self, stage, status, value, stage.played)
            stage.played += playing is not None
        with contextlib.suppress(OSError):
            (playing.play if playing else Exchange.honest)(exchange)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do  # noqa: N815

    def _send(self, found: Any) -> None:
        content = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def handle(self) -> None:
        """Answer requests until the client closes the connection."""
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *arguments: object) -> None:
        """Report nothing: clients close connections in the middle of an answer."""


@contextlib.contextmanager
def evil_server() -> Iterator[Stage]:
    """Run a service; yield what is played on it, and its URLs: as OpenSearch, as Elasticsearch, and of another host."""
    stage = Stage()
    handler = type("Handler", (_Handler,), {"stage": stage})
    servers = [_Server((host, 0), handler) for host in ("127.0.0.1", "127.0.0.1", "127.0.0.1")]
    stage.urls = [f"http://127.0.0.1:{server.server_port}" for server in servers]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield stage
    finally:
        stage.changed.set()
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


def main() -> None:
    """Print the URLs, and run until stdin is closed."""
    with evil_server() as stage:
        sys.stdout.write(" ".join(stage.urls) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
