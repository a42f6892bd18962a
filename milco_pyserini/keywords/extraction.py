"""Weighted English words of texts in any language: pivot terms that are complete words, and the text's own names."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from milco_pyserini.errors import MilcoError
from milco_pyserini.options import validate_number
from milco_pyserini.sparse import PIVOT, VIEWS, SparseBatch, Vocabulary
from milco_pyserini.sparse.stop_words import STOP_WORDS

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

# Most pieces of one or two letters are beginnings of names (ka, cr).
_LEAST_LETTERS = 3
_PART = "##"
# They begin a word in vocabularies without ##.
_WORD_STARTS = ("▁", "Ġ")
# Letters of the Latin script, and digits; other scripts may have no space before them.
_LATIN = re.compile("[0-9A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ]+")

# The columns of a word's pieces, and the word; by the first column.
Joins = Mapping[int, Sequence[tuple[list[int], str]]]


def keywords(
    encoder: "MilcoEncoder",
    texts: str | Iterable[str],
    top_k: int | None = 10,
    *,
    documents: bool = False,
    words: Iterable[str] = (),
) -> list[list[tuple[str, float]]]:
    """Return weighted English words of each text, in any language, strongest first.

    >>> from milco_pyserini import MilcoEncoder
    >>> from milco_pyserini.keywords import keywords
    >>> encoder = MilcoEncoder.from_pretrained("mini")
    >>> sorted(word for word, weight in keywords(encoder, "Wer erfand 1876 das Telefon?", top_k=3)[0])
    ['1876', 'telefon', 'telephone']

    A pivot term is a word if it is not a part of one (##), a sign, a function word, or shorter than three letters. A
    text's own words in Latin letters are added, since names are the same in English: those with a capital or a digit,
    or all if none has a capital. Their weights of the source view are scaled to those of the pivot view. Other numbers
    than the text has are left out.

    Args:
        top_k: at most so many words of a text; None for all.
        documents: encode the texts as documents, which are longer than queries.
        words: words of the collection that is searched: pieces of a word become the word if a text has all of them.

    Returns:
        Words in small letters with weights above 0; an empty list for a text without words.

    Raises:
        MilcoError: the encoder has no English terms, or top_k is below 1.
    """
    if PIVOT not in encoder.views:
        raise MilcoError(f"encoder {encoder.name} has no English terms: use milco-mini or another MILCO checkpoint")
    if top_k is not None:
        validate_number("top_k", top_k, minimum=1)
    listed = [texts] if isinstance(texts, str) else list(texts)
    batch = encoder.encode_document(listed) if documents else encoder.encode_query(listed)
    known, joins, pivot, source = _complete_words(encoder.vocabulary), _joins(encoder, words), *map(batch.view, VIEWS)
    found = []
    for row, text in enumerate(listed):
        own, terms = _own_words(encoder, text, _weights(source, row)), _weights(pivot, row)
        matched = [join for column in terms for join in joins.get(column, ()) if terms.keys() >= set(join[0])]
        weights = {word: min(terms[column] for column in pieces) for pieces, word in matched}
        for column in terms.keys() - {column for pieces, _ in matched for column in pieces}:
            word = known[column]
            if word and (word in own or not word[0].isdigit()):
                weights[word] = max(weights.get(word, 0.0), terms[column])
        strongest = max(weights.values(), default=1.0)
        for word, share in own.items():
            weights[word] = max(weights.get(word, 0.0), share * strongest)
        has_words = any(map(str.isalnum, text))
        found.append(sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:top_k] if has_words else [])
    return found


def _weights(view: SparseBatch, row: int) -> dict[int, float]:
    columns, values = view.row(row)
    return dict(zip(columns.tolist(), values.tolist(), strict=True))


def _own_words(encoder: "MilcoEncoder", text: str, source: Mapping[int, float]) -> dict[str, float]:
    """Return names and numbers of a text, each with its share of the largest weight of the source view."""
    # Digits of all scripts become those that English texts have.
    plain = re.sub(r"\d", lambda digit: str(int(digit[0])), unicodedata.normalize("NFKC", text))
    latin = _LATIN.findall(plain)
    has_capitals = any(word[0].isupper() for word in latin)
    named = [word for word in latin if word[0].isupper() or not (has_capitals and word.isalpha())]
    kept = [word for word in named if word.isdecimal() or (len(word) > 1 and word.lower() not in STOP_WORDS)]
    # A piece within a text may begin a word alone: 19 of COVID-19.
    special = set(encoder.tokenizer.special_ids)
    numbers = {column - encoder.vocabulary.english_size: weight for column, weight in source.items()}
    pieces = {
        _letters(encoder.vocabulary.source[number]): weight
        for number, weight in numbers.items()
        if number not in special
    }
    least, largest = min(pieces.values(), default=1.0), max(pieces.values(), default=1.0)
    own: dict[str, float] = {}
    for word, ids in zip(kept, encoder.tokenizer.ids(kept), strict=True):
        # An encoder without a source view weighs all alike, and the limits of one leave out the weakest.
        parts = (_letters(encoder.tokenizer.pieces[number]) for number in ids if number not in special)
        share = max((pieces.get(part, least) for part in parts), default=least) / largest
        own[word.lower()] = max(own.get(word.lower(), 0.0), share)
    return own


def _letters(piece: str) -> str:
    return piece.lstrip("".join(_WORD_STARTS))


def _is_latin(sign: str) -> bool:
    return sign.isascii() or "LATIN" in unicodedata.name(sign, "")


@lru_cache(maxsize=4)
def _complete_words(vocabulary: Vocabulary) -> list[str]:
    """Return the English word of each pivot column, "" if it is not a complete one or is in every text."""
    marked = any(piece.startswith(_WORD_STARTS) for piece in vocabulary.english)
    found = []
    for piece in vocabulary.english:
        is_complete = piece.startswith(_WORD_STARTS) if marked else not piece.startswith(_PART)
        word = _letters(piece).lower()
        is_word = word.isascii() and word.isalnum() and (word.isdecimal() or len(word) >= _LEAST_LETTERS)
        found.append(word if is_complete and is_word and word not in STOP_WORDS else "")
    return found


def _joins(encoder: "MilcoEncoder", words: Iterable[str]) -> Joins:
    """Return the words that have several pieces. A word of the vocabulary is a term by itself."""
    joins = defaultdict(list)
    known = sorted({word.lower() for word in words if word.isalnum()} - STOP_WORDS)
    encodings = encoder.english_tokenizer.encode_batch(known, add_special_tokens=False)
    for word, encoding in zip(known, encodings, strict=True):
        if len(encoding.ids) > 1:
            joins[encoding.ids[0]].append((encoding.ids, word))
    return joins
