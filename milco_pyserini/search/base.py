"""The base of the searchers of one index and of several: texts in, hits out."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from milco_pyserini.console import log
from milco_pyserini.index.documents import filter_text
from milco_pyserini.index.protocol import Hits
from milco_pyserini.options import GivenFilters, parse_filters

# Values of a field that a message lists.
_SHOWN_VALUES = 12


class BaseSearcher:
    """Searches for texts: encodes them, and searches with the encoded queries."""

    # Subclasses define these.
    close: Callable[[], None]
    validate_search: Callable[..., None]
    encode_queries: Callable[..., Any]
    search_queries: Callable[..., list[Hits]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(
        self,
        text: str,
        k: int = 10,
        *,
        threads: int = 1,
        filters: GivenFilters | None = None,
        alpha: float | None = None,
        views: Sequence[str] = (),
        min_share: float | None = None,
        max_passage: bool | str = False,
        balance: str | None = None,
    ) -> Hits:
        """Return the k best documents for a text.

        >>> hits = searcher.search("Who invented the telephone?", k=3)  # doctest: +SKIP
        >>> hits[0].docid, hits[0].score, hits[0].text  # doctest: +SKIP

        Args:
            threads: threads that share the documents of a large index (lucene).
            filters: only documents that have one of the values in each field: "lang=de", ["lang=de", "lang=fr"] or
                {"lang": ["de", "fr"]}; or a value in a range: "year>=2000" or {"year": {">=": 2000, "<": 2010}}.
            alpha: weigh the views of the query, as Searcher.open() does for all queries; of one index.
            views: search with some views only, of "pivot" and "source"; none for all that the index has; of one index.
            min_share: drop those of the k best that match less of the query's weight (Hit.share), from 0 to 1; of one
                index.
            max_passage: the index holds passages: return documents, ranked by their best one (Hit.passage); True, or
                the delimiter of document and number in the ids of a corpus that was split before it was encoded.
            balance: balance the values of a stored field, such as "lang": the mean score of all documents of a language
                is subtracted from the score of each; "lang=0.5" subtracts half of it (lucene, exact, remote).

        Raises:
            MilcoError: if k is below 1, the index stores no such field, lacks a view, has no shares, holds no passages
                or cannot balance, or the encoder does not fit.
        """
        if not isinstance(text, str):
            raise TypeError(f"search() expects one text, a str, not {type(text).__name__}; see search_batch()")
        options: dict[str, Any] = {"filters": filters, "alpha": alpha, "views": views, "min_share": min_share}
        return self.search_batch([text], k, threads, max_passage=max_passage, balance=balance, **options)[0]

    def search_batch(
        self,
        texts: Sequence[str],
        k: int = 1000,
        threads: int = 1,
        *,
        filters: GivenFilters | None = None,
        alpha: float | None = None,
        views: Sequence[str] = (),
        min_share: float | None = None,
        max_passage: bool | str = False,
        balance: str | None = None,
    ) -> list[Hits]:
        """Return the k best documents for each of many texts, in their order.

        Args:
            threads: threads that search.
            filters, alpha, views, min_share, max_passage, balance: as for search().
        """
        self.validate_search(k, filters, balance)
        queries = self.encode_queries(texts, alpha, views)
        found = self.search_queries(queries, k, threads, filters, min_share, max_passage, balance)
        if filters and not min_share and found and not any(map(len, found)):
            self.report_filtered(queries, filters)
        return found

    def report_filtered(self, queries: Sequence[Any], filters: GivenFilters) -> None:
        """Log that filters leave no hit, and which values of the fields the best documents have without them."""
        documents = [hit.document for hit in self.search_queries(queries[:1], 100)[0] if hit.document]
        lists = []
        for name in parse_filters(filters):
            fields = [document.fields[name] for document in documents if name in document.fields]
            values = {filter_text(item) for value in fields for item in (value if isinstance(value, list) else [value])}
            lists += [f"{name} {', '.join(sorted(values)[:_SHOWN_VALUES])}"] if values else []
        best = f"; without filters, the best have {' and '.join(lists)}" if lists else ""
        these = "this query" if len(queries) == 1 else f"these {len(queries):,} queries"
        log(f"No document that passes the filters has a term of {these}{best}")
