"""Search an index by texts: queries are encoded as the index's documents were."""

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast, overload

import numpy as np

from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.directory import Index, open_index, validate_sparse
from milco_pyserini.index.documents import validate_filters
from milco_pyserini.index.lookup import CorpusLookup, open_lookup
from milco_pyserini.index.protocol import DocumentLookup, EngineSearcher, Hits, QueryEncoder, QueryOptions
from milco_pyserini.index.weights import EngineWeights
from milco_pyserini.options import Balance, GivenFilters, validate_number
from milco_pyserini.search.base import BaseSearcher
from milco_pyserini.search.hybrid import HybridSearcher
from milco_pyserini.search.topics import SearchTopics
from milco_pyserini.sparse import SparseBatch

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.encode.contract import MilcoQueryEncoder
    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.explain.explainer import Explainer
    from milco_pyserini.explain.explanation import Explanation

# Factor by which the number of passages grows with each further search.
_FACTOR = 4


class Searcher(BaseSearcher):
    """An open index with its encoder: texts in, hits out. Works with every engine.

    >>> from milco_pyserini import Searcher
    >>> with Searcher.open("indexes/sample.lucene") as searcher:  # doctest: +SKIP
    ...     hits = searcher.search("Wer entdeckte das Penicillin?", k=3)
    ...     print([(hit.docid, hit.score, hit.text) for hit in hits])
    ...     searcher.explain("Wer entdeckte das Penicillin?", hits[0].docid)

    The encoder is loaded when the first text is searched for. Documents of hits are those that the index stores, or are
    read from the corpus that it was made of, if that is on this machine.

    Several threads may share a searcher: they search at the same time, and encode their queries one after the other.

    Args:
        index: an open index.
        queries: how queries are encoded.
        settings: settings of the engine for these searches, such as {"query_cut": 20}.
        corpus: where the index's documents are now, if they moved.
    """

    def __init__(
        self,
        index: Index,
        queries: QueryOptions | None = None,
        settings: Mapping[str, Any] | None = None,
        corpus: str | None = None,
    ) -> None:
        if not isinstance(index, Index):
            raise TypeError(f"Searcher() expects an open Index, not {index!r}: use Searcher.open({str(index)!r})")
        self.options = queries or QueryOptions()
        self.index, self.engine_searcher = index.open_searcher(settings)
        self._corpus = corpus
        self._settings = settings
        # torch keeps a team of threads for each thread that encodes.
        self._encoding = threading.Lock()
        try:
            self._lookup: DocumentLookup | None = open_lookup(self.index, self.engine_searcher, corpus)
        except BaseException:
            self.engine_searcher.close()
            raise

    def __repr__(self) -> str:
        return repr(self.index).replace("Index", type(self).__name__, 1)

    def close(self) -> None:
        """Close the index and free the encoder; a second call has no effect. No thread may be searching.

        Searches, and texts of hits that are read from the index, raise MilcoError from then on.
        """
        self.engine_searcher.close()
        for name in ("query_encoder", "_explainer"):
            vars(self).pop(name, None)

    def reopened(self) -> "Searcher":
        """Open the index as it is now, with the same options, and the encoder if it is of weighted terms."""
        from milco_pyserini.encode.contract import MilcoQueryEncoder

        options, encoder = self.options, self.query_encoder
        if options.query_encoder is None and isinstance(encoder, MilcoQueryEncoder):
            options = replace(options, encoder=encoder.encoder)
        return Searcher(open_index(self.index.path), options, self._settings, self._corpus)

    @overload
    @classmethod
    def open(
        cls,
        path: str | Path,
        encoder: "str | Path | MilcoEncoder | None" = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        alpha: float | None = None,
        settings: Mapping[str, Any] | None = None,
        corpus: str | Path | None = None,
        query_encoder: "str | Path | MilcoEncoder | None" = None,
    ) -> Self: ...

    @overload
    @classmethod
    def open(
        cls,
        path: Sequence[str | Path],
        *,
        device: str = "auto",
        dtype: str = "auto",
        fuse: str,
        weights: Sequence[float] | None = None,
    ) -> HybridSearcher: ...

    @classmethod
    def open(
        cls,
        path: str | Path | Sequence[str | Path],
        encoder: "str | Path | MilcoEncoder | None" = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        alpha: float | None = None,
        settings: Mapping[str, Any] | None = None,
        corpus: str | Path | None = None,
        query_encoder: "str | Path | MilcoEncoder | None" = None,
        fuse: str | None = None,
        weights: Sequence[float] | None = None,
    ) -> Self | HybridSearcher:
        """Open an index, or several indexes of a collection as one HybridSearcher.

        Args:
            path: directory of the index; a list of several, which are searched together, with fuse.
            encoder: a loaded encoder, or where the index's encoder is now; unset, it is the one of the manifest.
            device: auto, cpu, cuda or cuda:N.
            dtype: auto, float32, bfloat16 or int8.
            alpha: weigh the views of queries: alpha x pivot + (1 - alpha) x source, alpha from 0 to 1.
            settings: settings of the engine, such as {"query_cut": 20} for seismic.
            corpus: where the index's documents are now, if they moved.
            query_encoder: another encoder of queries, such as an English SPLADE, whose English pieces are those of the
                index; only English terms are searched.
            fuse: of several indexes, how their hits are fused: "rrf" (ranks) or "rsf" (normalized scores).
            weights: of several indexes, a positive number for each (default: equal).

        Raises:
            MilcoError: if there is no index, a file of it is damaged, or its engine is not available; if there are
                several indexes and no fuse, or the reverse.
        """
        if not isinstance(path, str | Path | Sequence):
            raise TypeError(f"Searcher.open() expects the directory of an index or a list of them, not {path!r}")
        if not isinstance(path, str | Path):
            of_one = {"encoder": encoder, "alpha": alpha, "settings": settings, "corpus": corpus}
            for name, value in (of_one | {"query_encoder": query_encoder}).items():
                if value is not None:
                    raise MilcoError(f"`{name}` is for one index: open each, and pass them to HybridSearcher()")
            if fuse is None:
                raise MilcoError(f"{' '.join(map(str, path))}: to search several indexes together, set `fuse=rrf`")
            with contextlib.ExitStack() as opened:
                searchers = [opened.enter_context(cls.open(place, device=device, dtype=dtype)) for place in path]
                hybrid = HybridSearcher(searchers, fuse, weights)
                opened.pop_all()
            return hybrid
        for name, given in (("fuse", fuse), ("weights", weights)):
            if given is not None:
                raise MilcoError(f"`{name}` is for several indexes, got only {path}: give a list of them, or omit it")
        options = QueryOptions(encoder, device, dtype, alpha, query_encoder)
        index = open_index(path, sparse=query_encoder is not None)
        return cls(index, options, settings, None if corpus is None else str(corpus))

    def with_bm25(self, weights: Sequence[float] | None = None) -> HybridSearcher:
        """Return this searcher and BM25 of the texts that a filled server stores as one, which closes this one.

        >>> with Searcher.open("indexes/news.opensearch").with_bm25() as searcher:  # doctest: +SKIP
        ...     hits = searcher.search("Wer entdeckte das Penicillin?", k=3)

        Args:
            weights: of MILCO and of BM25 (default: equal). Their hits are fused by ranks (rrf).

        Raises:
            MilcoError: the index is not that of a server, or stores no texts, or its target has no BM25.
        """
        try:
            return HybridSearcher([self, TextSearcher(self)], "rrf", weights)
        except BaseException:
            self.close()
            raise

    @cached_property
    def query_encoder(self) -> QueryEncoder | None:
        """Converts texts to queries; None if texts are queries. Raises MilcoError if it does not fit the index."""
        return self.index.engine.open_query_encoder(self.index.path, self.index.manifest, self.options)

    @property
    def searchers(self) -> "Sequence[Searcher]":
        """The searcher of each index: this one. HybridSearcher has several."""
        return [self]

    @property
    def name(self) -> str:
        """The directory of the index, for messages."""
        return str(self.index.path)

    @property
    def fields(self) -> Mapping[str, str] | None:
        """The type of each stored field, by which searches can filter; None if the index stores no documents."""
        return self.engine_searcher.fields

    def values(self, field: str) -> Mapping[str, int] | None:
        """Return how many documents have each value of a stored field, as EngineSearcher.values()."""
        return self.engine_searcher.values(field)

    def weighted_terms(self, query: Any) -> "tuple[Mapping[str, float], MilcoEncoder] | None":
        """Return an encoded query as {term: weight}, and its encoder; None if queries are not weighted terms."""
        from milco_pyserini.encode.contract import MilcoQueryEncoder

        encoder = self.query_encoder
        return (query, encoder.encoder) if isinstance(encoder, MilcoQueryEncoder) else None

    @property
    def has_documents(self) -> bool:
        """True if the texts of hits are available. Reading them may show that a corpus is another one: then False."""
        return bool(self._lookup.corpora) if isinstance(self._lookup, CorpusLookup) else self._lookup is not None

    @contextlib.contextmanager
    def cached_documents(self) -> Iterator[None]:
        """Keep all documents of the corpus in a temporary database within the block, for very many searches."""
        with self._lookup.cached() if isinstance(self._lookup, CorpusLookup) else contextlib.nullcontext():
            yield

    def validate_search(self, k: int = 1, filters: GivenFilters | None = None, balance: str | None = None) -> None:
        """Raise MilcoError, before an encoder is loaded, if search() would. Arguments as for search()."""
        _validate_count("k", k)
        if filters:
            validate_filters(filters, self.fields, self.index.path)
        if balance is not None:
            self.engine_searcher.validate_balance(Balance.parse(balance))

    def encode_queries(self, texts: Sequence[str], alpha: float | None = None, views: Sequence[str] = ()) -> Any:
        """Return a query of the engine for each text, for search_queries(). alpha, views: as for search()."""
        self.engine_searcher.require_open()
        _validate_texts(texts)
        if not len(texts):
            return []
        with self._encoding:
            encoder = self._query_encoder(alpha, views)
            return list(texts) if encoder is None else encoder.encode_batch(list(texts))

    def search_queries(
        self,
        queries: Sequence[Any],
        k: int = 1000,
        threads: int = 1,
        filters: GivenFilters | None = None,
        min_share: float | None = None,
        max_passage: bool | str = False,
        balance: str | None = None,
    ) -> list[Hits]:
        """Return the k best documents for each of many encoded queries.

        Args:
            queries: what encode_queries() returns, or a SparseBatch with its vocabulary.
            threads, filters, min_share, max_passage, balance: as for search_batch().
        """
        if isinstance(queries, SparseBatch):
            queries = queries.to_dicts()
        if isinstance(queries, Mapping):
            raise TypeError("search_queries() expects a list of queries, not one: [query]")
        _validate_count("k", k)
        _validate_count("threads", threads)
        if not len(queries):
            return []
        balanced = None if balance is None else Balance.parse(balance)
        weights = self._weights
        if min_share is not None:
            validate_number("min_share", min_share, 0, 1)
            if weights is None:
                raise MilcoError(
                    f"`min_share={min_share:g}`: engine {self.index.engine.name} does not show the terms of documents"
                )
        if max_passage is True:
            validate_passages(self.index)
        delimiter = max_passage if isinstance(max_passage, str) else PASSAGE_DELIMITER
        options = (_FACTOR * k if max_passage else None, delimiter, threads, filters, self._lookup, balanced)
        found = search_documents(self.engine_searcher, queries, k, *options)
        if weights is not None:
            found = [
                replace(hits, shares_of=partial(weights.matched_shares, query, hits.passages))
                for query, hits in zip(queries, found, strict=True)
            ]
        return found if min_share is None else [_matching(hits, min_share) for hits in found]

    def documents(self, docids: Sequence[str]) -> "Mapping[str, Document]":
        """Return the documents of those docids that are available."""
        self.engine_searcher.require_open()
        return {} if self._lookup is None else self._lookup.find(docids)

    def search_topics(
        self,
        topics: SearchTopics,
        k: int = 1000,
        *,
        threads: int = 1,
        batch_size: int = 64,
        passages: int | None = None,
        delimiter: str = PASSAGE_DELIMITER,
        remove_query: bool = False,
        filters: GivenFilters | None = None,
        balance: str | None = None,
    ) -> Iterator[tuple[str, Any, Hits]]:
        """Yield id, query and hits of every topic, in order.

        Args:
            topics: texts or encoded queries, from read_topics().
            batch_size: topics that are encoded and searched at a time.
            passages: the index holds passages: rank documents by their best one; the least number of passages to fetch.
            delimiter: between the document and the number in the id of a passage.
            remove_query: leave out the document with the topic's id, as BEIR does for ArguAna and Quora.
            filters, balance: as for search().
        """
        self.validate_search(k, filters, balance)
        for name, count in (("threads", threads), ("batch_size", batch_size)):
            _validate_count(name, count)
        balanced = None if balance is None else Balance.parse(balance)
        # The document that is left out may be among the best.
        fetched = k + remove_query
        for start in range(0, len(topics.ids), batch_size):
            span = slice(start, start + batch_size)
            if topics.vectors is not None:
                queries: Sequence[Any] = topics.vectors[span]
            else:
                queries = self.encode_queries((topics.texts or [])[span])
            options = (passages, delimiter, threads, filters, self._lookup, balanced)
            results = search_documents(self.engine_searcher, queries, fetched, *options)
            for topic, query, hits in zip(topics.ids[span], queries, results, strict=True):
                if remove_query:
                    kept = [place for place, docid in enumerate(hits.docids) if docid != topic][:k]
                    hits = replace(hits, docids=[hits.docids[place] for place in kept], scores=hits.scores[kept])
                yield topic, query, hits

    def explain(
        self,
        text: str,
        docid: str,
        *,
        alpha: float | None = None,
        views: Sequence[str] = (),
        balance: str | None = None,
    ) -> "Explanation":
        """Explain the score of a document for a text: the terms of both, and where they come from.

        alpha, views, balance: as for search().

        Raises:
            UnknownDocument: if the index has no such document.
            MilcoError: if the queries of the index are not weighted terms.
        """
        _validate_texts([text])
        if not isinstance(docid, str):
            raise TypeError(f"docid is {docid!r}, expected a str")
        self.validate_search(balance=balance)
        return self.explainer(alpha, views).explain(text, [docid], balance=balance)[0]

    def explainer(self, alpha: float | None = None, views: Sequence[str] = ()) -> "Explainer":
        """Return what explains the scores of several documents at a time. Arguments and errors as for explain()."""
        self.engine_searcher.require_open()
        validate_sparse(self.index)
        if self.options.query_encoder is not None:
            raise MilcoError("a score is explained by the encoder of the index: omit query_encoder")
        with self._encoding:
            encoder = cast("MilcoQueryEncoder", self._query_encoder(alpha, views))
        return self._explainer.with_encoder(encoder)

    def _query_encoder(self, alpha: float | None, views: Sequence[str]) -> QueryEncoder | None:
        """Return the encoder of queries with other views or another alpha."""
        if alpha is None and not views:
            return self.query_encoder
        from milco_pyserini.encode.contract import MilcoQueryEncoder

        encoder = self.query_encoder
        if not isinstance(encoder, MilcoQueryEncoder):
            name, query_type = self.index.engine.name, self.index.engine.query_type
            raise MilcoError(f"alpha and views are for weighted terms: queries of engine {name} are {query_type}")
        if views:
            encoder = encoder.with_views(views)
        return encoder if alpha is None else encoder.with_alpha(alpha)

    @cached_property
    def _weights(self) -> EngineWeights | None:
        """What the engine multiplies; None if its index cannot be read."""
        return EngineWeights(self.engine_searcher, self.index) if self.engine_searcher.has_weights else None

    @cached_property
    def _explainer(self) -> "Explainer":
        # The only import from a later package: a convenience for users of the library. Nothing else here depends on it.
        from milco_pyserini.explain.contributions import find_store
        from milco_pyserini.explain.explainer import Explainer

        encoder = cast("MilcoQueryEncoder", self.query_encoder)
        return Explainer(self.index, encoder, self._lookup, find_store(self.index), self.engine_searcher)


