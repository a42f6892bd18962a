"""Build and open indexes. One file per engine, behind one small protocol."""

from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.directory import Index, build_index, open_index
from milco_pyserini.index.documents import CheckedDocuments
from milco_pyserini.index.exact import Exact
from milco_pyserini.index.hits import Hit, Hits
from milco_pyserini.index.lucene import Lucene
from milco_pyserini.index.protocol import ENGINES, BuildResult, Engine, EngineSearcher
from milco_pyserini.index.registry import find_engine
from milco_pyserini.io.records import IndexManifest

__all__ = [
    "ENGINES",
    "BuildResult",
    "Capability",
    "CheckedDocuments",
    "Engine",
    "EngineSearcher",
    "Exact",
    "Hit",
    "Hits",
    "Index",
    "IndexManifest",
    "Lucene",
    "build_index",
    "find_engine",
    "open_index",
]
