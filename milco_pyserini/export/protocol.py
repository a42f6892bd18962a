"""The vectors that export targets receive, and the interface of a target.

A document or query is an ImpactDocument: its id, terms, columns and impacts. A target writes what it needs of them.
"""

import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import structs
from numpy.typing import NDArray

from milco_pyserini import __version__
from milco_pyserini.console import Progress, counted
from milco_pyserini.encode.documents import DocumentSchema
from milco_pyserini.errors import Message, MilcoError, ParameterError, shown
from milco_pyserini.export.access import Access, public_url
from milco_pyserini.index.capabilities import Capability, require
from milco_pyserini.index.documents import WHITE_SPACE, FieldFilters, StoredDocuments
from milco_pyserini.index.vectors import encode_flags, validate_same_encoder
from milco_pyserini.io.files import checksum_bytes
from milco_pyserini.io.records import EXPORT, StoreManifest, fields_to_match
from milco_pyserini.registry import Registry
from milco_pyserini.sparse import SparseBatch, VectorStore
from milco_pyserini.sparse.changes import OlderVectors, vector_bytes
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule
from milco_pyserini.sparse.quantization import quantize
from milco_pyserini.sparse.store import VOCABULARY, shard_span, validate_shard_id

# Capabilities that most servers have.
FILLED = frozenset({Capability.FILL, Capability.STORE, Capability.UPDATE})
# Hits of a query in the files of queries and in the check of a server.
HITS = 10
# Documents of each ranking that a hybrid search fuses, and the constant of reciprocal rank fusion.
HYBRID_DEPTH, RANK_CONSTANT = 100, 60
# Fields of a store's manifest by which users know the vectors of an export.
_STATED = (*fields_to_match(EXPORT), "encoder", "views", "lowercase", "max_length", "corpus", "corpus_hash")
# Servers accept bodies of 32 MB (Qdrant) and more.
_FILE_BYTES = 16 * 2**20
# Documents whose stored fields are compared with those of a server at a time.
COMPARED = 1_000
# Higher levels of gzip take longer than the rest of an export.
_COMPRESSION = 3
_COLLECTION = re.compile(r"[a-z][a-z0-9_]{0,62}")


class ImpactDocument(NamedTuple):
    """A document or query with its terms in the order of their columns in vocabulary.json.

    impacts: integers of at least 1; document: what is stored with it, the JSON object that an index stores.
    """

    id: str
    terms: list[str]
    columns: list[int]
    impacts: list[int]
    document: dict[str, Any] | None = None

    @classmethod
    def of(cls, impacts: Mapping[str, int], columns: Mapping[str, int], name: str = "") -> "ImpactDocument":
        """Return a query with those of its terms that have a column."""
        terms = sorted(impacts.keys() & columns.keys(), key=columns.__getitem__)
        return cls(name, terms, [columns[term] for term in terms], [impacts[term] for term in terms])

    @property
    def weights(self) -> dict[str, int]:
        """{term: impact}."""
        return dict(zip(self.terms, self.impacts, strict=True))


class Collection(NamedTuple):
    """A collection of a server, with columns of its vectors. schema: of stored documents; None if it stores none."""

    name: str
    columns: int
    schema: DocumentSchema | None = None


class EngineRequest(NamedTuple):
    """A search over HTTP: POST body, as JSON, to path of the engine's URL."""

    path: str
    body: dict[str, Any]


