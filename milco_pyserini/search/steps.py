"""A search as a list of steps: what each does with rankings, how many hits it needs, and the loop that fetches them.

An engine ranks, then the steps follow in the order of STEPS: documents by their best passage, fusion of several
indexes, documents to leave out, one document per value of a field, a least share, an offset. A new step is a class with
a row in STEPS, and the option of SearchRequest that asks for it.
"""

import re
from collections import ChainMap, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.directory import Index
from milco_pyserini.index.documents import field_type
from milco_pyserini.index.hits import Hits
from milco_pyserini.options import MAX_INTEGER
from milco_pyserini.request import SearchRequest
from milco_pyserini.search.fusion import fuse

if TYPE_CHECKING:
    from milco_pyserini.search.searched_index import SearchedIndex

# Factor by which the number of hits grows with each further search.
_FACTOR = 4

Source = Callable[[Sequence[int], int], list[Hits]]
"""Returns up to k hits of each of the queries with these numbers; fewer only if there are no more."""


@dataclass(frozen=True)
class Step:
    """A change to rankings, for an option of a request. ONE_INDEX of request.py has the options that a fusion excludes.

    Args:
        excluded: for each query, a document to leave out; empty for none.

    Attributes:
        option: the step is taken if it is given.
        refilled: further hits take the place of those that the step drops, until there are k or the ranking ends.
    """

    request: SearchRequest
    indexes: "Sequence[SearchedIndex]"
    excluded: Sequence[str] = ()
    option: ClassVar[str]
    refilled: ClassVar = True

    def validate(self) -> None:
        """Raise MilcoError if the indexes lack what the step needs: fields, shares or passages."""

    def needed(self, k: int) -> int:
        """Return how many hits to fetch first, so that k are left."""
        return k

    def apply(self, rankings: Sequence[Hits], numbers: Sequence[int]) -> list[Hits]:
        """Return what is left of the rankings of the queries with these numbers."""
        raise NotImplementedError


class BestPassages(Step):
    """Documents in place of passages, by their best one, in indexes that hold passages."""

    option = "max_passage"

    def validate(self) -> None:
        """Raise MilcoError if the docids of an index are not those of passages.

        External vectors and texts do not state whether they are passages: the user must know.
        """
        for index in self.indexes:
            if self.request.max_passage is True and not holds_passages(index.index):
                raise MilcoError(
                    f"{index.name} does not hold passages (encode --split-passages), and truncating its docids at a "
                    f"{PASSAGE_DELIMITER} would mix up documents",
                    Message("Omit {max_passage}, or give the delimiter if the corpus was split."),
                )

    def needed(self, k: int) -> int:
        return max(self.request.passages or _FACTOR * k, k)

    def apply(self, rankings: Sequence[Hits], numbers: Sequence[int]) -> list[Hits]:
        return [best_passages(hits, self.request.delimiter or "") for hits in rankings]


class Fusion(Step):
    """One ranking in place of one of each index. The steps before it are those of each index."""

    option = "fuse"

    def fused(self, sources: Sequence[Source], numbers: Sequence[int], k: int) -> list[Hits]:
        """Return the k best of the best max(k, depth) of each index; a Source."""
        depth = max(k, self.request.depth)
        rankings = [source(numbers, depth) for source in sources]
        return [self._fused(parts, depth, k) for parts in zip(*rankings, strict=True)]

    def _fused(self, rankings: Sequence[Hits], depth: int, k: int) -> Hits:
        runs = [{"": dict(zip(hits.docids, hits.scores.tolist(), strict=True))} for hits in rankings]
        # An index of complete documents maps each docid to itself.
        passages = [dict(hits.passages) for hits in rankings if hits.passages is not None]
        weights = self.request.weights or None
        ((_, fused),) = fuse(runs, self.request.fuse or "rrf", weights=weights, depth=depth, k=k)
        return replace(
            fused,
            lookup=partial(read_first, [hits.lookup for hits in rankings if hits.lookup is not None]),
            values_of=partial(read_first, [hits.values_of for hits in rankings if hits.values_of is not None]),
            passages=ChainMap(*passages) if passages else None,
            by_index={index.name: hits for index, hits in zip(self.indexes, rankings, strict=True)},
        )


