"""Answer many requests at a time over one open index and one encoder: what the API, the page and the MCP tools call.

Queries that wait are encoded together, in the one thread that runs the network. Several threads search, which Java and
numba do outside of Python's lock. At most `queue` requests are accepted at a time; further ones fail at once.
"""

import asyncio
import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from milco_pyserini.corpora.records import PASSAGE_DELIMITER, Document
from milco_pyserini.defaults import VIEWS
from milco_pyserini.encode import MilcoQueryEncoder
from milco_pyserini.errors import MilcoError, UnknownDocument, shown, validate_name
from milco_pyserini.explain.origins import passage_text
from milco_pyserini.explain.snippets import LENGTH, Snippet, make_snippets
from milco_pyserini.index.stored import filter_text, validate_filters
from milco_pyserini.options import validate_number
from milco_pyserini.search.searcher import Searcher

if TYPE_CHECKING:
    from milco_pyserini.explain import Explanation

MAX_QUERY_CHARACTERS = 2000
MAX_HITS = 100
# Rank of the last document that paging reaches.
MAX_DEPTH = 1000
MAX_TEXTS = 64
MAX_TEXT_CHARACTERS = 100_000
# Hits among which the values of a field are counted.
_FACET_HITS = 100
# Texts of a request that are encoded together.
_FEW = 8
# Queries that are encoded together.
_BATCH = 32

T = TypeVar("T")


class Busy(MilcoError):  # noqa: N818
    """More requests wait than the service accepts."""


@dataclass(frozen=True)
class SearchRequest:
    """One search.

    Args:
        text: The query.
        k: Documents to return.
        offset: Better documents to skip.
        alpha: Weight of the query's pivot view, in [0, 1]; its source view has 1 - alpha (default: the service's).
        views: "pivot", "source" or both; none for all that the index has.
        filters: {"lang": ["de", "fr"]}: only documents that have one of the values in each field.
        facet: A field whose values are counted among the best hits; "" for none.

    Raises:
        MilcoError: the query is empty or too long, or a value is out of its range.
    """

    text: str
    k: int = 10
    offset: int = 0
    alpha: float | None = None
    views: tuple[str, ...] = ()
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    facet: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", " ".join(self.text.split()))
        if not self.text:
            raise MilcoError("the query is empty: set q")
        if len(self.text) > MAX_QUERY_CHARACTERS:
            raise MilcoError(f"the query has {len(self.text):,} characters: it may have up to {MAX_QUERY_CHARACTERS:,}")
        validate_number("k", self.k, 1, MAX_HITS)
        validate_number("offset", self.offset, 0, MAX_DEPTH)
        if self.offset + self.k > MAX_DEPTH:
            raise MilcoError(f"offset {self.offset:,} + k {self.k}: documents are ranked down to rank {MAX_DEPTH:,}")
        if self.alpha is not None:
            validate_number("alpha", self.alpha, 0, 1)
        for view in self.views:
            validate_name("view", view, VIEWS)


@dataclass(frozen=True)
class FoundDocument:
    """A hit with what a list of results shows of it.

    document, title, snippet: None if the texts are not available; title also if the document has none.
    """

    rank: int
    docid: str
    score: float
    document: Document | None
    title: Snippet | None
    snippet: Snippet | None

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "rank": self.rank,
            "docid": self.docid,
            "score": self.score,
            "title": self.document.title if self.document else None,
            "snippet": self.snippet.text if self.snippet else None,
            "highlights": self.snippet.highlights() if self.snippet else [],
            "fields": dict(self.document.fields) if self.document else {},
        }


@dataclass(frozen=True)
class SearchResponse:
    """The hits of a request.

    Attributes:
        total: Number of documents that match; None if the engine does not count them.
        facets: Values of the request's facet, and how many of the best 100 hits have each, most frequent first.
        encode_ms, search_ms: Milliseconds that encoding (with waiting for others) and searching took.
    """

    request: SearchRequest
    hits: list[FoundDocument]
    total: int | None
    facets: list[tuple[str, int]]
    encode_ms: float = 0.0
    search_ms: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "query": self.request.text,
            "offset": self.request.offset,
            "total": self.total,
            "hits": [hit.to_json() for hit in self.hits],
            "timing": {"encode_ms": round(self.encode_ms, 3), "search_ms": round(self.search_ms, 3)},
        }


