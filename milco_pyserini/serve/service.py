"""Answer many requests at a time over one open index and one encoder: what the API, the page and the MCP tools call.

Queries that wait are encoded together, in one thread. Several threads search, which Java and numba do outside of
Python's lock. One thread explains, for which it encodes documents: no search waits for that. Another reads hits again
that lack the words of the query. At most `queue` requests are accepted at a time; further ones fail at once.

An index that was updated is opened again while requests are answered. A request is answered by the index that was open
when it was accepted.
"""

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from milco_pyserini.console import counted, log
from milco_pyserini.corpora.records import PASSAGE_DELIMITER, Document
from milco_pyserini.errors import (
    MilcoError,
    ParameterError,
    UnknownDocument,
    Unreachable,
    parameter,
    shown,
    validate_name,
)
from milco_pyserini.explain.evidence import READ_TOKENS, SEARCHED, Evidence, Snippet
from milco_pyserini.explain.origins import MAX_TEXT_CHARACTERS
from milco_pyserini.index.documents import MAX_VALUE_BYTES, filter_text
from milco_pyserini.index.hits import Hit
from milco_pyserini.options import option, validate_number
from milco_pyserini.request import SearchRequest
from milco_pyserini.search import steps
from milco_pyserini.serve.opened import IndexDescription, IndexSnapshot

if TYPE_CHECKING:
    from milco_pyserini.explain.explanation import Explanation

MAX_QUERY_CHARACTERS = 2000
MAX_HITS = 100
# Rank of the last document that paging reaches.
MAX_DEPTH = 1000
MAX_TEXTS = 64
MAX_TOKENS = 100_000
# Values of a field that are listed.
MAX_LISTED = 1000
# Hits among which the values of a field are counted.
FACET_HITS = 100
# Texts of a request that are encoded together.
_FEW = 8
# Queries that are encoded together.
_BATCH = MAX_QUERIES = 32
# Seconds between two looks at the manifest; more and more, up to a minute, while what it names cannot be opened.
WATCH_SECONDS = 2.0
_MOST_SECONDS = 60.0
# Seconds between two pings of an index's server, and seconds that a report of health waits for one.
PING_SECONDS = 5.0
PING_WAIT = 2.0

T = TypeVar("T")


class Busy(MilcoError):  # noqa: N818
    """More requests wait than the service accepts."""


@dataclass(frozen=True)
class ServedRequest(SearchRequest):
    """How a client searches, within the limits of the service."""

    k: int = option(10, minimum=1, maximum=MAX_HITS, help=f"documents to return, up to {MAX_HITS}")
    offset: int = option(
        0, minimum=0, maximum=MAX_DEPTH - 1, help=f"better documents to skip; offset + k: up to {MAX_DEPTH:,}"
    )

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield messages about options that exclude each other."""
        yield from super().conflicts()
        if self.offset + self.k > MAX_DEPTH:
            yield ParameterError("offset", self.offset, parameter("k", self.k) + f" reaches below rank {MAX_DEPTH:,}")


def served_request(**options: Any) -> SearchRequest:
    """Return the request of a client. Raises MilcoError if it is beyond the limits of the service."""
    ServedRequest(**options)
    return SearchRequest(**options)


def query_text(text: str) -> str:
    """Return a query with single spaces. Raises MilcoError if it is empty or too long."""
    text = " ".join(text.split())
    if not text:
        raise MilcoError("the query is empty")
    if len(text) > MAX_QUERY_CHARACTERS:
        raise MilcoError(f"the query has {len(text):,} characters: it may have up to {MAX_QUERY_CHARACTERS:,}")
    return text


@dataclass(frozen=True)
class FoundDocument:
    """A hit with what a list of results shows of it.

    The document of the hit is that of its passage. title, snippet: None if the texts are not available; title also if
    the document has none.
    """

    hit: Hit
    title: Snippet | None
    snippet: Snippet | None

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values, with the snippet in place of the text."""
        found = self.hit.to_json()
        del found["text"]
        snippet = self.snippet
        return found | {"snippet": snippet and snippet.text, "highlights": snippet.highlights() if snippet else []}


