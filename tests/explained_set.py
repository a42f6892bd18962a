"""Indexes of the sample's passages by the golden set's tiny encoder, which encodes hundreds of texts in a second."""

import functools
import tempfile
from pathlib import Path

from golden_set import GOLDEN

from milco_pyserini.cli.encode import main as encode
from milco_pyserini.corpora import open_topics
from milco_pyserini.encode import MilcoQueryEncoder, open_query_encoder
from milco_pyserini.explain import Explainer
from milco_pyserini.explain.sources import Texts
from milco_pyserini.index import Index, build_index, find_engine
from milco_pyserini.sparse import PlainStore, VectorStore, open_store
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

CHECKPOINT = GOLDEN / "ckpt_distillation"
CORPUS = "sample-ja"
_ROOT = tempfile.TemporaryDirectory(prefix="explained-")


@functools.cache
def store(*more: str) -> VectorStore:
    """The vectors of the corpus; more: options of the encode verb."""
    path = Path(_ROOT.name) / f"vectors{'_'.join(more).replace('/', '-')}"
    arguments = ["--corpus", CORPUS, "--encoder", str(CHECKPOINT), "--output", str(path), "--device", "cpu"]
    assert encode([*arguments, "--max-length", "32", *more]) == 0
    opened = open_store(path)
    assert isinstance(opened, VectorStore)
    return opened


def index(engine: str, *more: str, prune: str = "") -> Index:
    """An index of store(*more), with a pruning rule of its own."""
    return _index(engine, more, prune)


@functools.cache
def _index(engine: str, more: tuple[str, ...], prune: str) -> Index:
    vectors = store(*more)
    path = Path(_ROOT.name) / f"{vectors.path.name}{prune.replace(':', '-')}.{engine}"
    pruned = PrunedStore(vectors, [PruningRule.parse(prune)]) if prune else vectors
    return build_index(pruned, find_engine(engine), path)


@functools.cache
def query_encoder() -> MilcoQueryEncoder:
    """What encodes queries for every index here."""
    return open_query_encoder(store().manifest, device="cpu")


def explainer(of: Index, texts: Texts | None = None, vectors: VectorStore | PlainStore | None = None) -> Explainer:
    """An explainer without texts, if none are given."""
    return Explainer(of, query_encoder(), texts, vectors)


def queries(count: int) -> list[str]:
    """Queries in all languages of the sample."""
    texts = [query.text for query in open_topics("sample")]
    return texts[:: len(texts) // count][:count]
