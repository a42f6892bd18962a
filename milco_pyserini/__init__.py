"""Multilingual learned sparse retrieval with MILCO, for Pyserini, Anserini and Lucene.

Data flows one way: corpora -> encode -> vector store -> index -> search -> run -> eval. Importing this package loads
neither torch nor Java, and sets nothing; public names are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# For type checkers and editors.
if TYPE_CHECKING:
    from milco_pyserini.corpora import open_corpus as open_corpus
    from milco_pyserini.encode.corpus import encode_corpus as encode_corpus
    from milco_pyserini.encode.encoder import MilcoEncoder as MilcoEncoder
    from milco_pyserini.encode.opening import load_encoder as load_encoder
    from milco_pyserini.eval import evaluate as evaluate
    from milco_pyserini.index import Hits as Hits
    from milco_pyserini.index import Index as Index
    from milco_pyserini.search import Searcher as Searcher
    from milco_pyserini.sparse import SparseBatch as SparseBatch
    from milco_pyserini.sparse import VectorStore as VectorStore

__version__ = "0.5.0"

# Public name -> module that defines it.
_LAZY = {
    "MilcoEncoder": "milco_pyserini.encode.encoder",
    "load_encoder": "milco_pyserini.encode.opening",
    "SparseBatch": "milco_pyserini.sparse",
    "encode_corpus": "milco_pyserini.encode.corpus",
    "VectorStore": "milco_pyserini.sparse",
    "Index": "milco_pyserini.index",
    "Hits": "milco_pyserini.index",
    "Searcher": "milco_pyserini.search",
    "open_corpus": "milco_pyserini.corpora",
    "evaluate": "milco_pyserini.eval",
}

__all__ = ["__version__", *sorted(_LAZY)]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    # Neither what this module imports, nor its own constants, nor modules that happen to be loaded.
    return sorted({*filter(lambda name: name.startswith("__"), globals()), *__all__})
