"""Search one index or several by texts: queries are encoded as the documents were, and hits of several are fused."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from milco_pyserini.console import log
from milco_pyserini.corpora.records import PASSAGE
from milco_pyserini.errors import Message, MilcoError, ParameterError, unknown_name
from milco_pyserini.explain.evidence import SEARCHED, Evidence
from milco_pyserini.explain.origins import truncate
from milco_pyserini.index.directory import Index, open_index
from milco_pyserini.index.documents import filter_text
from milco_pyserini.index.hits import Hit, Hits
from milco_pyserini.index.protocol import EngineSearcher, QueryOptions
from milco_pyserini.options import validate_number
from milco_pyserini.request import SearchKeywords, SearchRequest
from milco_pyserini.search import steps
from milco_pyserini.search.searched_index import SearchedIndex, SearchedTexts

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.encode.contract import MilcoQueryEncoder
    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.explain.explainer import Explainer
    from milco_pyserini.explain.explanation import Explanation

# Values of a field that a message lists.
_SHOWN_VALUES = 12


class Searcher:
    """An open index with its encoder, or several of one collection: texts in, hits out. Works with every engine.

    >>> from milco_pyserini import Searcher
    >>> with Searcher.open("indexes/sample.lucene") as searcher:  # doctest: +SKIP
    ...     hits = searcher.search("Wer entdeckte das Penicillin?", k=3)
    ...     print([(hit.docid, hit.score, hit.text) for hit in hits])
    ...     searcher.explain("Wer entdeckte das Penicillin?", hits[0].docid)
    >>> with Searcher.open(["indexes/sample.lucene", "indexes/sample.bm25"], fuse="rrf") as searcher:  # doctest: +SKIP
    ...     for hit in searcher.search("Wer entdeckte das Penicillin?", k=3):
    ...         print(hit.docid, hit.score, hit.text, hit.by_index)

    The encoder is loaded when the first text is searched for. Documents of hits are those that the index stores; of
    several indexes, each is from the first that has it. Several threads may share a searcher: they search at the same
    time, and encode their queries one after the other.

    Args:
        indexes: open indexes, or searchers of them; close() closes them.
        fuse: of several, how their hits are fused: "rrf" (ranks) or "rsf" (normalized scores).
        weights: of several, a positive number for each (default: equal).

    Raises:
        MilcoError: one index is given with fuse, several without it, or one twice; or fuse or weights are invalid.
    """

    def __init__(
        self,
        indexes: "Sequence[SearchedIndex | Searcher]",
        fuse: str | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        if not isinstance(indexes, list | tuple):
            raise TypeError(f"Searcher() expects open indexes, not {indexes!r}: use Searcher.open({str(indexes)!r})")
        self.indexes: list[SearchedIndex] = []
        for part in indexes:
            self.indexes += part.indexes if isinstance(part, Searcher) else [part]
        self.fuse, self.weights = fuse, tuple(weights or ())
        self.validate(SearchRequest(fuse=fuse, weights=self.weights))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.fuse is None:
            return repr(self.index).replace("Index", "Searcher", 1)
        return f"Searcher({[index.name for index in self.indexes]}, fuse={self.fuse!r})"

    def close(self) -> None:
        """Close the indexes and free the encoders; a second call has no effect. No thread may be searching.

        Searches, and texts of hits that are read from the index, raise MilcoError from then on.
        """
        with ExitStack() as stack:
            for index in self.indexes:
                stack.callback(index.close)

    def reopened(self) -> "Searcher":
        """Open the indexes as they are now, with the same options, and encoders of weighted terms."""
        with ExitStack() as opened:
            indexes: list[SearchedIndex] = []
            for index in self.indexes:
                is_texts = isinstance(index, SearchedTexts)
                indexes.append(SearchedTexts(indexes[0]) if is_texts else index.reopened())
                opened.callback(indexes[-1].close)
            searcher = Searcher(indexes, self.fuse, self.weights)
            opened.pop_all()
        return searcher

    def refresh(self) -> None:
        """Take the state of indexes that were updated since they were opened: search() and explain() begin with it.

        Searches that other threads have begun, and hits, keep the state that they have.
        """
        self.indexes = [index.refreshed() for index in self.indexes]

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
        query_encoder: "str | Path | MilcoEncoder | None" = None,
        fuse: str | None = None,
        weights: Sequence[float] | None = None,
    ) -> Self:
        """Open an index, or several of a collection, which are searched together.

        Args:
            path: directory of the index; a list of several, with fuse.
            encoder: a loaded encoder, or where the index's encoder is now; unset, it is the one of the manifest.
            device: auto, cpu, cuda or cuda:N.
            dtype: auto, fast, float32, bfloat16 or int8.
            alpha: weigh the views of queries: alpha x pivot + (1 - alpha) x source, alpha from 0 to 1.
            settings: settings of the engine, such as {"query_cut": 20} for seismic.
            query_encoder: another encoder of queries, such as an English SPLADE, whose English pieces are those of the
                index; only English terms are searched.
            fuse, weights: of several indexes, as for Searcher().

        Raises:
            MilcoError: if there is no index, a file of it is damaged, or its engine is not available; if there are
                several indexes and no fuse, or the reverse.
        """
        if not isinstance(path, str | Path | Sequence):
            raise TypeError(f"Searcher.open() expects the directory of an index or a list of them, not {path!r}")
        paths = [path] if isinstance(path, str | Path) else path
        of_one = {"encoder": encoder, "alpha": alpha, "settings": settings}
        for name, value in (of_one | {"query_encoder": query_encoder}).items():
            if value is not None and paths is path:
                raise ParameterError(name, None, "applies to a single index", "Open each, and pass them to Searcher().")
        queries = QueryOptions(encoder, device, dtype, alpha, query_encoder)
        queries.require()
        with ExitStack() as opened:
            indexes = []
            for place in paths:
                indexes.append(SearchedIndex(open_index(place), queries, settings))
                opened.callback(indexes[-1].close)
            searcher = cls(indexes, fuse, weights)
            opened.pop_all()
        return searcher

    def with_bm25(self, weights: Sequence[float] | None = None) -> "Searcher":
        """Return this searcher and BM25 of the texts that a filled server stores as one, which closes this one.

        >>> with Searcher.open("indexes/news.opensearch").with_bm25() as searcher:  # doctest: +SKIP
        ...     hits = searcher.search("Wer entdeckte das Penicillin?", k=3)

        Args:
            weights: of MILCO and of BM25 (default: equal). Their hits are fused by ranks (rrf).

        Raises:
            MilcoError: the index is not that of a server, or stores no texts, or its target has no BM25.
        """
        try:
            return Searcher([self, SearchedTexts(self.indexes[0])], "rrf", weights)
        except BaseException:
            self.close()
            raise

    @property
    def index(self) -> Index:
        """The index; of several, the first."""
        return self.indexes[0].index

    @property
    def engine_searcher(self) -> EngineSearcher:
        """The searcher that takes encoded queries; with several indexes, the first one's."""
        return self.indexes[0].engine_searcher

    @property
    def query_encoder(self) -> "MilcoQueryEncoder | None":
        """Converts texts to queries; None if texts are queries. Several indexes have that of the first."""
        return self.indexes[0].query_encoder

    @property
    def name(self) -> str:
        """The directories of the indexes, for messages."""
        return " and ".join(index.name for index in self.indexes)

    @property
    def fields(self) -> Mapping[str, str] | None:
        """The type of each field that all indexes store, by which searches can filter; None if one stores none."""
        stored = [index.engine_searcher.fields for index in self.indexes]
        known = [fields for fields in stored if fields is not None]
        if len(known) < len(stored):
            return None
        return {name: kind for name, kind in known[0].items() if all(name in fields for fields in known)}

    def values(self, field: str) -> Mapping[str, int] | None:
        """Return how many documents of the first index have each value of a stored field."""
        return self.engine_searcher.values(field)

    @property
    def has_documents(self) -> bool:
        """True if one of the indexes stores its documents."""
        return any(index.has_documents for index in self.indexes)

    def documents(self, docids: Sequence[str]) -> "Mapping[str, Document]":
        """Return the available documents by docid, each from the first index that has it."""
        return steps.read_first([index.documents for index in self.indexes], docids)

    def search(self, text: str, k: int = 10, **options: Unpack[SearchKeywords]) -> Hits:
        """Return the k best documents for a text.

        >>> hits = searcher.search("Who invented the telephone?", k=3)  # doctest: +SKIP
        >>> hits[0].docid, hits[0].score, hits[0].text  # doctest: +SKIP

        Args:
            offset: number of better documents to skip.
            threads: threads that share the documents of a large index (lucene).
            filters: only documents that have one of the values in each field: "lang=de", ["lang=de", "lang=fr"] or
                {"lang": ["de", "fr"]}; or a value in a range: "year>=2000" or {"year": {">=": 2000, "<": 2010}}.
            balance: balance the values of a stored field, such as "lang": the mean score of all documents of a language
                is subtracted from the score of each; "lang=0.5" subtracts half of it (lucene, exact, remote).
            min_share: drop those of the k best that match less of the query's weight (Hit.share), from 0 to 1; of one
                index.
            max_passage: the index holds passages: return documents, ranked by their best one (Hit.passage); True, or
                the delimiter of document and number in the ids of a corpus that was split before it was encoded.
            passages: the least number of passages to fetch (default: 4 k).
            distinct: only the best document of each value of a stored field, such as "thread".
            fuse, weights: of several indexes, in place of those of open().
            depth: of several indexes, the max(k, depth) best documents of each count (default: 100).
            alpha: weigh the views of the query, as Searcher.open() does for all queries; of one index.
            views: search with some views only, of "pivot" and "source"; none for all that the index has; of one index.

        Raises:
            MilcoError: if a value is out of its range, the index stores no such field, lacks a view, has no shares,
                holds no passages or cannot balance, or the encoder does not fit.
        """
        _validate_text(text, "search()", "; see search_batch()")
        return self.search_batch([text], k, **options)[0]

    def search_batch(self, texts: Sequence[str], k: int = 1000, **options: Unpack[SearchKeywords]) -> list[Hits]:
        """Return the k best documents for each of many texts, in their order. Options are those of search()."""
        return self._search(texts, SearchRequest.of(k, options))[1]

    def _search(self, texts: Sequence[str], request: SearchRequest) -> tuple[list[tuple[Any, ...]], list[Hits]]:
        """Return the encoded queries, and their hits."""
        self.refresh()
        self.validate(request)
        queries = self.encode(texts, request)
        found = self.rank(queries, request)
        if request.filters and not request.min_share and found and not any(map(len, found)):
            self.report_filtered(queries, request)
        return queries, found

    def snippets(self, text: str, hits: Hits, **options: Unpack[SearchKeywords]) -> list[str | None]:
        """Return the sentences of each hit that answer a text, in any language; None without the document.

        >>> hits = searcher.search("Wer erfand das Telefon?", k=10)  # doctest: +SKIP
        >>> searcher.snippets("Wer erfand das Telefon?", hits)[0]  # doctest: +SKIP

        A snippet is sentences of 280 characters or more, which together have most of the query. The encoder reads hits
        again whose first 3,000 characters have hardly any word of the query, unless it encodes queries only. Options
        are those of the search. Raises MilcoError if the text is empty.
        """
        _validate_text(text, "snippets()")
        (query,) = self.encode([text], SearchRequest.of(10, options))
        texts = [self.read(hit) for hit in hits]
        found = self.evidence(query, [document.text for document in texts if document])
        found.read(found.unclear())
        numbers = iter(range(len(texts)))
        return [found.snippet(next(numbers)).text if document else None for document in texts]

    def context(self, text: str, tokens: int = 2000, k: int = 10, **options: Unpack[SearchKeywords]) -> dict[str, str]:
        r"""Return the sentences of the k best documents that answer a text best, by docid, for a language model.

        >>> context = searcher.context("Wer erfand das Telefon?", tokens=500)  # doctest: +SKIP
        >>> prompt = "\n".join(f"[{docid}] {sentences}" for docid, sentences in context.items())  # doctest: +SKIP

        Documents are in the order of the search, sentences in the order of their document, with "…" between those that
        are not neighbors. Documents that give no sentence are left out.

        Args:
            tokens: the most tokens of all sentences together, by the encoder's tokenizer; ids are not counted.
            options: those of the search.

        Raises:
            MilcoError: as search() does; the text is empty; tokens is below 1; queries are texts; the index does not
                store its documents.
        """
        _validate_text(text, "context()")
        validate_number("tokens", tokens, 1)
        (query,), (hits,) = self._search([text], SearchRequest.of(k, options))
        return self.sentences(query, hits, tokens)

    def explain(self, text: str, docid: str, *, index: str = "", **options: Unpack[SearchKeywords]) -> "Explanation":
        """Explain the score of a document for a text: the terms of both, and where they come from.

        Args:
            index: of several indexes, the directory of the one whose score is explained.
            options: those of the search.

        Raises:
            UnknownDocument: if the index has no such document.
            MilcoError: if there are several indexes and none is named.
        """
        _validate_texts([text])
        if not isinstance(docid, str):
            raise TypeError(f"docid is {docid!r}, expected a str")
        request = SearchRequest.of(10, options)
        self.refresh()
        steps.validate([self.one(index)], request)
        return self.explainer(index).explain(text, [docid], request)[0]

    def explainer(self, index: str = "") -> "Explainer":
        """Return what explains the scores of several documents at a time. Arguments and errors as for explain()."""
        return self.one(index).explainer

    def one(self, name: str = "") -> SearchedIndex:
        """Return the index of a name (its directory), or the only one. Raises MilcoError if there is none."""
        indexes = {index.name: index for index in self.indexes}
        if name and name not in indexes:
            raise unknown_name("index", name, indexes)
        if not name and len(indexes) > 1:
            fix = Message("Explain the score in one of them: {index}.", index=self.indexes[0].name)
            raise MilcoError("several indexes were searched, and a fused score has no terms", fix)
        return indexes[name] if name else self.indexes[0]

    # The steps of a search, for those who take them one by one.

    def validate(self, request: SearchRequest) -> None:
        """Raise MilcoError, before an encoder is loaded or the first index is searched, if it cannot be answered."""
        request = self._fused_request(request)
        for error in request.index_conflicts([index.name for index in self.indexes]):
            raise error
        steps.validate(self.indexes, request)

    def encode(self, texts: Sequence[str], request: SearchRequest) -> list[tuple[Any, ...]]:
        """Return the queries of all indexes for each text, for rank()."""
        _validate_texts(texts)
        self._fused_request(request)
        return list(zip(*[index.encode(texts, request) for index in self.indexes], strict=True))

    def rank(
        self, queries: Sequence[tuple[Any, ...]], request: SearchRequest, excluded: Sequence[str] = ()
    ) -> list[Hits]:
        """Return the k best documents for each of many encoded queries, of a request that validate() takes.

        Args:
            excluded: for each query, a document to leave out; empty for none.
        """
        return steps.rank(self.indexes, queries, self._fused_request(request), excluded)

    def evidence(self, query: tuple[Any, ...], texts: Sequence[str], characters: int | None = SEARCHED) -> Evidence:
        """Return what texts have of an encoded query: the words. characters: of each text; None for all."""
        place = self._encoding_place
        part, beginnings = self.indexes[place], [text[:characters] for text in texts]
        if part.query_encoder is None:
            return Evidence({}, beginnings, None)
        return Evidence(query[place], beginnings, part.query_encoder.encoder, bool(part.index.vectors.lowercase))

    def sentences(self, query: tuple[Any, ...], hits: Hits, tokens: int, most: int | None = None) -> dict[str, str]:
        """Return the context of an encoded query and its hits. tokens: as for context(). most: characters of a hit."""
        if not self.has_documents:
            fix = Message("Build the index with {store_documents}.", store_documents=True)
            raise MilcoError(f"{self.name} does not store its documents", fix)
        texts = {hit.docid: document.text for hit in hits if (document := self.read(hit))}
        found = self.evidence(query, list(texts.values()), most)
        if found.encoder is None:
            raise MilcoError(f"{self.name} takes texts as queries: sentences are compared by an encoder's terms")
        found.read(range(len(texts)))
        return {docid: chosen for docid, chosen in zip(texts, found.context(tokens), strict=True) if chosen}

    def read(self, hit: Hit) -> "Document | None":
        """Return the document of a hit, with only the text of the passage if it is one."""
        part = self.indexes[self._encoding_place]
        about, document, number = part.index.vectors, hit.document, PASSAGE.search(hit.passage or hit.docid)
        if document is None or part.query_encoder is None or not about.split_passages or number is None:
            return document
        encoder = part.query_encoder.encoder
        length = about.max_length or encoder.config.passage_max_length
        text, *_ = truncate(encoder, document.contents, length, bool(about.lowercase), int(number[1]))
        if text == document.contents.strip():
            return document
        return replace(document, text=text if int(number[1]) else text.removeprefix(document.title).lstrip())

    @property
    def _encoding_place(self) -> int:
        """The place of the first index that encodes texts; 0 if none does."""
        return next((place for place, part in enumerate(self.indexes) if part.query_encoder is not None), 0)

    def report_filtered(self, queries: Sequence[tuple[Any, ...]], request: SearchRequest) -> None:
        """Log that filters leave no hit, and which values of the fields the best documents have without them."""
        documents = [hit.document for hit in self.rank(queries[:1], SearchRequest(100))[0] if hit.document]
        lists = []
        for name in request.filters:
            fields = [document.fields[name] for document in documents if name in document.fields]
            values = {filter_text(item) for value in fields for item in (value if isinstance(value, list) else [value])}
            lists += [f"{name} {', '.join(sorted(values)[:_SHOWN_VALUES])}"] if values else []
        best = f"; without filters, the best have {' and '.join(lists)}" if lists else ""
        these = "this query" if len(queries) == 1 else f"these {len(queries):,} queries"
        log(f"No document that passes the filters has a term of {these}{best}")

    def _fused_request(self, request: SearchRequest) -> SearchRequest:
        """Return a request with the fusion of this searcher, unless it has its own."""
        if request.fuse is not None or self.fuse is None:
            return request
        return replace(request, fuse=self.fuse, weights=request.weights or self.weights)


def _validate_text(text: Any, method: str, advice: str = "") -> None:
    if not isinstance(text, str):
        raise TypeError(f"{method} expects one text, a str, not {type(text).__name__}{advice}")
    if not text.strip():
        raise ParameterError("text", None, "is empty")


def _validate_texts(texts: Any) -> None:
    advice = ""
    if isinstance(texts, str | bytes):
        advice = "see search()"
    elif isinstance(texts, Mapping):
        advice = "pass its .values()"
    elif hasattr(texts, "columns"):
        # A data frame yields the names of its columns.
        advice = "pass a column, such as df['text']"
    if advice:
        raise TypeError(f"expected a list of texts, not {type(texts).__name__}; {advice}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {number} is {type(text).__name__}, expected a str")
