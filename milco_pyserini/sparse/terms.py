"""Escape terms so that Lucene indexes each as one token, in documents and queries alike.

Anserini splits terms at Java's Character.isWhitespace and truncates them to 255 UTF-16 units; our index writer joins
term and frequency with DELIMITER. Each character that would be lost is written as ESCAPE and six hexadecimal
digits. Both characters are private-use code points, so ordinary word pieces ("%", "##ing") stay as they are.
"""

import hashlib
import re

from milco_pyserini.errors import MilcoError, shown

DELIMITER = "\ue000"
ESCAPE = "\ue001"
MAX_UNITS = 255

_HASHED = ESCAPE + "#"
_HASH_DIGITS = 32
# Java 21 Character.isWhitespace, the two characters above, and lone surrogates, which UTF-8 cannot hold.
_LOST = re.compile(
    f"[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000{DELIMITER}{ESCAPE}\ud800-\udfff]"
)
_SPLIT = re.compile(_LOST.pattern.replace(ESCAPE, ""))
_ESCAPED = re.compile(f"{ESCAPE}([0-9a-f]{{6}})")


def escape(text: str) -> str:
    """Return the term for a text: one Lucene token of at most 255 UTF-16 units, for most word pieces the text itself.

    A longer text becomes its beginning and 128 bits of a hash: still a unique term, but only a Vocabulary, which has
    the text, can reverse it.
    """
    if not text:
        return ESCAPE
    # As nearly all of the terms of a vocabulary, of which a search escapes every one.
    if len(text) <= MAX_UNITS // 2 and not _LOST.search(text):
        return text
    term = _LOST.sub(lambda match: f"{ESCAPE}{ord(match[0]):06x}", text)
    return term if _units(term) <= MAX_UNITS else _hashed(text, term)


def unescape(term: str) -> str:
    """Return the text of an escaped term. Raises MilcoError for a text that was too long and was hashed."""
    if term == ESCAPE:
        return ""
    if _HASHED in term:
        raise MilcoError(f"term {term[:40]!r}... is the hash of a longer text: look it up in its vocabulary")
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), term)


def lucene_term(term: str, spellings: dict[str, str], where: str) -> str:
    """Return a term from a file, which may be escaped or not: as it is if Lucene keeps it as one token, else escaped.

    Args:
        term: the term as the file has it.
        spellings: term in the file by term in the index, of earlier terms; this one is added.
        where: the file and line, for messages.

    Raises:
        MilcoError: an escaped and an unescaped spelling would be one term.
    """
    if term and not _LOST.search(term) and _units(term) <= MAX_UNITS:
        return term
    kept = term if term and not _SPLIT.search(term) and _units(term) <= MAX_UNITS else escape(term)
    if spellings.setdefault(kept, term) != term:
        raise MilcoError(
            f"{where}: terms {shown(spellings[kept])} and {shown(term)} are spellings of one term, one is "
            "escaped: escape all terms or none"
        )
    return kept


def _hashed(text: str, term: str) -> str:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH_DIGITS // 2).hexdigest()
    units = MAX_UNITS - len(_HASHED) - _HASH_DIGITS
    head = term.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore")
    # Remove an escape that the truncation has split.
    last = head.rfind(ESCAPE)
    if last >= 0 and len(head) - last <= 6:
        head = head[:last]
    return f"{head}{_HASHED}{digest}"


def _units(term: str) -> int:
    return len(term) if len(term) <= MAX_UNITS // 2 else len(term.encode("utf-16-le")) // 2
