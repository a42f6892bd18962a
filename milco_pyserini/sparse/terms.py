"""One spelling of a term that Lucene keeps whole, for documents and queries alike.

Anserini splits terms at Java's Character.isWhitespace and cuts them at 255 UTF-16 units; our index writer joins
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
    """The term for text: one Lucene token of at most 255 UTF-16 units, the same text for most word pieces.

    A longer text becomes its beginning and 128 bits of a hash: still its own term, but only a Vocabulary, which
    holds the text, can lead back from it.
    """
    if not text:
        return ESCAPE
    term = _LOST.sub(lambda found: f"{ESCAPE}{ord(found[0]):06x}", text)
    return term if _units(term) <= MAX_UNITS else _hashed(text, term)


def unescape(term: str) -> str:
    """The text that escape() made term from. Raises MilcoError for a text that was too long and was hashed."""
    if term == ESCAPE:
        return ""
    if _HASHED in term:
        raise MilcoError(f"term {term[:40]!r}... is the hash of a longer text: look it up in its vocabulary")
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), term)


def lucene_term(term: str, spellings: dict[str, str], where: str) -> str:
    """Return the term itself where Lucene keeps it whole, as it keeps escaped terms, else its escape.

    For terms from a file, which may be escaped or not. spellings: those of the terms before, to which this one is
    added. Raises MilcoError, which begins with where, if two spellings would be one term: one escaped, one not.
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
    room = MAX_UNITS - len(_HASHED) - _HASH_DIGITS
    head = term.encode("utf-16-le")[: 2 * room].decode("utf-16-le", "ignore")
    # A cut inside an escape would leave an escape character that starts nothing.
    last = head.rfind(ESCAPE)
    if last >= 0 and len(head) - last <= 6:
        head = head[:last]
    return f"{head}{_HASHED}{digest}"


def _units(term: str) -> int:
    return len(term) if len(term) <= MAX_UNITS // 2 else len(term.encode("utf-16-le")) // 2
