"""Documents, queries and qrels by name or path.

>>> from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
>>> corpus, topics, qrels = open_corpus("sample-sw"), open_topics("sample-sw"), open_qrels("sample-sw")
>>> corpus.check().records
50
"""

from milco_pyserini.corpora.catalog import corpus_language, open_answers, open_corpus, open_qrels, open_topics
from milco_pyserini.corpora.collection import Corpus, RecordsReport, Topics
from milco_pyserini.corpora.records import Document, Query

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
