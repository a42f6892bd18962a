"""Search with texts or topics: hits of one query, and runs of many."""

from milco_pyserini.search.fusion import fuse
from milco_pyserini.search.searcher import Searcher
from milco_pyserini.search.topics import SearchTopics, search_topics

__all__ = ["SearchTopics", "Searcher", "fuse", "search_topics"]
