"""Why a document matched, as numbers: what each term of both sides gives to the score, and what did not count."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

from milco_pyserini.sparse import PIVOT, SOURCE, Vocabulary
from milco_pyserini.sparse.listing import readable


@dataclass(frozen=True)
class Term:
    """A term as the index spells it, the piece of text that it stands for, and its view.

    view is None for a term that the encoder does not know, in vectors that others wrote.
    """

    term: str
    piece: str
    view: str | None

    @classmethod
    def of(cls, term: str, vocabulary: Vocabulary) -> "Term":
        """The term, explained by the encoder's vocabulary."""
        column = vocabulary.columns.get(term)
        if column is None:
            return cls(term, readable(term), None)
        if column < vocabulary.english_size:
            return cls(term, vocabulary.english[column], PIVOT)
        return cls(term, vocabulary.source[column - vocabulary.english_size], SOURCE)


@dataclass(frozen=True)
class Origin:
    """A token that a term came from. start, stop: its characters in the text; equal where it stands for none (<s>).

    share: of the term's weight, from 0 to 1; a pivot term comes from one token, a source term from all that repeat it.
    """

    start: int
    stop: int
    token: str
    share: float


@dataclass(frozen=True)
class Hit:
    """A document that a search found, not explained yet. unit: as of an Explanation. text: None if not available."""

    docid: str
    score: float
    unit: float
    text: str | None


@dataclass(frozen=True)
class Side:
    """The query or the document. name: a docid, or what stands for one.

    text: None where it is not at hand. read: characters that the encoder read, the rest was cut. weights: {term:
    number} as the engine has them; of a document whose text and vector are not at hand, those of the query's terms
    alone, and then complete is False. origins: by term.
    """

    name: str
    text: str | None
    weights: Mapping[str, float]
    complete: bool = True
    read: int = 0
    origins: Mapping[str, Sequence[Origin]] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A term of both sides. contribution = query x document, in the engine's numbers."""

    term: Term
    query: float
    document: float
    contribution: float


@dataclass(frozen=True)
class Lost:
    """A term that both texts have, but the engine does not multiply. query, document: weights from the encoder.

    contribution: what it would have given, in the engine's numbers. why: what took it away.
    """

    term: Term
    query: float
    document: float
    contribution: float
    why: str


