"""Search several indexes with one text, each in its own way, and fuse their hits: BM25 and sparse or dense vectors."""

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from milco_pyserini.errors import MilcoError, validate_name
from milco_pyserini.index.protocol import Hits
from milco_pyserini.options import GivenFilters
from milco_pyserini.search.base import BaseSearcher
from milco_pyserini.search.fusion import METHODS, fuse, validate_weights
from milco_pyserini.search.topics import SearchTopics

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.search.searcher import Searcher

# Documents that count even if fewer are wanted: the best of the fused ranking are seldom the best of each index.
_DEPTH = 100
# Scores of engines are on scales of their own.
HYBRID_METHODS = METHODS[:2]


class HybridSearcher(BaseSearcher):
    """Several searchers of one collection as one. Searcher.open() makes it of paths.

    >>> from milco_pyserini import Searcher
    >>> with Searcher.open(["indexes/sample.lucene", "indexes/sample.bm25"], fuse="rrf") as searcher:  # doctest: +SKIP
    ...     for hit in searcher.search("Wer entdeckte das Penicillin?", k=3):
    ...         print(hit.docid, hit.score, hit.text, hit.by_index)

    Of each index the first max(k, 100) documents count. Texts of hits come from the first index that has them. Threads
    may share it as they may share a searcher.

    Args:
        searchers: at least two, of different indexes; close() closes them.
        fuse: "rrf" (ranks) or "rsf" (normalized scores), as for fuse().
        weights: a positive number for each searcher (default: equal).

    Raises:
        MilcoError: there are fewer than two, an index is given twice, or fuse or weights are invalid.
    """

    def __init__(
        self, searchers: "Sequence[Searcher]", fuse: str = "rrf", weights: Sequence[float] | None = None
    ) -> None:
        validate_name("fusion method", fuse, HYBRID_METHODS)
        self.names = [searcher.name for searcher in searchers]
        if len(searchers) < 2:
            raise MilcoError(f"`fuse={fuse}` takes two indexes or more, got {' '.join(self.names) or 'none'}")
        for name in self.names:
            if self.names.count(name) > 1:
                raise MilcoError(f"{name} is given twice: fuse different indexes of a collection")
        if weights is not None:
            validate_weights(weights, len(searchers), fuse)
        self.searchers = list(searchers)
        self.method = fuse
        self.weights = weights

    def __repr__(self) -> str:
        return f"HybridSearcher({self.searchers}, fuse={self.method!r})"

    def close(self) -> None:
        """Close all searchers; a second call has no effect. No thread may be searching."""
        with ExitStack() as stack:
            for searcher in self.searchers:
                stack.callback(searcher.close)

    def reopened(self) -> "HybridSearcher":
        """Open the indexes as they are now, as Searcher.reopened()."""
        with ExitStack() as opened:
            searchers = [opened.enter_context(searcher.reopened()) for searcher in self.searchers]
            hybrid = HybridSearcher(searchers, self.method, self.weights)
            opened.pop_all()
        return hybrid

    @property
    def name(self) -> str:
        """The directories of the indexes, for messages."""
        return " and ".join(self.names)

    @property
    def fields(self) -> Mapping[str, str] | None:
        """The type of each field that all indexes store; None if one stores no documents."""
        stored = [searcher.fields for searcher in self.searchers if searcher.fields is not None]
        if len(stored) < len(self.searchers):
            return None
        return {name: kind for name, kind in stored[0].items() if all(name in fields for fields in stored)}

    def values(self, field: str) -> Mapping[str, int] | None:
        """Return how many documents of the first index have each value of a stored field."""
        return self.searchers[0].values(field)

    def weighted_terms(self, query: tuple[Any, ...]) -> "tuple[Mapping[str, float], MilcoEncoder] | None":
        """Return what Searcher.weighted_terms() does, of the first index whose queries are weighted terms."""
        found = (searcher.weighted_terms(part) for searcher, part in zip(self.searchers, query, strict=True))
        return next(filter(None, found), None)

    @property
    def has_documents(self) -> bool:
        """True if the texts of hits are available."""
        return any(searcher.has_documents for searcher in self.searchers)

    @contextmanager
    def cached_documents(self) -> Iterator[None]:
        """Keep all documents of the corpora in temporary databases within the block, for very many searches."""
        with ExitStack() as stack:
            for searcher in self.searchers:
                stack.enter_context(searcher.cached_documents())
                if searcher.fields is not None:
                    # It stores its documents: of those behind it, few are looked up.
                    break
            yield

    def validate_search(self, k: int = 1, filters: GivenFilters | None = None, balance: str | None = None) -> None:
        """Raise MilcoError, before an encoder is loaded or the first index is searched, if search() would."""
        for searcher in self.searchers:
            searcher.validate_search(k, filters, balance)

    def encode_queries(
        self, texts: Sequence[str], alpha: float | None = None, views: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the queries of all indexes for each text, for search_queries().

        Raises:
            MilcoError: alpha or views are given: they are of one encoder.
        """
        if alpha is not None or views:
            raise MilcoError("`alpha` and `views` are for one index, several are searched: omit them")
        return list(zip(*[searcher.encode_queries(texts) for searcher in self.searchers], strict=True))

    def search_queries(
        self,
        queries: Sequence[tuple[Any, ...]],
        k: int = 1000,
        threads: int = 1,
        filters: GivenFilters | None = None,
        min_share: float | None = None,
        max_passage: bool | str = False,
        balance: str | None = None,
    ) -> list[Hits]:
        """Return the k best documents for each of many encoded queries. Arguments as for search().

        Raises:
            MilcoError: min_share is given: shares are of the terms of one index.
        """
        if min_share is not None:
            raise MilcoError(f"`min_share={min_share:g}` is for one index, several are searched: omit it")
        self.validate_search(k, filters, balance)
        rankings = [
            searcher.search_queries(encoded, max(k, _DEPTH), threads, filters, None, max_passage, balance)
            for searcher, encoded in zip(self.searchers, zip(*queries, strict=True), strict=False)
        ]
        return [self._fused(found, k) for found in zip(*rankings, strict=True)]

    def search_topics(self, topics: SearchTopics, k: int = 1000, **options: Any) -> Iterator[tuple[str, str, Hits]]:
        """Yield id, text and hits of every topic, in order. Arguments as for Searcher.search_topics().

        Raises:
            MilcoError: topics are vectors.
        """
        if topics.texts is None:
            raise MilcoError("several indexes are searched for texts, which each encodes in its own way: give texts")
        self.validate_search(k, options.get("filters"), options.get("balance"))
        rankings = [searcher.search_topics(topics, max(k, _DEPTH), **options) for searcher in self.searchers]
        for text, found in zip(topics.texts, zip(*rankings, strict=True), strict=True):
            yield found[0][0], text, self._fused([hits for _, _, hits in found], k)

    def documents(self, docids: Sequence[str]) -> "Mapping[str, Document]":
        """Return the documents of those docids that are available, from the first index that has them."""
        return _FirstLookup([searcher.documents for searcher in self.searchers]).find(docids)

    def explain(self, *_: Any, **__: Any) -> NoReturn:
        """Raise MilcoError: only the score of one index has terms."""
        raise MilcoError(
            f"several indexes were searched, and a fused score has no terms: explain the score in one of them, such as "
            f"Searcher.open({self.names[0]!r})"
        )

    def _fused(self, rankings: Sequence[Hits], k: int) -> Hits:
        runs = [{"": dict(zip(hits.docids, hits.scores.tolist(), strict=True))} for hits in rankings]
        # Of an index of complete documents, these are their own passages.
        passages = [dict(hits.passages) for hits in rankings if hits.passages is not None]
        ((_, fused),) = fuse(runs, self.method, weights=self.weights, depth=max(k, _DEPTH), k=k)
        return replace(
            fused,
            lookup=_FirstLookup([hits.lookup.find for hits in rankings if hits.lookup is not None]),
            passages=ChainMap(*passages) if passages else None,
            by_index=dict(zip(self.names, rankings, strict=True)),
        )


@dataclass(frozen=True)
class _FirstLookup:
    """Finds documents by the first of several functions that has them."""

    finds: "Sequence[Callable[[Sequence[str]], Mapping[str, Document]]]"

    def find(self, docids: Sequence[str]) -> "dict[str, Document]":
        documents: dict[str, Document] = {}
        for find in self.finds:
            if missing := [docid for docid in docids if docid not in documents]:
                documents.update(find(missing))
        return documents
