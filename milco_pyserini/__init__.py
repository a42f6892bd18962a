"""Multilingual learned sparse retrieval with MILCO, for Pyserini, Anserini and Lucene.

Data flows one way: corpora -> encode -> vector store -> index -> search -> run -> eval. Importing this package loads
neither torch nor Java; public names are loaded on first use. Import it before torch: it sets environment variables for
torch's threads, which torch reads when it is imported.
"""

import os
import sys
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

# Native libraries read these variables once, when torch loads them, so they are set before anything can load torch; a
# user's own values are kept. By default waiting threads spin, which makes encoding several times slower on cores that
# other processes use too. Spinning for a tenth of a millisecond costs little, and saves waking threads up for a query's
# small products. oneDNN caches 1,024 kernels, one per shape of a batch, and memory grows with them; 256 are as fast.
# If torch was imported earlier, they come too late, which an encoder reports.
TORCH_WAS_FIRST = "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ
for _name, _value in {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "5000",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
}.items():
    os.environ.setdefault(_name, _value)

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
