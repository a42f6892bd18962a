"""Where the dense vectors of a task come from: files that the user brought, files of an earlier run, or an encoder."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.eval import dense
from milco_pyserini.eval.task import Task, digest
from milco_pyserini.files import is_json_with, read_json

if TYPE_CHECKING:
    from milco_pyserini.eval.dense import DenseEncoder, DenseVectors


class DenseSource:
    """Dense vectors of a task's documents and topics, by the name of a model or of a directory of vectors.

    cache: directory that keeps what is encoded. Raises MilcoError if the texts to encode are not known.
    """

    def __init__(self, name: str, pooling: str | None, task: Task, topics: str, cache: Path) -> None:
        self.name = name
        self._pooling = pooling
        self._task = task
        self._topics = topics
        self._brought = (Path(name) / f"{dense.DOCUMENTS}.npy").is_file()
        self._directory = Path(name) if self._brought else cache

    def about(self, kind: str) -> dict:
        """What the vectors of a kind are of: equal for equal vectors."""
        if self._brought:
            files = [self._directory / f"{kind}.{ending}" for ending in ("npy", "txt")]
            return {"files": [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]}
        texts = self._task.store.manifest.get("corpus_hash") if kind == dense.DOCUMENTS else digest(self._queries)
        return {"encoder": self.name, "pooling": self._pooling, "texts": texts}

    def load(self, kind: str) -> "DenseVectors":
        """The vectors of a kind, encoded if they are not there."""
        if not self._brought and not self._saved(kind):
            vectors = dense.encode_all(self._encoder, self._texts(kind), kind, self._total(kind))
            dense.save(self._directory, kind, vectors, self.about(kind))
        return dense.load(self._directory, kind)

    def _saved(self, kind: str) -> bool:
        path = self._directory / f"{kind}.json"
        return is_json_with(path, "encoder") and read_json(path) == self.about(kind)

    @cached_property
    def _encoder(self) -> "DenseEncoder":
        return dense.DenseEncoder(self.name, self._pooling)

    def _total(self, kind: str) -> int:
        return len(self._task.store) if kind == dense.DOCUMENTS else len(self._queries)

    def _texts(self, kind: str) -> Iterator[tuple[str, str]]:
        if kind == dense.QUERIES:
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