@dataclass(frozen=True)
class Explanation:
    """One document's score in its parts.

    parts: in the order in which the engine adds them up, so that a plain sum over them is total. score: what the
    engine says, None where it was not asked or the document is beyond the hits that it was asked for; rank from 1.
    unit: a score divided by it is one in the encoder's weights. alpha: the query's numbers are of alpha x its
    pivot view and (1 - alpha) x its source view; None where both count in full. lost, dropped ({why: number of the
    document's terms}) and unpruned (the score of the encoder's weights as they are, in the engine's numbers) are None
    where the document's text is not at hand. notes: what a reader should know, a sentence each.
    """

    query: Side
    document: Side
    engine: str
    exactness: str
    unit: float
    parts: tuple[Part, ...]
    total: float
    alpha: float | None = None
    score: float | None = None
    rank: int | None = None
    difference: float | None = None
    lost: tuple[Lost, ...] | None = None
    dropped: Mapping[str, int] | None = None
    unpruned: float | None = None
    notes: tuple[str, ...] = ()
    vocabulary: Vocabulary | None = field(default=None, repr=False, compare=False)

    @cached_property
    def strongest(self) -> list[Part]:
        """The parts, the largest contribution first."""
        return sorted(self.parts, key=lambda part: (-part.contribution, part.term.term))

    @cached_property
    def shares(self) -> dict[str, float]:
        """Each view's share of the score, from 0 to 1; "other" for terms that the encoder does not know."""
        sums: dict[str, float] = {PIVOT: 0.0, SOURCE: 0.0}
        for part in self.parts:
            name = part.term.view or "other"
            sums[name] = sums.get(name, 0.0) + part.contribution
        return {name: amount / self.total if self.total else 0.0 for name, amount in sums.items()}

    @cached_property
    def query_only(self) -> list[tuple[Term, float]]:
        """The query's terms that the document lacks, strongest first."""
        return self._alone(self.query, self.document)

    @cached_property
    def document_only(self) -> list[tuple[Term, float]] | None:
        """The document's terms that the query lacks, strongest first; None where the rest of it is not at hand."""
        return self._alone(self.document, self.query) if self.document.complete else None

    def _alone(self, side: Side, other: Side) -> list[tuple[Term, float]]:
        vocabulary = self.vocabulary or Vocabulary([], [])
        alone = [(term, weight) for term, weight in side.weights.items() if term not in other.weights]
        return [
            (Term.of(term, vocabulary), weight) for term, weight in sorted(alone, key=lambda one: (-one[1], one[0]))
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {
            "query": self.query.text,
            "document": self.document.name,
            "text": self.document.text,
            "engine": self.engine,
            "exactness": self.exactness,
            "rank": self.rank,
            "score": self.score,
            "sum": self.total,
            "difference": self.difference,
            "unit": self.unit,
            "alpha": self.alpha,
            "shares": self.shares,
            "parts": [self._part_json(part) for part in self.parts],
            "query_only": _terms_json(self.query_only),
            "document_only": None if self.document_only is None else _terms_json(self.document_only),
            "lost": None if self.lost is None else [_flat(one) for one in self.lost],
            "dropped": self.dropped,
            "unpruned": self.unpruned,
            "notes": list(self.notes),
        }

    def _part_json(self, part: Part) -> dict[str, Any]:
        sides = {"query_origins": self.query, "document_origins": self.document}
        origins = {
            name: [vars(origin) for origin in side.origins.get(part.term.term, ())] for name, side in sides.items()
        }
        return {**_flat(part), **origins}


@dataclass(frozen=True)
class Difference:
    """A term of the query in two documents. first, second: what it gives to each; difference = first - second."""

    term: Term
    query: float
    first: float
    second: float

    @property
    def difference(self) -> float:
        """Above 0 where the term speaks for the first document."""
        return self.first - self.second


@dataclass(frozen=True)
class Comparison:
    """Why the first of two documents stands above the second: terms by what they add to the distance."""

    first: Explanation
    second: Explanation
    differences: tuple[Difference, ...]

    @property
    def scores(self) -> tuple[float, float]:
        """The engine's, where it gave both, else the sums of the parts."""
        if self.first.score is None or self.second.score is None:
            return self.first.total, self.second.total
        return self.first.score, self.second.score

    @property
    def total(self) -> float:
        """The first's score minus the second's."""
        return self.scores[0] - self.scores[1]

    @property
    def rounding(self) -> Difference | None:
        """What the scores have beyond the sums of the parts, as a row beside those of terms; None if not unlike."""
        first, second = self.scores[0] - self.first.total, self.scores[1] - self.second.total
        return None if first == second else Difference(Term("", "rounding in the engine", None), 0.0, first, second)

    @property
    def note(self) -> str:
        """Where the scores do not say which of the two stands above the other: what does, or ""."""
        if self.first.rank is None or self.total > 0:
            return ""
        if self.second.rank is None:
            engine = f"{self.first.engine} ({self.first.exactness})"
            return f"{self.second.document.name} is not among the documents that {engine} ranked"
        return "the engine lists them by id"

    def to_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {
            "first": self.first.document.name,
            "second": self.second.document.name,
            "difference": self.total,
            "rounding": self.rounding.difference if self.rounding else 0.0,
            "note": self.note,
            "terms": [{**_flat(one), "difference": one.difference} for one in self.differences],
        }


def compare(one: Explanation, other: Explanation) -> Comparison:
    """The two explanations of one query's documents beside each other, in the order of the engine's ranks.

    What it did not rank comes last, the larger sum first. Terms that give the same to both are left out. Raises
    ValueError if they explain different queries.
    """
    if one.query.weights != other.query.weights:
        raise ValueError("the explanations are of different queries")
    first, second = sorted((one, other), key=lambda each: (each.rank or inf, -each.total))
    gives = [{part.term: part.contribution for part in side.parts} for side in (first, second)]
    terms = sorted({*gives[0], *gives[1]}, key=lambda term: term.term)
    rows = [
        Difference(term, first.query.weights[term.term], gives[0].get(term, 0), gives[1].get(term, 0)) for term in terms
    ]
    unlike = sorted((row for row in rows if row.difference), key=lambda row: -abs(row.difference))
    return Comparison(first, second, tuple(unlike))


def by_view(terms: Iterable[tuple[Term, float]]) -> dict[str, list[tuple[Term, float]]]:
    """The terms of each view in their order; "other" for those that the encoder does not know. No view is empty."""
    found: dict[str, list[tuple[Term, float]]] = {PIVOT: [], SOURCE: [], "other": []}
    for term, number in terms:
        found[term.view or "other"].append((term, number))
    return {view: mine for view, mine in found.items() if mine}


def matched(query: Mapping[str, float], document: Mapping[str, float], vocabulary: Vocabulary) -> tuple[Part, ...]:
    """The parts of a score. query, document: {term: number}; the parts stand in the order of the document's terms."""
    return tuple(
        Part(Term.of(term, vocabulary), query[term], number, query[term] * number)
        for term, number in document.items()
        if term in query
    )


def total(parts: Iterable[Part]) -> float:
    """The contributions, added up one after the other as the engines do: sum() of Python 3.12 compensates."""
    amount: float = 0
    for part in parts:
        amount += part.contribution
    return amount


def _flat(record: Any) -> dict[str, Any]:
    fields = {name: value for name, value in vars(record).items() if name != "term"}
    return {**vars(record.term), **fields}


def _terms_json(terms: Sequence[tuple[Term, float]]) -> list[dict[str, Any]]:
    return [{**vars(term), "number": number} for term, number in terms]