def has_explanations(searcher: Searcher) -> bool:
    """Return whether scores can be explained: not with a query table or a SparseEncoder as encoder."""
    return cast(MilcoQueryEncoder, searcher.query_encoder).encoder.has_token_states


class SearchService:
    """Searches, encodes and explains for many requests at a time.

    Its methods are coroutines of one event loop. Call close() in the end.

    Args:
        searcher: An open index of terms.
        threads: Threads that search.
        queue: Requests that are accepted at a time.
        hits: Documents per page.

    Raises:
        MilcoError: the searcher's encoder does not fit its index.
    """

    def __init__(self, searcher: Searcher, threads: int = 2, queue: int = 128, hits: int = 10) -> None:
        self.searcher = searcher
        self.hits = hits
        self.queue = queue
        self.pending = 0
        self.batches: Callable[[int], None] = lambda size: None
        self.encoder = cast(MilcoQueryEncoder, searcher.query_encoder)
        self._lowercase = bool(searcher.index.vectors.get("lowercase"))
        self._threads = threads
        self._search_pool = ThreadPoolExecutor(threads, "search")
        self._encode_pool = ThreadPoolExecutor(1, "encode")
        self._waiting: list[tuple[SearchRequest, asyncio.Future]] = []
        self._encoding: asyncio.Task | None = None

    async def search(self, request: SearchRequest) -> SearchResponse:
        """Return the documents of a request. Raises MilcoError, or Busy."""
        # Before it waits among others: a view that the index lacks.
        self._validate(request)
        with self._accepted():
            started = time.perf_counter()
            query = await self._encode_query(request)
            encoded = time.perf_counter()
            found = await _in_pool(self._search_pool, self._find, request, query)
            finished = time.perf_counter()
        return replace(found, encode_ms=1000 * (encoded - started), search_ms=1000 * (finished - encoded))

    async def explain(self, request: SearchRequest, docids: Sequence[str]) -> "list[Explanation]":
        """Explain the scores of documents, in their order. Raises MilcoError, UnknownDocument or Busy."""
        if len(docids) > MAX_HITS:
            raise MilcoError(f"{len(docids):,} documents are named: up to {MAX_HITS} can be explained at a time")
        self._validate(request)

        def explain(docid: str) -> "Explanation":
            return self.searcher.explain(request.text, docid, alpha=request.alpha, views=request.views)

        with self._accepted():
            # One by one, so that queries are encoded in between.
            return [await _in_pool(self._encode_pool, explain, docid) for docid in dict.fromkeys(docids)]

    async def encode(
        self, texts: Sequence[str], kind: str = "query", alpha: float | None = None, views: Sequence[str] = ()
    ) -> list[dict[str, float]]:
        """Return {term: weight} of each text, encoded as the index's queries or documents, strongest first.

        Raises MilcoError, or Busy.
        """
        validate_name("kind", kind, ("query", "document"))
        validate_number("number of texts", len(texts), 1, MAX_TEXTS)
        for text in texts:
            validate_number("characters of a text", len(text), 0, MAX_TEXT_CHARACTERS)
        if alpha is not None and kind == "document":
            raise MilcoError("alpha weighs the views of queries, not of documents: omit it")
        about = self.searcher.index.vectors
        options = self.encoder.with_views(views) if views else self.encoder
        if alpha is not None:
            options = options.with_alpha(alpha)

        def encode(some: Sequence[str]) -> list[dict[str, float]]:
            if kind == "query":
                found = options.encode_batch(some)
            else:
                length, views = about.get("max_length"), options.views
                found = options.encoder.encode_document(some, length, views, self._lowercase).to_dicts()
            return [dict(sorted(one.items(), key=lambda item: (-item[1], item[0]))) for one in found]

        with self._accepted():
            # A few at a time, so that queries are encoded in between.
            parts = [texts[start : start + _FEW] for start in range(0, len(texts), _FEW)]
            return [vector for part in parts for vector in await _in_pool(self._encode_pool, encode, part)]

    async def document(self, docid: str) -> Document:
        """Return a document. Raises UnknownDocument, or Busy."""
        with self._accepted():
            found = await _in_pool(self._search_pool, self.searcher.documents, [docid])
        if docid not in found:
            index = self.searcher.index.path.name
            if not self.searcher.has_documents:
                raise UnknownDocument(f"the documents of {index} are not on this machine: only docids are known")
            raise UnknownDocument(f"{index} has no document {shown(docid)}")
        return found[docid]

    def close(self) -> None:
        """Wait for the work that has begun, and end the threads."""
        for pool, threads in ((self._search_pool, self._threads), (self._encode_pool, 1)):
            barrier = threading.Barrier(threads)
            for _ in range(threads):
                pool.submit(_detach_from_java, barrier)
            pool.shutdown()

    @contextlib.contextmanager
    def _accepted(self) -> Iterator[None]:
        if self.pending >= self.queue:
            raise Busy(f"the server is busy with {self.pending:,} requests: try again in a second")
        self.pending += 1
        try:
            yield
        finally:
            self.pending -= 1

    def _validate(self, request: SearchRequest) -> None:
        options = self.encoder.with_views(request.views) if request.views else self.encoder
        if request.alpha is not None:
            options.with_alpha(request.alpha)
        if request.filters:
            validate_filters(request.filters, self.searcher.engine_searcher.fields, self.searcher.index.path)

    async def _encode_query(self, request: SearchRequest) -> Any:
        future: asyncio.Future = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._encoding is None:
            self._encoding = asyncio.create_task(self._encode_waiting())
        return await future

    async def _encode_waiting(self) -> None:
        """Encode batches of waiting queries until none waits; those of a batch have the same alpha and views."""
        while self._waiting:
            first = self._waiting[0][0]
            alike = [one for one in self._waiting if (one[0].alpha, one[0].views) == (first.alpha, first.views)]
            batch = alike[:_BATCH]
            self._waiting = [one for one in self._waiting if one not in batch]
            self.batches(len(batch))
            texts = [request.text for request, _ in batch]
            try:
                queries = await _in_pool(
                    self._encode_pool, self.searcher.encode_queries, texts, first.alpha, first.views
                )
            except Exception as error:
                queries = [error] * len(batch)
            for (_, future), query in zip(batch, queries, strict=True):
                # A client that has gone may have cancelled its request.
                if future.done():
                    continue
                if isinstance(query, Exception):
                    future.set_exception(query)
                else:
                    future.set_result(query)
        self._encoding = None

    def _find(self, request: SearchRequest, query: dict[str, float]) -> SearchResponse:
        last = request.offset + request.k
        depth = max(last, _FACET_HITS) if request.facet else last
        hits = self.searcher.search_queries([query], depth, filters=request.filters)[0]
        ranked = list(hits[request.offset : last])
        documents = [hit.document and self._passage(hit.docid, hit.document) for hit in ranked]
        texts = [text for one in documents if one for text in (one.title, one.text)]
        snippets = iter(make_snippets(query, texts, self.encoder.encoder, LENGTH, self._lowercase))
        found = []
        for rank, (hit, document) in enumerate(zip(ranked, documents, strict=True), request.offset + 1):
            title, snippet = (next(snippets), next(snippets)) if document else (None, None)
            title = title if document and document.title else None
            found.append(FoundDocument(rank, hit.docid, hit.score, document, title, snippet))
        counts: Counter[str] = Counter()
        for hit in hits[:_FACET_HITS] if request.facet else ():
            values = hit.document.fields.get(request.facet, []) if hit.document else []
            counts.update(map(filter_text, values if isinstance(values, list) else [values]))
        return SearchResponse(request, found, hits.total, sorted(counts.items(), key=lambda one: (-one[1], one[0])))

    def _passage(self, docid: str, document: Document) -> Document:
        """Return a document with only the text of the passage, if the docid is that of one."""
        about = self.searcher.index.vectors
        number = docid.rpartition(PASSAGE_DELIMITER)[2]
        if not about.get("split_passages") or not number.isdecimal():
            return document
        encoder, length = self.encoder.encoder, about["max_length"]
        text = passage_text(encoder, document.contents, length, self._lowercase, int(number))
        return replace(document, text=text.removeprefix(document.title).lstrip() if number == "0" else text)


async def _in_pool(pool: Executor, function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)


def _detach_from_java(barrier: threading.Barrier) -> None:
    """End a thread that has called Java. barrier: for as many threads as there are, so that each gets one call."""
    barrier.wait()
    if "jnius" in sys.modules:
        sys.modules["jnius"].detach()
