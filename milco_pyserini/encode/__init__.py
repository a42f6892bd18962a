"""Text to term vectors: the encoder, Pyserini's encoder contract, parts and resuming."""

from importlib import import_module
from typing import Any

_LAZY = {
    "MilcoEncoder": "milco_pyserini.encode.encoder",
    "MilcoQueryEncoder": "milco_pyserini.encode.contract",
    "MilcoDocumentEncoder": "milco_pyserini.encode.contract",
    "open_query_encoder": "milco_pyserini.encode.contract",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'milco_pyserini.encode' has no attribute {name!r}")
