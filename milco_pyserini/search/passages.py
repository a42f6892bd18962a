"""Rank documents by their best passage (MaxP), for indexes of passages with ids DOCID#NUMBER."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.index.protocol import EngineSearcher, Hits

# Each further search of a query fetches so many times more passages.
_FACTOR = 4


def search_documents(
    searcher: EngineSearcher,
    queries: Sequence[Any],
    documents: int,
    passages: int,
    delimiter: str = PASSAGE_DELIMITER,
    threads: int = 1,
) -> list[Hits]:
    """Return the best documents for each query; a document's score is that of its best passage.

    Queries whose passages belong to fewer documents than wanted are searched again, for more passages, until there are
    enough documents or no more passages.

    Args:
        documents: number of documents per query.
        passages: number of passages to fetch first.
    """
    found: list[Hits] = [Hits([], np.empty(0, np.float32))] * len(queries)
    pending = list(range(len(queries)))
    fetch = max(passages, documents)
    while pending:
        results = searcher.search([queries[number] for number in pending], fetch, threads)
        incomplete = []
        for number, hits in zip(pending, results, strict=True):
            found[number] = best_passages(hits, documents, delimiter)
            if len(found[number]) < documents and len(hits) == fetch:
                incomplete.append(number)
        pending = incomplete
        fetch *= _FACTOR
    return found


def best_passages(hits: Hits, documents: int, delimiter: str = PASSAGE_DELIMITER) -> Hits:
    """Return the first documents of a ranking of passages; ties in ascending order of docid.

    The id of a passage ends in the delimiter and a number; any other id is that of a document.
    """
    number = re.compile(rf"{re.escape(delimiter)}[0-9]+\Z")
    best: dict[str, int] = {}
    for place, passage in enumerate(hits.docids):
        best.setdefault(number.sub("", passage), place)
    ranked = sorted(best, key=lambda docid: (-hits.scores[best[docid]], docid))[:documents]
    return Hits(ranked, hits.scores[[best[docid] for docid in ranked]], hits.lookup)
