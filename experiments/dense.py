"""Dense baselines of a latency table: an encoder, a dense vector store, or NumPy files.

A directory of NumPy files has documents.npy and queries.npy, float [N, d], with documents.txt and queries.txt, the id
of each row on a line. All vectors are L2-normalized, so that inner products are cosines.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.analysis.experiment import RetrievalTask, digest
from milco_pyserini.console import Progress
from milco_pyserini.corpora.catalog import local_corpus_name
from milco_pyserini.encode.dense_store import open_dense_store
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.io.files import atomic_file, fingerprint, is_json_with, read_json, write_json
from milco_pyserini.sparse.store import MANIFEST

if TYPE_CHECKING:
    from milco_pyserini.encode.dense import DenseEncoder

DOCUMENTS, QUERIES = "documents", "queries"
# The manifest fields of a store that determine the vectors of queries.
_QUERY_FIELDS = ("weight_hash", "tokenizer_hash", "pooling", "query_prompt", "lowercase")
# Texts that are sorted by length together.
_WINDOW = 1024


@dataclass(frozen=True)
class DenseVectors:
    """N ids, and float32 [N, d]: rows of length 1, zeros for a blank text. An index can be built from them.

    Args:
        path: For messages.
        origin: What they are made of.
    """

    ids: list[str]
    matrix: NDArray[np.float32]
    path: Path = Path()
    origin: dict = field(default_factory=dict)

    @property
    def manifest(self) -> dict:
        """Origin, number and dimension of the vectors."""
        documents, dimensions = self.matrix.shape
        return {"documents": documents, "dimensions": dimensions, "dense": True, "of": self.origin}

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Yield all ids and vectors at once."""
        yield self.ids, self.matrix


