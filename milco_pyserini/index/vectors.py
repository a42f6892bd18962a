"""The vectors that an index is built from and searched for: stores, matrices, and queries that were encoded before."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from milco_pyserini.console import warn
from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.encode.documents import SchemaReader, document_records
from milco_pyserini.encode.parts import vector_ids
from milco_pyserini.errors import Message, MilcoError, ParameterError, shown
from milco_pyserini.index.documents import SparseDocuments
from milco_pyserini.index.protocol import DEFAULT_QUERIES, QueryOptions
from milco_pyserini.io.records import SEARCH, IndexManifest, StoreManifest, fields_to_match
from milco_pyserini.model.checkpoint import Checkpoint, Kind
from milco_pyserini.request import BuildRequest, IndexRequest
from milco_pyserini.sparse import PIVOT, SOURCE, VIEWS, SparseBatch, VectorStore, open_store
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule
from milco_pyserini.sparse.quantization import SCALE

if TYPE_CHECKING:
    from milco_pyserini.encode.contract import MilcoQueryEncoder

_CHUNK = 4096


def open_documents(source: Any, request: IndexRequest) -> SparseDocuments:
    """Return a vector store at a path, or open vectors; pruned, or only a shard, if the request asks for it.

    Raises MilcoError for topics, and for a shard of other vectors than a vector store.
    """
    if isinstance(source, str | Path):
        source = open_store(Path(source), request.plain, request.scale or 1.0)
    elif not hasattr(source, "manifest"):
        raise TypeError(
            f"an index is built from a vector store, its path, or a SparseBatch, not from {type(source).__name__}; "
            "see SparseBatch.from_scipy() and SparseBatch.from_dicts()"
        )
    validate_kind(source.path, source.manifest)
    if isinstance(request, BuildRequest) and request.is_shard:
        if not isinstance(source, VectorStore):
            rule = f"divides the parts of a vector store that milco encode wrote, which {source.path} is not"
            raise ParameterError("shard_num", None, rule, "Index it as one.")
        source = source.take_shard(request.shard_id, request.shard_num)
    rules = [PruningRule.parse(rule) for rule in request.prune]
    return PrunedStore(source, rules, request.views) if rules or request.views else source


def validate_kind(path: Path, vectors: StoreManifest) -> None:
    """Raise MilcoError for encoded topics: an index holds documents. vectors: manifest."""
    if vectors.kind == "topics":
        raise MilcoError(
            f"{path} holds topics, and an index is built from documents: encode these with milco encode --corpus, or "
            f"search for the topics with milco search --topics {path}"
        )


def index_query_encoder(vectors: StoreManifest, options: QueryOptions) -> "MilcoQueryEncoder":
    """Return the encoder of an index, with the views weighted if alpha is given.

    vectors: manifest of the vectors in the index. Raises MilcoError if the encoder of the options does not fit.
    """
    device = options.device, options.dtype
    encoder: Any = options.query_encoder or options.encoder or vectors.encoder
    if isinstance(encoder, str | Path):
        # Before torch is loaded, which takes seconds.
        encoder = Checkpoint.open(encoder).fetch()
    from milco_pyserini.encode.contract import open_english_query_encoder, open_query_encoder

    if options.query_encoder is None or _is_of_documents(encoder):
        encoder = open_query_encoder(vectors, encoder, *device)
    else:
        encoder = open_english_query_encoder(vectors, encoder, options.encoder, *device)
    return encoder if options.alpha is None else encoder.with_alpha(options.alpha)


def _is_of_documents(encoder: Any) -> bool:
    """Return whether an encoder of queries is for documents of one model, in all views: a query network."""
    from milco_pyserini.encode.query_network import QueryNetwork

    if isinstance(encoder, str | Path | Checkpoint):
        return Checkpoint.open(encoder).kind is Kind.QUERY_NETWORK
    return isinstance(encoder, QueryNetwork)


def read_queries(
    path: Path, index: Path, manifest: IndexManifest, options: QueryOptions = DEFAULT_QUERIES
) -> tuple[list[str], list[dict[str, float]]]:
    """Read a vector store of topics, or JSONL files with id and vector, for an index and its manifest.

    Only the pivot view is returned if another encoder has encoded the topics, named by options.query_encoder. Raises
    MilcoError for topics that were not encoded as the documents of the index were, or by the query_encoder.
    """
    from milco_pyserini.corpora.local_files import find_files
    from milco_pyserini.io.manifest import MANIFEST

    if not ((path / MANIFEST).is_file() or (path / "plan.json").is_file()):
        if options.query_encoder is not None:
            raise ParameterError("query_encoder", None, f"{path} has no manifest that names it", "Omit it.")
        return _read_jsonl_queries(find_files(path, "topics"), manifest.query_scale)
    store = cast(VectorStore, open_store(path))
    if (store.manifest.kind or "topics") != "topics":
        warn(f"{path} holds {store.manifest.kind}, not topics: they are searched for as queries")
    views: tuple[str, ...] = VIEWS
    if options.query_encoder is None or _is_of_documents(options.query_encoder):
        other = store.manifest.encoder
        hint = Message(
            "Or search only English terms, if both have the same pieces: {query_encoder}", query_encoder=other
        )
        validate_same_encoder(path, store.manifest, index, manifest.vectors, hint)
    else:
        from milco_pyserini.encode.contract import validate_english_terms

        encoder = options.query_encoder
        name = str(encoder) if isinstance(encoder, str | Path) else encoder.name
        if store.manifest.encoder != name:
            raise ParameterError("query_encoder", name, f"{path} was encoded by {store.manifest.encoder}")
        validate_english_terms(store.vocabulary, path, manifest.vectors, options.encoder)
        views = (PIVOT,)
    ids, queries = [], []
    for names, batch in store.batches():
        ids += names
        queries += batch.view(*views).to_dicts(store.vocabulary)
    return ids, queries


class BatchDocuments:
    """A SparseBatch in memory as the documents of an index.

    Args:
        batch: vectors of documents, as MilcoEncoder.encode_document() returns them.
        ids: their docids, or the documents, which an index stores: Documents, dicts, or (id, text) pairs.
        encoder: the encoder that made them; queries are encoded by it. Without it, Searcher.open() needs an encoder.
        counts: number of passages of each document, each of which has a vector; None if documents are not split.
    """

    path = Path("the given vectors")

    def __init__(
        self, batch: SparseBatch, ids: Sequence[Any] | None, encoder: Any, counts: Sequence[int] | None = None
    ) -> None:
        if isinstance(encoder, str | Path):
            raise TypeError(f"encoder={str(encoder)!r}: a SparseBatch needs the encoder that made it, not its name")
        vocabulary = batch.vocabulary or (None if encoder is None else encoder.vocabulary)
        if ids is None or vocabulary is None:
            raise TypeError("a SparseBatch has no docids: pass ids=[...], and encoder=encoder if it has no vocabulary")
        self._records: list[bytes] = []
        about: dict[str, Any] = {}
        if not isinstance(ids, str) and all(isinstance(item, Document | Mapping | tuple) for item in ids):
            documents, schema = list(open_corpus(ids)), SchemaReader(str(self.path))
            for document in documents:
                schema.add(document)
            vectors = np.ones(len(documents), np.int64) if counts is None else np.asarray(counts)
            ids = vector_ids(documents, vectors, passages=counts is not None)
            self._records = document_records(documents, ids, vectors)
            about = {**schema.manifest_fields(), "split_passages": counts is not None or None}
        if isinstance(ids, str) or len(ids) != len(batch):
            raise ValueError(f"ids: a list with one docid for each of {len(batch):,} vectors, got {shown(str(ids))}")
        for docid in ids:
            if not isinstance(docid, str):
                raise TypeError(f"ids: docids are strings, got {type(docid).__name__} {docid!r}")
        self._batch = batch
        self._ids = list(ids)
        self.terms = vocabulary.terms.tolist()
        about |= {"documents": len(ids), "english_prefix": vocabulary.english_prefix, "scale": SCALE}
        if encoder is not None:
            if self.terms != encoder.vocabulary.terms.tolist():
                raise MilcoError(
                    f"the vectors have another vocabulary than encoder {encoder.name}: pass their own encoder"
                )
            has_terms = {PIVOT: batch.columns < batch.english_size, SOURCE: batch.columns >= batch.english_size}
            views = [view for view in encoder.views if has_terms[view].any()] or list(encoder.views)
            about |= {"encoder": encoder.name, "views": views, **encoder.hashes}
        self.manifest = StoreManifest(**about)

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield the id and {term: impact} of every document."""
        return PrunedStore(cast(Any, self)).vectors()

    def documents(self) -> Iterator[bytes]:
        """Yield the documents that were given."""
        return iter(self._records)

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield ids and float weights, some documents at a time."""
        for start in range(0, len(self._batch), _CHUNK):
            span = slice(start, start + _CHUNK)
            yield self._ids[span], self._batch[span]


def encode_flags(documents: StoreManifest) -> str:
    """Return the options with which milco encode encodes topics as documents were. documents: their manifest."""
    flags = f" --english-prefix {documents.english_prefix}" if documents.english_prefix else ""
    return flags + (" --lowercase" if documents.lowercase else "")


def validate_same_encoder(
    path: Path, topics: StoreManifest, index: Path, documents: StoreManifest, hint: str = ""
) -> None:
    """Raise MilcoError unless topics were encoded as the documents of an index were.

    topics, documents: manifests. hint: what else can be done if another encoder has encoded the topics.
    """
    for name in fields_to_match(SEARCH):
        given, indexed = getattr(topics, name), getattr(documents, name)
        if None in (given, indexed) or given == indexed:
            continue
        flags = encode_flags(documents)
        raise MilcoError(
            f"{path} does not fit {index}: its {name} is {given!r}, the documents' is "
            f"{indexed!r}; encode them again with milco encode --topics {topics.corpus} --encoder "
            f"{documents.encoder}{flags} --output {path} --overwrite",
            hint if name.endswith("_hash") else "",
        )


def _read_jsonl_queries(files: Sequence[Path], query_scale: float) -> tuple[list[str], list[dict[str, float]]]:
    """Read ids and weights > 0. If all weights are integers, they are impacts.

    Impacts are divided by the scale of the index, by which its searcher multiplies.
    """
    from milco_pyserini.corpora.records import BadLineError, record_id
    from milco_pyserini.io.lines import numbered_lines
    from milco_pyserini.sparse.store import read_jsonl
    from milco_pyserini.sparse.terms import lucene_term

    ids: list[str] = []
    queries: list[dict[str, float]] = []
    spellings: dict[str, str] = {}
    for path in files:
        for where, record in read_jsonl(path, numbered_lines(path)):
            try:
                ids.append(record_id(record["id"]))
            except BadLineError as error:
                raise MilcoError(f"{where}: {error}") from None
            for term, weight in record["vector"].items():
                if not isinstance(weight, int | float) or isinstance(weight, bool) or not math.isfinite(weight):
                    raise MilcoError(f"{where}: weight {weight!r} of term {shown(term)} is not a number")
            positive = {term: float(weight) for term, weight in record["vector"].items() if weight > 0}
            queries.append({lucene_term(term, spellings, where): weight for term, weight in positive.items()})
    scale = query_scale if all(weight.is_integer() for query in queries for weight in query.values()) else 1.0
    return ids, [{term: weight / scale for term, weight in query.items()} for query in queries]
