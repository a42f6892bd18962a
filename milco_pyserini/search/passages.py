"""Documents ranked by their best passage (MaxP), where the index holds passages named DOCID#NUMBER."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.index.protocol import Hits, Searcher

_MORE = 4


def search_documents(
    searcher: Searcher,
    queries: Sequence[Any],
    documents: int,
    passages: int,
    delimiter: str = PASSAGE_DELIMITER,
    threads: int = 1,
) -> list[Hits]:
    """The best documents for each query; a document's score is its best passage's.

    passages: how many passages to fetch. Queries for which they belong to fewer than the wanted documents are
    searched again, for more, until there are enough or no more passages.
    """
    found: list[Hits] = [Hits([], np.empty(0, np.float32))] * len(queries)
    waiting = list(range(len(queries)))
    fetch = max(passages, documents)
    while waiting:
        short = []
        for number, hits in zip(waiting, searcher.search([queries[i] for i in waiting], fetch, threads), strict=True):
            found[number] = best_passages(hits, documents, delimiter)
            if len(found[number]) < documents and len(hits) == fetch:
                short.append(number)
        waiting = short
        fetch *= _MORE
    return found


def best_passages(hits: Hits, documents: int, delimiter: str = PASSAGE_DELIMITER) -> Hits:
    """The first documents of a ranking of passages; ties in ascending order of docid.

    A passage's id ends in the delimiter and a number, which its document's lacks; any other id is a document's own.
    """
    number = re.compile(rf"{re.escape(delimiter)}[0-9]+\Z")
    best: dict[str, int] = {}
    for place, passage in enumerate(hits.docids):
        best.setdefault(number.sub("", passage), place)
    ranked = sorted(best, key=lambda docid: (-hits.scores[best[docid]], docid))[:documents]
    return Hits(ranked, hits.scores[[best[docid] for docid in ranked]])
