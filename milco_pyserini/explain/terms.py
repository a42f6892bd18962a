"""The parts of an explanation: terms, the spans of a text they come from, and what each adds to a score."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from milco_pyserini.sparse import PIVOT, SOURCE, Vocabulary
from milco_pyserini.sparse.listing import readable

# Thai to Khmer, hiragana, Han: scripts without spaces between words.
_UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u309f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# In Japanese, hiragana separate words of Han and katakana.
_HIRAGANA = re.compile("[\u3040-\u309f]")
# Letters of a word on either side of a token: text without spaces may be long.
_MOST_LETTERS = 50
# The view of terms of external vectors that the encoder's vocabulary lacks.
OTHER = "other"


@dataclass(frozen=True)
class Term:
    """A term as the index spells it, the word piece of the vocabulary, and the view: pivot, source or other."""

    term: str
    piece: str
    view: str

    @classmethod
    def of(cls, term: str, vocabulary: Vocabulary) -> Self:
        """Look a term up in the encoder's vocabulary."""
        column = vocabulary.columns.get(term)
        if column is None:
            return cls(term, readable(term), OTHER)
        if column < vocabulary.english_size:
            return cls(term, vocabulary.english[column], PIVOT)
        return cls(term, vocabulary.source[column - vocabulary.english_size], SOURCE)

    @property
    def text(self) -> str:
        """The piece without the ▁ that begins a word in source terms, and with escapes for control characters."""
        return readable((self.piece.replace("▁", "") if self.view == SOURCE else "") or self.piece)


@dataclass(frozen=True)
class Origin:
    """A token that a term comes from.

    Attributes:
        start: index of the token's first character in the text.
        stop: index after its last character; equal to start for special tokens such as <s>.
        token: the token as the tokenizer spells it.
        share: share of the term's weight, in [0, 1]. A pivot term comes from one token, a source term from every
            repetition of its token.
    """

    start: int
    stop: int
    token: str
    share: float


@dataclass(frozen=True)
class Contribution:
    """A term of both query and document. score: query x document, what the term adds to the engine's score."""

    term: Term
    query: float
    document: float
    score: float


@dataclass(frozen=True)
class LostTerm:
    """A term that both texts have according to the encoder, but that the engine does not match.

    query and document are the encoder's weights. score: what the term would add to the engine's score. reason: the step
    that removed it, such as "pruning top-k:100".
    """

    term: Term
    query: float
    document: float
    score: float
    reason: str


@dataclass(frozen=True)
class Segment:
    """A span of a text whose characters belong to the same contributions.

    Attributes:
        text: the characters.
        score: the contribution of this span, in the engine's numbers.
        view: the view that most of it belongs to.
        contributions: indices into the contributions that highlight() was called with.
        is_truncated: True after the encoder's maximum length.
    """

    text: str
    score: float
    view: str
    contributions: tuple[int, ...]
    is_truncated: bool


@dataclass(frozen=True)
class ExplainedText:
    """The query or the document of an explanation.

    Attributes:
        name: the docid, or a name for the text.
        text: None if not available.
        weights: {term: weight} in the engine's numbers. Without the document's text or stored vector, these are only
            the terms it shares with the query, and complete is False.
        num_encoded: number of characters within the encoder's maximum length.
        origins: origins by term.
        num_omitted: number of characters behind text, if it is long.
    """

    name: str
    text: str | None
    weights: Mapping[str, float]
    complete: bool = True
    num_encoded: int = 0
    origins: Mapping[str, Sequence[Origin]] = field(default_factory=dict)
    num_omitted: int = 0

    def tokens(self, term: Term) -> str:
        """Return the words that a term comes from, as the text has them, each once; "" if unknown.

        In scripts without spaces between words, these are the tokens, but in Japanese runs of Han and katakana. A term
        of a special token comes from the "(entire text)".
        """
        text = self.text or ""
        words = (
            " ".join(text[slice(*word_span(text, origin.start, origin.stop))].split()) or "(entire text)"
            for origin in self.origins.get(term.term, ())
        )
        return " ".join(dict.fromkeys(words))

    def highlight(self, contributions: Sequence[Contribution]) -> list[Segment]:
        """Split the text into segments by the contributions that come from them; none for an unavailable text."""
        text = self.text or ""
        spans: list[tuple[int, int, int, float]] = []
        for index, contribution in enumerate(contributions):
            for origin in self.origins.get(contribution.term.term, ()):
                start, stop = after_combining(text, origin.start), after_combining(text, origin.stop)
                if start < stop:
                    spans.append((start, stop, index, contribution.score * origin.share))
        edges = {0, len(text), min(self.num_encoded, len(text))}
        edges.update(min(edge, len(text)) for start, stop, *_ in spans for edge in (start, stop))
        segments = []
        for start, stop in pairwise(sorted(edges)):
            here = [(index, score) for first, last, index, score in spans if first <= start and stop <= last]
            source = sum(score for index, score in here if contributions[index].term.view == SOURCE)
            total = sum(score for _, score in here)
            segments.append(
                Segment(
                    text[start:stop],
                    total,
                    SOURCE if 2 * source > total else PIVOT,
                    tuple(sorted({index for index, _ in here})),
                    start >= self.num_encoded,
                )
            )
        return segments


def word_span(text: str, start: int, stop: int) -> tuple[int, int]:
    """Extend a span, unless it is empty, to the words that it begins and ends in."""
    if stop > len(text):
        # The text is the beginning of a longer one.
        return start, stop
    first, last = max(0, start - _MOST_LETTERS), min(len(text), stop + _MOST_LETTERS)
    separators = _HIRAGANA if _HIRAGANA.search(text, first, last) else _UNSPACED

    def is_letter(sign: str) -> bool:
        return (sign.isalnum() or unicodedata.category(sign)[0] == "M") and not separators.match(sign)

    while first < start < stop and is_letter(text[start - 1]) and is_letter(text[start]):
        start -= 1
    while start < stop < last and is_letter(text[stop - 1]) and is_letter(text[stop]):
        stop += 1
    return start, stop


def match_terms(
    query: Mapping[str, float], document: Mapping[str, float], vocabulary: Vocabulary
) -> tuple[Contribution, ...]:
    """Return the contributions of the terms of both, in the document's order. query, document: {term: number}."""
    return tuple(
        Contribution(Term.of(term, vocabulary), query[term], number, query[term] * number)
        for term, number in document.items()
        if term in query
    )


def sum_scores(contributions: Sequence[Contribution]) -> float:
    """Add the contributions one after the other, as the engines do: sum() of Python 3.12 compensates rounding."""
    total: float = 0
    for contribution in contributions:
        total += contribution.score
    return total


def has_word(span: str) -> bool:
    """Return whether a span has more than punctuation and white space; emoji and signs such as $ count as words."""
    return any(unicodedata.category(character)[0] in "LMNS" for character in span)


def after_combining(text: str, index: int) -> int:
    """Move an index behind combining characters and joined emoji, so that no letter is cut from its accents."""
    while 0 < index < len(text) and (
        unicodedata.category(text[index])[0] == "M" or "\u200d" in text[index - 1 : index + 1]
    ):
        index += 1
    return index
