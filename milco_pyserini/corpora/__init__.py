"""Documents, queries and qrels by name or path.

>>> from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
>>> corpus, topics, qrels = open_corpus("sample-sw"), open_topics("sample-sw"), open_qrels("sample-sw")
>>> corpus.check().records
50
"""

from typing import TYPE_CHECKING

from milco_pyserini.corpora.collection import Corpus, RecordsReport, Topics
from milco_pyserini.corpora.records import Document, Query
from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.corpora.catalog import corpus_language as corpus_language
    from milco_pyserini.corpora.catalog import open_answers as open_answers
    from milco_pyserini.corpora.catalog import open_corpus as open_corpus
    from milco_pyserini.corpora.catalog import open_qrels as open_qrels
    from milco_pyserini.corpora.catalog import open_topics as open_topics

_CATALOG = ("corpus_language", "open_answers", "open_corpus", "open_qrels", "open_topics")

__all__ = [
    "Corpus",
    "Document",
    "Query",
    "RecordsReport",
    "Topics",
    "corpus_language",
    "open_answers",
    "open_corpus",
    "open_qrels",
    "open_topics",
]
__getattr__, __dir__ = lazy(__name__, dict.fromkeys(_CATALOG, "milco_pyserini.corpora.catalog"))
