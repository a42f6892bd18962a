"""Dense baselines of a latency table: an encoder, a store of `milco encode --dense`, or NumPy files.

A directory of NumPy files has documents.npy and queries.npy, float [N, d], with documents.txt and queries.txt, the id
of each row on a line.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.analysis.experiment import RetrievalTask
from milco_pyserini.corpora import open_corpus, open_topics
from milco_pyserini.corpora.catalog import local_corpus_name
from milco_pyserini.defaults import directory_name
from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.dense import open_dense_query_encoder
from milco_pyserini.encode.dense_store import DenseStore, open_dense_store
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.io.files import is_json_with, read_json
from milco_pyserini.sparse.store import MANIFEST

DOCUMENTS, QUERIES = "documents", "queries"


@dataclass(frozen=True)
class DenseVectors:
    """Ids, and float32 [N, d]: L2-normalized, so that inner products are cosines. An index can be built from them.

    Args:
        manifest: What they are made of: equal for equal vectors.
    """

    path: Path
    ids: list[str]
    matrix: NDArray[np.float32]
    manifest: dict

    def __len__(self) -> int:
        return len(self.ids)

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Yield all ids and vectors at once."""
        yield self.ids, self.matrix


def open_dense(
    name: str, pooling: str | None, task: RetrievalTask, cache: Path
) -> tuple[DenseStore | DenseVectors, NDArray[np.float32]]:
    """Return dense vectors of a task's documents, and float32 [N, d] of its topics.

    Args:
        name: An encoder's hub name or directory, a dense store, or a directory of NumPy files.
        pooling: Of an encoder: "cls", "mean" or "last"; None for its own.
        cache: Directory for the store of an encoder, whose documents are encoded once.

    Raises:
        MilcoError: Texts are not known, or vectors, ids and the task do not belong together.
    """
    path = Path(name)
    documents: DenseStore | DenseVectors
    if (path / f"{DOCUMENTS}.npy").is_file():
        documents, queries = load_vectors(path, DOCUMENTS), load_vectors(path, QUERIES)
        _validate_size(name, documents, task)
        rows = {topic: row for row, topic in enumerate(queries.ids)}
        missing = [topic for topic in task.ids if topic not in rows]
        if missing:
            raise MilcoError(f"--dense {name} has no vector of topic {shown(missing[0])}")
        return documents, queries.matrix[[rows[topic] for topic in task.ids]]
    texts = _topic_texts(name, task)
    if not (path / MANIFEST).is_file():
        path = cache / directory_name(f"{name}.{pooling}" if pooling else name)
        corpus = open_corpus(_texts_of(name, task.store.path, task.store.manifest))
        encode_corpus(corpus, path, EncodePlan(encoder=name, dense=True, pooling=pooling))
    documents = open_dense_store(path)
    _validate_size(name, documents, task)
    return documents, open_dense_query_encoder(documents.manifest).encode_batch(texts)


def load_vectors(directory: Path, kind: str) -> DenseVectors:
    """Read KIND.npy and KIND.txt. Raises MilcoError if they do not exist or do not fit together."""
    path, names = directory / f"{kind}.npy", directory / f"{kind}.txt"
    try:
        matrix = np.load(path)
        # Not splitlines(), which would also split at characters that an id may have.
        ids = names.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        files = [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in (path, names)]
    except (OSError, ValueError, EOFError) as error:
        raise MilcoError(f"dense vectors in {directory}: {error}") from None
    if matrix.ndim != 2 or len(ids) != len(matrix):
        raise MilcoError(f"{path} has shape {matrix.shape}, {names} has {len(ids):,} ids: one for each row is needed")
    if matrix.dtype.kind not in "fiu" or not np.isfinite(matrix).all():
        raise MilcoError(f"{path} has values of type {matrix.dtype}: finite real numbers are needed")
    matrix = matrix.astype(np.float32, copy=False)
    lengths = np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), np.float32(1e-12))
    manifest = {"documents": len(ids), "dimensions": matrix.shape[1], "dense": True, "of": {"files": files}}
    return DenseVectors(directory, ids, matrix / lengths, manifest)


def _validate_size(name: str, documents: DenseStore | DenseVectors, task: RetrievalTask) -> None:
    if len(documents) != len(task.store):
        raise MilcoError(
            f"--dense {name} has vectors of {len(documents):,} documents, {task.store.path} of {len(task.store):,}: "
            "they do not belong together"
        )


def _topic_texts(name: str, task: RetrievalTask) -> list[str]:
    """Return the texts of a task's topics; of a vector store of topics, those that it was made of."""
    if task.texts is not None:
        return list(task.texts)
    path = Path(task.topics)
    manifest = read_json(path / MANIFEST) if is_json_with(path / MANIFEST, "corpus") else {}
    corpus = _texts_of(name, path, manifest)
    texts = {query.id: query.text for query in open_topics(corpus)}
    missing = [topic for topic in task.ids if topic not in texts]
    if missing:
        raise MilcoError(f"{corpus} has no topic {shown(missing[0])}, which {task.topics} has")
    return [texts[topic] for topic in task.ids]


def _texts_of(name: str, path: Path, manifest: dict) -> str:
    corpus = local_corpus_name(manifest, path) or manifest.get("corpus")
    if not corpus:
        raise MilcoError(f"--dense {name} encodes texts, and those of {path} are not known")
    return corpus
