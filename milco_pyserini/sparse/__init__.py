"""Sparse vectors: batches, vocabulary, terms, pruning, quantization, the vector store."""

from milco_pyserini.sparse.batch import PIVOT, SOURCE, VIEWS, SparseBatch
from milco_pyserini.sparse.pruning import PruningRule
from milco_pyserini.sparse.quantization import quantize_vector
from milco_pyserini.sparse.store import PlainStore, VectorStore, open_store
from milco_pyserini.sparse.vocabulary import Vocabulary

__all__ = [
    "PIVOT",
    "SOURCE",
    "VIEWS",
    "PlainStore",
    "PruningRule",
    "SparseBatch",
    "VectorStore",
    "Vocabulary",
    "open_store",
    "quantize_vector",
]
