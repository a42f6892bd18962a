"""Tokenize texts with a checkpoint's own tokenizer."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from tokenizers import Tokenizer

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import checksum_bytes

# Characters of a segment of a long text, and of the segments tokenized at a time: a tokenizer takes about a hundred
# bytes of memory for each character.
SEGMENT = 2**20
AT_ONCE = 4 * SEGMENT
# SentencePiece's pieces have at most 16 characters.
_CHARACTERS_PER_TOKEN = 32
_SPACES = " \n\t"
# A shorter text in capitals may be an acronym.
_WORDS_OF_A_SENTENCE, _LONGEST_ACRONYM = 3, 8


@dataclass(frozen=True)
class Tokens:
    """Token ids of one text, special ones included, none for a blank text, and whether they were truncated."""

    ids: list[int]
    truncated: bool


class TextTokenizer:
    """The multilingual tokenizer of a checkpoint.

    Args:
        name: its noun in messages.
        lowercase_capitals: lowercase texts in capitals, whose pieces are hardly ever those of the same words.
    """

    _lowercase_capitals = False

    def __init__(self, tokenizer: Tokenizer, name: str = "the tokenizer", lowercase_capitals: bool = False) -> None:
        self.tokenizer = tokenizer
        self._name = name
        self._lowercase_capitals = lowercase_capitals
        tokenizer.no_truncation()
        tokenizer.no_padding()

    @cached_property
    def pieces(self) -> list[str]:
        """The piece of every id. Raises MilcoError if an id has none."""
        # To count them with the added ones, the tokenizer would copy its vocabulary.
        last = max(self.tokenizer.get_added_tokens_decoder(), default=-1)
        size = max(self.tokenizer.get_vocab_size(with_added_tokens=False), last + 1)
        pieces = [self.tokenizer.id_to_token(number) for number in range(size)]
        if None in pieces:
            raise MilcoError(
                f"{self._name} has {len(pieces):,} pieces and none with the id {pieces.index(None):,}: its "
                "vocabulary lists a piece twice, or skips ids. Train or save it again without gaps"
            )
        return pieces

    @cached_property
    def special_ids(self) -> list[int]:
        """Ids of special tokens: <s>, <pad>, </s>, <unk>, <mask>."""
        added = self.tokenizer.get_added_tokens_decoder()
        return sorted(number for number, token in added.items() if token.special)

    @cached_property
    def num_special_tokens(self) -> tuple[int, int]:
        """Numbers of special tokens before and after a text's own: <s> and </s> of most encoders, only </s> of some."""
        added = self.tokenizer.encode("a").special_tokens_mask
        first = added.index(0) if 0 in added else len(added)
        return first, sum(added[first:])

    def lowercases(self, text: str) -> bool:
        """Return whether a text is lowercased: one without small letters that is longer than a name or two."""
        if not self._lowercase_capitals or text != text.upper() or text == text.lower():
            return False
        words = text.split()
        return len(words) >= _WORDS_OF_A_SENTENCE or max(map(len, words)) >= _LONGEST_ACRONYM

    def lowered(self, texts: Sequence[str]) -> list[str]:
        """Return texts, those in capitals in small letters."""
        return [text.lower() if self.lowercases(text) else text for text in texts]

    def of_records(self, records: Sequence[Any]) -> Self:
        """Return the tokenizer for the texts of records, which may depend on what else they state."""
        return self

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return all token ids of every text, special ones included; none for a text without a piece of its own.

        A text of more than 2^20 characters is tokenized in segments that end at white space. Only if a segment has
        none may the ids differ from those of the text tokenized at once.
        """
        before, after = self.num_special_tokens
        rows: list[list[int]] = [[] for _ in texts]
        segments = ((row, segment) for row, text in zip(rows, texts, strict=True) for segment in _segments(text))
        for group in _groups(segments):
            encodings = self.tokenizer.encode_batch_fast([segment for _, segment in group])
            for (row, _), encoding in zip(group, encodings, strict=True):
                row[len(row) - after :] = encoding.ids[before if row else 0 :]
        special = before + after
        return [row if text.strip() and len(row) > special else [] for text, row in zip(texts, rows, strict=True)]

    def tokenize(self, texts: Sequence[str], max_length: int) -> list[Tokens]:
        """Return the token ids of every text, truncated to max_length (special ones included).

        Only the beginning of a long text is tokenized, until there are twice as many ids as are kept: later text does
        not influence them.
        """
        after = self.num_special_tokens[1]
        longer = [beginnings(text, max_length) for text in self.lowered(texts)]
        rows = self.ids([next(words) for words in longer])
        for number, words in enumerate(longer):
            while len(rows[number]) < 2 * max_length and (text := next(words, None)) is not None:
                rows[number] = self.ids([text])[0]
        return [
            Tokens(
                ids if len(ids) <= max_length else ids[: max_length - after] + ids[len(ids) - after :],
                len(ids) > max_length,
            )
            for ids in rows
        ]

    def beginning(self, ids: Sequence[int]) -> str:
        """Return the text of the first 20 ids, to name a text in an error."""
        return self.tokenizer.decode(list(ids[:20]))

    def passages(self, texts: Sequence[str], max_length: int) -> list[list[list[int]]]:
        """Split every text into consecutive passages of at most max_length tokens each, special ones included."""
        before, after = self.num_special_tokens
        size = max_length - before - after
        passages = []
        for ids in self.ids(self.lowered(texts)):
            end = len(ids) - after
            spans = [(first, min(first + size, end)) for first in range(before, end, size)]
            passages.append([ids[:before] + ids[first:last] + ids[end:] for first, last in spans] or [ids])
        return passages


def beginnings(text: str, max_length: int) -> Iterator[str]:
    """Yield longer and longer beginnings of a text, the first of about max_length tokens, the last the text itself.

    They end at white space, so that the rest of the text does not change the first half of the tokens of one.
    """
    size = _CHARACTERS_PER_TOKEN * max_length
    while (end := _end(text, 0, size)) < len(text):
        yield text[:end]
        size = 4 * end
    yield text


def _segments(text: str) -> Iterator[str]:
    """Split a text into segments that can be tokenized one by one."""
    start = 0
    while (stop := _end(text, start, SEGMENT)) < len(text):
        yield replace_lone_surrogates(text[start:stop])
        start = stop
    yield replace_lone_surrogates(text[start:])


def _end(text: str, start: int, size: int) -> int:
    """Return the end of a segment of about size characters: the last white space of its second half, or the next one.

    So no word is split, and later text does not change the tokens of the segment; only after 2^20 characters without
    white space does a segment end anywhere.
    """
    stop = start + size
    if stop >= len(text):
        return len(text)
    if last := max(text.rfind(space, start + size // 2, stop) for space in _SPACES) + 1:
        return last - 1
    limit = min(start + max(size, SEGMENT), len(text))
    return min((place for space in _SPACES if (place := text.find(space, stop, limit)) >= 0), default=limit)


def _groups(segments: Iterable[tuple[list[int], str]]) -> Iterator[list[tuple[list[int], str]]]:
    """Group consecutive segments that are tokenized in one call."""
    group: list[tuple[list[int], str]] = []
    size = 0
    for row, segment in segments:
        group.append((row, segment))
        size += len(segment)
        if size >= AT_ONCE:
            yield group
            group, size = [], 0
    yield group


def hash_tokenizers(tokenizer: Tokenizer, english_tokenizer: Tokenizer) -> str:
    """Return BLAKE2b over the definitions of both tokenizers: the tokenizer_hash of an encoder."""
    return checksum_bytes((tokenizer.to_str() + english_tokenizer.to_str()).encode())


def replace_lone_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates as U+FFFD: tokenizers accept only valid UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
