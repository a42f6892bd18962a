"""The index that milco serve answers from, as it was when it was opened: searcher, documents and description."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self, cast

from milco_pyserini.corpora import open_topics
from milco_pyserini.corpora.catalog import BENCHMARKS
from milco_pyserini.encode.contract import MilcoQueryEncoder
from milco_pyserini.encode.query_network import QueryNetwork
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.directory import manifest_state
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.request import Balance, SearchRequest
from milco_pyserini.search.searched_index import SearchedIndex
from milco_pyserini.search.searcher import Searcher
from milco_pyserini.search.steps import holds_passages

_TOPICS = re.compile(r"(queries|topics)(?![a-z])", re.IGNORECASE)
_EXAMPLES = 6


@dataclass(frozen=True)
class IndexDescription:
    """An index, or several that are searched together, as the page shows it: name, number of documents, encoder.

    generation: a digest that changes with every update. examples: queries to try. fields: names of the stored fields,
    by which searches can filter. language: name of the field with a document's language, or "". balance: the same field
    if scores can be balanced by it. scale: from weights to impacts; None for external vectors. indexes: paths of
    several, () for one. explained: paths of those whose encoder shows what each token contributes: neither a query
    network nor a SparseEncoder does. is_approximate: whether a query network encodes queries. has_passages: whether it
    holds passages of documents, which the page shows by their best one.
    """

    name: str
    documents: int
    generation: str
    encoder: str
    examples: Sequence[str]
    fields: Sequence[str]
    language: str
    balance: str
    scale: float | None
    indexes: Sequence[str]
    explained: Sequence[str]
    is_approximate: bool
    has_passages: bool

    @property
    def has_explanations(self) -> bool:
        """True if scores in one of the indexes are explained."""
        return bool(self.explained)

    @classmethod
    def of(cls, searcher: Searcher, primary: SearchedIndex) -> Self:
        """Describe open indexes. primary: that whose encoder and examples are shown."""
        parts, vectors = searcher.indexes, primary.index.vectors
        fields = primary.engine_searcher.fields or ()
        language = next((name for name in ("lang", "language") if name in fields), "")
        balance = ""
        with contextlib.suppress(MilcoError):
            searcher.validate(SearchRequest(balance=Balance(language)))
            balance = language
        return cls(
            name=" + ".join(part.index.path.resolve().name for part in parts),
            documents=max(part.index.manifest.documents for part in parts),
            generation="+".join(part.index.generation for part in parts),
            encoder=vectors.encoder or "",
            examples=example_queries(vectors),
            fields=list(searcher.fields or ()),
            language=language,
            balance=balance,
            scale=vectors.scale,
            indexes=[part.name for part in parts] if len(parts) > 1 else (),
            explained=[part.name for part in parts if _is_explained(part)],
            is_approximate=any(
                isinstance(query.encoder, QueryNetwork) for part in parts if (query := part.query_encoder)
            ),
            has_passages=bool(vectors.split_passages) and all(holds_passages(part.index) for part in parts),
        )


class IndexSnapshot:
    """One generation of an index, or of several that are searched together; one generation answers a request.

    It is closed when the service has released it, and so has every request that it was answering.

    Args:
        searcher: open indexes.
        manifests: the state of their manifests before they were opened.

    Attributes:
        primary: the first index, preferably one that is explained: its encoder encodes texts and snippets.

    Raises:
        MilcoError: an encoder does not fit its index.
    """

    def __init__(self, searcher: Searcher, manifests: Sequence[Any] | None = None) -> None:
        self.searcher = searcher
        for part in searcher.indexes:
            # Loads the encoder.
            _ = part.query_encoder
        self.primary = next(filter(_is_explained, searcher.indexes), searcher.indexes[0])
        self.encoder = cast(MilcoQueryEncoder, self.primary.query_encoder)
        self.about = IndexDescription.of(searcher, self.primary)
        self._manifests = manifests
        self._users = 1
        self._open = contextlib.ExitStack()

    @classmethod
    def open(cls, path: str | Path | Sequence[str | Path], **options: Any) -> Self:
        """Open an index with its encoder loaded, and its documents ready to be looked up.

        Args:
            path, options: as for Searcher.open().

        Raises:
            MilcoError: it is damaged, or the encoder is not that of the index.
        """
        manifests = _manifests([path] if isinstance(path, str | Path) else path)
        return cls._of(Searcher.open(path, **options), manifests)

    @classmethod
    def _of(cls, searcher: Searcher, manifests: Sequence[Any]) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(searcher.close)
            opened = cls(searcher, manifests)
            opened._open.callback(stack.pop_all().close)
        return opened

    def reopened(self) -> Self:
        """Open the index as it is now, with the same encoder. Raises as open() does."""
        manifests = _manifests(self._paths)
        return self._of(self.searcher.reopened(), manifests)

    def has_changed(self) -> bool:
        """Return whether a manifest of the index on disk is no longer the one that was opened."""
        return self._manifests is not None and self._manifests != _manifests(self._paths)

    @property
    def _paths(self) -> list[Path]:
        return [part.index.path for part in self.searcher.indexes]

    def explained(self, index: str = "") -> SearchedIndex:
        """Return the index whose scores are explained: that of the path, or the primary one. Raises MilcoError."""
        return self.searcher.one(index) if index else self.primary

    def ping(self) -> None:
        """Raise Unreachable unless the engine of every index can answer."""
        for part in self.searcher.indexes:
            part.engine_searcher.ping()

    def retain(self) -> None:
        """Keep the index open for one more user."""
        self._users += 1

    def release(self) -> None:
        """Close the index if this was its last user; a searcher that was given stays open."""
        self._users -= 1
        if not self._users:
            self._open.close()


def example_queries(vectors: StoreManifest) -> list[str]:
    """Return a few topics of the corpus that an index was built from, if they are on this machine.

    These are the sample's, or those of the first file next to the corpus that is named queries or topics.
    """
    name = vectors.corpus or ""
    path = Path(name)
    if name and path.exists():
        directory = path if path.is_dir() else path.parent
        files = sorted(file for file in directory.iterdir() if file.is_file() and _TOPICS.match(file.name))
        if not files:
            return []
        name = str(files[0])
    elif name not in BENCHMARKS["sample"].corpora:
        return []
    try:
        queries = [query.text for query in islice(open_topics(name), 1000)]
    except MilcoError:
        return []
    # The sample's are sorted by language, and by subject within a language.
    return queries[:: len(queries) // _EXAMPLES + 1]


def _is_explained(part: SearchedIndex) -> bool:
    encoder = part.query_encoder
    return encoder is not None and encoder.encoder.network.has_token_states


def _manifests(paths: Sequence[str | Path]) -> list[list[tuple[str, int, int]]]:
    return [manifest_state(Path(path)) for path in paths]
