"""Where the dense vectors of a task come from: NumPy files or a store, both the user's, or an encoder, asked once."""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from milco_pyserini.analysis import dense
from milco_pyserini.analysis.task import Task, digest
from milco_pyserini.encode.dense_store import open_dense_store
from milco_pyserini.encode.prompts import DOCUMENTS, QUERIES
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.io.files import is_json_with, read_json
from milco_pyserini.sparse.store import MANIFEST

if TYPE_CHECKING:
    from milco_pyserini.analysis.dense import DenseVectors
    from milco_pyserini.encode.dense import DenseEncoder

# What decides the vectors of queries that belong to a store.
_OF_QUERIES = ("weight_hash", "tokenizer_hash", "pooling", "query_prompt", "lowercase")


class DenseSource:
    """Dense vectors of a task's documents and topics, by the name of a model or of a directory of vectors.

    A store's queries are encoded by its encoder. cache: directory that keeps what is encoded. Raises MilcoError if the
    texts to encode are not known.
    """

    def __init__(self, name: str, pooling: str | None, task: Task, topics: str, cache: Path) -> None:
        self.name = name
        self._pooling = pooling
        self._task = task
        self._topics = topics
        self._brought = (Path(name) / f"{DOCUMENTS}.npy").is_file()
        self._directory = Path(name) if self._brought else cache
        self._store = open_dense_store(Path(name)) if (Path(name) / MANIFEST).is_file() else None

    def about(self, kind: str) -> dict:
        """What the vectors of a kind are of: equal for equal vectors."""
        if self._brought:
            files = [self._directory / f"{kind}.{ending}" for ending in ("npy", "txt")]
            return {"files": [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]}
        if self._store is not None and kind == DOCUMENTS:
            return self._store.manifest
        texts = self._task.store.manifest.get("corpus_hash") if kind == DOCUMENTS else digest(self._queries)
        by = {"encoder": self.name, "pooling": self._pooling}
        if self._store is not None:
            by |= {field: self._store.manifest[field] for field in _OF_QUERIES}
        return by | {"texts": texts}

    def load(self, kind: str) -> "DenseVectors":
        """The vectors of a kind, encoded if they are not there."""
        if self._store is not None and kind == DOCUMENTS:
            ids, parts = zip(*self._store.batches(), strict=True)
            return dense.DenseVectors(list(chain.from_iterable(ids)), np.concatenate(parts))
        if not self._brought and not self._saved(kind):
            vectors = dense.encode_all(self._encode(kind), self._texts(kind), kind, self._total(kind))
            dense.save(self._directory, kind, vectors, self.about(kind))
        return dense.load(self._directory, kind)

    def _saved(self, kind: str) -> bool:
        path = self._directory / f"{kind}.json"
        return is_json_with(path, "encoder") and read_json(path) == self.about(kind)

    def _encode(self, kind: str) -> dense.Encode:
        from milco_pyserini.encode.dense import open_dense_query_encoder

        if self._store is not None:
            return open_dense_query_encoder(self._store.manifest).encode_batch
        encoder = self._encoder
        return lambda texts: encoder.encode(texts, kind)

    @cached_property
    def _encoder(self) -> "DenseEncoder":
        from milco_pyserini.encode.dense import DenseEncoder

        return DenseEncoder(self.name, self._pooling)

    def _total(self, kind: str) -> int:
        return len(self._task.store) if kind == DOCUMENTS else len(self._queries)

    def _texts(self, kind: str) -> Iterator[tuple[str, str]]:
        if kind == QUERIES:
            yield from self._queries
            return
        from milco_pyserini.corpora import open_corpus

        for document in open_corpus(self._task.store.manifest["corpus"]):
            yield document.id, document.contents

    @cached_property
    def _queries(self) -> list[tuple[str, str]]:
        """Ids and texts of the topics: their own, or those that a store of vectors was made of."""
        if self._task.texts is not None:
            return list(zip(self._task.ids, self._task.texts, strict=True))
        from milco_pyserini.corpora import open_topics

        path = Path(self._topics, "manifest.json")
        if not is_json_with(path, "corpus"):
            raise MilcoError(f"--dense {self.name} encodes texts, --topics {self._topics} does not say of which it is")
        texts = {query.id: query.text for query in open_topics(read_json(path)["corpus"])}
        lacking = [name for name in self._task.ids if name not in texts]
        if lacking:
            raise MilcoError(f"{read_json(path)['corpus']} has no topic {shown(lacking[0])}, which {self._topics} has")
        return [(name, texts[name]) for name in self._task.ids]
