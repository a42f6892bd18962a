"""Text to term vectors: the encoder, Pyserini's encoder contract, parts and resuming."""

from milco_pyserini.lazy import loader

_LAZY = {
    "MilcoEncoder": "milco_pyserini.encode.encoder",
    "MilcoQueryEncoder": "milco_pyserini.encode.contract",
    "MilcoDocumentEncoder": "milco_pyserini.encode.contract",
    "open_query_encoder": "milco_pyserini.encode.contract",
}

__all__ = sorted(_LAZY)
__getattr__ = loader(__name__, _LAZY)
