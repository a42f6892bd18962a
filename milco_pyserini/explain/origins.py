"""Origins of a text's terms: the word with the largest logit (pivot), or the tokens a term repeats (source)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.terms import ExplainedText, Origin, has_word
from milco_pyserini.model.tokenization import TextTokenizer, beginnings, replace_lone_surrogates
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


class Token(NamedTuple):
    """A token and the span of the text that it covers, without white space; an empty one for special tokens."""

    id: int
    piece: str
    start: int
    stop: int


def locate_tokens(tokenizer: TextTokenizer, texts: Sequence[str], lowercase: bool = False) -> list[list[Token]]:
    """Return the tokens of each text, special ones included, and where they are. Texts have no lone surrogates.

    Args:
        lowercase: tokenize the texts in small letters; otherwise only those that the tokenizer lowercases.
    """
    lowered = [text.lower() if lowercase or tokenizer.lowercases(text) else text for text in texts]
    located = []
    # Unlike a text alone, those of a batch are tokenized outside of Python's lock.
    for text, given, encoding in zip(texts, lowered, tokenizer.tokenizer.encode_batch(lowered), strict=True):
        spans = encoding.offsets
        # Lowercasing may lengthen a text: İ becomes two characters.
        if len(given) != len(text):
            spans = np.searchsorted(np.cumsum([0, *map(len, map(str.lower, text))]), np.array(spans)).tolist()
        tokens = []
        for number, piece, (start, stop) in zip(encoding.ids, encoding.tokens, spans, strict=True):
            # White space around a token is not part of its span.
            inside = text[start:stop]
            start += len(inside) - len(inside.lstrip())
            tokens.append(Token(number, piece, start, max(start, start + len(inside.strip()))))
        located.append(tokens)
    return located


def is_word(text: str, token: Token) -> bool:
    """Return whether a token of a text has more than punctuation."""
    # A ▁ that a tokenizer puts before a text has the span of a letter.
    return token.start < token.stop and token.piece != "▁" and has_word(text[token.start : token.stop])


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
    text, num_encoded, tokens = truncate(encoder, text, max_length, lowercase, passage)
    batch = encoder.network.encode([[token.id for token in tokens]], encoder.views)
    batch = encoder.network.limit_terms(batch, is_query=True) if query else batch
    shown = text[:MAX_TEXT_CHARACTERS]
    origins = _origins(encoder, text, tokens, batch) if tokens else {}
    return EncodedText(shown, len(text) - len(shown), num_encoded, batch, origins)


def truncate(
    encoder: "MilcoEncoder", text: str, max_length: int, lowercase: bool, passage: int | None
) -> tuple[str, int, list[Token]]:
    """Return the part of a text that is encoded, the characters of it, and its tokens. Arguments as above."""
    text = replace_lone_surrogates(text)
    lowercase = lowercase or encoder.tokenizer.lowercases(text)
    before, after = encoder.tokenizer.num_special_tokens
    size = max_length - before - after
    first = 0 if passage is None else passage * size
    for beginning in beginnings(text, first + max_length):
        (tokens,) = locate_tokens(encoder.tokenizer, [beginning], lowercase)
        if len(tokens) >= 2 * (first + max_length):
            break
    end = len(tokens) - after
    kept = range(before + first, min(before + first + size, end)) if text.strip() else range(0)
    is_complete = passage is not None or len(kept) == (end - before if text.strip() else 0)
    if not kept:
        return text, len(text) if is_complete else 0, []
    tokens = tokens[:before] + tokens[kept.start : kept.stop] + tokens[end:]
    inner = slice(before, before + len(kept))
    if passage is not None:
        start, stop = tokens[before].start, tokens[before + len(kept) - 1].stop
        text = text[start:stop]
        tokens[inner] = [token._replace(start=token.start - start, stop=token.stop - start) for token in tokens[inner]]
    return text, len(text) if is_complete else tokens[inner][-1].stop, tokens


def _origins(
    encoder: "MilcoEncoder", text: str, tokens: Sequence[Token], batch: SparseBatch
) -> dict[str, tuple[Origin, ...]]:
    columns, _ = batch.row(0)
    is_pivot = columns < batch.english_size
    ids = np.array([token.id for token in tokens])
    logits, echo = encoder.network.token_scores([ids.tolist()], columns[is_pivot])
    # <s> and </s> represent the entire text.
    special = encoder.tokenizer.special_ids
    is_origin = np.array(
        [is_word(text, token) or (token.start == token.stop and token.id in special) for token in tokens]
    )
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