class Exclude(Step):
    """Leaves out one document per query, as BEIR does for ArguAna and Quora."""

    option = "excluded"

    def needed(self, k: int) -> int:
        """Return one more: the document may be among the best."""
        return k + 1

    def apply(self, rankings: Sequence[Hits], numbers: Sequence[int]) -> list[Hits]:
        return [
            _kept(hits, [place for place, docid in enumerate(hits.docids) if docid != self.excluded[number]])
            for hits, number in zip(rankings, numbers, strict=True)
        ]


@dataclass(frozen=True)
class Distinct(Step):
    """The best document of each value of a field; those without a value are all left."""

    option = "distinct"

    _values: dict[int, dict[str, Sequence[str]]] = field(default_factory=lambda: defaultdict(dict))

    def validate(self) -> None:
        """Raise MilcoError if no index stores the field."""
        name = str(self.request.distinct)
        # The first one that stores documents, or else the first of all.
        first = min((index.engine_searcher for index in self.indexes), key=lambda searcher: searcher.fields is None)
        if not any(name in (index.engine_searcher.fields or ()) for index in self.indexes):
            first.require(Capability.STORE, "distinct", name)
            field_type(name, first.fields, first.path, "choose distinct values")

    def needed(self, k: int) -> int:
        return _FACTOR * k

    def apply(self, rankings: Sequence[Hits], numbers: Sequence[int]) -> list[Hits]:
        """Return the rankings with the first document of each value; the value of a document is read once."""
        return [
            _kept(hits, self._first(hits, self._values[number])) for hits, number in zip(rankings, numbers, strict=True)
        ]

    def _first(self, hits: Hits, known: dict[str, Sequence[str]]) -> list[int]:
        missing = [docid for docid in hits.docids if docid not in known]
        known.update(hits.values_of(missing) if hits.values_of else {})
        # A document without a value is the only one of its own.
        values = [known.get(docid) or docid for docid in hits.docids]
        # A dict keeps the last place of a value, which is the first of the ranking.
        return sorted(dict(zip(reversed(values), reversed(range(len(values))), strict=True)).values())


class LeastShare(Step):
    """Drops those of the k best that match too little of the query's weight."""

    option = "min_share"
    refilled = False

    def validate(self) -> None:
        """Raise MilcoError if shares are not known."""
        for index in self.indexes:
            index.engine_searcher.require(Capability.READ, "min_share", self.request.min_share)

    def apply(self, rankings: Sequence[Hits], numbers: Sequence[int]) -> list[Hits]:
        least = self.request.min_share or 0
        return [
            _kept(hits, [place for place, hit in enumerate(hits) if (hit.share or 0) >= least]) for hits in rankings
        ]


class Offset(Step):
    """Skips better documents."""

    option = "offset"
    refilled = False

    def needed(self, k: int) -> int:
        return self.request.offset + k

    def apply(self, rankings: Sequence[Hits], numbers: Sequence[int]) -> list[Hits]:
        return [hits[self.request.offset :] for hits in rankings]


STEPS: Sequence[type[Step]] = (BestPassages, Fusion, Exclude, Distinct, LeastShare, Offset)


def steps_of(indexes: "Sequence[SearchedIndex]", request: SearchRequest, excluded: Sequence[str] = ()) -> list[Step]:
    """Return the steps of a search, in their order."""
    given = {option.name for option in fields(SearchRequest) if getattr(request, option.name) != option.default}
    given |= {"excluded"} if excluded else set()
    return [kind(request, indexes, excluded) for kind in STEPS if kind.option in given]


def validate(indexes: "Sequence[SearchedIndex]", request: SearchRequest) -> None:
    """Raise MilcoError, before an encoder is loaded, if the indexes cannot be searched in that way."""
    for index in indexes:
        index.engine_searcher.validate(request)
    for step in steps_of(indexes, request):
        step.validate()


def rank(
    indexes: "Sequence[SearchedIndex]",
    queries: Sequence[Sequence[Any]],
    request: SearchRequest,
    excluded: Sequence[str] = (),
) -> list[Hits]:
    """Return the k best documents for each query, of a request that validate() takes.

    Args:
        queries: for each text, its query of each index.
        excluded: for each query, a document to leave out.
    """
    steps, before = steps_of(indexes, request, excluded), []
    sources = [
        partial(_ranked, index, [query[place] for query in queries], request) for place, index in enumerate(indexes)
    ]
    source: Source = sources[0]
    for place, step in enumerate(steps):
        if isinstance(step, Fusion):
            before, steps = steps[:place], steps[place + 1 :]
            source = partial(step.fused, [partial(filled, source, before) for source in sources])
    return filled(source, steps, range(len(queries)), request.k)


