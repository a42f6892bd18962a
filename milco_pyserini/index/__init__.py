"""Term vectors to an index: one file per engine behind one small protocol."""

from milco_pyserini.lazy import loader

_LAZY = {
    "Hits": "milco_pyserini.index.protocol",
    "Index": "milco_pyserini.index.directory",
    "build_index": "milco_pyserini.index.directory",
    "find_engine": "milco_pyserini.index.registry",
    "open_index": "milco_pyserini.index.directory",
}

__all__ = sorted(_LAZY)
__getattr__ = loader(__name__, _LAZY)
