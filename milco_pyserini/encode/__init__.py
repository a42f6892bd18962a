"""Text to term vectors, or to dense ones: encoders, Pyserini's encoder contract, parts and resuming."""

from milco_pyserini.lazy import loader

_LAZY = {
    "DenseEncoder": "milco_pyserini.encode.dense",
    "open_dense_query_encoder": "milco_pyserini.encode.dense",
    "open_dense_store": "milco_pyserini.encode.dense_store",
    "MilcoEncoder": "milco_pyserini.encode.encoder",
    "MilcoQueryEncoder": "milco_pyserini.encode.contract",
    "MilcoDocumentEncoder": "milco_pyserini.encode.contract",
    "open_encoder": "milco_pyserini.encode.encoder",
    "open_query_encoder": "milco_pyserini.encode.contract",
}

__all__ = sorted(_LAZY)
__getattr__ = loader(__name__, _LAZY)
