"""Evidence: the sentences of a text that answer a query, whatever the languages and scripts of both.

A sentence answers a query as far as it has the query's terms. Words of a sentence are found without the network: pieces
of the encoder's tokenizer (source view) and English words (pivot view). A text in another language or script has hardly
any. The network then computes the logits of the query's pivot terms at each token of the text, in one forward pass.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from milco_pyserini.explain.origins import Token, is_word, locate_tokens
from milco_pyserini.explain.terms import (
    Contribution,
    ExplainedText,
    Origin,
    Segment,
    Term,
    after_combining,
    has_word,
    match_terms,
    word_span,
)
from milco_pyserini.model.tokenization import replace_lone_surrogates
from milco_pyserini.sparse import PIVOT, SOURCE

# Characters of a text in which its snippet is looked for: more than an encoder of 512 tokens reads.
SEARCHED = 3000
# Characters that a snippet has at least, if its text has.
LENGTH = 280
# Characters of a sentence: a longer one is split, as are texts in Thai, which have no signs between sentences.
_LONGEST = 300
# Share of the query's weight in words from which the network finds no better sentences.
_ENOUGH = 0.03
# Tokens that milco-mini reads in about half a second on two cores: the most for the hits of one request.
READ_TOKENS = 4096
_MINI = 12 * 384**2
# Texts that the network reads at a time.
_TOGETHER = 8
_GAP = " … "
# A period ends a sentence only before white space, unlike that of 3.5; signs of scripts without spaces always do.
_END = re.compile(r"[.!?…]['\"”’»)\]]*(?=\s)|[。！？।۔؟]['\"”’»」』)\]]*|\n")
# Two letters or more.
_WORD = re.compile(r"\w\w+")
_HAN = re.compile("[\u3400-\u9fff]")


@dataclass(frozen=True)
class Snippet:
    """Sentences of a text next to each other.

    Attributes:
        segments: their spans in order.
        contributions: the query's terms in them, which the segments refer to; document is 1 and score the query's
            weight.
        strongest: the largest weight of the query.
    """

    segments: list[Segment]
    contributions: tuple[Contribution, ...]
    strongest: float

    @property
    def text(self) -> str:
        """The sentences."""
        return "".join(segment.text for segment in self.segments)

    def highlights(self) -> list[dict[str, Any]]:
        """Return start and stop in `text`, view, terms and the query's weight of each highlighted span, as JSON."""
        found, start = [], 0
        for segment in self.segments:
            stop = start + len(segment.text)
            if terms := [self.contributions[number].term.term for number in segment.contributions]:
                about = {"view": segment.view, "terms": terms, "weight": round(segment.score, 6)}
                found.append({"start": start, "stop": stop, **about})
            start = stop
        return found


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


