"""What --topics names: texts to be encoded, or vectors that were encoded before."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from milco_pyserini.corpora.records import BadLineError, record_id
from milco_pyserini.corpora.source_files import files_of
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.index.directory import MANIFEST, Index
from milco_pyserini.index.protocol import DENSE, TERMS, TEXT
from milco_pyserini.io.files import read_json
from milco_pyserini.io.lines import first_line, numbered_lines
from milco_pyserini.sparse import VectorStore, open_store
from milco_pyserini.sparse.store import read_jsonl
from milco_pyserini.sparse.terms import lucene_term

# The files that tell a vector store, finished or begun, from a directory of topic files.
_STORE = (MANIFEST, "plan.json")
# Two manifests that differ in one of these do not speak of the same terms.
_MUST_AGREE = ("weight_hash", "tokenizer_hash", "english_prefix", "source_prefix", "lowercase", "dimensions", "pooling")


@dataclass(frozen=True)
class Topics:
    """Queries in the order of their source. Either texts or vectors stand beside the ids.

    vectors: a {term: weight} each, or float32 [d] for an index of dense vectors.
    """

    ids: list[str]
    texts: list[str] | None = None
    vectors: list[Any] | None = None


def read_topics(name: str, index: Index, queries: str = TERMS) -> Topics:
    """The topics of a name or path: a vector store, JSONL vectors, or whatever corpora.open_topics() knows.

    queries: what the index's engine takes: TERMS, DENSE or TEXT. Of JSONL vectors, whole numbers are impacts; if one
    weight in them is no whole number, all are weights.
    Raises MilcoError for topics that are not there, hold no query, repeat an id, have an id that no run can hold,
    were encoded by something else than the documents, or are of another kind than the index's queries.
    """
    path = Path(name)
    if any((path / file).is_file() for file in _STORE):
        topics = _from_store(path, index, queries)
    elif name and path.exists() and _holds_vectors(files := files_of(path, "topics")):
        if queries != TERMS:
            raise _other_kind(path, index, queries)
        topics = _from_jsonl(files, index)
    else:
        topics = _from_texts(name)
    _check_ids(topics.ids, name)
    return topics


def _from_texts(name: str) -> Topics:
    from milco_pyserini.corpora import open_topics

    queries = list(open_topics(name))
    return Topics([query.id for query in queries], texts=[query.text for query in queries])


def _from_store(path: Path, index: Index, queries: str) -> Topics:
    if (path / MANIFEST).is_file() and "engine" in read_json(path / MANIFEST):
        raise MilcoError(
            f"--topics {path} is an index, which holds documents: give a name, a file of texts, or vectors of topics, "
            "as milco encode --topics writes them"
        )
    if queries == TEXT:
        raise _other_kind(path, index, queries)
    if queries == DENSE:
        return _from_dense_store(path, index)
    store = cast(VectorStore, open_store(path))
    _refuse_others(path, store.manifest, index)
    topics = Topics([], vectors=[])
    for names, batch in store.batches():
        topics.ids.extend(names)
        topics.vectors.extend(batch.to_dicts(store.vocabulary))  # type: ignore[union-attr]
    return topics


def _from_dense_store(path: Path, index: Index) -> Topics:
    from milco_pyserini.encode.dense_store import open_dense_store

    store = open_dense_store(path)
    _refuse_others(path, store.manifest, index)
    topics = Topics([], vectors=[])
    for names, vectors in store.batches():
        topics.ids.extend(names)
        topics.vectors.extend(vectors)  # type: ignore[union-attr]
    return topics


def _other_kind(path: Path, index: Index, queries: str) -> MilcoError:
    """That topics are vectors, of a kind that the index does not take."""
    also = ", or dense vectors that milco encode --topics --dense wrote" if queries == DENSE else ""
    name = index.manifest["engine"]
    return MilcoError(f"--topics {path} holds vectors, and {index.path} is of engine {name}: give it texts{also}")


def _refuse_others(path: Path, theirs: dict, index: Index) -> None:
    """Raise MilcoError if topics were not encoded as the documents of the index were."""
    ours = index.vectors
    for field in _MUST_AGREE:
        if None not in (theirs.get(field), ours.get(field)) and theirs[field] != ours[field]:
            raise MilcoError(
                f"{path} does not fit {index.path}: its {field} is {theirs[field]!r}, the documents' is "
                f"{ours[field]!r}; encode them again with {_encode_command(path, theirs, ours)}"
            )


def _encode_command(path: Path, theirs: dict, wanted: dict) -> str:
    """What encodes the topics of a store as the documents of an index were encoded."""
    prefix = f" --english-prefix {wanted['english_prefix']}" if wanted.get("english_prefix") else ""
    flags = " --lowercase" if wanted.get("lowercase") else ""
    flags += " --dense" if "dimensions" in wanted else ""
    return (
        f"milco encode --topics {theirs.get('corpus')} --encoder {wanted.get('encoder')}"
        f"{prefix}{flags} --output {path} --overwrite"
    )


def _from_jsonl(files: Sequence[Path], index: Index) -> Topics:
    """Weights as the searcher takes them: it multiplies by the index's scale, and so gets whole impacts back."""
    topics, vectors = zip(*_jsonl_vectors(files), strict=True)
    whole = all(weight.is_integer() for vector in vectors for weight in vector.values())
    scale = index.query_scale if whole else 1.0
    return Topics(list(topics), vectors=[{term: weight / scale for term, weight in one.items()} for one in vectors])


def _jsonl_vectors(files: Sequence[Path]) -> Iterator[tuple[str, dict[str, float]]]:
    """Ids and {term: weight} of every line, weights > 0. Raises MilcoError, with file and line, for what is none."""
    spellings: dict[str, str] = {}
    for path in files:
        for where, record in read_jsonl(path, numbered_lines(path)):
            try:
                topic = record_id(record["id"])
            except BadLineError as error:
                raise MilcoError(f"{where}: {error}") from None
            weights = {term: _weight(term, weight, where) for term, weight in record["vector"].items()}
            yield topic, {lucene_term(term, spellings, where): weight for term, weight in weights.items() if weight > 0}


def _weight(term: str, weight: object, where: str) -> float:
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not math.isfinite(weight):
        raise MilcoError(f"{where}: weight {weight!r} of term {shown(term)} is not a number")
    return float(weight)


def _holds_vectors(files: Sequence[Path]) -> bool:
    """Whether they begin with a JSON object that has a vector."""
    try:
        record = orjson.loads(first_line(files[0]))
    except orjson.JSONDecodeError:
        return False
    return isinstance(record, dict) and "vector" in record


def _check_ids(ids: list[str], name: str) -> None:
    if not ids:
        raise MilcoError(f"{name} holds no topics")
    topic, times = Counter(ids).most_common(1)[0]
    if times > 1:
        raise MilcoError(f"{name}: topic id {shown(topic)} stands there {times} times; a run can hold it once")
    for topic in ids:
        try:
            record_id(topic)
        except BadLineError as error:
            raise MilcoError(f"{name}: {error}") from None
