"""Build and open indexes. One file per engine, behind one small protocol."""

from milco_pyserini.index.directory import Index, build_index, open_index
from milco_pyserini.index.exact import Exact
from milco_pyserini.index.lucene import Lucene
from milco_pyserini.index.protocol import Hit, Hits
from milco_pyserini.index.registry import find_engine

__all__ = ["Exact", "Hit", "Hits", "Index", "Lucene", "build_index", "find_engine", "open_index"]