@dataclass(frozen=True)
class SearchResponse:
    """The hits of a query.

    Attributes:
        offset: number of better documents that were skipped.
        total: number of documents that match; None if the engine does not count them.
        facets: for each field that was asked for and does not filter, its values and how many of the best 100 hits have
            each, most frequent first. If nothing passes the filters: of the fields that filter, without them.
        terms: the query as {term: weight}.
        encode_ms, search_ms: milliseconds that encoding (with waiting for others) and searching took.
    """

    query: str
    offset: int
    hits: list[FoundDocument]
    total: int | None
    facets: dict[str, list[tuple[str, int]]]
    terms: Mapping[str, float]
    encode_ms: float = 0.0
    search_ms: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "query": self.query,
            "offset": self.offset,
            "total": self.total,
            "hits": [hit.to_json() for hit in self.hits],
            "timing": {"encode_ms": round(self.encode_ms, 3), "search_ms": round(self.search_ms, 3)},
        }


def document_json(document: Document) -> dict[str, Any]:
    """Return a document as JSON values, with the beginning of a long text."""
    text = document.text[:MAX_TEXT_CHARACTERS]
    return {
        "docid": document.id,
        "title": document.title,
        "text": text,
        "omitted_characters": len(document.text) - len(text),
        "fields": dict(document.fields),
    }