class ImpactStore:
    """A vector store whose weights are its impacts: batches of scale 1, or one ImpactDocument after the other."""

    def __init__(self, store: VectorStore, prune: Sequence[str] = ()) -> None:
        source = PrunedStore(store, [PruningRule.parse(rule) for rule in prune]) if prune else store
        self._store, self._prune, self._source = store, prune, source
        self.path, self.terms = store.path, store.terms
        self.about = StoreManifest(**{name: getattr(source.manifest, name) for name in _STATED})
        self.manifest = structs.replace(source.manifest, scale=1.0)

    @classmethod
    def open(cls, path: Path, prune: Sequence[str] = ()) -> "ImpactStore":
        """Open the vector store at path. Raises MilcoError if it has no vocabulary, which gives terms their columns."""
        if path.is_dir() and not (path / VOCABULARY).is_file():
            raise MilcoError(f"{path} has no {VOCABULARY}: an export needs a finished vector store of milco encode")
        return cls(VectorStore.open(path), prune)

    @cached_property
    def fingerprint(self) -> str:
        """Checksum of what determines the vectors: the parts of the store, the encoder, the scale, and pruning."""
        parts = [part.checksum for part in self.manifest.parts]
        about = {name: getattr(self.about, name) for name in fields_to_match(EXPORT)}
        about["pruning"] = about["pruning"] or None
        return checksum_bytes(orjson.dumps([about, parts], option=orjson.OPT_SORT_KEYS))

    def __len__(self) -> int:
        parts = self.manifest.parts
        return sum(part.documents for part in parts[shard_span(len(parts), *self._store.shard)])

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield ids and vectors whose weights are impacts."""
        for ids, batch in self._source.batches():
            kept, impacts = quantize(batch, self.about.scale)
            yield ids, replace(kept, weights=impacts.astype(np.float32))

    def take_shard(self, shard_id: int, shard_num: int) -> "ImpactStore":
        """Return only the vectors of one of shard_num shards, the fingerprint unchanged.

        Raises MilcoError if the store has fewer parts.
        """
        return ImpactStore(self._store.take_shard(shard_id, shard_num), self._prune)

    def documents(self) -> Iterator[bytes]:
        """Yield what the store holds next to every vector, in their order."""
        return self._store.documents()

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield ids and {term: impact}."""
        return ((vector.id, vector.weights) for vector in self)

    def __iter__(self) -> Iterator[ImpactDocument]:
        for ids, batch in self.batches():
            for docid, (columns, weights) in zip(ids, batch.rows(), strict=True):
                yield self.vector(docid, columns, weights)

    def vector(self, docid: str, columns: NDArray[np.int32], weights: NDArray[np.float32]) -> ImpactDocument:
        """Return a row of batches() as an ImpactDocument."""
        numbers, impacts = columns.tolist(), weights.astype(int).tolist()
        return ImpactDocument(docid, [self.terms[column] for column in numbers], numbers, impacts)

    def validate_fits(self, other: "ImpactStore") -> None:
        """Raise MilcoError if other vectors, such as topics, are not those of the same encoder."""
        validate_same_encoder(other.path, other.manifest, self.path, self.manifest)
        if self.terms != other.terms:
            raise MilcoError(f"{other.path} and {self.path} have different vocabularies: encode both with one encoder")


