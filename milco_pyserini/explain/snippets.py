"""Snippets: the extract of a document in which most of a query's weight is, with its words highlighted.

A document of a page of results is not encoded again, which would take as long as an explanation. Highlighted are the
pieces of the text that are themselves terms of the query: pieces of the encoder's tokenizer (source view) and English
words (pivot view). A passage in another language may have none, then the snippet is its beginning.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milco_pyserini.explain.terms import Contribution, ExplainedText, Origin, Segment, Term, after_combining, has_word
from milco_pyserini.model.tokenization import replace_lone_surrogates
from milco_pyserini.sparse import PIVOT, SOURCE

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

LENGTH = 280
# Characters of a document in which the best extract is looked for: more than an encoder of 512 tokens reads.
_SEARCHED = 3000
_SENTENCE_END = re.compile(r"[.!?…。！？।۔؟]['\"”’»)\]]?\s*")
# Two letters or more.
_WORD = re.compile(r"\w\w+")
_HAN = re.compile("[\u3400-\u9fff]")
_BEFORE, _AFTER = Segment("… ", 0.0, PIVOT, (), False), Segment(" …", 0.0, PIVOT, (), False)


@dataclass(frozen=True)
class Snippet:
    """An extract of a text.

    Attributes:
        segments: its spans in order, and "…" where text is left out.
        contributions: the query's terms in it, which the segments refer to; document is 1 and score the query's weight.
        strongest: the largest weight of the query.
    """

    segments: list[Segment]
    contributions: tuple[Contribution, ...]
    strongest: float

    @property
    def text(self) -> str:
        """The extract."""
        return "".join(segment.text for segment in self.segments)

    def highlights(self) -> list[dict[str, Any]]:
        """Return start and stop in `text`, view, terms and the query's weight of each highlighted span, as JSON."""
        found, start = [], 0
        for segment in self.segments:
            stop = start + len(segment.text)
            if segment.contributions:
                terms = [self.contributions[number].term.term for number in segment.contributions]
                weight = round(segment.score, 6)
                found.append({"start": start, "stop": stop, "view": segment.view, "terms": terms, "weight": weight})
            start = stop
        return found


def make_snippets(
    query: Mapping[str, float],
    texts: Sequence[str],
    encoder: "MilcoEncoder",
    length: int = LENGTH,
    lowercase: bool = False,
) -> list[Snippet]:
    """Return the extract of each text that has most of a query's weight, each term counted once.

    >>> from milco_pyserini import MilcoEncoder
    >>> encoder = MilcoEncoder.from_pretrained("mini")
    >>> query = encoder.encode_query("a river").to_dicts()[0]
    >>> (snippet,) = make_snippets(query, ["Bell patented the telephone. The Nile is a river."], encoder)
    >>> [snippet.text[span["start"] : span["stop"]] for span in snippet.highlights()]
    ['river']

    Args:
        query: {term: weight}.
        encoder: its tokenizer and vocabulary find the terms in the texts.
        length: about how many characters an extract has.
        lowercase: the documents were lowercased before they were encoded.
    """
    texts = [replace_lone_surrogates(" ".join(text[:_SEARCHED].split())) for text in texts]
    terms = [Term.of(term, encoder.vocabulary) for term in query]
    strongest = max(query.values(), default=0.0)
    snippets = []
    for text, found in zip(texts, _occurrences(terms, texts, encoder, lowercase), strict=True):
        found.sort()
        start, stop = _window(text, found, query, length)
        origins: dict[str, list[Origin]] = {}
        for first, last, term in found:
            if start <= first and last <= stop:
                origins.setdefault(term, []).append(Origin(first - start, last - start, "", 1.0))
        contributions = tuple(
            Contribution(term, query[term.term], 1.0, query[term.term]) for term in terms if term.term in origins
        )
        extract = ExplainedText("", text[start:stop], {}, num_encoded=stop - start, origins=origins)
        before, after = [_BEFORE] if start else [], [_AFTER] if stop < len(text) else []
        snippets.append(Snippet([*before, *extract.highlight(contributions), *after], contributions, strongest))
    return snippets


def _occurrences(
    terms: Sequence[Term], texts: Sequence[str], encoder: "MilcoEncoder", lowercase: bool
) -> list[list[tuple[int, int, str]]]:
    """Return start, stop and term of each match of a query term in each text.

    Source terms are pieces of the encoder's tokenizer; a single letter counts only after another such piece of its
    word. Pivot terms are complete words: parts of words in other languages are English pieces by chance.
    """
    tokenizer, vocabulary = encoder.tokenizer, encoder.vocabulary
    sources = [term for term in terms if term.view == SOURCE and has_word(term.piece.replace("▁", ""))]
    columns = {vocabulary.columns[term.term] - vocabulary.english_size: term.term for term in sources}
    pieces = {number: term for number, term in columns.items() if number not in tokenizer.special_ids}
    words = {term.piece.removeprefix("▁").lower(): term.term for term in terms if term.view == PIVOT}
    found: list[list[tuple[int, int, str]]] = [
        [
            (word.start(), word.end(), words[word[0].lower()])
            for word in _WORD.finditer(text)
            if word[0].lower() in words
        ]
        for text in texts
    ]
    if not pieces:
        return found
    lowered = [text.lower() for text in texts] if lowercase else tokenizer.lowered(texts)
    # Unlike one by one, outside of Python's lock.
    encodings = tokenizer.tokenizer.encode_batch(lowered, add_special_tokens=False)
    for text, same, encoding, places in zip(texts, lowered, encodings, found, strict=True):
        before = -1
        for place, number in enumerate(encoding.ids if len(same) == len(text) else ()):
            if number in pieces:
                start, stop = encoding.token_to_chars(place)
                start += len(text[start:stop]) - len(text[start:stop].lstrip())
                if stop - start > 1 or start == before or _HAN.match(text, start, stop):
                    places.append((start, stop, pieces[number]))
                    before = stop
    return found


def _window(text: str, found: list[tuple[int, int, str]], query: Mapping[str, float], length: int) -> tuple[int, int]:
    """Return start and stop of the extract: the earliest of those with the largest weight of distinct terms."""
    if len(text) <= length:
        return 0, len(text)
    best, first, last = 0.0, 0, 0
    inside: Counter[str] = Counter()
    weight, end = 0.0, 0
    for start, _, term in found:
        while end < len(found) and found[end][1] <= start + length:
            inside[found[end][2]] += 1
            weight += query[found[end][2]] if inside[found[end][2]] == 1 else 0.0
            end += 1
        if weight > best * (1 + 1e-9):
            best, first, last = weight, start, max(stop for _, stop, _ in found[:end])
        inside[term] -= 1
        weight -= query[term] if inside[term] == 0 else 0.0
    # It begins with a sentence if that fits, else with a word, with as much text before the matches as after them.
    lowest = max(0, last - length)
    starts = [0, *(match.end() for match in _SENTENCE_END.finditer(text, 0, first))]
    start = next((place for place in reversed(starts) if lowest <= place <= first), -1)
    if start < 0:
        start = max(lowest, min(first - (length - (last - first)) // 2, len(text) - length))
        start = min(text.find(" ", start, first) + 1 or start, first)
    start = after_combining(text, start)
    stop = min(len(text), start + length)
    if stop < len(text):
        # Not within a word, where words have spaces.
        space = text.rfind(" ", max(last, stop - length // 10), stop)
        stop = space if space > 0 else after_combining(text, stop)
    return start, stop
