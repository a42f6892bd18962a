"""The documents behind the hits of an index: stored in it, or read from the corpus that it was made of."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from milco_pyserini.console import Progress, log
from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.corpora.catalog import local_corpora
from milco_pyserini.corpora.collection import TextDigest
from milco_pyserini.corpora.records import PASSAGE
from milco_pyserini.errors import parameter
from milco_pyserini.index.directory import Index
from milco_pyserini.index.documents import DiskDocuments
from milco_pyserini.index.protocol import DocStore, EngineSearcher

T = TypeVar("T")


class IndexedCorpus:
    """A corpus that an index was made of, read from the first place that has the texts that were indexed.

    Args:
        places: its names or paths, most likely first.
        digest: TextDigest of the texts that were indexed; None if it is not known.
        is_given: the user named the only place; its texts are returned even if they are not those that were indexed.

    Raises:
        MilcoError: a place does not exist.
    """

    def __init__(self, places: Sequence[str], index: Path, digest: str | None, is_given: bool = False) -> None:
        # Lines that were skipped when the vectors were encoded have no hits.
        self._corpora = [open_corpus(place, skip_bad_lines=True) for place in places]
        self._index = index
        self._digest = digest
        self._is_given = is_given
        self._names = ", ".join(places)

    @property
    def name(self) -> str:
        """The name or path of the place where it is, or may be."""
        return self._corpora[0].name if self._corpora else self._names

    def read(self, take: Callable[[Iterator[Document]], T]) -> T | None:
        """Return what take() makes of all documents; None, and a line on stderr, if their texts are others.

        take() is called again for a further place.
        """
        while self._corpora:
            digest = TextDigest()
            taken = take(_digested(self._corpora[0], digest))
            if self._digest in (None, digest.hexdigest()):
                return taken
            if self._is_given:
                log(f"{self.name} is not the corpus of {self._index}: its ids or texts are not those that were indexed")
                self._digest = None
                return taken
            del self._corpora[0]
        log(
            f"{self._names} is not the corpus of {self._index}: its ids or texts are not those that were indexed, "
            "and are not shown; pass its " + parameter("corpus")
        )
        return None


def _digested(documents: Iterable[Document], digest: TextDigest) -> Iterator[Document]:
    for document in documents:
        digest.add(document)
        yield document


class CorpusDocStore:
    """Return documents by docid from the corpora of an index and of its updates; found ones are kept in memory.

    Each search for further docids reads a corpus to its end, which shows whether it is the one that was indexed:
    milliseconds for thousands of documents, seconds for a million.

    Args:
        corpora: the newest first: its documents come before those that they replace.
        passages: docids are those of passages, ID#0, ID#1, ...: their document is found.
    """

    def __init__(self, corpora: Sequence[IndexedCorpus], passages: bool = False) -> None:
        self.corpora = corpora
        self.passages = passages
        self._found: dict[str, Document | None] = {}
        self._files: list[DiskDocuments] = []
        # Only one thread at a time reads the corpus.
        self._lock = threading.Lock()

    def read(self, take: Callable[[Iterator[Document]], T]) -> Iterator[T]:
        """Yield what take() makes of the documents of each corpus.

        A corpus with other texts is dropped together with all older ones, whose documents it may have replaced.
        """
        for place, corpus in enumerate(self.corpora):
            taken = corpus.read(take)
            if taken is None:
                self.corpora = self.corpora[:place]
                return
            yield taken

    @contextlib.contextmanager
    def cached(self) -> Iterator[None]:
        """Keep all documents in temporary files within the block, for very many lookups."""
        progress = Progress("documents")

        def counted(documents: Iterator[Document]) -> Iterator[Document]:
            for document in documents:
                yield document
                progress.add(1)

        self._files = list(self.read(lambda documents: DiskDocuments(counted(documents))))
        progress.close("Read " + ", ".join(corpus.name for corpus in self.corpora) if self.corpora else None)
        try:
            yield
        finally:
            files, self._files = self._files, []
            for file in files:
                file.close()

    def __call__(self, docids: Sequence[str]) -> Mapping[str, Document]:
        """Return the documents of the docids; missing ones are left out."""
        names = {docid: PASSAGE.sub("", docid) if self.passages else docid for docid in docids}
        if files := self._files:
            # The newest comes first.
            found = {name: next(filter(None, (file.get(name) for file in files)), None) for name in names.values()}
        else:
            with self._lock:
                found = self._read_missing(set(names.values()))
        documents = {docid: found[name] for docid, name in names.items()}
        return {docid: document for docid, document in documents.items() if document is not None}

    def _read_missing(self, wanted: set[str]) -> dict[str, Document | None]:
        missing = wanted - self._found.keys()
        corpora = self.read(
            lambda documents: {document.id: document for document in documents if document.id in missing}
        )
        while missing and (taken := next(corpora, None)) is not None:
            self._found.update(taken)
            missing -= taken.keys()
        self._found.update(dict.fromkeys(missing))
        return self._found


def open_doc_store(index: Index, searcher: EngineSearcher, corpus: str | None = None) -> DocStore | None:
    """Return the documents of an index: those that it stores, or else its corpus.

    None unless the corpus and those of updates are known to be on this machine: nothing is downloaded. corpus: where
    the corpus is now, if it moved. Raises MilcoError if that does not exist.
    """
    if searcher.fields is not None and corpus is None:
        return searcher.documents
    about, updates = index.vectors, index.manifest.updates
    # An update with since made its own vectors those of the index.
    first = max((place for place, update in enumerate(updates) if update.since), default=-1) + 1
    newest = [update for update in reversed(updates[first:]) if update.documents]
    path, passages = index.path, bool(about.split_passages)
    if corpus is not None:
        digest = None if newest else about.corpus_hash
        return CorpusDocStore([IndexedCorpus([corpus], path, digest, is_given=True)], passages)
    corpora: list[Any] = [*newest, structs.replace(about, corpus_paths=index.manifest.corpus_paths)]
    located = [(local_corpora(description, path), description.corpus_hash) for description in corpora]
    if not all(places for places, _ in located):
        return None
    return CorpusDocStore([IndexedCorpus(places, path, digest) for places, digest in located], passages)
