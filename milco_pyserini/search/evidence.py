"""Evidence: the sentences of a document that answer a query, whatever the languages and scripts of both."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from milco_pyserini.explain.terms import after_combining
from milco_pyserini.model.tokenization import replace_lone_surrogates
from milco_pyserini.sparse import SparseBatch

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

# A period ends a sentence only before white space, unlike that of 3.5; signs of scripts without spaces always do.
_END = re.compile(r"[.!?…]['\"”’»)\]]*(?=\s)|[。！？।۔؟]['\"”’»」』)\]]*|\n")
# Characters of a sentence: a longer one is split, as are texts in Thai, which have no signs between sentences.
_LONGEST = 300
# An extract has at least so many characters, if its text has.
_SHORTEST = 200
_GAP = " … "


class Sentence(NamedTuple):
    """Span [start, stop) of a text, and the dot product of its vector with the query's."""

    start: int
    stop: int
    score: float


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Return start and stop of each sentence of a text, without the white space around it.

    >>> [text[start:stop] for text in ["It has 3.5 km. 長い川。海。"] for start, stop in split_sentences(text)]
    ['It has 3.5 km.', '長い川。', '海。']
    """
    spans, start = [], 0
    for end in [*(match.end() for match in _END.finditer(text)), len(text)]:
        while start < end:
            stop = end
            if end - start > _LONGEST:
                space = text.rfind(" ", start + _LONGEST // 2, start + _LONGEST)
                stop = min(end, space + 1 or after_combining(text, start + _LONGEST))
            part = text[start:stop]
            first = start + len(part) - len(part.lstrip())
            if part.strip():
                spans.append((first, first + len(part.strip())))
            start = stop
    return spans


def score_sentences(
    encoder: "MilcoEncoder", query: Mapping[str, float], texts: Sequence[str], lowercase: bool = False
) -> list[list[Sentence]]:
    """Return the sentences of each text in their order. All are encoded at once.

    >>> from milco_pyserini import MilcoEncoder
    >>> encoder = MilcoEncoder.from_pretrained("mini")
    >>> query = encoder.encode_query("Wie lang ist der Nil?").to_dicts()[0]
    >>> bell, nile = score_sentences(encoder, query, ["Bell patented the telephone. The Nile is 6,650 km long."])[0]
    >>> nile.score > bell.score
    True

    Args:
        query: {term: weight}, of the encoder's vocabulary.
        lowercase: lowercase the sentences first, as the documents were.

    Raises:
        MilcoError: the encoder encodes queries only.
    """
    spans = [split_sentences(text) for text in texts]
    sentences = [
        replace_lone_surrogates(text[start:stop])
        for text, found in zip(texts, spans, strict=True)
        for start, stop in found
    ]
    vectors = encoder.encode_document(sentences, lowercase=lowercase)
    scores = iter(SparseBatch.from_dicts([dict(query)], encoder.vocabulary).dot(vectors)[0].tolist())
    return [[Sentence(start, stop, next(scores)) for start, stop in found] for found in spans]


def extract(text: str, sentences: Sequence[Sentence]) -> str:
    """Return the best sentence of a text, with neighbors while it is short: the next one, else the one before."""
    if not sentences:
        return ""
    first = last = max(range(len(sentences)), key=lambda place: sentences[place].score)
    while sentences[last].stop - sentences[first].start < _SHORTEST and last - first + 1 < len(sentences):
        if last + 1 < len(sentences):
            last += 1
        else:
            first -= 1
    return text[sentences[first].start : sentences[last].stop]


def select_context(
    encoder: "MilcoEncoder", texts: Sequence[str], scored: Sequence[Sequence[Sentence]], tokens: int
) -> list[str]:
    """Return the best sentences of each text in their order, "" for none; together, at most a number of tokens.

    The best sentence is taken first. One that exceeds what is left of the budget is left out. "…" is put between
    sentences that are not neighbors. tokens: of the encoder's tokenizer, without special ones.
    """
    ranked = sorted(
        ((number, place) for number, found in enumerate(scored) for place in range(len(found))),
        key=lambda pair: -scored[pair[0]][pair[1]].score,
    )
    spans = [texts[number][scored[number][place].start : scored[number][place].stop] for number, place in ranked]
    encodings = encoder.tokenizer.tokenizer.encode_batch([span + _GAP for span in spans], add_special_tokens=False)
    chosen: list[list[int]] = [[] for _ in texts]
    for (number, place), encoding in zip(ranked, encodings, strict=True):
        if len(encoding.ids) <= tokens:
            tokens -= len(encoding.ids)
            chosen[number].append(place)
    return [_join(text, found, sorted(places)) for text, found, places in zip(texts, scored, chosen, strict=True)]


def _join(text: str, sentences: Sequence[Sentence], places: Sequence[int]) -> str:
    parts: list[str] = []
    for number, place in enumerate(places):
        start = sentences[place].start
        if number and places[number - 1] == place - 1:
            # With the white space between both.
            start = sentences[place - 1].stop
        elif number:
            parts.append(_GAP)
        parts.append(text[start : sentences[place].stop])
    return "".join(parts)
