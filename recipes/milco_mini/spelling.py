"""Store texts as token ids from which an equivalent text is restored, equal in all that training reads."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path

import numpy as np
from tokenizers import Encoding, Tokenizer

from . import corpus
from .english import EnglishTerms

SIDES = ("foreign", "english")
_NUMBER = np.dtype("<u4")
_TEXTS_AT_A_TIME = 10_000


class Spelling:
    """Texts as lines of numbers: token ids, and above them characters (also white space) by their code points.

    Tokens lose case and punctuation, but nothing that training reads: every step is the same as with the original
    text. Where it would not be, for example for an unknown character, the characters are stored.

    Args:
        work: directory with the tokenizers of the recipe.
    """

    def __init__(self, work: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
        self._terms = EnglishTerms(work / "english.json")
        self._letters = self._tokenizer.get_vocab_size()
        self._pieces = [self._tokenizer.id_to_token(number).replace("▁", " ") for number in range(self._letters)]
        # Three of four English sides occur before, with another language.
        self._known: dict[str, dict[str, bytes]] = {side: {} for side in SIDES}

    def numbers(self, texts: Sequence[str], side: str) -> list[bytes]:
        """Return the line of each text, little-endian uint32. side: of the pairs, one of SIDES."""
        known = self._known[side]
        new = [text for text in dict.fromkeys(texts) if text not in known]
        for start in range(0, len(new), _TEXTS_AT_A_TIME):
            batch = new[start : start + _TEXTS_AT_A_TIME]
            encoded = self._encode(batch)
            lines = list(map(self._by_pieces, batch, encoded))
            spelled = [self._spelled(line).strip() for line in lines]
            readings = zip(
                self._read(batch, encoded, side), self._read(spelled, self._encode(spelled), side), strict=True
            )
            for text, line, (before, after) in zip(batch, lines, readings, strict=True):
                numbers = line if before == after else self._by_letters(f"{text}\n")
                known[text] = np.array(numbers, _NUMBER).tobytes()
        return [known[text] for text in texts]

    def texts(self, lines: bytes) -> list[str]:
        """Return the texts of concatenated lines."""
        return [text.strip() for text in self._spelled(np.frombuffer(lines, _NUMBER).tolist()).split("\n")[:-1]]

    def _spelled(self, numbers: Iterable[int]) -> str:
        pieces, letters = self._pieces, self._letters
        return "".join(pieces[number] if number < letters else chr(number - letters) for number in numbers)

    def _encode(self, texts: Sequence[str]) -> list[Encoding]:
        return self._tokenizer.encode_batch(texts, add_special_tokens=False)

    def _by_pieces(self, text: str, encoding: Encoding) -> list[int]:
        """Return tokens, spaces between words that have none, and full stops up to the original number of bytes."""
        numbers: list[int] = []
        last = 0
        for piece, word in zip(encoding.ids, encoding.word_ids, strict=True):
            if word != last and self._pieces[piece][0] != " ":
                numbers += self._by_letters(" ")
            numbers.append(piece)
            last = word
        missing = len(text.encode()) - len(self._spelled(numbers).strip().encode())
        return numbers + self._by_letters("." * missing + "\n")

    def _by_letters(self, text: str) -> list[int]:
        return [self._letters + ord(letter) for letter in text]

    def _read(self, texts: Sequence[str], encoded: Sequence[Encoding], side: str) -> Iterator[tuple]:
        """Yield what training reads: ids (network), words and terms (teacher), number of bytes (order in batches)."""
        terms = self._terms.pieces(texts) if side == SIDES[1] else repeat(None)
        for text, encoding, weighted in zip(texts, encoded, terms, strict=False):
            yield encoding.ids, corpus.words(text), weighted, len(text.encode())
