"""Where a document's text and its whole vector are found: the corpus and the vector store, if they are still there."""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import orjson

from milco_pyserini.console import Progress
from milco_pyserini.corpora import Corpus, open_corpus, open_topics
from milco_pyserini.corpora.catalog import local_corpus_name
from milco_pyserini.defaults import VECTORS
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index
from milco_pyserini.sparse import PlainStore, SparseBatch, VectorStore, open_store

# What two manifests of the same vectors agree on.
_SAME = ("weight_hash", "tokenizer_hash", "corpus_hash", "scale", "max_length", "split_passages")

_TOPICS = re.compile(r"(queries|topics)(?![a-z])", re.IGNORECASE)
_EXAMPLES = 6
_MOST_TOPICS = 1000


class Texts(Protocol):
    """Documents' texts by id, as they were encoded: title and text."""

    def find(self, ids: Iterable[str]) -> dict[str, str]:
        """The texts of those ids that are there."""


class ScannedTexts:
    """Texts found by reading the corpus until all of them have been met: nothing is kept."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    def find(self, ids: Iterable[str]) -> dict[str, str]:
        """The texts of those ids that are there. Cost: up to one pass over the corpus."""
        wanted, found = set(ids), {}
        for document in self._corpus if wanted else ():
            if document.id in wanted:
                found[document.id] = document.contents
                if len(found) == len(wanted):
                    break
        return found


class ShelvedTexts:
    """All texts of a corpus in a temporary file, for many lookups. It is gone with close(), or with the process."""

    def __init__(self, corpus: Corpus) -> None:
        # Without a name it is SQLite's own temporary file. The server looks texts up in another thread than it
        # opened them in, one at a time.
        self._shelf = sqlite3.connect("", check_same_thread=False)
        self._shelf.execute("CREATE TABLE texts (id TEXT PRIMARY KEY, text BLOB) WITHOUT ROWID")
        progress = Progress("documents")
        self._shelf.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?)", _rows(corpus, progress))
        self._shelf.commit()
        progress.close(f"read {corpus.name}")

    def find(self, ids: Iterable[str]) -> dict[str, str]:
        """The texts of those ids that are there."""
        found = {}
        for name in ids:
            row = self._shelf.execute("SELECT text FROM texts WHERE id = ?", (name,)).fetchone()
            if row is not None:
                found[name] = row[0].decode("utf-8", "surrogatepass")
        return found

    def close(self) -> None:
        """Remove the file."""
        self._shelf.close()


def _rows(corpus: Corpus, progress: Progress) -> Iterator[tuple[str, bytes]]:
    for document in corpus:
        yield document.id, document.contents.encode("utf-8", "surrogatepass")
        progress.add(1)


def corpus_of(vectors: Mapping, name: str | None) -> Corpus | None:
    """The corpus that the vectors of an index were made of, if it is at hand; name: where it is now, if it moved.

    Without a name, only what is surely on this machine counts: nothing is fetched to explain a score. Raises
    MilcoError if the name is unknown.
    """
    name = local_corpus_name(vectors) if name is None else name
    return None if name is None else open_corpus(name)


def example_queries(vectors: Mapping) -> list[str]:
    """Return a few topics of the corpus that an index was made of, if they are surely on this machine.

    The sample's, or those of the first file next to the corpus that is named queries or topics.
    """
    name = local_corpus_name(vectors)
    if name is None or vectors.get("plain"):
        return []
    if not Path(name).exists():
        topics = name
    else:
        directory = Path(name) if Path(name).is_dir() else Path(name).parent
        files = sorted(file for file in directory.iterdir() if file.is_file() and _TOPICS.match(file.name))
        if not files:
            return []
        topics = str(files[0])
    try:
        queries = [query.text for query in islice(open_topics(topics), _MOST_TOPICS)]
    except MilcoError:
        return []
    # The sample's are sorted by language, and by subject within a language.
    return queries[:: len(queries) // _EXAMPLES + 1]


def store_of(index: Index, path: Path | None) -> VectorStore | PlainStore | None:
    """The vector store that the index was built from: at path, or under the name that the verbs give it.

    None if it is not at hand. Raises MilcoError if path holds other vectors.
    """
    if path is None:
        path = VECTORS / index.path.resolve().name.removesuffix(f".{index.manifest['engine']}")
        if not path.is_dir() or index.vectors.get("plain"):
            return None
        try:
            store = open_store(path)
        except MilcoError:
            return None
        return store if _differing(store, index) is None else None
    store = open_store(path, bool(index.vectors.get("plain")), index.vectors["scale"])
    field = _differing(store, index)
    if field is not None:
        ours, theirs = index.vectors.get(field), store.manifest.get(field)
        raise MilcoError(f"--vectors {path}: {index.path} was built from others, with {field} {ours!r}, not {theirs!r}")
    return store


def _differing(store: VectorStore | PlainStore, index: Index) -> str | None:
    return next((field for field in _SAME if store.manifest.get(field) != index.vectors.get(field)), None)


def stored_vector(store: VectorStore, docid: str) -> SparseBatch | None:
    """A document's vector as a batch of one; None if it is not there.

    Cost: up to one pass over the store, at the speed of the disk for JSONL (other lines are not parsed).
    """
    for part in store.manifest["parts"]:
        path = store.path / part["file"]
        found = _in_parquet(path, docid, store) if path.suffix == ".parquet" else _in_jsonl(path, docid, store)
        if found is not None:
            return found
    return None


def stored_impacts(store: PlainStore, docid: str) -> dict[str, int] | None:
    """The same of vectors that others wrote: {term: impact}. Cost: up to one pass, every line parsed."""
    return next((vector for name, vector in store.vectors() if name == docid), None)


def _in_jsonl(path: Path, docid: str, store: VectorStore) -> SparseBatch | None:
    begins = b'{"id":' + orjson.dumps(docid) + b","
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(begins):
                batch = SparseBatch.from_dicts([orjson.loads(line)["vector"]], store.vocabulary)
                weights = batch.weights / np.float32(store.scale)
                return SparseBatch(batch.indptr, batch.columns, weights, batch.english_size)
    return None


def _in_parquet(path: Path, docid: str, store: VectorStore) -> SparseBatch | None:
    from pyarrow import parquet

    rows = parquet.read_table(path, filters=[("id", "=", docid)])
    if not len(rows):
        return None
    columns, weights = (rows.column(name).combine_chunks().flatten().to_numpy() for name in ("columns", "weights"))
    return SparseBatch(np.array([0, len(columns)], np.int64), columns, weights, store.vocabulary.english_size)
