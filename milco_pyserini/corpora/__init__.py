"""A name or a path -> documents, queries and judgements."""

from milco_pyserini.corpora.collection import Corpus, CorpusReport, Topics, TopicsReport
from milco_pyserini.corpora.opening import open_answers, open_corpus, open_qrels, open_topics
from milco_pyserini.corpora.records import Document, Query

__all__ = [
    "Corpus",
    "CorpusReport",
    "Document",
    "Query",
    "Topics",
    "TopicsReport",
    "open_answers",
    "open_corpus",
    "open_qrels",
    "open_topics",
]