@dataclass
class ExportJob:
    """Documents for a target, with queries, and with the store that the target already has.

    Args:
        documents: what is exported.
        collection: name of the collection, index or table at the target.
        topics: encoded queries.
        since: export only what differs from these vectors.
        corpus: what is stored with each document.
        shard_id, shard_num: export only one of shard_num shards, from 0, of consecutive parts of the store.
        shards, replicas: of the collection at a running server; None for the server's defaults.

    Attributes:
        written, empty, largest, deleted: after changed() has ended, the number of documents it yielded, the number of
            documents without terms, the largest impact, and ids that the target has and the documents lack.
        outdated: of documents with unchanged vectors, returns those whose stored fields differ at the target.
        postings, id_with_space: then, the number of terms of all documents, and the first docid with white space.
        exported: what is written, of documents.
        observe: called with every exported document that has terms.

    Raises:
        MilcoError: the name cannot be that of a collection, the vectors are those of different encoders, or there is no
            such shard.
    """

    documents: ImpactStore
    collection: str
    topics: ImpactStore | None = None
    since: ImpactStore | None = None
    corpus: StoredDocuments | None = None
    shard_id: int = 0
    shard_num: int = 1
    shards: int | None = None
    replicas: int | None = None
    written: int = 0
    empty: int = 0
    largest: int = 0
    postings: int = 0
    id_with_space: str | None = None
    deleted: list[str] = field(default_factory=list)
    outdated: Callable[[list[ImpactDocument]], Iterable[ImpactDocument]] = lambda _: ()
    observe: Callable[[ImpactDocument], object] = lambda _: None

    def __post_init__(self) -> None:
        validate_collection(self.collection)
        for other in (self.topics, self.since):
            if other is not None:
                self.documents.validate_fits(other)
        validate_shard_id(self.shard_id, self.shard_num)
        if self.is_shard and self.since is not None:
            rule = "needs all parts of the store, which show what was deleted"
            raise ParameterError("since", None, rule, Message("Omit {shard_num}."))
        self.exported = self.documents.take_shard(self.shard_id, self.shard_num) if self.is_shard else self.documents
        self.progress = Progress("documents", len(self.exported))

    @property
    def is_shard(self) -> bool:
        """True if only a part of the documents is exported."""
        return self.shard_num > 1

    @property
    def statement(self) -> str:
        """The fingerprints of vectors and stored documents, as a target that holds this export states them."""
        return self.documents.fingerprint + ("" if self.corpus is None else f"+{self.corpus.checksum}")

    @property
    def place(self) -> Collection:
        """The collection that a server has after this export."""
        schema = None if self.corpus is None else self.corpus.schema
        return Collection(self.collection, len(self.documents.terms), schema)

    def changed(self) -> Iterator[ImpactDocument]:
        """Yield every document that has terms; with since, those that are new or have changed."""
        self.written = 0
        self._restart()
        older = OlderVectors(self.since)
        same: list[ImpactDocument] = []
        for ids, batch, content in vector_bytes(self.exported):
            self.progress.add(len(ids))
            self._measure(ids, batch)
            for docid, bytes_, (columns, weights) in zip(ids, content, batch.rows(), strict=True):
                is_same = bytes_ is not None and older.is_same(docid, bytes_)
                if bytes_ is None or (is_same and self.corpus is None):
                    continue
                vector = self.documents.vector(docid, columns, weights)
                if self.corpus is not None:
                    vector = vector._replace(document=orjson.loads(self.corpus.entry(docid, {}).raw))
                self.observe(vector)
                if is_same:
                    same.append(vector)
                else:
                    self.written += 1
                    yield vector
                if len(same) == COMPARED:
                    yield from self._rewritten(same)
                    same = []
        yield from self._rewritten(same)
        self.deleted = older.remaining()

    def measure_all(self) -> None:
        """Set what changed() sets, except written and deleted, to that of the documents of all shards."""
        self._restart()
        for ids, batch in self.documents.batches():
            self._measure(ids, batch)

    def _rewritten(self, same: list[ImpactDocument]) -> Iterator[ImpactDocument]:
        for vector in self.outdated(same):
            self.written += 1
            yield vector

    def _restart(self) -> None:
        self.empty = self.largest = self.postings = 0
        self.id_with_space = None

    def _measure(self, ids: Sequence[str], batch: SparseBatch) -> None:
        self.empty += int((batch.lengths() == 0).sum())
        self.largest = max(self.largest, int(batch.weights.max(initial=0)))
        self.postings += len(batch.columns)
        self.id_with_space = self.id_with_space or next(filter(WHITE_SPACE.search, ids), None)


class Server(Protocol):
    """A collection of a running server, which may not exist yet. Errors are those of the server's client.

    It states what it holds: a fingerprint, or "OLD>NEW" while documents are written, where OLD may be empty.
    """

    # Has close().
    client: Any
    # Threads that may call present() and write() at a time.
    writers: int = 1
    # Requested shards and replicas; None for the server's defaults.
    shards: int | None = None
    replicas: int | None = None
    # Types of the fields of which search() takes ranges, and whose values count_values() counts.
    ranged: frozenset[str]
    counted: frozenset[str]

    @property
    def max_terms(self) -> int:
        """The largest number of terms of a query."""
        return 2**31

    def stated(self, alias: bool = False) -> str | None:
        """Return what the collection states.

        None if there is no collection, "" if milco export did not make it or its schema was changed.

        Args:
            alias: accept an alias, which can be searched but not filled.
        """

    def create(self, statement: str) -> None:
        """Create the collection with a statement."""

    def state(self, statement: str) -> None:
        """Replace the statement."""

    def present(self, ids: list[str]) -> set[str]:
        """Return the docids that exist in the collection."""

    def write(self, vectors: list[ImpactDocument]) -> None:
        """Add or replace documents."""

    def delete(self, ids: list[str]) -> None:
        """Delete documents. Missing ones are not an error."""

    def finish(self) -> int:
        """Make all documents searchable, and return their number."""
        return self.count()

    def count(self) -> int:
        """Return the number of documents."""

    def ping(self) -> None:
        """Raise an error unless all documents can be searched."""
        self.stated(alias=True)

    def search(self, queries: Sequence[ImpactDocument], k: int, filters: FieldFilters) -> list[list[tuple[str, float]]]:
        """Return docid and score of the k best documents of each query, best first, ties in any order.

        Every query has terms. Scores are in units of impacts: sums of products of integers. Threads may search at the
        same time. Raises an error if a part of the collection is not available. The server of a target with APPROXIMATE
        also takes steps.

        Args:
            filters: only documents that have one of the values in each field, or one in the range.
        """

    def impacts(self, ids: list[str], query: ImpactDocument) -> dict[str, dict[str, int]]:
        """Return the impacts of a query's terms in each document; missing documents are left out."""

    def stored(self, ids: list[str]) -> dict[str, str]:
        """Return the stored JSON of the documents; missing ones are left out."""

    def count_values(self, field: str, limit: int) -> dict[str, int]:
        """Return how many documents have each value of a field; for more than limit values, some are enough."""


