"""Build and open indexes. One file per engine, behind one small protocol."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.index.bm25 import BM25 as BM25
    from milco_pyserini.index.directory import Index as Index
    from milco_pyserini.index.directory import build_index as build_index
    from milco_pyserini.index.directory import open_index as open_index
    from milco_pyserini.index.exact import Exact as Exact
    from milco_pyserini.index.faiss_engines import HNSW as HNSW
    from milco_pyserini.index.faiss_engines import Flat as Flat
    from milco_pyserini.index.lucene import Lucene as Lucene
    from milco_pyserini.index.protocol import Hit as Hit
    from milco_pyserini.index.protocol import Hits as Hits
    from milco_pyserini.index.qdrant import Qdrant as Qdrant
    from milco_pyserini.index.registry import find_engine as find_engine
    from milco_pyserini.index.seismic import Seismic as Seismic

_LAZY = {
    "BM25": "milco_pyserini.index.bm25",
    "Exact": "milco_pyserini.index.exact",
    "Flat": "milco_pyserini.index.faiss_engines",
    "HNSW": "milco_pyserini.index.faiss_engines",
    "Hit": "milco_pyserini.index.protocol",
    "Hits": "milco_pyserini.index.protocol",
    "Index": "milco_pyserini.index.directory",
    "Lucene": "milco_pyserini.index.lucene",
    "Qdrant": "milco_pyserini.index.qdrant",
    "Seismic": "milco_pyserini.index.seismic",
    "build_index": "milco_pyserini.index.directory",
    "find_engine": "milco_pyserini.index.registry",
    "open_index": "milco_pyserini.index.directory",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
