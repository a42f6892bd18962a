"""Search a BM25 index of English texts, as Anserini and Pyserini build it, for weighted words.

The words are one query of Lucene, with their weights as boosts; the index's analyzer splits and stems them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np

from milco_pyserini.errors import MilcoError
from milco_pyserini.index.protocol import Hits
from milco_pyserini.io.manifest import MANIFEST
from milco_pyserini.keywords.queries import FIELD, write_query
from milco_pyserini.options import validate_number

# Anserini's.
K1, B = 0.9, 0.4
# Frequent words whose stems by Anserini's analyzer of English are not words in any language: peopl, befor.
_STEMMED = "people because before since only early every country already language".split()
# Documents whose lengths are read.
_LOOKED_AT = 1000


class EnglishIndex:
    """A BM25 index of English texts that Anserini's default analyzer of English split.

    >>> from milco_pyserini import MilcoEncoder
    >>> from milco_pyserini.keywords import EnglishIndex, keywords
    >>> with EnglishIndex("indexes/lucene-inverted.msmarco-v1-passage") as index:  # doctest: +SKIP
    ...     encoder = MilcoEncoder.from_pretrained("mini")
    ...     (words,) = keywords(encoder, "Wer erfand das Telefon?", top_k=None)
    ...     hits = index.search(words, k=10)

    Args:
        directory: of Lucene's files.
        k1, b: how soon repetitions count less (at least 0), and how much length counts (0 to 1).

    Raises:
        MilcoError: there is no index, a file is damaged, it holds impacts, or another analyzer split its texts.
    """

    def __init__(self, directory: str | Path, k1: float = K1, b: float = B) -> None:
        from milco_pyserini.encode.analyzers import WHITE_SPACE, find_analyzer
        from milco_pyserini.index.errors import engine_errors
        from milco_pyserini.index.lucene_java import explain_newer_lucene

        validate_number("k1", k1, minimum=0)
        validate_number("b", b, 0, 1)
        self.path = Path(directory)
        if (self.path / MANIFEST).is_file():
            raise MilcoError(f"{self.path} is an index of MILCO's terms, not of words: search it with milco search")
        if not any(self.path.glob("segments_*")):
            raise MilcoError(f"no index of Lucene at {self.path}: give the directory of a BM25 index of English texts")
        self._analyzer = find_analyzer("en")
        from jnius import autoclass

        with engine_errors("lucene", "open", self.path), explain_newer_lucene(self.path):
            self._searcher: Any = autoclass("io.anserini.search.SimpleSearcher")(str(self.path.absolute()))
            self._reader: Any = autoclass("io.anserini.index.IndexReaderUtils").getReader(str(self.path.absolute()))
            try:
                self._validate()
            except BaseException:
                self.close()
                raise
        self._searcher.set_bm25(k1, b)
        # A query has as many clauses as words.
        autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)
        parser: Any = autoclass("org.apache.lucene.queryparser.classic.QueryParser")
        # It reads terms, which the index's analyzer has made of the words.
        self._parser = parser(FIELD, find_analyzer(WHITE_SPACE[0]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index."""
        self._searcher.close()
        self._reader.close()

    def search(self, words: Iterable[tuple[str, float]], k: int = 10) -> Hits:
        """Return the k best documents for weighted words; ties by docid. Raises MilcoError if k is below 1.

        A word that the analyzer splits counts as several: Anserini stores no positions by default.
        """
        from milco_pyserini.encode.analyzers import analyze

        validate_number("k", k, minimum=1)
        terms = [(term, weight) for word, weight in words for term in analyze(self._analyzer, word)]
        found = self._searcher.search(self._parser.parse(write_query(terms, "lucene")), k) if terms else []
        return Hits([hit.docid for hit in found], np.array([hit.score for hit in found], np.float32))

    def _validate(self) -> None:
        """Raise MilcoError unless the index has lengths of documents, and stems of Anserini's English analyzer."""
        from jnius import autoclass

        from milco_pyserini.encode.analyzers import analyze

        lengths: set[int] = set()
        for leaf in self._reader.leaves().toArray():
            if (norms := leaf.reader().getNormValues(FIELD)) is not None:
                while len(lengths) < 2 and norms.nextDoc() < _LOOKED_AT:
                    lengths.add(norms.longValue())
        # An impact index has a length of 1 for all.
        if lengths <= {1}:
            raise MilcoError(f"{self.path} is not a BM25 index: its field {FIELD} has no lengths of documents")
        term = autoclass("org.apache.lucene.index.Term")
        stems = [analyze(self._analyzer, word)[0] for word in _STEMMED]
        known = [sum(self._reader.docFreq(term(FIELD, form)) for form in forms) for forms in (stems, _STEMMED)]
        if known[0] <= known[1]:
            raise MilcoError(
                f"{self.path} lacks stems such as peopl: it needs English texts and Anserini's default analyzer. Index "
                "them without -language, -pretokenized and -stemmer"
            )
