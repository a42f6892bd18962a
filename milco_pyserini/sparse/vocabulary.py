"""The terms of both views: English word pieces (pivot view) and the encoder's own pieces (source view)."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.sparse.json_vectors import PaddedStrings, json_keys
from milco_pyserini.sparse.terms import escape

SOURCE_PREFIX = "m_"


class Vocabulary:
    """Columns and terms of a MILCO vector: pivot columns first, source columns after them.

    A term is the escaped (see terms.py) prefix and piece: "music", "m_▁Musik".

    Args:
        english: the English word pieces by id.
        source: the encoder's pieces by id.
        english_prefix, source_prefix: prefixes of pivot and of source terms.

    Raises:
        MilcoError: two columns would have the same term.
    """

    def __init__(
        self,
        english: Sequence[str],
        source: Sequence[str],
        english_prefix: str = "",
        source_prefix: str = SOURCE_PREFIX,
    ) -> None:
        self.english = list(english)
        self.source = list(source)
        self.english_prefix = english_prefix
        self.source_prefix = source_prefix
        self.terms = np.empty(len(self), dtype=object)
        self.terms[:] = [escape(english_prefix + piece) for piece in self.english] + [
            escape(source_prefix + piece) for piece in self.source
        ]
        if len(set(self.terms)) != len(self):
            seen: set[str] = set()
            twice = next(term for term in self.terms if term in seen or seen.add(term))  # type: ignore[func-returns-value]
            fix = Message("Change {english_prefix}.")
            raise MilcoError(f"two columns of the vocabulary share the term {twice!r}", fix)

    def __len__(self) -> int:
        return len(self.english) + len(self.source)

    @property
    def english_size(self) -> int:
        """Number of pivot columns: the first source column."""
        return len(self.english)

    @cached_property
    def columns(self) -> dict[str, int]:
        """Term -> column."""
        return {term: column for column, term in enumerate(self.terms)}

    @cached_property
    def json_keys(self) -> PaddedStrings:
        """The terms as keys of JSON objects, by column, for json_vectors()."""
        return json_keys(self.terms)

    def text(self, term: str) -> str:
        """Return the unescaped prefix and piece of a term of any length. Raises KeyError for an unknown term."""
        column = self.columns[term]
        if column < self.english_size:
            return self.english_prefix + self.english[column]
        return self.source_prefix + self.source[column - self.english_size]

    def to_json(self) -> dict:
        """Return the arguments of the vocabulary: pieces and prefixes."""
        return {
            "english_prefix": self.english_prefix,
            "source_prefix": self.source_prefix,
            "english": self.english,
            "source": self.source,
        }


def common_vocabulary(*vocabularies: Vocabulary | None) -> Vocabulary | None:
    """Return the vocabulary that vectors share, None if none is known. One with source terms includes one without.

    Raises MilcoError if two have different pieces, so that a column is another term.
    """
    known = [vocabulary for vocabulary in vocabularies if vocabulary is not None]
    if not known:
        return None
    longest = max(known, key=len)
    for other in known:
        if longest is not other and (other.english != longest.english or other.source not in ([], longest.source)):
            raise MilcoError(
                f"the vectors have different vocabularies, of {len(longest):,} and {len(other):,} terms, so that their "
                "columns are different terms: encode all with one encoder"
            )
    return longest
