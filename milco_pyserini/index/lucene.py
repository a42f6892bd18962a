"""The Lucene engine: an impact index that Pyserini and Anserini cannot tell from one that Anserini wrote.

Anserini repeats each term as often as its impact says and lets Lucene count the repetitions: tens of thousands of
words a document (castorini/anserini#1890). Here each term is named once, with its impact as its frequency. Many
documents go to Java as one text, are turned around in memory by one counting sort (java/ImpactDocuments.java), and
are added to the index as a segment: the same postings, sooner.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from itertools import islice
from operator import add
from pathlib import Path
from threading import Lock
from typing import Any

from milco_pyserini.index import jvm
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.lucene_java import REFERENCE, STRING, java_function, refusing_newer
from milco_pyserini.index.lucene_search import LuceneSearcher
from milco_pyserini.index.protocol import TERMS, Built, Store
from milco_pyserini.sparse import DELIMITER

_CHUNK = 256
_USUAL_IMPACT = 2**14
# Of all threads together; less where Java has less than four times as much.
_BUFFER_MB = 256.0


class LuceneEngine:
    """Exact sums of whole numbers. Documents without terms are left out, as Anserini leaves them out."""

    name = "lucene"
    exactness = "exact integer"
    queries = TERMS

    def available(self) -> None:
        """Start Java. Raises MilcoError if it, or Anserini's jar, is missing."""
        jvm.start()

    def build(self, store: Store, directory: Path, threads: int) -> Built:
        """Write one segment for each thread, or more where memory fills up; Lucene merges them as it sees fit."""
        documents = _Documents(store)
        with engine_errors(self.name, "build", directory), _Writer(directory, threads) as writer:
            _write_all(writer, documents, threads)
        return Built(documents.written, documents.empty)

    def open(self, directory: Path, manifest: dict) -> LuceneSearcher:
        """Open the index; queries are quantised at the scale that the manifest states."""
        with refusing_newer(directory):
            return LuceneSearcher(self.name, directory, manifest["query_scale"], manifest["documents"])


class _Documents:
    """The documents that have terms, in chunks that several threads may take."""

    def __init__(self, store: Store) -> None:
        self.written = 0
        self.empty = 0
        self.stopped = False
        self._vectors = iter(store.vectors())
        self._lock = Lock()

    def stop(self) -> None:
        """Let every thread find that there are no more."""
        with self._lock:
            self.stopped = True
            self._vectors = iter(())

    def chunks(self) -> Iterator[str]:
        """Yield many documents as one text, which ImpactDocuments reads."""
        texts = _ImpactTexts()
        while chunk := self._next():
            # By map alone: a loop over the terms would take longer than Lucene takes for them.
            yield "".join(
                f"{len(name.encode())} {name}{''.join(map(add, vector, map(texts.__getitem__, vector.values())))}\n"
                for name, vector in chunk
            )

    def _next(self) -> list[tuple[str, dict[str, int]]]:
        with self._lock:
            while read := list(islice(self._vectors, _CHUNK)):
                chunk = [document for document in read if document[1]]
                self.written += len(chunk)
                self.empty += len(read) - len(chunk)
                if chunk:
                    return chunk
            return []


class _ImpactTexts(dict[int, str]):
    """What stands behind a term, by impact: the delimiter, the impact and a blank."""

    def __missing__(self, impact: int) -> str:
        text = f"{DELIMITER}{impact} "
        if impact <= _USUAL_IMPACT:
            self[impact] = text
        return text


class _Writer:
    """An index that is being written: whole when the block ends well, given up when it does not."""

    def __init__(self, directory: Path, threads: int) -> None:
        # All of Java's functions are made here and not in the threads: pyjnius defines a class at its first use, and a
        # second thread that comes to it meanwhile finds half of it.
        def function(name: str, takes: str, returns: str = "V") -> Callable[..., Any]:
            return java_function("ImpactWriter", name, f"({takes}){returns}")

        self._add = function("add", REFERENCE + STRING + STRING)
        self._flush = function("flush", REFERENCE + STRING)
        self._close = function("close", REFERENCE + STRING)
        open_index = function("open", 3 * STRING, REFERENCE)
        self._index = open_index(str(directory.absolute()), str(threads), str(_BUFFER_MB))

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(self._index, "true" if kind is None else "false")

    def write(self, thread: int, documents: _Documents) -> None:
        """Add documents while there are any, by way of the thread's own buffer, as a segment on disk or several."""
        for chunk in documents.chunks():
            self._add(self._index, str(thread), chunk)
        if not documents.stopped:
            self._flush(self._index, str(thread))


def _write_all(writer: _Writer, documents: _Documents, threads: int) -> None:
    if threads == 1:
        writer.write(0, documents)
        return
    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(_write_in_thread, writer, thread, documents) for thread in range(threads)]
        try:
            wait(workers, return_when=FIRST_EXCEPTION)
        finally:
            # After an error or Ctrl-C the pool waits for its threads: they must not go on to the last document.
            documents.stop()
        for worker in workers:
            worker.result()


def _write_in_thread(writer: _Writer, thread: int, documents: _Documents) -> None:
    import jnius

    try:
        writer.write(thread, documents)
    finally:
        jnius.detach()
