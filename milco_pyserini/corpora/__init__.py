"""Documents, queries and qrels by name or path.

>>> from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
>>> corpus, topics, qrels = open_corpus("sample-sw"), open_topics("sample-sw"), open_qrels("sample-sw")
>>> corpus.check().records
50
"""

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.catalog import open_answers, open_corpus, open_qrels, open_topics, register
from milco_pyserini.corpora.collection import Corpus, Topics
from milco_pyserini.corpora.hub_tables import HubTask
from milco_pyserini.corpora.languages import detect_languages
from milco_pyserini.corpora.readers import json_reader
from milco_pyserini.corpora.records import Document, Query, record_id, text_of
from milco_pyserini.corpora.remote import ArchiveMember, HubFile, RemoteQrels, RemoteRecords, WebFile

__all__ = [
    "ArchiveMember",
    "Benchmark",
    "BenchmarkCorpus",
    "BenchmarkTopics",
    "Corpus",
    "Document",
    "HubFile",
    "HubTask",
    "Query",
    "RemoteQrels",
    "RemoteRecords",
    "Topics",
    "WebFile",
    "detect_languages",
    "json_reader",
    "open_answers",
    "open_corpus",
    "open_qrels",
    "open_topics",
    "record_id",
    "register",
    "text_of",
]
