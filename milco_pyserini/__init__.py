"""Multilingual learned sparse retrieval with MILCO, in the world of Pyserini, Anserini and Lucene.

Data flows one way: corpora -> encode -> vector store -> index -> search -> run -> eval. Importing this
package loads neither torch nor Java; the names below are loaded when they are first used.
"""

from milco_pyserini.lazy import loader

__version__ = "0.1.0"

_LAZY = {
    "MilcoConfig": "milco_pyserini.model",
    "MilcoModel": "milco_pyserini.model",
    "MilcoEncoder": "milco_pyserini.encode",
    "MilcoQueryEncoder": "milco_pyserini.encode",
    "MilcoDocumentEncoder": "milco_pyserini.encode",
    "SparseBatch": "milco_pyserini.sparse",
    "VectorStore": "milco_pyserini.sparse",
    "Vocabulary": "milco_pyserini.sparse",
}

__all__ = ["__version__", *sorted(_LAZY)]
__getattr__ = loader(__name__, _LAZY)
