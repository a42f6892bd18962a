"""Explanations: why a document has its score, and why one document ranks above another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from typing import Any

from milco_pyserini.console import counted
from milco_pyserini.explain.render import (
    format_alpha,
    format_exactly,
    format_number,
    render,
    terminal_width,
    text_table,
    wrap_lines,
)
from milco_pyserini.explain.terms import OTHER, Contribution, ExplainedText, LostTerm, Term, sum_scores
from milco_pyserini.index.hits import BalanceTerm
from milco_pyserini.index.weights import matched_share
from milco_pyserini.sparse import PIVOT, SOURCE, Vocabulary

__all__ = ["Explanation"]

_BAR = 12
# Columns of a terminal from which on a table has bars, and query x document.
_WIDE, _MEDIUM = 100, 64
# Terms of one view listed in the terminal; a page lists 30.
_LISTED = 12
# Share of the score below which a term is folded.
_WEAK = 0.05


@dataclass(frozen=True)
class Explanation:
    """The score of one document, term by term. str() is a table for the terminal; notebooks show it as HTML.

    Attributes:
        query, document: the two texts.
        engine, exactness: the engine, and how exact its results are.
        unit: a score divided by it is a score in the encoder's weights (1 unless the engine computes with impacts).
        contributions: in the order in which the engine adds them, so that their plain sum is `total`.
        alpha: weight of the query's pivot view; its source view has 1 - alpha. None if both count in full.
        score: the engine's score; None if the engine was not asked, or the document is beyond the hits it was asked
            for.
        rank: from 1; None like score.
        difference: score - total, balanced, in the precision of the engine's scores.
        lost: shared terms that the engine does not match, strongest first; None without the document's text or vector.
        dropped: {reason: number of the document's terms that were removed}; None like lost.
        unpruned: the score with the encoder's own weights, in the engine's numbers; None like lost.
        notes: caveats, one sentence each.
        balance: the term that a balanced search adds to the total; None for a plain score.
        vocabulary: the encoder's.
    """

    query: ExplainedText
    document: ExplainedText
    engine: str
    exactness: str
    unit: float
    contributions: tuple[Contribution, ...]
    alpha: float | None = None
    score: float | None = None
    rank: int | None = None
    difference: float | None = None
    lost: tuple[LostTerm, ...] | None = None
    dropped: Mapping[str, int] | None = None
    unpruned: float | None = None
    notes: tuple[str, ...] = ()
    balance: BalanceTerm | None = None
    vocabulary: Vocabulary | None = field(default=None, compare=False)

    @property
    def docid(self) -> str:
        """The document's id."""
        return self.document.name

    @cached_property
    def total(self) -> float:
        """The sum of the contributions."""
        return sum_scores(self.contributions)

    @property
    def balanced_total(self) -> float:
        """The sum of the contributions and of the balance."""
        return self.total + (self.balance.score if self.balance else 0.0)

    @property
    def shown_score(self) -> float:
        """The engine's score, or the balanced sum of the contributions if the engine gave none."""
        return self.balanced_total if self.score is None else self.score

    @cached_property
    def strongest(self) -> list[Contribution]:
        """The contributions, largest first."""
        return sorted(self.contributions, key=lambda contribution: (-contribution.score, contribution.term.term))

    @cached_property
    def num_unfolded(self) -> int:
        """How many of the strongest contributions add 5 % of the score or more each; 5 if none does."""
        return sum(contribution.score >= _WEAK * self.total for contribution in self.contributions) or 5

    @property
    def about_shares(self) -> str:
        """A sentence on the share of a contribution."""
        when = " before balancing" if self.balance else ""
        return f"A share is the part of the score{when} that a pair of words adds."

    @cached_property
    def shares(self) -> dict[str, float]:
        """Each view's share of the score, in [0, 1]; "other" for terms that the encoder's vocabulary lacks."""
        sums = {PIVOT: 0.0, SOURCE: 0.0}
        for contribution in self.contributions:
            sums[contribution.term.view] = sums.get(contribution.term.view, 0.0) + contribution.score
        return {view: amount / self.total if self.total else 0.0 for view, amount in sums.items()}

    @cached_property
    def share(self) -> float:
        """The share of the query's weight that the document matches, in [0, 1]: see index.weights.matched_share()."""
        return matched_share(self.query.weights, {contribution.term.term for contribution in self.contributions})

    @cached_property
    def query_only(self) -> list[tuple[Term, float]]:
        """The query's terms that the document lacks, strongest first."""
        return self._only(self.query, self.document)

    @cached_property
    def document_only(self) -> list[tuple[Term, float]] | None:
        """The document's terms that the query lacks, strongest first; None if not all of its terms are known."""
        return self._only(self.document, self.query) if self.document.complete else None

    def _only(self, text: ExplainedText, other: ExplainedText) -> list[tuple[Term, float]]:
        vocabulary = self.vocabulary or Vocabulary([], [])
        only = [(term, weight) for term, weight in text.weights.items() if term not in other.weights]
        return [(Term.of(term, vocabulary), weight) for term, weight in sorted(only, key=lambda two: (-two[1], two[0]))]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""

        def contribution(part: Contribution) -> dict[str, Any]:
            name = part.term.term
            return {
                **_flat(part),
                "in_query": self.query.tokens(part.term),
                "in_document": self.document.tokens(part.term),
                "query_origins": [vars(origin) for origin in self.query.origins.get(name, ())],
                "document_origins": [vars(origin) for origin in self.document.origins.get(name, ())],
            }

        def weights(terms: Sequence[tuple[Term, float]] | None) -> list[dict[str, Any]] | None:
            return None if terms is None else [{**vars(term), "weight": weight} for term, weight in terms]

        return {
            "query": self.query.text,
            "document": self.docid,
            "text": self.document.text,
            "omitted_characters": self.document.num_omitted,
            "engine": self.engine,
            "exactness": self.exactness,
            "rank": self.rank,
            "score": self.score,
            "sum": self.total,
            "balance": self.balance and self.balance.to_json(),
            "difference": self.difference,
            "unit": self.unit,
            "alpha": self.alpha,
            "share": self.share,
            "shares": self.shares,
            "contributions": [contribution(part) for part in self.contributions],
            "query_only": weights(self.query_only),
            "document_only": weights(self.document_only),
            "lost": None if self.lost is None else [_flat(match) for match in self.lost],
            "dropped": self.dropped,
            "unpruned": self.unpruned,
            "notes": list(self.notes),
        }

    def to_text(self, top_k: int | None = None, width: int | None = None) -> str:
        """Return a table of contributions and a summary, as wide as the terminal (or width columns).

        top_k: the number of contributions (default: those that add 5 % of the score or more).
        """
        columns = terminal_width() if width is None else width
        number, exactly = partial(format_number, unit=self.unit), partial(format_exactly, unit=self.unit)
        weights = f", {self.shown_score / self.unit:.4f} in weights" if self.unit != 1 else ""
        rank = "" if self.rank is None else f", rank {self.rank:,}"
        head = f"{self.docid}: score {exactly(self.shown_score)}{weights}{rank}, {self.engine} ({self.exactness})"
        lines = [head, *(f"  note: {note}" for note in self.notes)]
        if self.alpha is not None:
            lines.append(f"  {format_alpha(self.alpha)}")
        text = wrap_lines(lines, columns)
        if self.document.text is not None:
            text += wrap_lines([f"  {' '.join(self.document.text.split())}"], columns, max_lines=3)
        if self.contributions:
            shares = ", ".join(f"{view} {share:.1%}" for view, share in self.shares.items() if share)
            query_terms = counted(len(self.query.weights), "term")
            matched = f"  {len(self.contributions)} of the query's {query_terms} matched"
            matched += f", {self.share:.0%} of its weight: {shares}"
            text += f"{wrap_lines([matched], columns)}\n{self._table(top_k, columns)}\n"
            summary = f"  sum of the contributions {number(self.total)}"
            if self.balance:
                summary += f", balance {exactly(self.balance.score)} ({self.balance})"
            if self.difference is not None:
                summary += f", the engine's score {exactly(self.score or 0)}, difference {self.difference:g}"
            elif self.engine != "no index":
                summary += " (not among the hits that the engine was asked for)"
            lines = [summary]
            if self.unpruned:
                kept = f"{self.total / self.unpruned:.1%}"
                lines.append(f"  {kept} of the score before pruning and rounding, {number(self.unpruned)}")
        else:
            lines = ["  no term of the query is in this document"]
        for name, terms in (("query", self.query_only), ("document", self.document_only or [])):
            for view in (PIVOT, SOURCE, OTHER):
                only = [(term, weight) for term, weight in terms if term.view == view]
                listed = ", ".join(f"{term.text} {number(weight)}" for term, weight in only[:_LISTED])
                more = f", and {len(only) - _LISTED:,} more" if len(only) > _LISTED else ""
                lines += [f"  only in the {name}, {view}: {listed}{more}"] if only else []
        for reason, count in (self.dropped or {}).items():
            lines.append(f"  removed from the document: {counted(count, 'term')} ({reason})")
        lost = self.lost or ()
        most = top_k or _LISTED
        lines += [f"  lost match: {match.term.text}, {number(match.score)} ({match.reason})" for match in lost[:most]]
        if len(lost) > most:
            lines.append(f"  lost matches: {len(lost) - most:,} more")
        return text + wrap_lines(lines, columns)

    def _table(self, top_k: int | None, columns: int) -> str:
        num_shown = top_k or self.num_unfolded
        first, rest = self.strongest[:num_shown], self.strongest[num_shown:]
        rows = [
            (
                format_number(contribution.score, self.unit),
                f"{contribution.score / (self.total or 1):.1%}",
                "█" * max(1, round(_BAR * contribution.score / (first[0].score or 1))),
                f"{format_number(contribution.query, self.unit)} x {format_number(contribution.document, self.unit)}",
                contribution.term.view,
                pair_of_words(contribution.term, self.query, self.document),
            )
            for contribution in first
        ]
        headers = ("score", "share", "", "query x document", "view", "query → document (term)")
        # A narrow terminal shows score, share, view, words.
        is_shown = (True, True, columns >= _WIDE, columns >= _MEDIUM, True, True)
        shown = [[cell for cell, keep in zip(row, is_shown, strict=True) if keep] for row in (headers, *rows)]
        align = "".join(side for side, keep in zip("rrlrll", is_shown, strict=True) if keep)
        lines = [f"  {self.about_shares}"]
        if rest:
            share = sum(contribution.score for contribution in rest) / (self.total or 1)
            terms = counted(len(rest), "more term") if top_k else f"{counted(len(rest), 'term')} below {_WEAK:.0%}"
            lines.insert(0, f"  and {terms}, together {share:.1%}")
        return text_table(shown[1:], shown[0], align, columns) + wrap_lines(lines, columns)

    def __repr__(self) -> str:
        rank = "" if self.rank is None else f", rank={self.rank}"
        return (
            f"Explanation(docid={self.docid!r}, score={format_exactly(self.shown_score, self.unit)}{rank}, "
            f"{len(self.contributions)} of {counted(len(self.query.weights), 'query term')} matched)"
        )

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return render("notebook.html", explanation=self)


@dataclass(frozen=True)
class TermDifference:
    """A term of the query in two documents. first, second: what it adds to the score of each."""

    term: Term
    query: float
    first: float
    second: float

    @property
    def difference(self) -> float:
        """first - second."""
        return self.first - self.second


@dataclass(frozen=True)
class Comparison:
    """Why the first of two documents ranks above the second: terms by what they add to the difference of the scores."""

    first: Explanation
    second: Explanation
    differences: tuple[TermDifference, ...]

    @property
    def scores(self) -> tuple[float, float]:
        """The engine's scores, or the balanced sums of the contributions unless it gave both."""
        if self.first.score is None or self.second.score is None:
            return self.first.balanced_total, self.second.balanced_total
        return self.first.score, self.second.score

    @property
    def total(self) -> float:
        """The first score minus the second."""
        return self.scores[0] - self.scores[1]

    @cached_property
    def rows_beyond_terms(self) -> tuple[TermDifference, ...]:
        """Parts of the difference besides the terms: a balanced search, and rounding in the engine."""
        sides = (self.first, self.second)
        parts = {
            "balance": [side.balance.score if side.balance else 0.0 for side in sides],
            "rounding in the engine": [
                score - side.balanced_total for score, side in zip(self.scores, sides, strict=True)
            ],
        }
        rows = (TermDifference(Term("", name, ""), 0.0, *values) for name, values in parts.items())
        return tuple(row for row in rows if row.difference)

    @property
    def note(self) -> str:
        """Why the first ranks above the second where the scores do not explain it; else ""."""
        if self.first.rank is None or self.total > 0:
            return ""
        if self.second.rank is None:
            return f"{self.second.docid} is not among the hits of {self.first.engine} ({self.first.exactness})"
        return "the engine orders equal scores by docid"

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        beyond = {row.term.piece: row.difference for row in self.rows_beyond_terms}
        return {
            "first": self.first.docid,
            "second": self.second.docid,
            "difference": self.total,
            "balance": beyond.get("balance", 0.0),
            "rounding": beyond.get("rounding in the engine", 0.0),
            "note": self.note,
            "terms": [{**_flat(difference), "difference": difference.difference} for difference in self.differences],
        }

    def to_text(self, top_k: int = 20, width: int | None = None) -> str:
        """Return a table of the top_k differences, as wide as the terminal (or width columns)."""
        columns = terminal_width() if width is None else width
        number = partial(format_exactly, unit=self.first.unit)
        names, scores = (self.first.docid, self.second.docid), list(map(number, self.scores))
        if self.total:
            weights = f" = {self.total / self.first.unit:.4f} in weights" if self.first.unit != 1 else ""
            above = " ranks above ".join(f"{name} ({score})" for name, score in zip(names, scores, strict=True))
            head = f"{above} by {number(self.total)}{weights}"
        else:
            head = f"{names[0]} and {names[1]} have the same score, {scores[0]}"
        texts = (self.first.query, self.first.document, self.second.document)
        rows = [
            [*map(number, (row.difference, row.first, row.second)), row.term.view, pair_of_words(row.term, *texts)]
            for row in (*self.differences[:top_k], *self.rows_beyond_terms)
        ]
        if rest := self.differences[top_k:]:
            left = number(sum(difference.difference for difference in rest))
            rows.append([left, "", "", "", counted(len(rest), "more term")])
        text = wrap_lines([head, *([f"  note: {self.note}"] if self.note else [])], columns)
        headers = ("difference", "first", "second", "view", "query → documents (term)")
        return text + (text_table(rows, headers, "rrrll", columns) if rows else "")

    def __repr__(self) -> str:
        return f"Comparison({self.first!r}, {self.second!r})"

    def __str__(self) -> str:
        return self.to_text()


def compare(first: Explanation, other: Explanation) -> Comparison:
    """Compare two explanations of one query, in the order of the engine's ranks.

    Documents without a rank come last, the larger sum first. Terms that add the same to both are left out.

    Raises:
        ValueError: the explanations are of different queries.
    """
    if first.query.weights != other.query.weights:
        raise ValueError("the explanations are of different queries")
    first, second = sorted((first, other), key=lambda each: (each.rank or inf, -each.total))
    scores = [{part.term: part.score for part in side.contributions} for side in (first, second)]
    differences = [
        TermDifference(term, first.query.weights[term.term], scores[0].get(term, 0), scores[1].get(term, 0))
        for term in sorted({*scores[0], *scores[1]}, key=lambda term: term.term)
    ]
    differences = sorted((row for row in differences if row.difference), key=lambda row: -abs(row.difference))
    return Comparison(first, second, tuple(differences))


def report_page(explanations: Sequence[Explanation], comparison: Comparison | None = None, query: str = "") -> str:
    """Return an HTML page, complete in itself, of explanations of one query and the comparison of two of them.

    query: the query's text, for a page without explanations.
    """
    query = explanations[0].query.text or "" if explanations else query
    return render("report.html", query=query, explanations=explanations, comparison=comparison)


def explanation_fragment(explanation: Explanation, language: str = "en") -> str:
    """Return the HTML below the score of an explanation, for a page that is open already."""
    return render("fragment.html", language, explanation=explanation)


def pair_of_words(term: Term, query: ExplainedText, *documents: ExplainedText) -> str:
    """Return "words of the query → words of the documents (term)", or the term if its words are unknown."""
    found = ", ".join(filter(None, (document.tokens(term) for document in documents)))
    words = " → ".join(filter(None, (query.tokens(term), found)))
    return f"{words} ({term.text})" if words else term.text


def _flat(record: Any) -> dict[str, Any]:
    return {**vars(record.term), **{name: value for name, value in vars(record).items() if name != "term"}}