class SearchService:
    """Searches, encodes and explains for many requests at a time.

    Its methods are coroutines of one event loop. Call close() in the end.

    Args:
        opened: the index.
        threads: threads that search.
        queue: requests that are accepted at a time.
        k: documents per page.
        title: title of the index on the page; "" for the name of its directory.
    """

    def __init__(self, opened: IndexSnapshot, threads: int = 2, queue: int = 128, k: int = 10, title: str = "") -> None:
        self.opened, self.title = opened, title or opened.about.name
        self.k, self.queue, self.pending = k, queue, 0
        self.batches: Callable[[int], None] = lambda size: None
        self._pools = {
            name: (ThreadPoolExecutor(size, name), size)
            for name, size in (
                ("search", threads),
                ("encode", 1),
                ("explain", 1),
                ("read", 1),
                ("open", 1),
                ("ping", 1),
            )
        }
        self._waiting: list[tuple[IndexSnapshot, str, SearchRequest, asyncio.Future]] = []
        self._encoding: asyncio.Task | None = None
        self._opening = asyncio.Lock()
        self._ping: asyncio.Task | None = None
        self._pinged = 0.0
        self._failure = ""

    @property
    def about(self) -> IndexDescription:
        """The index as it was when it was last opened."""
        return self.opened.about

    async def search(
        self, text: str, request: SearchRequest, facets: Sequence[str] = (), is_read: bool = True
    ) -> SearchResponse:
        """Return the documents of a query. Arguments and errors as for search_batch()."""
        return (await self.search_batch([text], request, facets, is_read))[0]

    async def search_batch(
        self, texts: Sequence[str], request: SearchRequest, facets: Sequence[str] = (), is_read: bool = True
    ) -> list[SearchResponse]:
        """Return the documents of up to 32 queries, which wait as one request. Raises MilcoError, or Busy.

        They are encoded together and found in one thread, so that they do not keep others from searching. Each has the
        times of all, and an equal share of the tokens that are read again.

        Args:
            facets: fields, as of SearchResponse.facets.
            is_read: whether hits without words of the query are read again for their snippets.
        """
        validate_number("number of queries", len(texts), 1, MAX_QUERIES)
        texts = list(map(query_text, texts))
        self._validate(request)
        with self._accepted() as opened:
            started = time.perf_counter()
            queries = await asyncio.gather(*(self._encode_query(opened, text, request) for text in texts))
            encoded = time.perf_counter()
            find = partial(_find, opened, request, facets)
            found = await self.run("search", lambda: list(map(find, texts, queries)))
            for response, evidence in found if is_read else ():
                if unclear := evidence.unclear():
                    for place in await self.run("read", evidence.read, unclear, READ_TOKENS // len(texts)):
                        response.hits[place] = replace(response.hits[place], snippet=evidence.snippet(place))
            finished = time.perf_counter()
        encode_ms, search_ms = 1000 * (encoded - started), 1000 * (finished - encoded)
        return [replace(response, encode_ms=encode_ms, search_ms=search_ms) for response, _ in found]

    async def context(self, text: str, request: SearchRequest, tokens: int) -> dict[str, str]:
        """Return the sentences of a query's documents that answer it, by docid. Raises MilcoError, or Busy.

        tokens: as for Searcher.context(), up to MAX_TOKENS.
        """
        validate_number("tokens", tokens, 1, MAX_TOKENS)
        text = query_text(text)
        self._validate(request)
        with self._accepted() as opened:
            query = await self._encode_query(opened, text, request)
            (hits,) = await self.run("search", opened.searcher.rank, [query], request)
            return await self.run("explain", opened.searcher.sentences, query, hits, tokens, SEARCHED)

    def _validate(self, request: SearchRequest) -> None:
        """Raise MilcoError before a request waits among others, as for a view that the index lacks."""
        self.opened.encoder.of_request(request)
        self.opened.searcher.validate(request)

    async def explain(
        self, text: str, docids: Sequence[str], request: SearchRequest, index: str = ""
    ) -> "list[Explanation]":
        """Explain the scores of documents, in their order. Raises MilcoError, UnknownDocument or Busy.

        Args:
            index: path of the index whose scores are explained, if there are several (default: the first that can be).
        """
        if len(docids) > MAX_HITS:
            raise MilcoError(f"{len(docids):,} documents are named: up to {MAX_HITS} can be explained at a time")
        text = query_text(text)
        self.opened.encoder.of_request(request)
        steps.validate([self.opened.explained(index)], request)
        wanted = list(dict.fromkeys(docids))
        with self._accepted() as opened:
            searcher = opened.explained(index)

            def explain(some: Sequence[str]) -> "list[Explanation]":
                return searcher.explainer.explain(text, some, request)

            # A few at a time, so that other requests are explained in between.
            parts = [wanted[start : start + _FEW] for start in range(0, len(wanted), _FEW)]
            return [explanation for part in parts for explanation in await self.run("explain", explain, part)]

    async def encode(
        self, texts: Sequence[str], kind: str = "query", request: SearchRequest | None = None, truncate: bool = True
    ) -> list[dict[str, float]]:
        """Return {term: weight} of each text, encoded as the index's queries or documents, strongest first.

        Args:
            request: its alpha and views are used.
            truncate: truncate texts above the maximum length; else they are an error.

        Raises MilcoError, or Busy.
        """
        validate_name("kind", kind, ("query", "document"))
        validate_number("number of texts", len(texts), 1, MAX_TEXTS)
        request = request or SearchRequest()
        if request.alpha is not None and kind == "document":
            raise MilcoError("alpha weighs the views of queries, not of documents: omit it")
        index = self.opened
        options = index.encoder.of_request(request)
        length = options.max_length
        if kind == "document":
            length = index.primary.index.vectors.max_length or options.encoder.config.passage_max_length

        def encode(some: Sequence[str]) -> list[dict[str, float]]:
            if not truncate and any(row.truncated for row in options.encoder.tokenizer.tokenize(some, length)):
                raise MilcoError(f"a text has more than {length} tokens: shorten it, or pass truncate=true")
            if kind == "query":
                found = options.encode_batch(some)
            else:
                found = options.encoder.encode_document(
                    some, max_length=length, views=options.views, lowercase=bool(index.primary.index.vectors.lowercase)
                ).to_dicts()
            return [dict(sorted(vector.items(), key=lambda item: (-item[1], item[0]))) for vector in found]

        with self._accepted():
            # A few at a time, so that queries are encoded in between.
            parts = [texts[start : start + _FEW] for start in range(0, len(texts), _FEW)]
            return [vector for part in parts for vector in await self.run("encode", encode, part)]

    async def fields(self, values: int = 20) -> list[dict[str, Any]]:
        """Return name, type and values of each stored field, of which only the most frequent are listed.

        Raises MilcoError, or Busy.
        """
        validate_number("values", values, 0, MAX_LISTED)
        with self._accepted() as opened:
            searcher = opened.searcher
            types = searcher.fields or {}
            counts = {name: await self.run("search", searcher.values, name) for name in types}
        return [
            {
                "name": name,
                "type": types[name],
                "distinct": None if found is None else len(found),
                "values": [
                    {"value": value, "documents": count}
                    for value, count in sorted((found or {}).items(), key=lambda item: (-item[1], item[0]))[:values]
                ],
            }
            for name, found in counts.items()
        ]

    async def document(self, docid: str) -> Document:
        """Return a document, or that of a passage. Raises UnknownDocument, or Busy."""
        with self._accepted() as opened:
            searcher = opened.searcher
            # An index of passages stores documents by the ids of these.
            names = [docid, f"{docid}{PASSAGE_DELIMITER}0"] if opened.about.has_passages else [docid]
            found = await self.run("search", searcher.documents, names)
        document = next((found[name] for name in names if name in found), None)
        if document is None:
            index = opened.about.name
            if not searcher.has_documents:
                raise UnknownDocument(f"{index} does not store its documents: only docids are known")
            raise UnknownDocument(f"{index} has no document {shown(docid)}")
        return replace(document, id=docid)

    async def failure(self) -> str:
        """Return why the server that holds the index cannot answer, as it was a few seconds ago; "" if it can."""
        now = time.monotonic()
        if self._ping is None or (self._ping.done() and now >= self._pinged + PING_SECONDS):
            self._ping, self._pinged = asyncio.create_task(self._pinging()), now
        # A server that hangs is asked once, however many ask for it.
        done, _ = await asyncio.wait([self._ping], timeout=PING_WAIT)
        return self._failure if done else f"the server that holds {self.about.name} has not answered yet"

    async def _pinging(self) -> None:
        opened, failure = self.opened, ""
        opened.retain()
        try:
            await self.run("ping", opened.ping)
        except MilcoError as error:
            failure = error.message
        finally:
            opened.release()
        if failure and failure != self._failure:
            log(failure)
        self._failure = failure

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Open the index again within the block when its manifest changes, and on SIGHUP."""
        wanted, loop = asyncio.Event(), asyncio.get_running_loop()
        # Other threads cannot receive signals, and Windows has no SIGHUP.
        is_signaled = hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread()
        if is_signaled:
            loop.add_signal_handler(signal.SIGHUP, wanted.set)
        watch = asyncio.create_task(self._watch(wanted))
        try:
            yield
        finally:
            if is_signaled:
                loop.remove_signal_handler(signal.SIGHUP)
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def _watch(self, wanted: asyncio.Event) -> None:
        """Open the index again when its manifest changes or the event is set; until then, the old one answers."""
        seconds, reported = WATCH_SECONDS, ""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wanted.wait(), seconds)
            path = self.opened.searcher.name
            try:
                if not wanted.is_set() and not self.opened.has_changed():
                    continue
                wanted.clear()
                await self.refresh(always=True)
            except Exception as error:
                # The index that is open answers, whatever the error.
                seconds, message = min(2 * seconds, _MOST_SECONDS), " ".join(str(error).split())
                if message != reported:
                    log(f"{path} is not opened again, the old index still answers: {message or type(error).__name__}")
                reported = message
            else:
                seconds, reported = WATCH_SECONDS, ""
                log(f"Opened {path} again: {counted(self.about.documents, 'document')}")

    async def refresh(self, always: bool = False) -> None:
        """Open the index again if its manifest has changed, or always. Raises MilcoError if it cannot be opened."""
        async with self._opening:
            old = self.opened
            if always or old.has_changed():
                self.opened = await self.run("open", old.reopened)
                old.release()

    def close(self) -> None:
        """Wait for the work that has begun, and end the threads."""
        for pool, threads in self._pools.values():
            barrier = threading.Barrier(threads)
            for _ in range(threads):
                pool.submit(_detach_from_java, barrier)
            pool.shutdown()
        self.opened.release()

    @contextlib.contextmanager
    def _accepted(self) -> Iterator[IndexSnapshot]:
        """Count a request, and keep the index that it is answered from open for it. Raises Busy.

        Errors of a server that holds the index are logged: where it is and what it reports are not for clients.
        """
        if self.pending >= self.queue:
            raise Busy(f"the server is busy with {self.pending:,} requests: try again in a second")
        opened = self.opened
        self.pending += 1
        opened.retain()
        try:
            yield opened
        except Unreachable as error:
            log(str(error))
            raise Unreachable(f"the server that holds {opened.about.name} does not answer: try again later") from None
        finally:
            self.pending -= 1
            opened.release()

    async def run(self, pool: str, function: Callable[..., T], *arguments: Any) -> T:
        """Return what a function returns that runs in a thread of a pool: search, encode, explain, open or ping."""
        return await asyncio.get_running_loop().run_in_executor(self._pools[pool][0], function, *arguments)

    async def _encode_query(self, opened: IndexSnapshot, text: str, request: SearchRequest) -> Any:
        future: asyncio.Future = asyncio.get_running_loop().create_future()
        self._waiting.append((opened, text, request, future))
        if self._encoding is None:
            self._encoding = asyncio.create_task(self._encode_waiting())
        return await future

    async def _encode_waiting(self) -> None:
        """Encode batches of waiting queries until none waits; those of a batch have the same index, alpha and views."""

        def options(waiting: tuple[IndexSnapshot, str, SearchRequest, asyncio.Future]) -> tuple:
            return waiting[0], waiting[2].alpha, waiting[2].views

        while self._waiting:
            opened, _, request, _ = first = self._waiting[0]
            batch = [waiting for waiting in self._waiting if options(waiting) == options(first)][:_BATCH]
            self._waiting = [waiting for waiting in self._waiting if waiting not in batch]
            self.batches(len(batch))
            texts = [text for _, text, _, _ in batch]
            try:
                queries = await self.run("encode", opened.searcher.encode, texts, request)
            except Exception as error:
                queries = [error] * len(batch)  # type: ignore[list-item]
            del opened, first
            for (*_, future), query in zip(batch, queries, strict=True):
                # A client that has gone may have cancelled its request.
                if future.done():
                    continue
                if isinstance(query, Exception):
                    future.set_exception(query)
                else:
                    future.set_result(query)
        self._encoding = None


def _find(
    opened: IndexSnapshot, request: SearchRequest, facets: Sequence[str], text: str, query: Any
) -> tuple[SearchResponse, Evidence]:
    last = request.offset + request.k
    depth = max(last, FACET_HITS) if facets else last
    hits = opened.searcher.rank([query], replace(request, k=depth, offset=0))[0]
    ranked = [hit.with_document(opened.searcher.read(hit)) for hit in hits[request.offset : last]]
    titles = opened.searcher.evidence(query, [hit.title or "" for hit in ranked])
    texts = opened.searcher.evidence(query, [hit.document.text if hit.document else "" for hit in ranked])
    found = [
        FoundDocument(hit, titles.snippet(place) if hit.title else None, texts.snippet(place) if hit.document else None)
        for place, hit in enumerate(ranked)
    ]
    wanted = [name for name in facets if name not in request.filters]
    if facets and request.filters and not len(hits):
        wanted = list(request.filters)
        hits_without = opened.searcher.rank([query], replace(request, filters={}, k=FACET_HITS, offset=0))[0]
        best = [hit.document.fields for hit in hits_without if hit.document]
    else:
        best = [hit.document.fields for hit in hits[:FACET_HITS] if hit.document] if facets else []
    counts = {name: _counted([fields[name] for fields in best if name in fields]) for name in wanted}
    return SearchResponse(text, request.offset, found, hits.total, counts, texts.query), texts


def _counted(values: Sequence[Any]) -> list[tuple[str, int]]:
    """Return the values of a field that filters find, and how often each occurs, most frequent first.

    values: of each document one, or a list of them.
    """
    counts = Counter(filter_text(text) for value in values for text in (value if isinstance(value, list) else [value]))
    found = [item for item in counts.items() if len(item[0].encode()) <= MAX_VALUE_BYTES and item[0][:1] != "="]
    return sorted(found, key=lambda item: (-item[1], item[0]))


def _detach_from_java(barrier: threading.Barrier) -> None:
    """End a thread that has called Java. barrier: for as many threads as there are, so that each gets one call."""
    barrier.wait()
    if "jnius" in sys.modules:
        sys.modules["jnius"].detach()