class DenseBaseline:
    """Dense vectors of a task's documents and topics.

    Args:
        name: An encoder's hub name or directory, a store of `milco encode --dense`, or a directory of NumPy files.
            The encoder of a store encodes the topics.
        pooling: "cls", "mean" or "last"; None for the encoder's own.
        task: Its texts are encoded.
        cache: Directory for vectors that are encoded here.
    """

    def __init__(self, name: str, pooling: str | None, task: RetrievalTask, cache: Path) -> None:
        self.name = name
        self._pooling = pooling
        self._task = task
        self._encoder: DenseEncoder | None = None
        self._is_numpy = (Path(name) / f"{DOCUMENTS}.npy").is_file()
        self._directory = Path(name) if self._is_numpy else cache
        self._store = open_dense_store(Path(name)) if (Path(name) / MANIFEST).is_file() else None

    def origin(self, kind: str) -> dict:
        """Return what the vectors of DOCUMENTS or QUERIES are made of: equal for equal vectors."""
        if self._is_numpy:
            files = [self._directory / f"{kind}.{ending}" for ending in ("npy", "txt")]
            return {"files": [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]}
        if self._store is not None and kind == DOCUMENTS:
            return self._store.manifest
        texts = self._task.store.manifest.get("corpus_hash") if kind == DOCUMENTS else digest(self._queries)
        encoder = {"encoder": self.name, "pooling": self._pooling, "files": fingerprint(Path(self.name))}
        if self._store is not None:
            encoder |= {field: self._store.manifest[field] for field in _QUERY_FIELDS}
        return encoder | {"texts": texts}

    def load(self, kind: str) -> DenseVectors:
        """Return the vectors of DOCUMENTS or QUERIES; encode them if no earlier call did.

        Raises:
            MilcoError: The texts are not known, or vectors, ids and the task do not fit together.
        """
        vectors, store = self._load(kind), self._task.store
        if kind == DOCUMENTS and len(vectors.ids) != len(store):
            raise MilcoError(
                f"--dense {self.name} has vectors of {len(vectors.ids):,} documents, {store.path} of {len(store):,}: "
                "they do not belong together"
            )
        return vectors

    def _load(self, kind: str) -> DenseVectors:
        origin = self.origin(kind)
        if self._store is not None and kind == DOCUMENTS:
            ids, parts = zip(*self._store.batches(), strict=True)
            return DenseVectors(list(chain.from_iterable(ids)), np.concatenate(parts), self._store.path, origin)
        encoded = self._directory / f"{kind}.json"
        if not self._is_numpy and not (is_json_with(encoded, "encoder") and read_json(encoded) == origin):
            save_vectors(self._directory, kind, self._encode(kind))
            write_json(encoded, origin)
        return replace(load_vectors(self._directory, kind), path=Path(self.name), origin=origin)

    def _encode(self, kind: str) -> DenseVectors:
        from milco_pyserini.corpora import open_corpus
        from milco_pyserini.encode.dense import DenseEncoder, open_dense_query_encoder

        store = self._task.store
        texts = iter(self._queries)
        if kind == DOCUMENTS:
            name = local_corpus_name(store.manifest, store.path) or store.manifest["corpus"]
            texts = ((document.id, document.contents) for document in open_corpus(name))
        total = len(store) if kind == DOCUMENTS else len(self._queries)
        encode: Callable[[list[str]], NDArray[np.float32]]
        if self._store is not None:
            encode = open_dense_query_encoder(self._store.manifest).encode_batch
        else:
            # Documents and topics share one model.
            self._encoder = self._encoder or DenseEncoder(self.name, self._pooling)
            encode = self._encoder.encode_document if kind == DOCUMENTS else self._encoder.encode_query
        progress = Progress(kind, total)
        ids: list[str] = []
        parts = []
        while window := list(islice(texts, _WINDOW)):
            ids += [name for name, _ in window]
            parts.append(encode([text for _, text in window]))
            progress.add(len(window))
        progress.close("dense vectors")
        if len(ids) != total:
            raise MilcoError(
                f"{store.manifest['corpus']} has {len(ids):,} {kind}, {store.path} has vectors of {total:,}: they do "
                "not belong together"
            )
        return DenseVectors(ids, np.concatenate(parts))

    @cached_property
    def _queries(self) -> list[tuple[str, str]]:
        """Ids and texts of the task's topics; of a vector store of topics, the texts that it was made of."""
        task = self._task
        if task.texts is not None:
            return list(zip(task.ids, task.texts, strict=True))
        from milco_pyserini.corpora import open_topics

        path = Path(task.topics, MANIFEST)
        if not is_json_with(path, "corpus"):
            raise MilcoError(f"--dense {self.name} encodes texts, and those of --topics {task.topics} are not known")
        manifest = read_json(path)
        corpus = local_corpus_name(manifest, path.parent) or manifest["corpus"]
        texts = {query.id: query.text for query in open_topics(corpus)}
        missing = [name for name in task.ids if name not in texts]
        if missing:
            raise MilcoError(f"{corpus} has no topic {shown(missing[0])}, which {task.topics} has")
        return [(name, texts[name]) for name in task.ids]


def save_vectors(directory: Path, kind: str, vectors: DenseVectors) -> None:
    """Write KIND.npy and KIND.txt."""
    with atomic_file(directory / f"{kind}.npy") as file:
        np.save(file, vectors.matrix)
    with atomic_file(directory / f"{kind}.txt", "w") as lines:
        lines.writelines(f"{name}\n" for name in vectors.ids)


def load_vectors(directory: Path, kind: str) -> DenseVectors:
    """Read KIND.npy and KIND.txt. Raises MilcoError if they do not exist or do not fit together."""
    path, names = directory / f"{kind}.npy", directory / f"{kind}.txt"
    try:
        matrix = np.load(path)
        # Not splitlines(), which would also split at characters that an id may have.
        ids = names.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError, EOFError) as error:
        raise MilcoError(f"dense vectors in {directory}: {error}") from None
    if matrix.ndim != 2 or len(ids) != len(matrix):
        raise MilcoError(f"{path} has shape {matrix.shape}, {names} has {len(ids):,} ids: one for each row is needed")
    if matrix.dtype.kind not in "fiu" or not np.isfinite(matrix).all():
        raise MilcoError(f"{path} has values of type {matrix.dtype}: finite real numbers are needed")
    matrix = matrix.astype(np.float32, copy=False)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return DenseVectors(ids, matrix / np.maximum(lengths, np.float32(1e-12)))
