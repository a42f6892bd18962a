"""English keywords of texts in any language, as queries of engines that know only words."""

from milco_pyserini.keywords.english_index import EnglishIndex
from milco_pyserini.keywords.extraction import keywords
from milco_pyserini.keywords.queries import QUERY_LANGUAGES, write_query

__all__ = ["QUERY_LANGUAGES", "EnglishIndex", "keywords", "write_query"]
