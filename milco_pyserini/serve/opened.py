"""The index that milco serve answers from, as it was when it was opened: searcher, documents and description."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self, cast

from milco_pyserini.corpora import open_topics
from milco_pyserini.corpora.catalog import local_corpus_name
from milco_pyserini.encode.contract import MilcoQueryEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import open_index
from milco_pyserini.index.protocol import QueryOptions
from milco_pyserini.index.shards import find_shards
from milco_pyserini.io.manifest import MANIFEST
from milco_pyserini.search.searcher import Searcher

_TOPICS = re.compile(r"(queries|topics)(?![a-z])", re.IGNORECASE)
_EXAMPLES = 6


@dataclass(frozen=True)
class IndexDescription:
    """An index as the page shows it: name, number of documents, encoder, queries to try.

    generation: a digest that changes with every update. fields: names of the stored fields. language: that of them
    which has a document's language; "" if there is none. scale: from weights to impacts; None for external vectors.
    has_explanations: whether the encoder shows what each token contributes, which a query table and a SparseEncoder do
    not. has_passages: whether it holds passages of documents, which the page shows by their best one.
    """

    name: str
    documents: int
    generation: str
    encoder: str
    examples: Sequence[str]
    fields: Sequence[str]
    language: str
    scale: float | None
    has_explanations: bool
    has_passages: bool

    @classmethod
    def of(cls, searcher: Searcher) -> Self:
        """Describe an open index."""
        index, fields = searcher.index, list(searcher.engine_searcher.fields or ())
        return cls(
            name=index.path.resolve().name,
            documents=index.manifest["documents"],
            generation=index.generation,
            encoder=index.vectors.get("encoder") or "",
            examples=example_queries(index.vectors),
            fields=fields,
            language=next((name for name in ("lang", "language") if name in fields), ""),
            scale=index.vectors.get("scale"),
            has_explanations=cast(MilcoQueryEncoder, searcher.query_encoder).encoder.network.has_token_states,
            has_passages=bool(index.vectors.get("split_passages")),
        )


class OpenedIndex:
    """One generation of an index: what answers a request is all of it.

    It is closed when the service has released it, and so has every request that it was answering.

    Args:
        searcher: an open index of terms.
        corpus: where its documents are, if they moved.
        manifests: the state of its manifests before it was opened.

    Raises:
        MilcoError: the searcher's encoder does not fit its index.
    """

    def __init__(self, searcher: Searcher, corpus: str | None = None, manifests: Sequence[Any] | None = None) -> None:
        self.searcher = searcher
        self.encoder = cast(MilcoQueryEncoder, searcher.query_encoder)
        self.lowercase = bool(searcher.index.vectors.get("lowercase"))
        self.about = IndexDescription.of(searcher)
        self._corpus = corpus
        self._manifests = manifests
        self._users = 1
        self._documents = contextlib.ExitStack()
        self._documents.enter_context(searcher.cached_documents())

    @classmethod
    def open(cls, path: str | Path, queries: QueryOptions, corpus: str | None = None) -> Self:
        """Open an index with its encoder loaded, and its documents ready to be looked up.

        Raises MilcoError if it is damaged, or the encoder is not that of the index.
        """
        manifests = _manifests(Path(path))
        searcher = Searcher(open_index(path, sparse=True), queries, corpus=corpus)
        opened = cls(searcher, corpus, manifests)
        opened._documents.callback(searcher.close)
        return opened

    def reopened(self) -> Self:
        """Open the index as it is now, with the same encoder. Raises as open() does."""
        return self.open(
            self.searcher.index.path, replace(self.searcher.options, encoder=self.encoder.encoder), self._corpus
        )

    def has_changed(self) -> bool:
        """Return whether a manifest of the index on disk is no longer the one that was opened."""
        return self._manifests is not None and self._manifests != _manifests(self.searcher.index.path)

    def retain(self) -> None:
        """Keep the index open for one more user."""
        self._users += 1

    def release(self) -> None:
        """Close the index if this was its last user; a searcher that was given stays open."""
        self._users -= 1
        if not self._users:
            self._documents.close()


def example_queries(vectors: Mapping) -> list[str]:
    """Return a few topics of the corpus that an index was built from, if they are on this machine.

    These are the sample's, or those of the first file next to the corpus that is named queries or topics.
    """
    name = local_corpus_name(vectors)
    if name is None or vectors.get("plain"):
        return []
    path = Path(name)
    if path.exists():
        directory = path if path.is_dir() else path.parent
        files = sorted(file for file in directory.iterdir() if file.is_file() and _TOPICS.match(file.name))
        if not files:
            return []
        name = str(files[0])
    try:
        queries = [query.text for query in islice(open_topics(name), 1000)]
    except MilcoError:
        return []
    # The sample's are sorted by language, and by subject within a language.
    return queries[:: len(queries) // _EXAMPLES + 1]


def _manifests(path: Path) -> list[tuple[str, int, int]]:
    """Return name, file number and time of each manifest of an index; none while it is missing."""
    found = []
    with contextlib.suppress(OSError):
        for directory in find_shards(path) or [path]:
            about = (directory / MANIFEST).stat()
            found.append((directory.name, about.st_ino, about.st_mtime_ns))
    return found
