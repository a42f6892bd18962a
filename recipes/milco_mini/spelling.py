"""Other spellings of a text that readers take for the same: without marks, in capitals, with a typing error.

Each kind is a function of a text and a random generator, and returns the text itself where it has nothing to change.
Simplified and traditional characters need the package hanziconv (pip install --no-deps hanziconv==0.3.2).
"""

import importlib.util
import random
import re
import unicodedata
from collections.abc import Callable
from functools import cache

from milco_pyserini.console import warn

# Letters that have no decomposition, and what is typed for them.
_LETTERS = str.maketrans({"ı": "i", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ø": "o", "Ø": "O", "ß": "ss", "æ": "ae"})
_DIGRAPHS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})
_ARABIC = str.maketrans({"أ": "ا", "إ": "ا", "آ": "ا", "ى": "ي", "ة": "ه", "ک": "ك", "ی": "ي"})
# Hiragana to katakana and back; half-width to full-width.
_KANA = {code: code + 96 for code in range(0x3041, 0x3097)} | {code + 96: code for code in range(0x3041, 0x3097)}
_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
# Scripts whose marks are optional or can be left out in typing; in Indic and Thai scripts they are vowels.
_MARKED = ("LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW")
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_TYPO_EVERY = 6


def without_marks(text: str, _: random.Random | None = None) -> str:
    """Return a text without the marks of alphabets in which they may be left out."""
    kept, base = [], ""
    for character in unicodedata.normalize("NFD", text.translate(_LETTERS)):
        if unicodedata.category(character) != "Mn":
            base = unicodedata.name(character, "")
        elif base.startswith(_MARKED):
            continue
        kept.append(character)
    return unicodedata.normalize("NFC", "".join(kept))


def typed(text: str, rng: random.Random) -> str:
    """Return a text with a typing error in about one of six words that are spaced and have five letters."""
    words = text.split(" ")
    places = [place for place, word in enumerate(words) if len(word) >= 5 and word.isalpha() and word[0] < "\u0900"]
    for place in rng.sample(places, min(len(places), -(-len(words) // _TYPO_EVERY))):
        word = words[place]
        at = rng.randrange(1, len(word) - 1)
        swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        near = next((row[max(0, row.index(word[at]) - 1)] for row in _ROWS if word[at] in row), word[at - 1])
        words[place] = rng.choice(
            [swapped, word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:], word[:at] + near + word[at + 1 :]]
        )
    return " ".join(words)


@cache
def _characters() -> tuple[dict[int, str], dict[int, str]]:
    """Return simplified to traditional and back; empty without hanziconv."""
    found = importlib.util.find_spec("hanziconv")
    if found is None or not found.submodule_search_locations:
        warn("hanziconv is not installed: no variants of Chinese characters")
        return {}, {}
    from hanziconv import charmap

    return (
        str.maketrans(dict(zip(charmap.simplified_charmap, charmap.traditional_charmap, strict=True))),
        str.maketrans(dict(zip(charmap.traditional_charmap, charmap.simplified_charmap, strict=True))),
    )


def other_characters(text: str, _: random.Random | None = None) -> str:
    """Return a Chinese text in traditional characters if it has simplified ones, else in simplified ones."""
    if re.search("[\u3040-\u30ff]", text):
        return text
    traditional, simplified = (text.translate(table) for table in _characters())
    return traditional if simplified == text else simplified


KINDS: dict[str, Callable[[str, random.Random], str]] = {
    "marks": without_marks,
    "ue": lambda text, _: text.translate(_DIGRAPHS),
    "lower": lambda text, _: text.lower(),
    "upper": lambda text, _: text.upper(),
    "width": lambda text, _: text.translate(_WIDTH) if re.search("[\u3040-\u9fff\uac00-\ud7af]", text) else text,
    "characters": other_characters,
    "kana": lambda text, _: text.translate(_KANA),
    "alef": lambda text, _: text.translate(_ARABIC),
    "typos": typed,
}


def spell(text: str, language: str, rng: random.Random, kinds: tuple[str, ...] = tuple(KINDS)) -> str:
    """Return another spelling of a text, of a kind drawn from those that change it; the text itself if none does."""
    found = {kind: KINDS[kind](text, rng) for kind in kinds if kind != "ue" or language == "de"}
    return rng.choice([other for other in found.values() if other != text] or [text])
