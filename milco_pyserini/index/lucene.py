"""The Lucene engine: an impact index that Pyserini and Anserini cannot distinguish from one that Anserini wrote.

Anserini repeats each term impact times and lets Lucene count the repetitions: tens of thousands of
words per document (castorini/anserini#1890). Here each term is named once, with its impact as its frequency. Chunks of
documents go to Java as one string, are inverted in memory by a counting sort (java/ImpactDocuments.java), and are
added to the index as a segment: the same postings, sooner.

Pyserini's searcher reads the complete dictionary when it opens (for an idf that impacts do not use), repeats each query
term impact times, sorts by docid as it goes, and loads the stored document of every hit. Here a query
goes to Java as one string, the postings of its terms are added up, the docids of the best are read from the column that
breaks ties, and ties are sorted at the end; scores and docids come back as one array of bytes. Docids and scores are
those of LuceneImpactSearcher. Every posting of a query's terms is read: Lucene skips blocks of documents that cannot be
among the best, but queries as long as MILCO's leave hardly any (benchmarks/skipping.py), and each posting that it does
read takes it longer.
"""

import struct
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from operator import add
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from milco_pyserini import jvm
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import CheckedDocuments, Filters
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.hits import GroupHits, Groups, Hits
from milco_pyserini.index.lucene_java import REFERENCE, STRING, explain_newer_lucene, java_function, lucene_version
from milco_pyserini.index.protocol import CONTENT, EXACT_INTEGER, BuildResult, Engine, EngineSearcher
from milco_pyserini.io.records import IndexManifest
from milco_pyserini.options import option
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse.quantization import quantize_vector
from milco_pyserini.sparse.terms import DELIMITER

# Documents that go to Java at a time; fewer with their texts.
CHUNK = 256
STORED_CHUNK = 32
# Total for all threads; at most a quarter of Java's heap.
BUFFER_MB = 256.0
_USUAL_IMPACT = 2**14
# Filters that a searcher remembers the documents of.
KEPT_FILTERS = 64
# Ends a docid in the bytes that Java returns: no byte of UTF-8, whatever an id may contain.
_END = b"\xff"

T = TypeVar("T")


