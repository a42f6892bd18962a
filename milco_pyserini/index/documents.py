"""The documents of an index while an engine reads them: validated and counted, whichever engine it is."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from milco_pyserini.console import Progress
from milco_pyserini.corpora.records import MAX_ID_BYTES, SeenIds
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.index.stored import CorpusDocuments

# ASCII, which separates the columns of a run.
_SPACE = re.compile(r"\s", re.ASCII)


class DocumentSource(Protocol):
    """Documents of any type. Engines of one type read them by further methods."""

    @property
    def path(self) -> Path:
        """Their path, for messages."""

    @property
    def manifest(self) -> dict:
        """Their description, for the manifest of the index."""


class CheckedDocuments:
    """Documents that are validated and counted while they are read, with 8 bytes of memory for each id.

    A document that no index can hold raises MilcoError before an engine has seen it. id_with_space: the first id with
    white space in it, which no run can hold.

    Args:
        corpus: what the index stores of each document; None if it stores nothing.
    """

    def __init__(self, source: Any, progress: Progress, corpus: CorpusDocuments | None = None) -> None:
        self.source = source
        self.corpus = corpus
        self.path: Path = source.path
        self.manifest: dict = source.manifest
        self.id_with_space: str | None = None
        self._progress = progress
        self._seen = SeenIds()

    def ids(self) -> Iterator[str]:
        """Yield every id, once more."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Return what the manifest of the index states about the documents, after all have been read."""
        raise NotImplementedError

    def count(self, ids: list[str]) -> None:
        """Validate the ids of documents and count them."""
        for docid in ids:
            if not docid:
                raise MilcoError(f"{self.path}: a document has an empty id")
            size = len(docid.encode("utf-8", "surrogatepass"))
            if size > MAX_ID_BYTES:
                raise MilcoError(
                    f"document {shown(docid)}: its id has {size:,} bytes, an index takes up to {MAX_ID_BYTES:,}"
                )
            self._seen.add(docid)
            if self.id_with_space is None and _SPACE.search(docid):
                self.id_with_space = docid
        self._progress.add(len(ids))

    def validate_unique_ids(self) -> None:
        """Raise MilcoError if two of the documents share an id: a ranking could not tell them apart."""
        found = self._seen.find_duplicate(lambda: ((docid, place) for place, docid in enumerate(self.ids())))
        if found is not None:
            raise MilcoError(f"{self.path}: two documents have the id {shown(found.id)}")