class Evidence:
    """Finds a query's terms in the sentences of texts: words at once, other terms by read().

    >>> from milco_pyserini import MilcoEncoder
    >>> encoder = MilcoEncoder.from_pretrained("mini")
    >>> query = encoder.encode_query("Wie lang ist der Nil?").to_dicts()[0]
    >>> evidence = Evidence(query, ["Bell patented the telephone. The Nile is 6,650 km long."], encoder)
    >>> evidence.snippet(0, 20).text
    'The Nile is 6,650 km long.'

    Args:
        query: {term: weight}.
        texts: of documents.
        encoder: a MilcoEncoder; None for a query without terms.
        lowercase: the documents were lowercased before they were encoded.
    """

    def __init__(self, query: Mapping[str, float], texts: Sequence[str], encoder: Any, lowercase: bool = False) -> None:
        self.texts = list(map(replace_lone_surrogates, texts))
        self.spans = list(map(split_sentences, self.texts))
        self.query, self.encoder, self._terms = query, encoder, [Term.of(term, encoder.vocabulary) for term in query]
        self._factors = np.array(list(query.values()), np.float32)
        # Each sentence of each text has a weight for each term, [S, n], and the span of its best word, [S, n, 2].
        self._weights = [np.zeros((len(spans), len(query)), np.float32) for spans in self.spans]
        self._places = [np.zeros((len(spans), len(query), 2), np.int64) for spans in self.spans]
        self._tokens = locate_tokens(encoder.tokenizer, self.texts, lowercase) if query else [[] for _ in self.texts]
        self._find_words()

    def _find_words(self) -> None:
        """Give each sentence 1 of the terms that are words of it.

        Source terms are pieces of the encoder's tokenizer; a single letter counts only after another such piece of its
        word. Pivot terms are complete words: parts of words in other languages are English pieces by chance.
        """
        pieces: dict[int, int] = {}
        words: dict[str, int] = {}
        for number, term in enumerate(self._terms):
            if term.view == PIVOT:
                words[term.piece.removeprefix("▁").lower()] = number
            elif term.view == SOURCE and has_word(term.piece.replace("▁", "")):
                vocabulary = self.encoder.vocabulary
                pieces[vocabulary.columns[term.term] - vocabulary.english_size] = number
        for number in self.encoder.tokenizer.special_ids if pieces else ():
            pieces.pop(number, None)
        for place, (text, spans) in enumerate(zip(self.texts, self.spans, strict=True)):
            matches = [(match, words.get(match[0].lower())) for match in _WORD.finditer(text)]
            found = [(*match.span(), number) for match, number in matches if number is not None]
            before = -1
            for token, _, start, stop in self._tokens[place]:
                is_long = stop - start > 1 or (start < stop and (start == before or _HAN.match(text, start, stop)))
                if is_long and token in pieces:
                    found.append((start, stop, pieces[token]))
                    before = stop
            ends = [end for _, end in spans]
            # The first one of each sentence is shown.
            for start, stop, number in reversed(found):
                sentence = bisect_left(ends, stop)
                self._weights[place][sentence, number], self._places[place][sentence, number] = 1, (start, stop)

    def unclear(self, length: int = LENGTH) -> list[int]:
        """Return the numbers of texts with several extracts, in none of which the query's words have much weight.

        length: of an extract, as for snippet().
        """
        enough = _ENOUGH * self._factors.sum()
        choices = [number for number, spans in enumerate(self.spans) if len(_extracts(spans, length)) > 1]
        return [number for number in choices if self._best(number, length)[0] < enough]

    def read(self, numbers: Sequence[int], most: int | None = None) -> list[int]:
        """Let the network find the pivot terms in texts; return the numbers of those that it read.

        A query without pivot terms, and an encoder of queries only, leave all as they are.

        Args:
            numbers: of the texts.
            most: tokens after which no text is read; on the CPU, a network larger than milco-mini reads fewer.
        """
        pivot = np.array([number for number, term in enumerate(self._terms) if term.view == PIVOT], np.int64)
        if not len(pivot) or not self.encoder.network.has_token_states:
            return []
        network = self.encoder.network
        if most is not None and str(network.device) == "cpu":
            most = most * _MINI // (network.config.encoder.num_hidden_layers * network.config.encoder.hidden_size**2)
        columns = np.array([self.encoder.vocabulary.columns[self._terms[number].term] for number in pivot], np.int32)
        before, after = self.encoder.tokenizer.num_special_tokens
        size = self.encoder.config.passage_max_length - before - after
        ends = np.cumsum([len(self._tokens[number]) for number in numbers])
        read = [number for number, end in zip(numbers, ends, strict=True) if most is None or end <= most]
        rows: list[tuple[int, list[Token]]] = []
        for number in read:
            self._weights[number][:, pivot], self._places[number][:, pivot] = 0, 0
            tokens, last = self._tokens[number], len(self._tokens[number]) - after
            parts = [tokens[start : min(start + size, last)] for start in range(before, last, size)]
            rows += [(number, tokens[:before] + part + tokens[last:]) for part in parts]
        rows.sort(key=lambda row: len(row[1]))
        for start in range(0, len(rows), _TOGETHER):
            batch = rows[start : start + _TOGETHER]
            logits, _ = network.token_scores([[token.id for token in row] for _, row in batch], columns, exact=False)
            for number, row in batch:
                self._add(number, pivot, row, logits[: len(row)])
                logits = logits[len(row) :]
        return read

    def _add(self, number: int, pivot: Any, tokens: Sequence[Token], logits: Any) -> None:
        """Add the logits of tokens, float32 [T, n], for the pivot terms to the sentences of a text.

        LogSat with a smooth relu: below 0, where no term has a weight, logits still tell which sentence is nearest.
        """
        words = np.array([is_word(self.texts[number], token) for token in tokens])
        tokens, logits = [token for token, word in zip(tokens, words, strict=True) if word], logits[words]
        sentences = np.searchsorted([stop for _, stop in self.spans[number]], [token.stop for token in tokens])
        for sentence in np.unique(sentences):
            first, last = np.searchsorted(sentences, [sentence, sentence + 1])
            best = logits[first:last].argmax(axis=0) + first
            highest = logits[best, np.arange(len(pivot))]
            weights = np.log1p(np.logaddexp(0, highest))
            # A sentence may continue in another row of the same text.
            larger = weights > self._weights[number][sentence, pivot]
            self._weights[number][sentence, pivot[larger]] = weights[larger]
            for term, place in zip(pivot[larger & (highest > 0)], best[larger & (highest > 0)], strict=True):
                self._places[number][sentence, term] = tokens[place][2:]

    def _best(self, number: int, length: int = LENGTH) -> tuple[float, int, int]:
        """Return score, first and last sentence of the earliest of the best extracts of a text, which has some."""
        extracts = _extracts(self.spans[number], length)
        highest = [self._weights[number][first : last + 1].max(axis=0) for first, last in extracts]
        scores = [float(weights @ self._factors) for weights in highest]
        best = scores.index(max(scores))
        return (scores[best], *extracts[best])

    def snippet(self, number: int, length: int = LENGTH) -> Snippet:
        """Return the sentences of a text that together have most of the query, of at least a length if possible."""
        text, spans, strongest = self.texts[number], self.spans[number], float(self._factors.max(initial=0))
        if not spans:
            return Snippet([], (), strongest)
        _, first, last = self._best(number, length)
        start, stop = spans[first][0], spans[last][1]
        origins: dict[str, list[Origin]] = {}
        places = self._places[number][first : last + 1]
        for sentence, term in zip(*places[..., 1].nonzero(), strict=True):
            begin, end = word_span(text, *places[sentence, term].tolist())
            origin = Origin(max(begin, start) - start, min(end, stop) - start, "", 1.0)
            origins.setdefault(self._terms[term].term, []).append(origin)
        contributions = match_terms(self.query, dict.fromkeys(origins, 1.0), self.encoder and self.encoder.vocabulary)
        extract = ExplainedText("", text[start:stop], {}, num_encoded=stop - start, origins=origins)
        segments = [
            replace(segment, text=re.sub(r"\s+", " ", segment.text)) for segment in extract.highlight(contributions)
        ]
        return Snippet(segments, contributions, strongest)

    def context(self, tokens: int) -> list[str]:
        """Return the best sentences of each text in their order, "" for none; together, at most a number of tokens.

        The best sentence is taken first, to whose score half of its text's is added. One that exceeds what is left of
        the budget is left out. "…" separates distant sentences. tokens: of the tokenizer, without special ones.
        """
        sentences = [(number, place) for number, spans in enumerate(self.spans) for place in range(len(spans))]
        weights = [own + own.max(axis=0, initial=0) / 2 for own in self._weights]
        ranked = sorted(sentences, key=lambda pair: -float(weights[pair[0]][pair[1]] @ self._factors))
        parts = [self.texts[number][slice(*self.spans[number][place])] + _GAP for number, place in ranked]
        encodings = self.encoder.tokenizer.tokenizer.encode_batch(parts, add_special_tokens=False)
        chosen: list[set[int]] = [set() for _ in self.texts]
        for (number, place), encoding in zip(ranked, encodings, strict=True):
            if len(encoding.ids) <= tokens:
                tokens -= len(encoding.ids)
                chosen[number].add(place)
        return list(map(_join, self.texts, self.spans, chosen))


def _extracts(spans: Sequence[tuple[int, int]], length: int = LENGTH) -> list[tuple[int, int]]:
    """Return first and last sentence of each extract: as many as have a length, from each on or up to the last one."""
    if not spans:
        return []
    starts, stops = zip(*spans, strict=True)
    end = max(0, bisect_right(starts, stops[-1] - length) - 1), len(spans) - 1
    lasts = (bisect_left(stops, start + length) for start in starts)
    return list(dict.fromkeys((first, last) if last < len(spans) else end for first, last in enumerate(lasts)))


def _join(text: str, spans: Sequence[tuple[int, int]], places: Set[int]) -> str:
    joined = ""
    for place in sorted(places):
        start, stop = spans[place]
        if joined:
            # Neighbors have the white space between both.
            joined += text[spans[place - 1][1] : start] if place - 1 in places else _GAP
        joined += text[start:stop]
    return joined
