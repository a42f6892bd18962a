"""Build and open indexes. One file per engine, behind one small protocol."""

from milco_pyserini.index.directory import Index, build_index, open_index
from milco_pyserini.index.exact import Exact
from milco_pyserini.index.lucene import Lucene
from milco_pyserini.index.protocol import Hit, Hits
from milco_pyserini.index.qdrant import Qdrant
from milco_pyserini.index.registry import find_engine
from milco_pyserini.index.seismic import Seismic

__all__ = ["Exact", "Hit", "Hits", "Index", "Lucene", "Qdrant", "Seismic", "build_index", "find_engine", "open_index"]
