"""Escaped terms: nothing is lost and nothing collides, for any string, in Java as in Python."""

import sys

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import Vocabulary
from milco_pyserini.sparse.terms import DELIMITER, ESCAPE, escape, unescape

# In UTF-16 units: Lucene's tokenizers split a longer token.
MAX_UNITS = 255
# Character.isWhitespace of Java 21: its separators but the three no-break spaces, and nine control characters.
SEPARATORS = {0x1680, *range(0x2000, 0x2007), *range(0x2008, 0x200B), 0x2028, 0x2029, 0x205F, 0x3000}
JAVA_SPACE = SEPARATORS | {*range(0x09, 0x0E), *range(0x1C, 0x21)}
# Every kind of character that there is, lone surrogates and private use included, and those that matter here often.
ANY = st.text(st.one_of(st.characters(), st.sampled_from([*map(chr, sorted(JAVA_SPACE)), DELIMITER, ESCAPE, "#", "0"])))
LONG = st.builds(lambda text, times: text * times, ANY, st.integers(1, 300))


def units(term: str) -> int:
    """Length in UTF-16 units, as Java counts."""
    return len(term.encode("utf-16-le")) // 2


def assert_java_keeps(term: str) -> None:
    """Assert that Lucene sees one complete token, without our delimiter."""
    assert term
    assert not any(ord(character) in JAVA_SPACE for character in term)
    assert DELIMITER not in term
    assert units(term) <= MAX_UNITS
    term.encode("utf-8")


@settings(max_examples=200)
@given(ANY)
@example("")
@example(ESCAPE)
@example(f"{ESCAPE}00e001")
@example(f"{ESCAPE}#")
@example("\ud83d\ude82")
def test_escaping_is_reversible(text: str) -> None:
    """unescape(escape(text)) is the text, for every text that is not too long."""
    term = escape(text)
    assert_java_keeps(term)
    if f"{ESCAPE}#" not in term:
        assert unescape(term) == text


def test_every_code_point_is_kept() -> None:
    """Each of the 1,114,112 code points, surrogates included; those of a text that stays as it is are all kept."""
    changed = set()
    for start in range(0, sys.maxunicode + 1, 64):
        block = range(start, start + 64)
        text = "".join(map(chr, block))
        for point in block if escape(text) != text else ():
            term = escape(f"a{chr(point)}z")
            if term != f"a{chr(point)}z":
                changed.add(point)
                assert unescape(term) == f"a{chr(point)}z"
                assert_java_keeps(term)
    assert changed == JAVA_SPACE | {ord(DELIMITER), ord(ESCAPE)} | set(range(0xD800, 0xE000))


@settings(max_examples=100)
@given(LONG, LONG)
def test_different_texts_have_different_terms(first: str, second: str) -> None:
    """However long they are."""
    assume(first != second)
    assert escape(first) != escape(second)


@pytest.mark.parametrize("character", ["x", "\u00e9", "\u964c", "\U0001f682", " ", "\ud800"])
def test_the_length_limit_is_exact(character: str) -> None:
    """The longest text that fits is kept as it is; one character more is hashed."""
    size = units(escape(character))
    fits = character * (MAX_UNITS // size)
    assert unescape(escape(fits)) == fits
    assert_java_keeps(escape(fits + character))
    assert f"{ESCAPE}#" in escape(fits + character)


@pytest.mark.parametrize("lead", range(9))
def test_truncation_never_splits_a_character_or_an_escape(lead: int) -> None:
    """Wherever the truncation falls, the head of a hashed term has complete characters and escapes."""
    for character in (" ", "\U0001f682"):
        term = escape("x" * lead + character * 300)
        assert_java_keeps(term)
        head = term.partition(f"{ESCAPE}#")[0]
        assert head == "x" * lead + escape(character) * ((len(head) - lead) // len(escape(character)))


@pytest.mark.parametrize(
    "piece", ["music", "##ing", "[CLS]", "%", "'", "é", "m_", "陌", "▁陌", "<s>", "\u00a0", "#0041"]
)
def test_ordinary_pieces_are_not_changed(piece: str) -> None:
    """Every piece without whitespace is its own term, so that other tools can read it."""
    assert escape(piece) == piece


@settings(max_examples=50)
@given(st.lists(LONG, unique=True, max_size=8), st.lists(LONG, unique=True, max_size=8))
def test_a_vocabulary_reverses_every_term(english: list[str], source: list[str]) -> None:
    """Vocabulary.text is exact for every string, hashed ones too; columns and terms are each other's inverse."""
    vocabulary = Vocabulary(english, source, "e_", "m_")
    texts = [f"e_{piece}" for piece in english] + [f"m_{piece}" for piece in source]
    assert [vocabulary.text(term) for term in vocabulary.terms] == texts
    assert [vocabulary.columns[term] for term in vocabulary.terms] == list(range(len(vocabulary)))
    assert (len(vocabulary), vocabulary.english_size) == (len(texts), len(english))
    for term in vocabulary.terms:
        assert_java_keeps(term)
    again = Vocabulary(**vocabulary.to_json())
    assert again.terms.tolist() == vocabulary.terms.tolist()


def test_english_terms_have_no_prefix() -> None:
    """Pivot terms are the word pieces, as in SPLADE; source terms start with m_."""
    vocabulary = Vocabulary(["music", "##ing"], ["<s>", "▁music"])
    assert vocabulary.terms.tolist() == ["music", "##ing", "m_<s>", "m_▁music"]
    with pytest.raises(KeyError):
        vocabulary.text("▁music")


@pytest.mark.parametrize(
    ("english", "source", "twice"), [(["m_a"], ["b", "a"], "m_a"), (["a", "b", "a"], [], "a"), ([], ["a", "a"], "m_a")]
)
def test_two_columns_of_one_term_are_refused(english: list[str], source: list[str], twice: str) -> None:
    """A piece that equals a prefixed piece of the other view, or another piece, is named."""
    with pytest.raises(MilcoError, match=f"'{twice}'"):
        Vocabulary(english, source)
