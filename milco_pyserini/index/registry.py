"""The engines by name."""

from milco_pyserini.errors import unknown_name
from milco_pyserini.index.bm25 import Bm25Engine
from milco_pyserini.index.exact import ExactEngine
from milco_pyserini.index.faiss_engines import FlatEngine, HnswEngine
from milco_pyserini.index.lucene import LuceneEngine
from milco_pyserini.index.protocol import Engine
from milco_pyserini.index.qdrant import QdrantEngine
from milco_pyserini.index.seismic import SeismicEngine

DEFAULT_ENGINE = "lucene"
ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        *(Bm25Engine(), ExactEngine(), LuceneEngine(), QdrantEngine(), SeismicEngine()),
        *(FlatEngine(), HnswEngine()),
    )
}


def find_engine(name: str) -> Engine:
    """Return the engine with this name. Raises MilcoError, with the valid names, if there is none."""
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    return ENGINES[name]
