"""Search with texts or topics: hits of one query, and runs of many."""

from milco_pyserini.search.fusion import fuse
from milco_pyserini.search.hybrid import HybridSearcher
from milco_pyserini.search.searcher import Searcher
from milco_pyserini.search.topics import SearchTopics, read_topics

__all__ = ["HybridSearcher", "SearchTopics", "Searcher", "fuse", "read_topics"]
