"""Indexes of the sample's Japanese passages, encoded by the golden set's tiny checkpoint within a second."""

import functools
import tempfile
from pathlib import Path

from golden_set import GOLDEN

from milco_pyserini.cli.encode import main as encode
from milco_pyserini.corpora import open_topics
from milco_pyserini.encode.contract import MilcoQueryEncoder, open_query_encoder
from milco_pyserini.explain.explainer import Explainer
from milco_pyserini.index import Index, build_index, find_engine
from milco_pyserini.index.hits import DocStore
from milco_pyserini.sparse import PlainStore, VectorStore, open_store
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

CHECKPOINT = GOLDEN / "ckpt_distillation"
CORPUS = "sample-ja"
_ROOT = tempfile.TemporaryDirectory(prefix="explained-")


@functools.cache
def store(*options: str) -> VectorStore:
    """Encode the corpus with options of milco encode."""
    path = Path(_ROOT.name) / f"vectors{'_'.join(options).replace('/', '-')}"
    arguments = ["--corpus", CORPUS, "--encoder", str(CHECKPOINT), "--output", str(path), "--device", "cpu"]
    length = [] if "--max-length" in options else ["--max-length", "32"]
    assert encode([*arguments, *length, *options]) == 0
    opened = open_store(path)
    assert isinstance(opened, VectorStore)
    return opened


def index(engine: str, *options: str, prune: str = "") -> Index:
    """Index store(*options), pruned by a rule."""
    return _index(engine, options, prune)


@functools.cache
def _index(engine: str, options: tuple[str, ...], prune: str) -> Index:
    vectors = store(*options)
    path = Path(_ROOT.name) / f"{vectors.path.name}{prune.replace(':', '-')}.{engine}"
    pruned = PrunedStore(vectors, [PruningRule.parse(prune)]) if prune else vectors
    return build_index(pruned, find_engine(engine), path)


@functools.cache
def query_encoder() -> MilcoQueryEncoder:
    """Return the query encoder of all indexes."""
    return open_query_encoder(store().manifest, device="cpu")


def documents(of: Index) -> DocStore:
    """Return the documents of an index; of one that stores none, those of another."""
    stored = of if of.manifest.fields is not None else index("exact")
    return stored.searcher().documents


def explainer(
    of: Index, documents: DocStore | None = None, vectors: VectorStore | PlainStore | None = None
) -> Explainer:
    """Open an explainer, by default without documents and vectors."""
    return Explainer(of, query_encoder(), documents, vectors)


def queries(count: int) -> list[str]:
    """Return queries in all languages of the sample."""
    texts = [query.text for query in open_topics("sample")]
    return texts[:: len(texts) // count][:count]