class TextSearcher(Searcher):
    """BM25 of the texts that a filled server stores, by the connections of its searcher, which closes them."""

    def __init__(self, searcher: Searcher) -> None:
        self.options, self.index, self._lookup = searcher.options, searcher.index, searcher._lookup
        self.engine_searcher = searcher.engine_searcher.bm25()
        self._encoding = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the index, and what it is searched by."""
        return f"{super().name} (bm25)"

    @cached_property
    def query_encoder(self) -> None:
        """None: texts are queries."""
        return None


def search_documents(
    searcher: EngineSearcher,
    queries: Sequence[Any],
    documents: int,
    passages: int | None,
    delimiter: str = PASSAGE_DELIMITER,
    threads: int = 1,
    filters: GivenFilters | None = None,
    lookup: DocumentLookup | None = None,
    balance: Balance | None = None,
) -> list[Hits]:
    """Return the best documents for each query; a document's score is that of its best passage.

    Queries whose passages belong to fewer documents than wanted are searched again, for more passages, until there are
    enough documents or no more passages.

    Args:
        documents: number of documents per query.
        passages: number of passages to fetch first; None if the index holds documents.
        lookup: finds the documents of hits.
        balance: of the scores of hits.
    """
    if passages is None:
        found = searcher.search(queries, documents, threads, filters, balance)
        return [replace(hits, lookup=lookup) for hits in found]
    found = [Hits([], np.empty(0, np.float32))] * len(queries)
    pending = list(range(len(queries)))
    fetch = max(passages, documents)
    while pending:
        results = searcher.search([queries[number] for number in pending], fetch, threads, filters, balance)
        incomplete = []
        for number, hits in zip(pending, results, strict=True):
            found[number] = best_passages(replace(hits, lookup=lookup), documents, delimiter)
            if len(found[number]) < documents and len(hits) == fetch:
                incomplete.append(number)
        pending = incomplete
        fetch *= _FACTOR
    return found


def best_passages(hits: Hits, documents: int, delimiter: str = PASSAGE_DELIMITER) -> Hits:
    """Return the first documents of a ranking of passages; ties in ascending order of docid.

    The id of a passage ends in the delimiter and a number; any other id is that of a document. What is known of a
    document is what its best passage's id finds.
    """
    number = re.compile(rf"{re.escape(delimiter)}[0-9]+\Z")
    best: dict[str, int] = {}
    for place, passage in enumerate(hits.docids):
        best.setdefault(number.sub("", passage), place)
    ranked = sorted(best, key=lambda docid: (-hits.scores[best[docid]], docid))[:documents]
    passages = {docid: hits.docids[best[docid]] for docid in ranked}
    lookup = hits.lookup and _PassageLookup(hits.lookup, passages)
    return Hits(ranked, hits.scores[[best[docid] for docid in ranked]], lookup, passages=passages)


def holds_passages(index: Index) -> bool:
    """Return whether the docids of an index are those of passages, or may be."""
    about = index.manifest.get("vectors", {"plain": True})
    return bool(about.get("split_passages") or about.get("plain"))


def validate_passages(index: Index) -> None:
    """Raise MilcoError if the docids of an index are not those of passages.

    External vectors and texts do not state what they are: there the user must know.
    """
    if not holds_passages(index):
        raise MilcoError(
            f"{index.path} does not hold passages (encode --split-passages), and truncating its docids at a "
            f"{PASSAGE_DELIMITER} would mix up documents: omit `max_passage`, or give the delimiter if the corpus "
            "was split"
        )


@dataclass(frozen=True)
class _PassageLookup:
    """Finds documents by the ids of passages. passages: docid -> id of a passage."""

    lookup: DocumentLookup
    passages: Mapping[str, str]

    def find(self, docids: Sequence[str]) -> "dict[str, Document]":
        found = self.lookup.find([self.passages[docid] for docid in docids])
        return {docid: replace(found[name], id=docid) for docid in docids if (name := self.passages[docid]) in found}


def _matching(hits: Hits, min_share: float) -> Hits:
    kept = [place for place, hit in enumerate(hits) if (hit.share or 0) >= min_share]
    return replace(hits, docids=[hits.docids[place] for place in kept], scores=hits.scores[kept])


def _validate_texts(texts: Any) -> None:
    advice = ""
    if isinstance(texts, str | bytes):
        advice = "see search()"
    elif isinstance(texts, Mapping):
        advice = "pass its .values()"
    elif hasattr(texts, "columns") and not isinstance(texts, SparseBatch):
        # A data frame yields the names of its columns.
        advice = "pass a column, such as df['text']"
    if advice:
        raise TypeError(f"expected a list of texts, not {type(texts).__name__}; {advice}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {number} is {type(text).__name__}, expected a str")


def _validate_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected an integer")
    validate_number(name, value, minimum=1)
