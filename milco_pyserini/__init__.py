"""Multilingual learned sparse retrieval with MILCO, for Pyserini, Anserini and Lucene.

Data flows one way: corpora -> encode -> vector store -> index -> search -> run -> eval. Importing this package loads
neither torch nor Java, and sets nothing; public names are loaded on first use.
"""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.encode import MilcoDocumentEncoder as MilcoDocumentEncoder
    from milco_pyserini.encode import MilcoEncoder as MilcoEncoder
    from milco_pyserini.encode import MilcoQueryEncoder as MilcoQueryEncoder
    from milco_pyserini.encode import load_encoder as load_encoder
    from milco_pyserini.index import Index as Index
    from milco_pyserini.model import MilcoConfig as MilcoConfig
    from milco_pyserini.model import MilcoModel as MilcoModel
    from milco_pyserini.search import Searcher as Searcher
    from milco_pyserini.sparse import SparseBatch as SparseBatch
    from milco_pyserini.sparse import VectorStore as VectorStore
    from milco_pyserini.sparse import Vocabulary as Vocabulary

__version__ = "0.1.0"

_LAZY = {
    "MilcoConfig": "milco_pyserini.model",
    "MilcoModel": "milco_pyserini.model",
    "MilcoEncoder": "milco_pyserini.encode",
    "MilcoQueryEncoder": "milco_pyserini.encode",
    "MilcoDocumentEncoder": "milco_pyserini.encode",
    "load_encoder": "milco_pyserini.encode",
    "Index": "milco_pyserini.index",
    "Searcher": "milco_pyserini.search",
    "SparseBatch": "milco_pyserini.sparse",
    "VectorStore": "milco_pyserini.sparse",
    "Vocabulary": "milco_pyserini.sparse",
}

__all__ = ["__version__", *sorted(_LAZY)]
__getattr__, __dir__ = lazy(__name__, _LAZY)
