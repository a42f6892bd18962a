"""The engines by name."""

from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.protocol import ENGINES, Engine

DEFAULT_ENGINE = "lucene"

# The engines of version 0.3 whose queries are not weighted terms, and what takes their place.
_REMOVED = {
    "bm25": "BM25 is an encoder: milco encode --encoder bm25",
    "flat": "For dense vectors, use Faiss.",
    "hnsw": "For dense vectors, use Faiss.",
}


def find_engine(name: str) -> Engine:
    """Return the engine with this name. Raises MilcoError, with the valid names, if there is none."""
    if name in _REMOVED:
        raise MilcoError(f"only version 0.3 builds and reads indexes of engine {name}", _REMOVED[name])
    if name not in ENGINES:
        names = [other for other, engine in ENGINES.available().items() if Capability.BUILD in engine.capabilities]
        raise unknown_name("engine", name, names, "milco export --url fills the server of another search engine.")
    return ENGINES[name]
