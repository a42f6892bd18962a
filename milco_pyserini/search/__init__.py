"""Search with texts or topics: hits of one query, and runs of many."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.search.fusion import fuse as fuse
    from milco_pyserini.search.searcher import Searcher as Searcher
    from milco_pyserini.search.topics import SearchTopics as SearchTopics
    from milco_pyserini.search.topics import read_topics as read_topics

_LAZY = {
    "SearchTopics": "milco_pyserini.search.topics",
    "Searcher": "milco_pyserini.search.searcher",
    "fuse": "milco_pyserini.search.fusion",
    "read_topics": "milco_pyserini.search.topics",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
