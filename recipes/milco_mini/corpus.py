"""Read the training data: sentence pairs, dictionary entries and passages; split texts into words.

The layout is bitext/SOURCE/LANG-en.tsv.gz, lexicon/SOURCE/LANG-en.tsv.gz and retrieval/SOURCE.LANG.jsonl.gz. Evaluation
data (eval/) is never read.
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

# Passages of these sets are read for tokenizers and document frequencies. cmrc2018dev is not among them: it has the
# same source as the validation set cmrc2018.
PASSAGES = {
    "ar": ("arcd.ar",),
    "fr": ("piaf.fr",),
    "ja": ("jaquad.ja",),
    "th": ("iapp.th",),
    "zh": ("drcd-dev.zh-hant",),
    "en": tuple(f"afriqa-xen.{lang}" for lang in "bem ha ig rw tw yo zu".split()),
}

# Words are separated by spaces and punctuation, as in the tokenizer.
_PUNCTUATION = regex.compile(r"[\p{P}\p{S}]")
# Letters that Unicode case folding does not map to what case-insensitive text has. Greek letters lose accents and
# breathings: most of the training data is polytonic, modern Greek has at most one accent.
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
# Pronouns, question words, negation (also the t of "don't") and modal verbs keep a small weight, because short everyday
# sentences differ in little else.
STOP_WORDS = frozenset(
    """a an the of and or in on at to for from by with as is are was were be been being am do does did done have
    has had having it its s d m re ve don doesn didn isn wasn aren weren won couldn shouldn wouldn hasn haven hadn
    o etc thou thee thy ye hath unto""".split()
)


class SourcePair(NamedTuple):
    """A text, its English translation, and the name of its source."""

    text: str
    english: str
    source: str


def normalize(text: str) -> str:
    """Return NFKC-composed, case-folded text, as the tokenizer's normalizer does."""
    text = text.translate(_FOLD_TABLE)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def words(text: str) -> list[str]:
    """Return the normalized words of a text, without punctuation."""
    return _PUNCTUATION.sub(" ", normalize(text)).split()


def languages(data: Path) -> list[str]:
    """Return the LANGUAGES that have sentence pairs or a dictionary."""
    return [name for name in LANGUAGES if any(data.glob(f"*/*/{name}-en.tsv.gz"))]


def bitext(data: Path, language: str) -> list[SourcePair]:
    """Return distinct sentence pairs of one language, from all sources sorted by name."""
    pairs = _pairs(sorted(data.glob(f"bitext/*/{language}-en.tsv.gz")))
    return [p for p in pairs if max(len(p.text), len(p.english)) <= _LONGEST_SENTENCE]


def lexicon(data: Path, language: str) -> list[SourcePair]:
    """Return distinct dictionary entries of one language, without glosses in brackets."""
    pairs = _pairs(sorted(data.glob(f"lexicon/*/{language}-en.tsv.gz")))
    clean = (p._replace(english=_BRACKETS.sub(" ", p.english).strip()) for p in pairs)
    return [p for p in clean if p.english and max(len(p.text), len(p.english)) <= _LONGEST_ENTRY]


def passages(data: Path, language: str) -> list[str]:
    """Return distinct passages in one language, in file order; missing sets are skipped."""
    found: dict[str, None] = {}
    paths = (data / "retrieval" / f"{name}.jsonl.gz" for name in PASSAGES.get(language, ()))
    for path in filter(Path.exists, paths):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found.update((json.loads(line)["positive"], None) for line in lines)
    return list(found)


def english_sentences(data: Path, per_language: int | None = None) -> list[str]:
    """Return distinct English sides of all bitext, at most per_language of each language, evenly spaced."""
    found: dict[str, None] = {}
    for language in LANGUAGES:
        pairs = bitext(data, language)
        step = max(1, len(pairs) // per_language) if per_language else 1
        found.update((pair.english, None) for pair in pairs[::step])
    return list(found)


def _pairs(paths: list[Path]) -> Iterator[SourcePair]:
    seen: set[tuple[str, str]] = set()
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                text, _, english = line.rstrip("\n").partition("\t")
                key = (text.strip(), english.split("\t")[0].strip())
                if all(key) and key not in seen:
                    seen.add(key)
                    yield SourcePair(*key, path.parent.name)