@dataclass(frozen=True)
class Lucene(Engine):
    """Exact sums of integers. Documents without terms are left out, as Anserini leaves them out."""

    store_vectors: bool = option(
        False, group=CONTENT, help="store vectors next to the documents, for Rocchio and RM3 in Pyserini"
    )

    name = "lucene"
    exactness = EXACT_INTEGER
    capabilities = frozenset(
        {Capability.BUILD, Capability.STORE, Capability.UPDATE, Capability.BALANCE, Capability.READ}
    )
    # Lucene opens the commit with the highest number.
    scanned = "segments_*"

    def available(self) -> None:
        """Start Java. Raises MilcoError if it, or Anserini's jar, is missing."""
        jvm.start()

    def build(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Write one segment for each thread, or more if memory fills up; Lucene merges them as it sees fit."""
        chunks, fields = _DocumentChunks(documents), _fields(documents)
        with engine_errors(self.name, "build", directory), _IndexWriter(directory, threads, fields) as writer:
            _write(writer, chunks, threads)
        return BuildResult(chunks.written, chunks.empty)

    def update(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Add segments to those of the index: Lucene never changes a file."""
        with (
            engine_errors(self.name, "build", directory),
            explain_newer_lucene(directory),
            _IndexWriter(directory, threads, _fields(documents)) as writer,
        ):
            chunks = _DocumentChunks(documents, writer.delete)
            _write(writer, chunks, threads)
            writer.delete(documents.deleted)
        count = java_function("ImpactWriter", "count", f"({STRING}){STRING}")(str(directory.absolute()))
        return BuildResult(int(count), chunks.empty)

    def versions(self) -> dict[str, str]:
        """Return the version of Lucene, which older ones may not be able to read."""
        return {"lucene": lucene_version()}

    def open(self, directory: Path, manifest: IndexManifest) -> "LuceneSearcher":
        """Open the index; queries are quantized at the scale that the manifest states."""
        with explain_newer_lucene(directory):
            return LuceneSearcher(self.name, directory, manifest.query_scale, manifest.documents)


class LuceneSearcher(EngineSearcher):
    """An open Lucene impact index. Scores are sums of products of integers, exact up to 2**24.

    Ties are in ascending order of docid, also where k cuts through them (Anserini's BREAK_SCORE_TIES_BY_DOCID).

    Args:
        scale: impact of a query's term = round(weight x scale), as in the documents.
    """

    def __init__(self, engine: str, directory: Path, scale: float, documents: int) -> None:
        super().__init__(engine, directory, documents)
        open_index = java_function("ImpactSearcher", "open", f"({STRING}){REFERENCE}")
        self._find = java_function("ImpactSearcher", "search", f"({REFERENCE}{3 * STRING})[B")
        self._find_filtered = java_function(
            "ImpactSearcher", "searchFiltered", f"({REFERENCE}{3 * STRING}{REFERENCE})[B"
        )
        self._find_groups = java_function(
            "ImpactSearcher", "searchGroups", f"({REFERENCE}{2 * STRING}{2 * REFERENCE})[B"
        )
        groups = java_function("ImpactSearcher", "groups", f"({REFERENCE}{STRING}){REFERENCE}")
        select = java_function("ImpactSearcher", "filter", f"({REFERENCE}{STRING}){REFERENCE}")
        self._count_values = java_function("FieldValues", "count", f"({REFERENCE}{2 * STRING})[B")
        self._stored = java_function("ImpactSearcher", "stored", f"({REFERENCE}{STRING})[B")
        self._impacts = java_function("ImpactSearcher", "impacts", f"({REFERENCE}{2 * STRING})[B")
        self.scale = scale
        self._index = index = open_index(str(directory.absolute()))
        # Runs in the thread that releases the searcher, like pyjnius' own finalizers.
        self._close = weakref.finalize(self, java_function("ImpactSearcher", "close", f"({REFERENCE})V"), index)
        self._close.atexit = False
        # A bit for each document.
        self._select = lru_cache(KEPT_FILTERS)(lambda filters: select(index, filters))
        self._groups = lru_cache(lambda field: groups(index, field))
        # pyjnius defines the classes of what Java returns at their first use, which is not safe in two threads at once.
        self._search({"a": 1 / scale}, 1, 1)

    def release(self) -> None:
        """Close the index in Java."""
        self._close()

    def find(self, queries: Sequence[dict[str, float]], request: SearchRequest) -> list[Hits]:
        """Return hits with float32 scores. Java works outside of Python's lock.

        Threads share queries; if there are more threads than queries, they share the documents of a query.
        """
        per_query = max(1, request.threads // max(1, len(queries)))
        search = partial(self._search, k=request.k, threads=per_query, matching=self._matching(request.filters))
        return _in_threads(search, queries, request.threads)

    def find_groups(self, queries: Sequence[dict[str, float]], request: SearchRequest, field: str) -> list[Groups]:
        """Return hits as find() does, the best for each value of a field."""
        options = {"matching": self._matching(request.filters), "groups": self._groups(field)}
        return _in_threads(partial(self._search_groups, k=request.k, **options), queries, request.threads)

    def _matching(self, filters: Filters) -> Any:
        """Return the documents that pass the filters, in Java; None for all."""
        text = "".join(
            f"{_counted_string(field)}{len(values)} {''.join(map(_counted_string, values))}"
            for field, values in filters.items()
        )
        return self._select(text) if text else None

    def count_values(self, field: str, limit: int) -> dict[str, int]:
        """Return how many documents have each of the first values of a field."""
        content = self._count_values(self._index, field, str(limit)).tostring()
        counts, start = {}, 0
        while start < len(content):
            end = start + 8 + int.from_bytes(content[start + 4 : start + 8])
            counts[content[start + 8 : end].decode()] = int.from_bytes(content[start : start + 4])
            start = end
        return counts

    def stored(self, docids: Sequence[str]) -> dict[str, bytes]:
        """Return the stored JSON of the documents; missing ones are left out."""
        content = self._stored(self._index, "".join(map(_counted_string, docids))).tostring()
        documents, start = {}, 0
        for docid in docids:
            end = start + 4 + int.from_bytes(content[start : start + 4])
            if end > start + 4:
                documents[docid] = content[start + 4 : end]
            start = end
        return documents

    def weights(self, docid: str, terms: Sequence[str]) -> dict[str, int] | None:
        """Return the impacts in the postings."""
        content = self._impacts(self._index, _counted_string(docid), "".join(map(_counted_string, terms))).tostring()
        if not content:
            return None
        impacts = np.frombuffer(content, ">i4", offset=4).tolist()
        return {term: impact for term, impact in zip(terms, impacts, strict=True) if impact}

    def _search(self, query: dict[str, float], k: int, threads: int, matching: Any = None) -> Hits:
        impacts = quantize_vector(query, self.scale)
        if not impacts:
            return Hits([], np.empty(0, np.float32), total=0)
        text = _query_text(impacts)
        if matching is None:
            content = self._find(self._index, text, str(k), str(threads)).tostring()
        else:
            content = self._find_filtered(self._index, text, str(k), str(threads), matching).tostring()
        return _read_hits(content)

    def _search_groups(self, query: dict[str, float], k: int, matching: Any, groups: Any) -> Groups:
        text = _query_text(quantize_vector(query, self.scale))
        content = self._find_groups(self._index, text, str(k), matching, groups).tostring()
        found, start = {}, 0
        while start < len(content):
            size, total, length = struct.unpack_from(">idi", content, start)
            start += struct.calcsize(">idi")
            value, start = content[start : start + length].decode(), start + length
            end = start + 4 + int.from_bytes(content[start : start + 4])
            found[value], start = GroupHits(_read_hits(content[start + 4 : end]), total, size), end
        return found


def _query_text(impacts: dict[str, int]) -> str:
    return "".join([f"{term}{DELIMITER}{impact} " for term, impact in impacts.items()])


def _read_hits(content: bytes) -> Hits:
    # The number of hits, that of all documents that match, and scores, four bytes each, then docids.
    count = int.from_bytes(content[:4])
    scores = np.frombuffer(content, ">f4", count, 8).astype(np.float32)
    docids = [docid.decode() for docid in content[8 + 4 * count :].split(_END)[:-1]]
    return Hits(docids, scores, total=int.from_bytes(content[4:8]))


def _in_threads(search: Callable[[dict[str, float]], T], queries: Sequence[dict[str, float]], threads: int) -> list[T]:
    """Return what a search in Java returns for each query."""
    threads = min(threads, len(queries))
    if threads <= 1:
        return [search(query) for query in queries]

    def search_share(share: Sequence[dict[str, float]]) -> list[T]:
        import jnius

        try:
            return [search(query) for query in share]
        finally:
            jnius.detach()

    # Long and short queries often come in runs, so they are dealt out in turn.
    with ThreadPoolExecutor(threads) as pool:
        shares = list(pool.map(search_share, [queries[first::threads] for first in range(threads)]))
    return [shares[number % threads][number // threads] for number in range(len(queries))]


class _DocumentChunks:
    """The documents that have terms, in chunks that several threads may take."""

    def __init__(self, documents: CheckedDocuments, replace: Callable[[list[str]], None] | None = None) -> None:
        """replace: called with ids before they are written, to delete what the index has of them."""
        self._corpus = documents.corpus
        self._replace = replace
        self.written = 0
        self.empty = 0
        self.stopped = False
        self._vectors = iter(documents.vectors())
        self._lock = Lock()

    def __iter__(self) -> Iterator[str]:
        """Yield chunks of documents as ImpactDocuments.java reads them."""
        texts = _ImpactTexts()
        while chunk := self._next():
            # Only by map: a Python loop over the terms would take longer than Lucene takes for them.
            yield "".join(
                f"{_counted_string(name)}{''.join(map(add, vector, map(texts.__getitem__, vector.values())))}\n{stored}"
                for name, vector, stored in chunk
            )

    def stop(self) -> None:
        """End the iteration of every thread."""
        with self._lock:
            self.stopped = True
            self._vectors = iter(())

    def _next(self) -> list[tuple[str, dict[str, int], str]]:
        size = CHUNK if self._corpus is None else STORED_CHUNK
        with self._lock:
            while read := list(islice(self._vectors, size)):
                if self._replace is not None:
                    self._replace([docid for docid, _ in read])
                chunk = [(docid, vector, self._stored(docid, vector)) for docid, vector in read if vector]
                self.written += len(chunk)
                self.empty += len(read) - len(chunk)
                if chunk:
                    return chunk
            return []

    def _stored(self, docid: str, vector: dict[str, int]) -> str:
        """Return what ImpactDocuments.java reads of a stored document."""
        if self._corpus is None:
            return ""
        entry = self._corpus.entry(docid, vector)
        values = [f"{field} {_counted_string(value)}" for field, value in entry.values]
        return f"{_counted_string(entry.raw)}{''.join(values)}\n"


def _counted_string(text: str) -> str:
    """Return a string after the number of its bytes, as Java reads it."""
    return f"{len(text.encode())} {text}"


class _ImpactTexts(dict[int, str]):
    """The text after a term, by impact: the delimiter, the impact and a space."""

    def __missing__(self, impact: int) -> str:
        text = f"{DELIMITER}{impact} "
        if impact <= _USUAL_IMPACT:
            self[impact] = text
        return text


class _IndexWriter:
    """An index that is being written: complete when the block ends without an error, discarded otherwise."""

    def __init__(self, directory: Path, threads: int, fields: Sequence[str] | None = None) -> None:
        """fields: by which searches filter; None if documents are not stored."""

        # All of Java's functions are made here and not in the threads: pyjnius defines a class at its first use, and a
        # second thread that needs it meanwhile finds half of it.
        def function(name: str, takes: str, returns: str = "V") -> Callable[..., Any]:
            return java_function("ImpactWriter", name, f"({takes}){returns}")

        self._add = function("add", REFERENCE + STRING + STRING)
        self._delete = function("delete", REFERENCE + STRING)
        self._flush = function("flush", REFERENCE + STRING)
        self._close = function("close", REFERENCE + STRING)
        open_index = function("open", 4 * STRING, REFERENCE)
        names = "" if fields is None else "\n".join(["raw", *fields])
        self._index = open_index(str(directory.absolute()), str(threads), str(BUFFER_MB), names)

    def __enter__(self) -> "_IndexWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(self._index, "true" if kind is None else "false")

    def delete(self, docids: list[str]) -> None:
        """Delete the documents that the index has, and no thread's buffer."""
        self._delete(self._index, "".join(map(_counted_string, docids)))

    def write(self, thread: int, chunks: _DocumentChunks) -> None:
        """Add documents while there are any, through the thread's own buffer, as one or several segments on disk."""
        for chunk in chunks:
            self._add(self._index, str(thread), chunk)
        if not chunks.stopped:
            self._flush(self._index, str(thread))


def _write(writer: _IndexWriter, chunks: _DocumentChunks, threads: int) -> None:
    """Write all documents in this number of threads."""
    if threads == 1:
        writer.write(0, chunks)
        return

    def write(thread: int) -> None:
        import jnius

        try:
            writer.write(thread, chunks)
        finally:
            jnius.detach()

    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(write, thread) for thread in range(threads)]
        try:
            wait(workers, return_when=FIRST_EXCEPTION)
        finally:
            # After an error or Ctrl-C the pool waits for its threads: they must not read on to the end.
            chunks.stop()
        for worker in workers:
            worker.result()


def _fields(documents: CheckedDocuments) -> list[str] | None:
    return None if documents.corpus is None else list(documents.corpus.fields)
