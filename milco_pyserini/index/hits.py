"""Hits of a search, best first. Each knows its document and how it is shown.

A hit is rendered here only: as JSON, as a row of a table, as a row of a frame, and as HTML of a notebook. Servers, the
command line and frameworks add what they know besides, such as a snippet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import InitVar, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.errors import MilcoError, installed_by

if TYPE_CHECKING:
    import pandas

    from milco_pyserini.corpora import Document

# Hits and characters of a text in a notebook's table, whose colors are the notebook's own, light or dark.
_SHOWN = 20
_CHARACTERS = 300
_HTML = """<div style="overflow-x: auto; overflow-wrap: anywhere">
<table>
<tr>{% for name in names %}<th>{{ name }}</th>{% endfor %}</tr>
{% for cells, hit in rows %}
<tr>{% for cell in cells %}<td>{{ cell }}</td>{% endfor %}

<td dir="auto" style="text-align: start">{% if hit.title %}<b>{{ hit.title }}</b> {% endif %}{{ hit.beginning }}</td>
</tr>
{% endfor %}
</table>
{% for note in notes %}<p>{{ note }}</p>{% endfor %}
</div>"""


DocStore = Callable[[Sequence[str]], "Mapping[str, Document]"]
"""Returns the available documents of docids."""


@dataclass(frozen=True)
class IndexHit:
    """Rank (from 1) and score of a document in one fused index."""

    rank: int
    score: float


@dataclass(frozen=True, kw_only=True)
class HitRecord:
    """A hit as JSON has it, but for its text; None for what is not known. by_index: left out if it is empty."""

    rank: int
    docid: str
    score: float
    share: float | None
    passage: str | None
    title: str | None
    fields: Mapping[str, Any]
    by_index: Mapping[str, IndexHit] = field(default_factory=dict)


_NAMES = [known.name for known in fields(HitRecord) if known.name not in ("fields", "by_index")]


@dataclass(frozen=True)
class Hit:
    """One document of a ranking. rank: from 1."""

    docid: str
    score: float
    rank: int = 1
    ranking: InitVar["Hits | None"] = None

    def __post_init__(self, ranking: "Hits | None") -> None:
        object.__setattr__(self, "_ranking", ranking)

    @cached_property
    def document(self) -> "Document | None":
        """The document; None if the index does not store it. All documents of the ranking are read at once."""
        ranking: Hits | None = vars(self)["_ranking"]
        return None if ranking is None else ranking.documents.get(self.docid)

    @cached_property
    def share(self) -> float | None:
        """The share of the query's weight that is on terms of the document, in [0, 1].

        A score grows with the query, this does not: a document that has little to do with the query matches little of
        it. None if the index cannot be read (seismic), or if queries are texts. The shares of all
        documents of the ranking are read at once.
        """
        ranking: Hits | None = vars(self)["_ranking"]
        return None if ranking is None else ranking.shares.get(self.docid)

    @cached_property
    def passage(self) -> str | None:
        """The id of the document's best passage, in a ranking of documents by their best passage; otherwise None."""
        ranking: Hits | None = vars(self)["_ranking"]
        return None if ranking is None or ranking.passages is None else ranking.passages[self.docid]

    @cached_property
    def by_index(self) -> Mapping[str, IndexHit]:
        """Rank and score in each index that returned the document, by its path; empty unless rankings were fused."""
        ranking: Hits | None = vars(self)["_ranking"]
        found = {}
        for name, hits in () if ranking is None else ranking.by_index.items():
            if self.docid in hits.docids:
                place = hits.docids.index(self.docid)
                found[name] = IndexHit(place + 1, float(hits.scores[place]))
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: what is known of the document instead of the ranking."""
        known = {"document": self.document, "share": self.share, "passage": self.passage, "by_index": self.by_index}
        return {"docid": self.docid, "score": self.score, "rank": self.rank, **known}

    @property
    def title(self) -> str | None:
        """The title of the document, "" if it has none; None if the index does not store it."""
        return None if self.document is None else self.document.title

    @property
    def text(self) -> str | None:
        """Title and text of the document; None if the index does not store it."""
        return None if self.document is None else self.document.contents

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the document; none if the index does not store it."""
        return {} if self.document is None else self.document.fields

    @property
    def metadata(self) -> dict[str, Any]:
        """The fields of the document, and its title if it has one, as frameworks keep them."""
        return {**self.fields, **({"title": self.title} if self.title else {})}

    @property
    def beginning(self) -> str:
        """The beginning of the text, for tables; "" if the index does not store it."""
        text = "" if self.document is None else self.document.text
        return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "…"

    def with_document(self, document: "Document | None") -> Self:
        """Return this hit with another document, such as its best passage."""
        other = copy(self)
        vars(other)["document"] = document
        return other

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values: those of HitRecord, and text, without the title."""
        known = {name: getattr(self, name) for name in _NAMES}
        known |= {"fields": dict(self.fields), "text": self.document.text if self.document else None}
        return known | ({"by_index": {name: vars(hit) for name, hit in self.by_index.items()}} if self.by_index else {})


@dataclass(frozen=True, eq=False)
class Hits(Sequence[Hit]):
    """The ranking of one query: best first, ties in ascending order of docid.

    Iterate or index it for Hit objects: `hits[0].docid`, `hits[0].score`, `hits[0].text`.

    Args:
        docids: k' strings, k' <= k.
        scores: float [k'], never increasing; > 0, unless languages are balanced.
        lookup: where the documents are read when they are first asked for; None without documents.
        total: number of documents that have a term of the query and pass the filters; None if the engine does not count
            them.
        shares_of: returns the shares of docids, read when one is first asked for; None if shares are not known.
        values_of: returns the values of the field of a search with `distinct`; None if the index does not store it.
        passages: docid -> id of the best passage, of documents that are ranked by it.
        by_index: of fused rankings; path of each index -> its ranking.
        first: rank of the first hit.
    """

    docids: list[str]
    scores: NDArray[np.floating]
    lookup: DocStore | None = field(default=None, repr=False, compare=False)
    total: int | None = field(default=None, compare=False)
    shares_of: Callable[[Sequence[str]], Mapping[str, float]] | None = field(default=None, repr=False, compare=False)
    values_of: Callable[[Sequence[str]], Mapping[str, Sequence[str]]] | None = field(
        default=None, repr=False, compare=False
    )
    passages: Mapping[str, str] | None = field(default=None, repr=False, compare=False)
    by_index: "Mapping[str, Hits]" = field(default_factory=dict, repr=False, compare=False)
    first: int = field(default=1, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.docids)

    @overload
    def __getitem__(self, position: SupportsIndex) -> Hit: ...

    @overload
    def __getitem__(self, position: slice) -> "Hits": ...

    def __getitem__(self, position: Any) -> Any:
        """Return a Hit; for a slice, Hits."""
        if isinstance(position, slice):
            first = self.first + (range(len(self))[position] or [0])[0]
            return replace(self, docids=self.docids[position], scores=self.scores[position], first=first)
        place = range(len(self))[position]
        return Hit(self.docids[place], float(self.scores[place]), self.first + place, self)

    def __iter__(self) -> Iterator[Hit]:
        pairs = zip(self.docids, self.scores.tolist(), strict=True)
        return (Hit(docid, score, rank, self) for rank, (docid, score) in enumerate(pairs, self.first))

    @cached_property
    def documents(self) -> "Mapping[str, Document]":
        """The documents that are available, by docid, read when one is first asked for."""
        return {} if self.lookup is None else self.lookup(self.docids)

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """Hit.share by docid, where it is known; read at the first use."""
        return {} if self.shares_of is None else self.shares_of(self.docids)

    def rows(self) -> list[dict[str, str]]:
        """Return the cells of a table, by column; scores are integers if all are."""
        score = "{:,.0f}" if all(score.is_integer() for score in self.scores.tolist()) else "{:,.4f}"
        return [
            {
                "rank": f"{hit.rank}",
                "score": score.format(hit.score),
                "share": "" if hit.share is None else f"{hit.share:.0%}",
                "docid": hit.docid,
            }
            for hit in self
        ]

    def to_frame(self) -> "pandas.DataFrame":
        """Return a pandas.DataFrame: rank from 1, docid, score, share, title, text and the fields of the documents.

        If documents are ranked by their best passage, the column passage has its id. Raises MilcoError without pandas.
        """
        with installed_by("pandas"):
            import pandas
        names = [*_NAMES, "text"]
        if self.passages is None:
            names.remove("passage")
        rows = [
            {**hit.fields, **{name: value for name, value in hit.to_json().items() if name in names}} for hit in self
        ]
        others = dict.fromkeys(name for row in rows for name in row if name not in names)
        return pandas.DataFrame(rows, columns=[*names, *others])

    def _repr_html_(self) -> str:
        """A table of the first hits, for notebooks: rank, score, share, docid, title and the beginning of the text."""
        from jinja2 import Environment

        shown = self[:_SHOWN]
        notes = [f"and {len(self) - len(shown):,} more"] if len(self) > len(shown) else []
        try:
            _ = shown.documents, shown.shares
        except MilcoError as error:
            notes.append(f"no texts: {error}")
            shown = replace(shown, lookup=None, shares_of=None)
        names = ["rank", "score", "share", "docid", "text"]
        cells = [(row.values(), hit) for row, hit in zip(shown.rows(), shown, strict=True)]
        return Environment(autoescape=True).from_string(_HTML).render(names=names, rows=cells, notes=notes)


def merge_hits(rankings: Sequence[Hits], k: int) -> Hits:
    """Return the k best of the hits of several rankings, of different documents."""
    docids = [docid for hits in rankings for docid in hits.docids]
    scores = np.concatenate([hits.scores for hits in rankings])
    kept: Sequence[int] = range(len(docids))
    if len(docids) > k:
        # All that tie with the last one: docids decide.
        kept = np.flatnonzero(scores >= np.partition(scores, -k)[-k]).tolist()
    best = sorted(zip((-scores[kept]).tolist(), [docids[place] for place in kept], kept, strict=True))[:k]
    totals = [hits.total for hits in rankings if hits.total is not None]
    total = sum(totals) if len(totals) == len(rankings) else None
    return Hits([docid for _, docid, _ in best], scores[[place for _, _, place in best]], total=total)


class GroupHits(NamedTuple):
    """The ranking of a query among the documents that have one value of a field.

    sum, size: the sum of the scores of all documents of the group, also of those that do not pass the filters, and
    their number.
    """

    hits: Hits
    sum: float
    size: int

    @property
    def mean(self) -> float:
        """The mean score of all documents of the group."""
        return self.sum / self.size if self.size else 0.0

    def balanced(self, strength: float) -> Hits:
        """Return the hits with strength x the mean score subtracted from each score."""
        return replace(self.hits, scores=self.hits.scores.astype(np.float64) - strength * self.mean)


Groups = Mapping[str, GroupHits]
"""Value of a field -> the ranking of its documents; "" for those that have none."""


@dataclass(frozen=True)
class BalanceTerm:
    """The summand of a balanced search: -strength x the mean score of the document's group.

    value: that of the balanced field; "" for documents that have none.
    """

    field: str
    value: str
    strength: float
    mean: float

    @property
    def score(self) -> float:
        """The summand, <= 0."""
        return -self.strength * self.mean

    def __str__(self) -> str:
        documents = f"{self.field}={self.value}" if self.value else f"documents without {self.field}"
        return f"{'' if self.strength == 1 else f'{self.strength:g} x '}the mean score of {documents}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**vars(self), "score": self.score}
