"""Topics of a search: texts to encode, or vectors that were encoded before."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milco_pyserini.console import printable, warn
from milco_pyserini.corpora.local_files import find_files, first_object
from milco_pyserini.corpora.records import BadLineError, record_id
from milco_pyserini.errors import MilcoError, ParameterError, shown
from milco_pyserini.index.directory import Index
from milco_pyserini.index.hits import Hits
from milco_pyserini.index.protocol import DEFAULT_QUERIES, QueryOptions
from milco_pyserini.index.vectors import read_queries
from milco_pyserini.io.files import checksum_bytes, read_json
from milco_pyserini.io.manifest import MANIFEST, read_manifest
from milco_pyserini.io.records import RunTopics, StoreManifest
from milco_pyserini.options import validate_number
from milco_pyserini.request import SearchRequest
from milco_pyserini.search.searcher import Searcher


@dataclass(frozen=True)
class SearchTopics:
    """Topics in the order of their source, as texts or as vectors.

    vectors: queries as {term: weight}. manifest: of their vector store.
    """

    ids: list[str]
    texts: list[str] | None = None
    vectors: list[Any] | None = None
    name: str = field(default="", compare=False)
    manifest: StoreManifest | None = field(default=None, compare=False)

    def record(self) -> RunTopics:
        """Return what a run states about its topics."""
        content = repr([self.ids, self.texts if self.vectors is None else self.vectors])
        digest = checksum_bytes(content.encode("utf-8", "surrogatepass"))
        return RunTopics(name=printable(self.name), count=len(self.ids), digest=digest, vectors=self.manifest)


def read_topics(name: str, index: Index, queries: QueryOptions = DEFAULT_QUERIES) -> SearchTopics:
    """Read topics for an index: a vector store, JSONL vectors, or any name or path of corpora.open_topics().

    In JSONL vectors, integers are impacts; if one weight is not an integer, all are weights. queries: their
    query_encoder names another encoder of topics that are vectors.

    Raises:
        MilcoError: for topics that do not exist, are empty, repeat an id, have an id that no run can hold, were encoded
            by another encoder than the documents.
    """
    path = Path(name)
    is_store = any((path / file).is_file() for file in (MANIFEST, "plan.json"))
    if is_store and (path / MANIFEST).is_file() and "engine" in read_json(path / MANIFEST):
        fix = "Give a name, a file of texts, or vectors of topics, as milco encode --topics writes them."
        raise ParameterError("topics", path, "this is an index, which holds documents", fix)
    if is_store or (name and path.exists() and "vector" in first_object(find_files(path, "topics"))):
        ids, vectors = read_queries(path, index.path, index.manifest, queries)
        manifest = read_manifest(path, StoreManifest).without_files() if is_store else None
        topics = SearchTopics(ids, vectors=vectors, name=name, manifest=manifest)
    else:
        from milco_pyserini.corpora import open_topics

        records = list(open_topics(name))
        corpus = Path(index.vectors.corpus or "")
        if path.is_file() and corpus.is_file() and path.samefile(corpus):
            warn(f"{name} is the corpus of {index.path}: its documents are searched for as queries")
        topics = SearchTopics([record.id for record in records], texts=[record.text for record in records], name=name)
    if not topics.ids:
        raise MilcoError(f"{name} holds no topics")
    topic, times = Counter(topics.ids).most_common(1)[0]
    if times > 1:
        raise MilcoError(f"{name} has the topic id {shown(topic)} {times} times: a run can hold it once")
    for topic in topics.ids:
        try:
            record_id(topic)
        except BadLineError as error:
            raise MilcoError(f"{name}: {error}") from None
    return topics


def search_topics(
    searcher: Searcher, topics: SearchTopics, request: SearchRequest, batch_size: int = 64, remove_query: bool = False
) -> Iterator[tuple[str, Any, Hits]]:
    """Yield id, queries of all indexes, and hits of every topic, in order.

    Args:
        batch_size: topics that are encoded and searched at a time.
        remove_query: leave out the document with the topic's id, as BEIR does for ArguAna and Quora.

    Raises:
        MilcoError: as Searcher.search() does, or topics are vectors and there are several indexes.
    """
    validate_number("batch_size", batch_size, minimum=1)
    searcher.validate(request)
    if topics.vectors is not None and len(searcher.indexes) > 1:
        raise MilcoError("several indexes are searched for texts, which each encodes in its own way: give texts")
    given: Sequence[Any] = (topics.texts if topics.vectors is None else topics.vectors) or []
    for start in range(0, len(topics.ids), batch_size):
        span = slice(start, start + batch_size)
        queries = [(item,) for item in given[span]] if topics.vectors else searcher.encode(given[span], request)
        found = searcher.rank(queries, request, topics.ids[span] if remove_query else ())
        yield from zip(topics.ids[span], queries, found, strict=True)
