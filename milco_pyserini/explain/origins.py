"""Origins of a text's terms: the word with the largest logit (pivot), or the tokens a term repeats (source)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.terms import ExplainedText, Origin, has_word
from milco_pyserini.model.tokenization import beginnings, replace_lone_surrogates
from milco_pyserini.sparse import SparseBatch

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder


# Characters of a text that an explanation has: more than an encoder of 8,192 tokens reads.
MAX_TEXT_CHARACTERS = 100_000


@dataclass(frozen=True)
class EncodedText:
    """A text (or one passage of it) with its vector.

    num_omitted: characters behind text, which has up to MAX_TEXT_CHARACTERS. num_encoded: characters within the maximum
    length. batch: one vector, in all views of the encoder. origins: by term.
    """

    text: str
    num_omitted: int
    num_encoded: int
    batch: SparseBatch
    origins: dict[str, tuple[Origin, ...]]

    def explained(self, name: str, weights: Mapping[str, float]) -> ExplainedText:
        """Return the text for an explanation. weights: all of its terms, in the engine's numbers."""
        return ExplainedText(name, self.text, weights, True, self.num_encoded, self.origins, self.num_omitted)


class _Token(NamedTuple):
    id: int
    piece: str
    start: int
    stop: int


def validate_network(encoder: "MilcoEncoder") -> None:
    """Raise MilcoError for an encoder whose network does not show what each token contributes."""
    if not encoder.network.has_token_states:
        raise MilcoError(
            f"encoder {encoder.name} cannot be explained: origins of terms are known for MILCO, masked language models "
            "and BGE-M3, not for a SparseEncoder of sentence-transformers or a query network"
        )


def encode_with_origins(
    encoder: "MilcoEncoder",
    text: str,
    max_length: int,
    lowercase: bool = False,
    passage: int | None = None,
    query: bool = False,
) -> EncodedText:
    """Encode one text and find the origins of its terms.

    Punctuation is not an origin: a pivot term comes from the word, or the special token, with the largest logit, and a
    source term of punctuation has no origin. Origins are found in float32: with bfloat16, a token with a nearly equal
    logit may have been the largest.

    Args:
        max_length: maximum number of tokens, <s> and </s> included.
        passage: number of the passage to encode, of a text split into passages of max_length.
        query: whether the text is a query, which may have fewer terms.
    """
    text, num_encoded, tokens = _truncate(encoder, text, max_length, lowercase, passage)
    batch = encoder.network.encode([[token.id for token in tokens]], encoder.views)
    batch = encoder.network.limit_terms(batch, is_query=True) if query else batch
    shown = text[:MAX_TEXT_CHARACTERS]
    origins = _origins(encoder, text, tokens, batch) if tokens else {}
    return EncodedText(shown, len(text) - len(shown), num_encoded, batch, origins)


def passage_text(encoder: "MilcoEncoder", text: str, max_length: int, lowercase: bool, passage: int) -> str:
    """Return the text of one passage of a document split at max_length, without encoding it."""
    return _truncate(encoder, text, max_length, lowercase, passage)[0]


def _truncate(
    encoder: "MilcoEncoder", text: str, max_length: int, lowercase: bool, passage: int | None
) -> tuple[str, int, list[_Token]]:
    text = replace_lone_surrogates(text)
    lowercase = lowercase or encoder.tokenizer.lowercases(text)
    before, after = encoder.tokenizer.num_special_tokens
    size = max_length - before - after
    first = 0 if passage is None else passage * size
    for beginning in beginnings(text, first + max_length):
        lowered = beginning.lower() if lowercase else beginning
        # Unlike a text alone, those of a batch are tokenized outside of Python's lock.
        (encoding,) = encoder.tokenizer.tokenizer.encode_batch([lowered])
        if len(encoding.ids) >= 2 * (first + max_length):
            break
    end = len(encoding.ids) - after
    kept = range(before + first, min(before + first + size, end)) if text.strip() else range(0)
    is_complete = passage is not None or len(kept) == (end - before if text.strip() else 0)
    if not kept:
        return text, len(text) if is_complete else 0, []
    # Lowercasing may lengthen a text: İ becomes two characters.
    is_longer = len(lowered) != len(beginning)
    offsets = np.cumsum([0, *(len(sign.lower()) if is_longer else 1 for sign in beginning)])
    ids, pieces, places = encoding.ids, encoding.tokens, encoding.offsets
    numbers = [*range(before), *kept, *range(end, len(ids))]
    spans = np.searchsorted(offsets, np.array([places[number] for number in numbers]), side="left")
    tokens = []
    for number, (start, stop) in zip(numbers, spans.tolist(), strict=True):
        # White space around a token is not part of its span.
        inside = text[start:stop]
        start += len(inside) - len(inside.lstrip())
        tokens.append(_Token(ids[number], pieces[number], start, max(start, start + len(inside.strip()))))
    inner = slice(before, before + len(kept))
    if passage is not None:
        start, stop = tokens[before].start, tokens[before + len(kept) - 1].stop
        text = text[start:stop]
        tokens[inner] = [token._replace(start=token.start - start, stop=token.stop - start) for token in tokens[inner]]
    return text, len(text) if is_complete else tokens[inner][-1].stop, tokens


def _origins(
    encoder: "MilcoEncoder", text: str, tokens: Sequence[_Token], batch: SparseBatch
) -> dict[str, tuple[Origin, ...]]:
    columns, _ = batch.row(0)
    is_pivot = columns < batch.english_size
    ids = np.array([token.id for token in tokens])
    logits, echo = encoder.network.token_scores(ids.tolist(), columns[is_pivot])
    special = encoder.tokenizer.special_ids

    def can_be_origin(token: _Token) -> bool:
        # <s> and </s> represent the entire text. A ▁ that a tokenizer puts before a text has the span of a letter.
        if token.start == token.stop:
            return token.id in special
        return token.piece != "▁" and has_word(text[token.start : token.stop])

    is_origin = np.array(list(map(can_be_origin, tokens)))
    logits[~is_origin] = -np.inf
    terms = encoder.vocabulary.terms
    origins: dict[str, tuple[Origin, ...]] = {}
    for column, strongest in zip(columns[is_pivot].tolist(), logits.argmax(axis=0).tolist(), strict=True):
        token = tokens[strongest]
        origins[terms[column]] = (Origin(token.start, token.stop, token.piece, 1.0),)
    for column in columns[~is_pivot].tolist():
        repeats = np.flatnonzero((ids == column - batch.english_size) & is_origin)
        weights = echo[repeats]
        if encoder.config.source_pool == "max":
            weights = np.where(weights == weights.max(initial=0), weights, 0)
        total = float(weights.sum()) or 1.0
        origins[terms[column]] = tuple(
            Origin(tokens[repeat].start, tokens[repeat].stop, tokens[repeat].piece, weight / total)
            for repeat, weight in zip(repeats.tolist(), weights.tolist(), strict=True)
            if weight > 0
        )
    return origins
