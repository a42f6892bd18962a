"""The Lucene engine: an impact index that Pyserini and Anserini cannot tell from one that Anserini wrote.

Anserini repeats each term as often as its impact says and lets Lucene count the repetitions: tens of thousands of
words a document (castorini/anserini#1890). Here each term is one word, joined to its impact by a delimiter, and
Lucene's own DelimitedTermFrequencyTokenFilter stores the impact as the frequency: the same postings, sooner.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

from milco_pyserini import jvm
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.index.lucene_search import FREQUENCY, LuceneSearcher, first_sentence, weighted_terms
from milco_pyserini.index.protocol import Built, Store
from milco_pyserini.sparse import DELIMITER

# The fields' names are Anserini's constants.
ID = "id"
CONTENTS = "contents"
_CHUNK = 256
_BUFFER_MB = 512.0


_Reusable = tuple[Any, Callable[[str, str], None]]


class LuceneEngine:
    """Exact sums of whole numbers. Documents without terms are left out, as Anserini leaves them out."""

    name = "lucene"
    exactness = "exact integer"

    def available(self) -> None:
        """Start Java. Raises MilcoError if it, or Anserini's jar, is missing."""
        jvm.start()

    def build(self, store: Store, directory: Path, threads: int) -> Built:
        """Write one segment for each thread, or more where memory fills up; Lucene merges them as it sees fit."""
        from jnius import JavaException

        documents = _Documents(store)
        try:
            writer = _open_writer(directory)
            try:
                _write_all(writer, documents, threads)
                writer.commit()
            except BaseException:
                writer.rollback()
                raise
            writer.close()
        except JavaException as error:
            raise MilcoError(f"Lucene cannot write the index: {_reason(error)}") from None
        return Built(documents.written, documents.empty)

    def open(self, directory: Path, manifest: dict) -> LuceneSearcher:
        """Open the index; queries are quantised at the scale that the manifest states."""
        return LuceneSearcher(directory, manifest["query_scale"])


class _Documents:
    """The documents that have terms, in chunks that several threads may take."""

    def __init__(self, store: Store) -> None:
        self.written = 0
        self.empty = 0
        self._vectors = iter(store.vectors())
        self._lock = Lock()

    def stop(self) -> None:
        """Let every thread find that there are no more."""
        with self._lock:
            self._vectors = iter(())

    def chunks(self) -> Iterator[list[tuple[str, str]]]:
        """Yield [(id, text)], where text is what the analyzer splits into terms and impacts."""
        while chunk := self._next():
            yield [(name, " ".join([f"{term}{DELIMITER}{w}" for term, w in vector.items()])) for name, vector in chunk]

    def _next(self) -> list[tuple[str, dict[str, int]]]:
        with self._lock:
            while read := list(islice(self._vectors, _CHUNK)):
                chunk = [document for document in read if document[1]]
                self.written += len(chunk)
                self.empty += len(read) - len(chunk)
                if chunk:
                    return chunk
            return []


def _open_writer(directory: Path) -> Any:
    """An IndexWriter set up as Anserini's IndexCollection sets up its own, but for the analyzer."""
    from jnius import autoclass

    config = autoclass("org.apache.lucene.index.IndexWriterConfig")(weighted_terms(FREQUENCY))
    config.setSimilarity(autoclass("io.anserini.search.similarity.ImpactSimilarity")())
    config.setUseCompoundFile(False)
    heap_mb = autoclass("java.lang.Runtime").getRuntime().maxMemory() / 2**20
    config.setRAMBufferSizeMB(min(_BUFFER_MB, heap_mb / 4))
    path = autoclass("java.nio.file.Paths").get(str(directory))
    return autoclass("org.apache.lucene.index.IndexWriter")(
        autoclass("org.apache.lucene.store.FSDirectory").open(path), config
    )


def _write_all(writer: Any, documents: _Documents, threads: int) -> None:
    # Made here and not in the threads: pyjnius defines a class at its first use, and a second thread that comes to it
    # meanwhile finds half of it.
    reusable = [_reusable_document() for _ in range(threads)]
    if threads == 1:
        _write(writer, documents.chunks(), reusable[0])
        return
    # For the same reason the first chunk is written here: every class and method has then been used once.
    _write(writer, islice(documents.chunks(), 1), reusable[0])
    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(_write_in_thread, writer, documents, one) for one in reusable]
        try:
            wait(workers, return_when=FIRST_EXCEPTION)
        finally:
            # After an error or Ctrl-C the pool waits for its threads: they must not go on to the last document.
            documents.stop()
        for worker in workers:
            worker.result()


def _write_in_thread(writer: Any, documents: _Documents, reusable: _Reusable) -> None:
    import jnius

    try:
        _write(writer, documents.chunks(), reusable)
        # Each thread puts a segment on disk: commit() would put there one after the other.
        writer.flushNextBuffer()
    finally:
        jnius.detach()


def _write(writer: Any, chunks: Iterable[list[tuple[str, str]]], reusable: _Reusable) -> None:
    """Add the documents of all chunks; one Lucene document serves for all, with its values replaced."""
    from jnius import JavaException

    document, set_values = reusable
    for chunk in chunks:
        for name, text in chunk:
            try:
                set_values(name, text)
                writer.addDocument(document)
            except JavaException as error:
                raise MilcoError(f"Lucene refuses document {shown(name)}: {_reason(error)}") from None


def _reason(error: Any) -> str:
    """What a Java exception says, and the way out where memory is the reason."""
    if "OutOfMemory" not in str(error.classname):
        return first_sentence(error)
    return f'{first_sentence(error)}; give Java more: put {jvm.OPTIONS_VARIABLE}="-Xmx8g" before the command'


def _reusable_document() -> _Reusable:
    """A document with Anserini's three fields, and what sets their values from an id and a text.

    id is stored and found by; its bytes break ties; contents has terms and frequencies, and is not stored.
    """
    from jnius import autoclass, cast

    # pyjnius passes a str to a method, but does not match it to a constructor's CharSequence.
    text = autoclass("java.lang.String")("")
    frequencies = autoclass("org.apache.lucene.document.FieldType")()
    frequencies.setStored(False)
    frequencies.setTokenized(True)
    frequencies.setIndexOptions(autoclass("org.apache.lucene.index.IndexOptions").DOCS_AND_FREQS)
    stored = autoclass("org.apache.lucene.document.Field$Store").YES
    name = autoclass("org.apache.lucene.document.StringField")(ID, cast("java.lang.String", text), stored)
    make_bytes = autoclass("org.apache.lucene.util.BytesRef")
    order = autoclass("org.apache.lucene.document.BinaryDocValuesField")(ID, make_bytes(b""))
    contents = autoclass("org.apache.lucene.document.Field")(
        CONTENTS, cast("java.lang.CharSequence", text), frequencies
    )
    document = autoclass("org.apache.lucene.document.Document")()
    for field in (name, order, contents):
        document.add(field)

    def set_values(docid: str, impacts: str) -> None:
        name.setStringValue(docid)
        order.setBytesValue(make_bytes(docid.encode()))
        contents.setStringValue(impacts)

    return document, set_values