class Steps(NamedTuple):
    """A search in two steps: the strong terms of a query find documents, and all terms score the best of these.

    prune_ratio: weight of the weakest strong term, as a share of that of the strongest. window_size: documents of each
    shard that are scored with all terms, at least as many as are returned.
    """

    prune_ratio: float
    window_size: int

    def split(self, query: ImpactDocument) -> tuple[ImpactDocument, ImpactDocument]:
        """Return the strong and the weak terms of a query."""
        least, columns = self.prune_ratio * max(query.impacts), dict(zip(query.terms, query.columns, strict=True))
        strong = {term: impact for term, impact in query.weights.items() if impact >= least}
        weak = {term: impact for term, impact in query.weights.items() if impact < least}
        return ImpactDocument.of(strong, columns, query.id), ImpactDocument.of(weak, columns, query.id)


class TextServer(Server, Protocol):
    """A server of a target with HYBRID: it searches stored texts, too."""

    @property
    def max_words(self) -> int:
        """The largest number of words of a text that search_texts() searches for."""
        return self.max_terms

    def search_texts(self, texts: Sequence[str], k: int, filters: FieldFilters) -> list[list[tuple[str, float]]]:
        """Return what search() returns, by BM25 of the stored texts."""


class ExportTarget:
    """A search engine to which vectors are exported. Its file writes its files and states what its users must know."""

    name = ""
    # Its own program or service, as people write it.
    title = ""
    # Limits: bytes of a docid, terms of a document, and the largest impact of which no bit is lost.
    max_id_bytes = 2**31
    max_terms = 2**31
    exact_up_to = 2**24
    capabilities: frozenset[Capability] = frozenset()
    # Schemes of the URLs of a server that can be filled, and whether a path opens a database within the client.
    schemes: tuple[str, ...] = ()
    takes_paths = False
    # Measured needs of a server: bytes on disk, and postings in a second.
    posting_bytes = 0
    postings_per_second = 0
    # Names that fields of stored documents cannot have, and the bytes of their JSON.
    own_fields: frozenset[str] = frozenset()
    max_document_bytes = 2**31

    def require(self, capability: Capability, parameter: str, value: Any, hint: str = "") -> None:
        """Raise ParameterError unless the target has a capability. parameter, value: what needs it."""
        require(capability, self.title, self.capabilities, TARGETS, parameter, value, hint)

    def write(self, export: ExportJob, directory: Path) -> None:
        """Write documents, schema and queries to a directory."""
        raise NotImplementedError

    def connect(self, access: Access, collection: Collection) -> Server:
        """Return a collection of a running server. Raises MilcoError if its version is too old.

        access: to one server; to a cluster, by several of its nodes.
        """
        raise NotImplementedError

    def validate_urls(self, urls: Sequence[str]) -> None:
        """Raise MilcoError for URLs that are not those of one such server, or if no running server can be filled."""
        self.require(Capability.FILL, "url", urls, "Omit it, and load the files as their README.md shows.")
        if len(urls) > 1:
            self.require(Capability.CLUSTER, "url", urls)
        for url in map(public_url, urls):
            scheme = url.partition("://")[0] if "://" in url else ""
            if scheme not in self.schemes and (scheme or not self.takes_paths):
                valid = " or ".join(f"{name}://" for name in self.schemes)
                raise ParameterError("url", url, f"a URL of {self.title} begins with {valid}")

    def search_request(self, query: ImpactDocument, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request for the best documents of a query. For targets with REQUEST to implement."""
        raise NotImplementedError

    def hybrid_request(self, query: ImpactDocument, text: str, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request that fuses the ranking of a query with BM25 of its text by reciprocal rank fusion.

        For targets with HYBRID to implement.
        """
        raise NotImplementedError

    def validate_stores(self, fields: Iterable[str] = ()) -> None:
        """Raise MilcoError if the target stores no documents, or has no room for a field with one of these names."""
        self.require(Capability.STORE, "store_documents", True, "Omit it, and look documents up by docid.")
        for name in self.own_fields.intersection(fields):
            fix = "Rename that field of the corpus."
            raise ParameterError("store_documents", True, f"{name} is {self.title}'s docid", fix)

    def documents(self, export: ExportJob) -> Iterator[ImpactDocument]:
        """Yield the documents to write. Raises MilcoError for one that the target cannot hold."""
        for vector in export.changed():
            size = len(vector.id.encode())
            if size > self.max_id_bytes:
                raise MilcoError(
                    f"document {shown(vector.id)}: its id has {size:,} bytes, {self.title} takes {self.max_id_bytes:,}"
                )
            if len(vector.terms) > self.max_terms:
                raise MilcoError(
                    f"document {shown(vector.id)}: {len(vector.terms):,} terms, {self.title} takes {self.max_terms:,}",
                    Message("Pass {prune}.", prune=f"top-k:{self.max_terms}"),
                )
            if vector.document is not None and (size := len(orjson.dumps(vector.document))) > self.max_document_bytes:
                raise MilcoError(
                    f"document {shown(vector.id)}: {size:,} bytes of JSON, {self.title} takes "
                    f"{self.max_document_bytes:,}",
                    Message("Omit {store_documents}, or split long texts into documents."),
                )
            yield vector


TARGETS: Registry[ExportTarget] = Registry("milco.targets", ExportTarget)


def validate_collection(name: str) -> None:
    """Raise MilcoError for a name that cannot be that of a collection at every target."""
    if not _COLLECTION.fullmatch(name):
        raise ParameterError(
            "collection",
            name,
            "must be a lower-case letter and up to 62 lower-case letters, digits and _, a name that every target "
            "accepts",
        )


def common_impacts(query: ImpactDocument, document: Mapping[int, float]) -> dict[str, int]:
    """Return the impacts of a document, {column: impact}, for those of the terms of a query that it has."""
    pairs = zip(query.terms, query.columns, strict=True)
    return {term: int(document[column]) for term, column in pairs if column in document}


def write_parts(
    directory: Path,
    stem: str,
    ending: str,
    records: Iterable[bytes],
    start: bytes = b"",
    separator: bytes = b"\n",
    end: bytes = b"\n",
) -> None:
    """Write records to files STEM-00000.ENDING.gz, ... that a server accepts as one request each; none without records.

    start, separator, end: of each file.
    """
    number, size, handle = 0, 0, None
    try:
        for record in records:
            if handle is None:
                path = directory / f"{stem}-{number:05d}.{ending}.gz"
                handle = gzip.GzipFile(path, "wb", _COMPRESSION, mtime=0)
                size = handle.write(start)
            else:
                handle.write(separator)
            size += handle.write(record)
            if size > _FILE_BYTES:
                handle.write(end)
                handle.close()
                number, handle = number + 1, None
        if handle is not None:
            handle.write(end)
    finally:
        if handle is not None:
            handle.close()


def write_lines(path: Path, values: Iterable[object]) -> None:
    """Write JSON lines."""
    with path.open("wb") as handle:
        for value in values:
            handle.write(orjson.dumps(value) + b"\n")


def render(template: str, export: ExportJob, path: Path, **values: object) -> None:
    """Write a file of templates/ to path; it is about an export."""
    environment = Environment(
        loader=PackageLoader("milco_pyserini.export"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    about = export.documents.about
    changes = "" if export.since is None else f" that changed (and {len(export.deleted):,} to delete)"
    if export.is_shard:
        changes = f" (shard {export.shard_id} of {export.shard_num})"
    text = environment.get_template(template).render(
        collection=export.collection,
        columns=len(export.documents.terms),
        deleted=len(export.deleted),
        documents=counted(export.written, "document") + changes,
        encoder=about.encoder or None,
        flags=encode_flags(about),
        fingerprint=export.statement,
        hits=HITS,
        scale=f"{about.scale:g}",
        since=export.since is not None,
        stored=export.corpus is not None,
        topics=export.topics is not None,
        vectors=export.documents.path,
        version=__version__,
        written=export.written,
        **values,
    )
    path.write_text(text, encoding="utf-8")
