"""Build and open indexes. One file per engine, behind one small protocol."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.index.directory import Index as Index
    from milco_pyserini.index.directory import build_index as build_index
    from milco_pyserini.index.directory import open_index as open_index
    from milco_pyserini.index.protocol import Hit as Hit
    from milco_pyserini.index.protocol import Hits as Hits
    from milco_pyserini.index.registry import find_engine as find_engine

_LAZY = {
    "Hit": "milco_pyserini.index.protocol",
    "Hits": "milco_pyserini.index.protocol",
    "Index": "milco_pyserini.index.directory",
    "build_index": "milco_pyserini.index.directory",
    "find_engine": "milco_pyserini.index.registry",
    "open_index": "milco_pyserini.index.directory",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