def filled(source: Source, steps: Sequence[Step], numbers: Sequence[int], k: int) -> list[Hits]:
    """Return the k best hits that the steps leave; a Source.

    Queries with fewer hits than wanted are searched again, for more, until there are enough or the ranking ends.
    """
    refilled, last = ([step for step in steps if step.refilled is given] for given in (True, False))
    wanted = _needed(last, k)
    fetch = _needed(refilled, wanted)
    found: dict[int, Hits] = {}
    pending = list(numbers)
    while pending:
        rankings = source(pending, fetch)
        kept = rankings
        for step in refilled:
            kept = step.apply(kept, pending)
        found |= {
            number: hits if len(hits) <= wanted else hits[:wanted] for number, hits in zip(pending, kept, strict=True)
        }
        is_full = [len(hits) == fetch for hits in rankings]
        pending = [
            number for number, full in zip(pending, is_full, strict=True) if full and len(found[number]) < wanted
        ]
        fetch = min(_FACTOR * fetch, MAX_INTEGER)
    hits = [found[number] for number in numbers]
    for step in last:
        hits = step.apply(hits, numbers)
    return hits


def _needed(steps: Sequence[Step], k: int) -> int:
    for step in reversed(steps):
        k = min(step.needed(k), MAX_INTEGER)
    return k


def _ranked(
    index: "SearchedIndex", queries: Sequence[Any], request: SearchRequest, numbers: Sequence[int], k: int
) -> list[Hits]:
    rankings = index.rank([queries[number] for number in numbers], replace(request, k=k))
    if request.distinct in (index.engine_searcher.fields or ()):
        values = partial(index.engine_searcher.field_values, field=str(request.distinct))
        rankings = [replace(hits, values_of=values) for hits in rankings]
    return rankings


def best_passages(hits: Hits, delimiter: str = PASSAGE_DELIMITER) -> Hits:
    """Return the documents of a ranking of passages; ties in ascending order of docid.

    The id of a passage ends in the delimiter and a number; any other id is a document's. Share, fields and text of a
    document come from its best passage.
    """
    number = re.compile(rf"{re.escape(delimiter)}[0-9]+\Z")
    best: dict[str, int] = {}
    for place, passage in enumerate(hits.docids):
        best.setdefault(number.sub("", passage), place)
    ranked = sorted(best, key=lambda docid: (-hits.scores[best[docid]], docid))
    passages = {docid: hits.docids[best[docid]] for docid in ranked}
    lookup = hits.lookup and partial(_documents, hits.lookup, passages)
    shares, values = (read and partial(_of_passages, read, passages) for read in (hits.shares_of, hits.values_of))
    scores = hits.scores[[best[docid] for docid in ranked]]
    return Hits(ranked, scores, lookup, shares_of=shares, values_of=values, passages=passages)


def holds_passages(index: Index) -> bool:
    """Return whether the docids of an index are those of passages, or may be."""
    return bool(index.vectors.split_passages or index.vectors.plain)


def read_first(reads: Sequence[Callable[[Sequence[str]], Mapping[str, Any]]], docids: Sequence[str]) -> dict[str, Any]:
    """Return what is read of each document from the first that has it."""
    found: dict[str, Any] = {}
    for read in reads:
        if missing := [docid for docid in docids if docid not in found]:
            found.update(read(missing))
    return found


def _of_passages(
    read: Callable[[Sequence[str]], Mapping[str, Any]], passages: Mapping[str, str], docids: Sequence[str]
) -> dict[str, Any]:
    """Return what is read of passages, by docid. passages: docid -> id of a passage; other documents are left out."""
    found = read([passages[docid] for docid in docids if docid in passages])
    return {docid: found[passages[docid]] for docid in docids if passages.get(docid) in found}


def _documents(read: Any, passages: Mapping[str, str], docids: Sequence[str]) -> dict[str, Any]:
    return {docid: replace(document, id=docid) for docid, document in _of_passages(read, passages, docids).items()}


def _kept(hits: Hits, places: list[int]) -> Hits:
    return replace(hits, docids=[hits.docids[place] for place in places], scores=hits.scores[places])
