"""Term vectors to an index: one file per engine behind one small protocol."""

from importlib import import_module
from typing import Any

_LAZY = {
    "Hits": "milco_pyserini.index.protocol",
    "Index": "milco_pyserini.index.directory",
    "build_index": "milco_pyserini.index.directory",
    "find_engine": "milco_pyserini.index.registry",
    "open_index": "milco_pyserini.index.directory",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'milco_pyserini.index' has no attribute {name!r}")
