"""What --topics names: texts to be encoded, or vectors that were encoded before."""

import gzip
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from milco_pyserini.errors import MilcoError
from milco_pyserini.index.directory import Index
from milco_pyserini.sparse import PlainStore, VectorStore, open_store

# Two manifests that differ in one of these do not speak of the same terms.
_MUST_AGREE = ("weight_hash", "tokenizer_hash", "english_prefix", "source_prefix", "lowercase")


@dataclass(frozen=True)
class Topics:
    """Queries in the order of their source. Either texts or vectors ({term: weight}) stand beside the ids."""

    ids: list[str]
    texts: list[str] | None = None
    vectors: list[dict[str, float]] | None = None


def read_topics(name: str, index: Index) -> Topics:
    """The topics of a name or path: a vector store, a JSONL file of vectors, or whatever corpora.open_topics() knows.

    Raises MilcoError for topics that are not there, hold no query, repeat an id, have an id that no run can hold,
    or were encoded by something else than the documents.
    """
    path = Path(name)
    if path.is_dir():
        topics = _from_store(path, index)
    elif path.is_file() and _holds_vectors(path):
        topics = _from_jsonl(path, index)
    else:
        topics = _from_texts(name)
    _check_ids(topics.ids, name)
    return topics


def _from_texts(name: str) -> Topics:
    from milco_pyserini.corpora import open_topics

    queries = list(open_topics(name))
    return Topics([query.id for query in queries], texts=[query.text for query in queries])


def _from_store(path: Path, index: Index) -> Topics:
    store = cast(VectorStore, open_store(path))
    for field in _MUST_AGREE:
        theirs, ours = store.manifest.get(field), index.vectors.get(field)
        if None not in (theirs, ours) and theirs != ours:
            raise MilcoError(
                f"{path} does not fit {index.path}: its {field} is {theirs!r}, the documents' is {ours!r}; "
                f"encode the topics with {index.vectors.get('encoder')}"
            )
    topics = Topics([], vectors=[])
    for names, batch in store.batches():
        topics.ids.extend(names)
        topics.vectors.extend(batch.to_dicts(store.vocabulary))  # type: ignore[union-attr]
    return topics


def _from_jsonl(path: Path, index: Index) -> Topics:
    """Whole numbers, as the index has them: the searcher that multiplies by the index's scale gets them back."""
    ids, vectors = [], []
    for name, impacts in PlainStore(path).vectors():
        ids.append(name)
        vectors.append({term: impact / index.query_scale for term, impact in impacts.items()})
    return Topics(ids, vectors=vectors)


def _holds_vectors(path: Path) -> bool:
    """Whether the first line is a JSON object with a vector."""
    if not path.name.removesuffix(".gz").endswith((".jsonl", ".json")):
        return False
    opener = gzip.open if path.suffix == ".gz" else io.open
    with opener(path, "rb") as lines:
        try:
            record = orjson.loads(lines.readline())
        except orjson.JSONDecodeError:
            return False
    return isinstance(record, dict) and "vector" in record


def _check_ids(ids: list[str], name: str) -> None:
    if not ids:
        raise MilcoError(f"{name} holds no topics")
    topic, times = Counter(ids).most_common(1)[0]
    if times > 1:
        raise MilcoError(f"{name}: topic id {topic!r} stands there {times} times; a run can hold it once")
    for topic in ids:
        if not topic or topic.split() != [topic]:
            raise MilcoError(f"{name}: topic id {topic!r} is empty or holds white space, which ends a run's column")
