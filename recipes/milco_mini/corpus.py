"""Reading the training data: sentence pairs, lexicon entries, passages; and what a word is.

The folder layout is that of ``data/README.md``: ``bitext/<source>/<lang>-en.tsv.gz``,
``lexicon/<source>/<lang>-en.tsv.gz`` and ``retrieval/<source>.<lang>.jsonl.gz``. Nothing here opens ``eval/``.
"""

import gzip
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import regex

LANGUAGES = tuple("ar bn de el es fa fi fr hi id ja ko ro ru sw te th tr vi yo zh".split())
UNSPACED = frozenset({"ja", "th", "zh"})

# Passages of these sets are read for the tokenizers and for document frequencies only. cmrc2018dev is left
# out: it comes from the same source as the validation set cmrc2018.
PASSAGES = {
    "ar": ("arcd.ar",),
    "fr": ("piaf.fr",),
    "ja": ("jaquad.ja",),
    "th": ("iapp.th",),
    "zh": ("drcd-dev.zh-hant",),
    "en": tuple(f"afriqa-xen.{lang}" for lang in "bem ha ig rw tw yo zu".split()),
}

# A word is what stands between spaces and punctuation; the tokenizer splits at the same places.
_PUNCTUATION = regex.compile(r"[\p{P}\p{S}]")
# Letters whose case folding is not what case-insensitive text has in their place. Greek ones lose their accents and
# breathings: most of our Greek is polytonic, and today's has one accent at most.
FOLDS = {"ß": "ss", "ẞ": "ss", "İ": "i"} | {
    letter: base
    for letter in map(chr, (*range(0x370, 0x400), *range(0x1F00, 0x2000)))
    if (base := unicodedata.normalize("NFD", letter)[0].lower()) in "αεηιορυω" and base != letter.lower()
}
_FOLD_TABLE = str.maketrans(FOLDS)
_BRACKETS = regex.compile(r"\([^)]*\)")
_LONGEST_SENTENCE = 1000
_LONGEST_ENTRY = 60

# Words without weight in the pivot view: they are in nearly every text, and most languages have no word for them.
# Pronouns, question words, negation (the t of "don't" too) and modal verbs do have theirs: a small one, as they are
# frequent, but short everyday sentences differ in little else.
STOP_WORDS = frozenset(
    """a an the of and or in on at to for from by with as is are was were be been being am do does did done have
    has had having it its s d m re ve don doesn didn isn wasn aren weren won couldn shouldn wouldn hasn haven hadn
    o etc thou thee thy ye hath unto""".split()
)


class Pair(NamedTuple):
    """A text in some language, its English translation, and the source it was taken from."""

    text: str
    english: str
    source: str


def normalise(text: str) -> str:
    """Compatibility-composed, case-folded text: what the tokenizer's own normaliser makes of it."""
    text = text.translate(_FOLD_TABLE)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def words(text: str) -> list[str]:
    """Normalised words of a text in reading order, without punctuation."""
    return _PUNCTUATION.sub(" ", normalise(text)).split()


def languages(data: Path) -> list[str]:
    """Those of LANGUAGES that have sentence pairs or a dictionary here."""
    return [name for name in LANGUAGES if any(data.glob(f"*/*/{name}-en.tsv.gz"))]


def bitext(data: Path, language: str) -> list[Pair]:
    """Distinct sentence pairs of one language with English, from all sources in name order."""
    pairs = _pairs(sorted(data.glob(f"bitext/*/{language}-en.tsv.gz")))
    return [p for p in pairs if max(len(p.text), len(p.english)) <= _LONGEST_SENTENCE]


def lexicon(data: Path, language: str) -> list[Pair]:
    """Distinct dictionary entries of one language; glosses in brackets are cut from the English side."""
    pairs = _pairs(sorted(data.glob(f"lexicon/*/{language}-en.tsv.gz")))
    clean = (p._replace(english=_BRACKETS.sub(" ", p.english).strip()) for p in pairs)
    return [p for p in clean if p.english and max(len(p.text), len(p.english)) <= _LONGEST_ENTRY]


def passages(data: Path, language: str) -> list[str]:
    """Distinct passages written in one language, in file order; sets that are not there are passed over."""
    found: dict[str, None] = {}
    paths = (data / "retrieval" / f"{name}.jsonl.gz" for name in PASSAGES.get(language, ()))
    for path in filter(Path.exists, paths):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found.update((json.loads(line)["positive"], None) for line in lines)
    return list(found)


def english_sentences(data: Path, per_language: int | None = None) -> list[str]:
    """Distinct English sides of all bitext, at most ``per_language`` of each language, evenly spaced."""
    found: dict[str, None] = {}
    for language in LANGUAGES:
        pairs = bitext(data, language)
        step = max(1, len(pairs) // per_language) if per_language else 1
        found.update((pair.english, None) for pair in pairs[::step])
    return list(found)


def _pairs(paths: list[Path]) -> Iterator[Pair]:
    seen: set[tuple[str, str]] = set()
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                text, _, english = line.rstrip("\n").partition("\t")
                key = (text.strip(), english.split("\t")[0].strip())
                if all(key) and key not in seen:
                    seen.add(key)
                    yield Pair(*key, path.parent.name)
