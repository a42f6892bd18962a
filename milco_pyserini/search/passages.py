"""Rank documents by their best passage, in indexes that hold passages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.index.directory import Index
from milco_pyserini.index.protocol import DocStore, EngineSearcher, Hits
from milco_pyserini.request import SearchRequest

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document

# Factor by which the number of passages grows with each further search.
_FACTOR = 4


def rank_documents(
    searcher: EngineSearcher, queries: Sequence[Any], request: SearchRequest, lookup: DocStore | None = None
) -> list[Hits]:
    """Return the best documents for each query; a document's score is that of its best passage.

    Queries whose passages belong to fewer documents than wanted are searched again, for more passages, until there are
    enough documents or no more passages. Without max_passage, the index holds documents.
    """
    if request.delimiter is None:
        return [replace(hits, lookup=lookup) for hits in searcher.rank(queries, request)]
    found = [Hits([], np.empty(0, np.float32))] * len(queries)
    pending = list(range(len(queries)))
    fetch = max(request.passages or _FACTOR * request.k, request.k)
    while pending:
        results = searcher.rank([queries[number] for number in pending], replace(request, k=fetch))
        incomplete = []
        for number, hits in zip(pending, results, strict=True):
            found[number] = best_passages(replace(hits, lookup=lookup), request.k, request.delimiter)
            if len(found[number]) < request.k and len(hits) == fetch:
                incomplete.append(number)
        pending = incomplete
        fetch *= _FACTOR
    return found


def best_passages(hits: Hits, documents: int, delimiter: str = PASSAGE_DELIMITER) -> Hits:
    """Return the first documents of a ranking of passages; ties in ascending order of docid.

    The id of a passage ends in the delimiter and a number; any other id is a document's. Fields and text of a document
    come from its best passage.
    """
    number = re.compile(rf"{re.escape(delimiter)}[0-9]+\Z")
    best: dict[str, int] = {}
    for place, passage in enumerate(hits.docids):
        best.setdefault(number.sub("", passage), place)
    ranked = sorted(best, key=lambda docid: (-hits.scores[best[docid]], docid))[:documents]
    passages = {docid: hits.docids[best[docid]] for docid in ranked}
    lookup = hits.lookup and partial(_of_passages, hits.lookup, passages)
    return Hits(ranked, hits.scores[[best[docid] for docid in ranked]], lookup, passages=passages)


def holds_passages(index: Index) -> bool:
    """Return whether the docids of an index are those of passages, or may be."""
    return bool(index.vectors.split_passages or index.vectors.plain)


def validate_passages(index: Index) -> None:
    """Raise MilcoError if the docids of an index are not those of passages.

    External vectors and texts do not state whether they are passages: the user must know.
    """
    if not holds_passages(index):
        raise MilcoError(
            f"{index.path} does not hold passages (encode --split-passages), and truncating its docids at a "
            f"{PASSAGE_DELIMITER} would mix up documents",
            Message("Omit {max_passage}, or give the delimiter if the corpus was split."),
        )


def _of_passages(lookup: DocStore, passages: Mapping[str, str], docids: Sequence[str]) -> "dict[str, Document]":
    """Return documents by the ids of passages. passages: docid -> id of a passage."""
    found = lookup([passages[docid] for docid in docids])
    return {docid: replace(found[name], id=docid) for docid in docids if (name := passages[docid]) in found}
