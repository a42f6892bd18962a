"""An index on disk: the engine's files and a manifest that names engine, documents and encoder."""

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from msgspec import structs

from milco_pyserini import __version__
from milco_pyserini.console import Progress, counted, log
from milco_pyserini.corpora import open_corpus
from milco_pyserini.corpora.languages import detect_languages
from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.defaults import VECTORS
from milco_pyserini.errors import Message, MilcoError, ParameterError, parameter, shown
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import (
    CheckedDocuments,
    SparseDocuments,
    StoredDocuments,
    stored_documents,
)
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.protocol import BUILD, CONTENT, SEARCH, Engine, EngineSearcher
from milco_pyserini.index.recall import find_ground_truth, report_recall, write_ground_truth
from milco_pyserini.index.registry import DEFAULT_ENGINE, find_engine
from milco_pyserini.index.shards import (
    ShardedSearcher,
    find_shards,
    joined_manifest,
    missing_shards,
    shard_name,
    validate_shard,
    validate_shard_directory,
)
from milco_pyserini.index.update import (
    DocumentChanges,
    locked_index,
    update_directory,
    update_request,
    validate_update,
)
from milco_pyserini.index.vectors import BatchDocuments, open_documents, validate_same_encoder
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.files import (
    atomic_directory,
    checksum_bytes,
    copy_file,
    is_json_with,
    json_bytes,
    recover_directory,
    scratch_directory,
    size_on_disk,
    visible,
)
from milco_pyserini.io.manifest import (
    MANIFEST,
    DamagedError,
    describe_files,
    list_files,
    named_files,
    read_checked,
    read_manifest,
    read_record,
    unlisted_files,
    validate_files,
    write_checked,
)
from milco_pyserini.io.records import FilesRecord, IndexManifest, ShardRecord, StoreManifest
from milco_pyserini.model.checkpoint import BM25_FILE
from milco_pyserini.options import changed_options, from_keywords
from milco_pyserini.request import OF_VECTORS, BuildKeywords, BuildRequest, IndexKeywords, IndexRequest
from milco_pyserini.sparse import SparseBatch, VectorStore
from milco_pyserini.sparse.changes import differing_parts
from milco_pyserini.sparse.pruning import PrunedStore
from milco_pyserini.sparse.quantization import SCALE

if TYPE_CHECKING:
    from milco_pyserini.corpora import Corpus
    from milco_pyserini.encode.encoder import MilcoEncoder

FORMAT_VERSION = 1
_LOW_RECALL = 0.95
_EXPORT = "Fill the server by milco export --url"
# The vectors of an update that only deletes, and of texts that are not encoded yet.
_NOTHING = StoreManifest(scale=1.0)
_DEFAULTS = BuildRequest()
_LONGEST_NAME = 255


@dataclass(frozen=True, repr=False)
class Index:
    """A finished index.

    >>> from milco_pyserini import Index
    >>> texts = ["Bell patented the telephone.", "The Nile is a river."]
    >>> index = Index.build(texts, "indexes/two.lucene", encoder="mini")  # doctest: +SKIP
    >>> Index.open("indexes/two.lucene").manifest.documents  # doctest: +SKIP
    2

    shards: the indexes that it consists of, in their order; none for an index of one piece.
    """

    path: Path
    manifest: IndexManifest
    shards: "tuple[Index, ...]" = ()

    @classmethod
    def build(
        cls,
        source: Any,
        path: str | Path,
        engine: str | Engine = DEFAULT_ENGINE,
        *,
        ids: Sequence[Any] | None = None,
        encoder: "str | Path | MilcoEncoder | None" = None,
        **options: Unpack[BuildKeywords],
    ) -> "Index":
        """Build an index, or one of its shards. Its directory exists only when it is complete.

        Args:
            source: texts: an iterable of strings, (id, text) pairs, dicts with a text, or Documents, or a
                pandas.DataFrame (open_corpus()); or a vector store (a path or an open store), or a SparseBatch with ids
                and encoder. A generator is first written to a temporary file; vectors of texts are in a temporary store
                next to path.
            path: directory of the index.
            engine: lucene, exact, qdrant or seismic; or an engine with settings, such as Seismic(n_postings=500) or
                Lucene(store_vectors=True).
            ids: docids of a SparseBatch, or its documents, which are stored, too.
            encoder: the encoder of texts, loaded or its name (default: the published checkpoint); the one that made a
                SparseBatch.
            prune: pruning rules such as "top-k:100", applied one after the other.
            views: the views to index, of "pivot" and "source"; none for all.
            plain: source is external Anserini JSONL.
            scale: with plain, impact = round(weight x scale).
            store_documents: lucene, exact, qdrant: store documents; hits return them, their fields filter searches
                (default: those that the vectors have).
            topics: seismic: vector store of topics to measure recall on; unset for a sample of the documents.
            threads: threads that build; with lucene, each begins a segment of its own.
            overwrite: replace an index at path.
            shard_id, shard_num: build only one of shard_num shards, from 0, of consecutive parts of a store, in a
                directory in path. Once all are built, Index.open(path) opens them as one index.

        Returns:
            The index, or the shard.

        Raises:
            MilcoError: if the engine is not available, does not know an option, or path exists.
        """
        if not isinstance(path, str | Path):
            expected = "the directory of the index, which follows the texts or vectors: Index.build(source, path)"
            raise TypeError(f"path is {type(path).__name__}, expected {expected}")
        _refuse_text(source)
        if not isinstance(engine, str | Engine):
            raise TypeError(f"engine={engine!r}: expected a name, or an engine such as Seismic()")
        chosen = find_engine(engine) if isinstance(engine, str) else engine
        request = from_keywords(BuildRequest, **cast(Any, options))
        if _is_texts(source):
            _refuse_for_texts(request, *OF_VECTORS, ids=ids)
        elif isinstance(source, SparseBatch):
            source = BatchDocuments(source, ids, encoder)
        return build_index(source, chosen, Path(path), request, encoder)

    @classmethod
    def open(cls, path: str | Path) -> "Index":
        """Open an index. Raises MilcoError if there is none, if it is not finished, or of another version."""
        return open_index(path)

    @property
    def engine(self) -> Engine:
        """The engine that wrote it, with the settings of its manifest."""
        settings = self.manifest.build_settings | self.manifest.search_settings
        return find_engine(self.manifest.engine).with_settings(settings)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, engine={self.manifest.engine!r}, documents={self.manifest.documents})"

    @property
    def generation(self) -> str:
        """A digest of the manifest, and so of all files: it changes with every update, replacement and tuning."""
        manifests = [shard.manifest for shard in self.shards] or [self.manifest]
        return checksum_bytes(b"".join(json_bytes(manifest.to_json()) for manifest in manifests))

    @property
    def vectors(self) -> StoreManifest:
        """The manifest of the vectors that it was built from: encoder, views, scale."""
        return self.manifest.vectors

    def searcher(self, settings: Mapping[str, Any] | None = None) -> EngineSearcher:
        """Open the index for queries of its engine, as open_searcher() does."""
        return self.open_searcher(settings)[1]

    def open_searcher(self, settings: Mapping[str, Any] | None = None) -> "tuple[Index, EngineSearcher]":
        """Open the index for queries of its engine. For texts, see milco_pyserini.Searcher.

        The sizes of all files are compared with the manifest, and the checksums of the smallest; milco verify compares
        all. The searcher holds the files until it is closed, by close() or the end of a with block.

        Args:
            settings: for this searcher, instead of the index's own, such as {"query_cut": 20}.

        Returns:
            The index that is open, which is a newer one if an update ended meanwhile, and its searcher.

        Raises:
            MilcoError: if the engine is not available, does not know a setting, or if a file is damaged.
        """
        engine = self.engine.with_settings(settings or {}, when=SEARCH)
        engine.available()
        if self.shards:
            shards, searchers = zip(*(shard.open_searcher(settings) for shard in self.shards), strict=True)
            return _joined(self.path, shards), ShardedSearcher(self.path, searchers)
        try:
            with engine_errors(engine.name, "open", self.path):
                validate_files(self.path, self.manifest.files)
                self._validate_scanned(engine)
                searcher = engine.open(self.path, self.manifest)
        except MilcoError:
            successor = self._successor()
            if successor is None:
                raise
        else:
            # If it was replaced in between, some files may be those of the other.
            successor = self._successor()
        if successor is not None:
            return successor.open_searcher(settings)
        searcher.fields = self.manifest.fields
        return self, searcher

    def update(
        self,
        source: Any = None,
        *,
        since: Any = None,
        delete: Collection[str] | None = None,
        ids: Sequence[Any] | None = None,
        encoder: "str | Path | MilcoEncoder | None" = None,
        **options: Unpack[IndexKeywords],
    ) -> "Index":
        """Add, replace and delete documents. The directory has the old state until it has the new one, on disk.

        The index that is at the path now is changed; other programs that change it wait, one after the other. A
        Searcher finds the new state in its next search. The result is that of an index that is built anew from the
        remaining documents, for searches. The same update once more, and an empty delete, change nothing.

        Args:
            source: documents to add, as for build(): texts, which are encoded as those of the index were, or vectors.
                One with the id of another replaces it.
            since: the vectors that the index was built from: only what differs from them is written, and documents that
                source lacks are deleted.
            delete: ids of documents to delete, which need not exist.
            encoder: of texts, where the index's encoder is now, or that encoder, loaded.
            ids, prune, views, plain, scale, threads: as for build(), and as the index was built.

        Returns:
            The updated index.

        Raises:
            MilcoError: the engine cannot update indexes, the vectors were encoded in another way or since is not what
                the index was built from, no document would be left (lucene, qdrant), another command replaced the
                index meanwhile, or locks it for over ten minutes.
        """
        request = from_keywords(IndexRequest, **cast(Any, options))
        _refuse_text(source)
        self._validate_updatable()
        engine = self.engine
        if source is None and (since is not None or delete is None):
            raise MilcoError(Message("an update needs documents to add ({source}) or ids to delete ({delete})"))
        # An iterator is read more than once.
        delete = delete if isinstance(delete, str) else list(delete or ())
        if isinstance(delete, str) or not all(isinstance(docid, str) for docid in delete):
            raise TypeError(f"delete={delete!r}: expected a list of strings")
        if source is None and not delete:
            recover_directory(self.path)
            log(f"{self.path} is unchanged: there are no docids to delete")
            return self
        engine.available()
        if since is None and source is not None and self.vectors.split_passages and not engine.replaces_passages:
            raise MilcoError(
                f"{self.path} holds passages, and a replaced document may have had more",
                Message("Pass the store that the index was built from as {since}."),
            )
        if _is_texts(source):
            _refuse_for_texts(request, *OF_VECTORS[:2], "prune", "views", since=since, ids=ids)
            return self._update_from_texts(open_corpus(source), encoder, delete, request.threads)
        if isinstance(source, SparseBatch):
            source = BatchDocuments(source, ids, encoder)
        if not request.plain:
            source, since = (VectorStore.open(at) if isinstance(at, str | Path) else at for at in (source, since))
        if since is not None and not isinstance(since, VectorStore):
            raise ParameterError("since", None, "compares vector stores", "Omit it, and update with all documents.")
        with locked_index(self.path):
            return open_index(self.path)._apply(source, since, delete, request)

    def _apply(self, source: Any, since: VectorStore | None, delete: Collection[str], request: IndexRequest) -> "Index":
        """Update the index while it is locked."""
        engine, opened = self.engine, partial(open_documents, request=request)
        documents, older = (None if vectors is None else opened(vectors) for vectors in (source, since))
        path, manifest = (self.path, _NOTHING) if documents is None else (documents.path, documents.manifest)
        for store in (documents, older):
            if store is not None:
                validate_update(store.path, store.manifest, self.path, self.vectors)
        updates = self.manifest.updates
        digest = update_request(delete, *(None if store is None else store.manifest for store in (documents, older)))
        is_repeated = digest is not None and bool(updates) and updates[-1].request == digest
        if is_repeated:
            recover_directory(self.path)
            log(f"{self.path} is up to date")
            return self
        if older is not None and older.manifest.parts != self.vectors.parts:
            fix = Message("Give the vectors that it was built from, or last updated with, or omit {since}.")
            raise ParameterError("since", older.path, f"{self.path} was not built from it", fix)
        if older is not None and updates and not updates[-1].since:
            message = f"{self.path} no longer matches {older.path}, because other documents were added"
            raise MilcoError(message, Message("Build it again, or update with all documents, without {since}."))
        if isinstance(source, VectorStore) and since is not None and not delete:
            documents, older = map(opened, differing_parts(source, since))
        stored = None
        if documents is not None and self.manifest.fields is not None:
            stored = stored_documents(documents, True, True, bool(self.manifest.stores_vectors))
        if documents is not None and older is not None and documents.terms[: len(older.terms)] != older.terms:
            raise MilcoError(f"{path} and {older.path} have different vocabularies: encode both with one encoder")
        whole = since is None and bool(self.vectors.split_passages) and engine.replaces_passages
        changes = DocumentChanges(path, manifest, documents, older, set(delete), digest, stored, whole)
        return Index(self.path, update_directory(self.path, self.manifest, engine, changes, request.threads))

    def _update_from_texts(
        self,
        corpus: "Corpus",
        encoder: "str | Path | MilcoEncoder | None",
        delete: Collection[str],
        threads: int,
        only_new: bool = False,
    ) -> "Index":
        from milco_pyserini.encode.contract import open_query_encoder
        from milco_pyserini.encode.corpus import encode_corpus
        from milco_pyserini.encode.plan import EncodePlan

        if self.vectors.plain:
            raise MilcoError(f"{self.path} holds external vectors: update it with a store of them, not with texts")
        if self.manifest.detects_languages:
            corpus = open_corpus(detect_languages(corpus))
        vectors = self.vectors
        plan = EncodePlan(
            max_length=vectors.max_length,
            split_passages=bool(vectors.split_passages),
            lowercase=bool(vectors.lowercase),
            scale=vectors.scale,
            prune=tuple(vectors.rules),
            views=tuple(vectors.views or ()),
            store_documents=self.manifest.fields is not None,
        )
        if encoder is None and (self.path / BM25_FILE).is_file():
            encoder = self.path
        loaded = open_query_encoder(vectors, encoder, dtype=vectors.dtype or "auto").encoder
        with scratch_directory(self.path) as scratch:
            encode_corpus(corpus, scratch / "vectors", plan, encoder=loaded)
            request = IndexRequest(threads=threads)
            with locked_index(self.path):
                index = open_index(self.path)
                if only_new:
                    index._validate_new(corpus)
                return index._apply(VectorStore.open(scratch / "vectors"), None, delete, request)

    def add(self, documents: Any, *, encoder: "str | Path | MilcoEncoder | None" = None, threads: int = 1) -> "Index":
        """Add the texts of documents or of a corpus, as update() does.

        Raises MilcoError if the index has a document with one of the ids, and as update().
        """
        self._validate_updatable()
        _refuse_text(documents)
        corpus = open_corpus(documents)
        self._validate_new(corpus)
        return self._update_from_texts(corpus, encoder, (), threads, only_new=True)

    def _validate_new(self, corpus: "Corpus") -> None:
        with self.searcher() as searcher:
            for document in corpus:
                names = (document.id, f"{document.id}{PASSAGE_DELIMITER}0")[: 2 if self.vectors.split_passages else 1]
                if any(searcher.weights(name, ()) is not None for name in names):
                    fix = "Pass an id with each document, or replace documents by update()."
                    raise MilcoError(f"{self.path} has a document {shown(document.id)}: add() takes new ids only", fix)

    def delete(self, docids: Collection[str]) -> "Index":
        """Delete documents, which need not exist, as update() does: manifest.updates[-1].deleted is how many did.

        From an index of passages that an engine replaces by document (exact), all passages of a document are deleted.
        """
        return self.update(delete=docids)

    def save_settings(self, settings: Mapping[str, Any], recall: dict) -> "Index":
        """Write settings that every later search begins with, and the recall that they reach, to the manifest.

        Raises MilcoError if the index was changed by another command meanwhile.
        """
        engine = self.engine.with_settings(settings, when=SEARCH)
        manifest = structs.replace(self.manifest, search_settings=engine.settings(SEARCH), recall=recall)
        with locked_index(self.path):
            if open_index(self.path).manifest != self.manifest:
                raise MilcoError(f"{self.path} was changed by another command meanwhile: run this one again")
            write_checked(self.path / MANIFEST, manifest)
        return Index(self.path, manifest)

    def _validate_updatable(self) -> None:
        engine = self.engine
        hint = "Build it again." if Capability.BUILD in engine.capabilities else _EXPORT + Message(" with {since}.")
        engine.require(Capability.UPDATE, "path", self.path, hint)
        if self.shards or self.manifest.shard:
            fix = Message("Build them again with {overwrite}.", overwrite=True)
            raise MilcoError(f"{self.path}: shards cannot be updated", fix)

    def _validate_scanned(self, engine: Engine) -> None:
        """Raise MilcoError if the engine's library would read files that the manifest does not list."""
        others = unlisted_files(self.path, self.manifest) if engine.scanned else []
        if any(fnmatchcase(file, engine.scanned) for file in others):
            raise MilcoError(
                f"{self.path} holds files of another index, as after a copy over an older one, and {engine.name} would "
                f"read them: remove {named_files(others)}",
                hint=f"milco verify {self.path} lists all files that are not in its manifest",
            )

    def _successor(self) -> "Index | None":
        """Return the index that replaced this one while it was opened, or None. MilcoError if it has other vectors."""
        try:
            manifest = read_manifest(self.path, type(self.manifest))
        except DamagedError:
            return None
        if manifest == self.manifest:
            return None
        is_same_encoder = manifest.vectors.weight_hash == self.vectors.weight_hash
        is_updated = is_same_encoder and bool(manifest.updates) and manifest.updates != self.manifest.updates
        same = structs.replace(manifest, files=self.manifest.files, recall=self.manifest.recall)
        if not is_updated and same != self.manifest:
            raise MilcoError(f"{self.path} was replaced by another index while it was opened: run the command again")
        return Index(self.path, manifest)


def _is_texts(source: Any) -> bool:
    """Return whether open_corpus() takes a source that is neither a path, nor vectors, nor a sparse matrix."""
    is_other = isinstance(source, str | Path | SparseBatch) or hasattr(source, "manifest") or hasattr(source, "tocsr")
    return isinstance(source, Iterable) and not is_other


def _refuse_text(source: Any) -> None:
    """Raise MilcoError for a text in place of texts, or of a path or name."""
    # Path.exists() raises OSError for what is longer than a name.
    if isinstance(source, str) and not os.path.exists(source):  # noqa: PTH110
        try:
            if len(source) > _LONGEST_NAME or len(source.split()) > 1:
                raise MilcoError(f"there is nothing at {shown(source)}")
            open_corpus(source)
        except MilcoError as error:
            raise MilcoError(error.message, "Give a text in a list: [text].") from None


def _build_from_texts(
    corpus: "Corpus", engine: Engine, output: Path, request: BuildRequest, encoder: "str | Path | MilcoEncoder | None"
) -> Index:
    """Encode texts into a temporary store, and build an index of it."""
    from milco_pyserini.encode.corpus import encode_corpus
    from milco_pyserini.encode.plan import EncodePlan

    engine.available()
    stores = Capability.STORE in engine.capabilities and request.store_documents is not False
    plan = EncodePlan(prune=request.prune, views=request.views, store_documents=stores)
    # An index of other texts is refused before any text is encoded; one of the same may be up to date.
    wanted = {"vectors": StoreManifest(scale=plan.scale, corpus_hash=corpus.check().digest)}
    _open_artifact(output).action(wanted, request.overwrite)
    if isinstance(encoder, str | Path):
        plan, encoder = replace(plan, encoder=str(encoder)), None
    with scratch_directory(output) as scratch:
        manifest = encode_corpus(corpus, scratch / "vectors", plan, encoder=encoder)
        if manifest and manifest.empty_documents == manifest.documents:
            raise MilcoError(f"{corpus.name} holds no document with a term: nothing to index")
        return build_index(scratch / "vectors", engine, output, replace(request, prune=(), views=()))


def _refuse_for_texts(request: IndexRequest, *names: str, **given: Any) -> None:
    """Raise MilcoError for an option of the request, or an argument, that only vectors have."""
    mentions = [parameter(name) for name, value in given.items() if value is not None]
    for mention in [*mentions, *changed_options(request, *names)]:
        raise MilcoError(mention + " is for vectors, not for texts", "Omit it, or use encode_corpus() first.")


def build_index(
    source: Any,
    engine: Engine,
    output: Path,
    request: BuildRequest = _DEFAULTS,
    encoder: "str | Path | MilcoEncoder | None" = None,
) -> Index:
    """Build an index as Index.build() does, or report that it is up to date.

    Args:
        source: texts; or vectors: the path of a store, or open ones.
    """
    engine.require(Capability.BUILD, "engine", engine.name, f"{_EXPORT}.")
    if request.topics is not None:
        engine.require(Capability.APPROXIMATE, "topics", request.topics)
    if request.store_documents:
        engine.require(Capability.STORE, "store_documents", True)
    topics = None if request.topics is None else VectorStore.open(request.topics)
    if _is_texts(source):
        return _build_from_texts(open_corpus(source), engine, output, request, encoder)
    if request.is_shard:
        validate_shard_directory(output, request.shard_num)
        output /= shard_name(request.shard_id, request.shard_num)
    documents = open_documents(source, request)
    if topics is not None:
        validate_same_encoder(topics.path, topics.manifest, documents.path, documents.manifest)
    artifact = _open_artifact(output)
    # External vectors have no checksums that would show whether they are the same.
    if not documents.manifest.has_checksums:
        artifact = replace(artifact, recorded=None)
    wanted = _describe_build(engine, request) | {"vectors": documents.manifest, "updates": []}
    can_store, stores_vectors = Capability.STORE in engine.capabilities, bool(wanted["stores_vectors"])
    stored = stored_documents(documents, request.store_documents, can_store, stores_vectors)
    if stored is None and stores_vectors:
        raise ParameterError("store_vectors", None, "requires " + parameter("store_documents", True))
    if stored is not None or request.store_documents is False:
        wanted["stored_checksum"] = stored and stored.checksum
    if artifact.action(wanted, request.overwrite) is Action.KEEP:
        index = open_index(output)
        validate_files(output, index.manifest.files)
        artifact.keep()
    else:
        index = write_index(documents, engine, output, request, topics, stored)
        _report_dropped(documents, index)
    if request.is_shard:
        missing = missing_shards(output.parent)
        has = f"still lacks {missing}" if missing else f"has all of its {request.shard_num} shards"
        log(f"{output.parent} {has}")
    return index


def write_index(
    documents: SparseDocuments,
    engine: Engine,
    output: Path,
    request: BuildRequest,
    topics: SparseDocuments | None = None,
    stored: StoredDocuments | None = None,
) -> Index:
    """Write an index of open documents, which are those of the shard if the request is for one.

    Args:
        topics: queries to measure the recall of an approximate engine on.
        stored: what to store of each document, by an engine that stores documents.

    Raises MilcoError if the engine is not available, or if output exists and is not to be replaced.
    """
    engine.available()
    about = _describe_build(engine, request)
    if stored is not None:
        about |= {"fields": stored.fields, "stored_checksum": stored.checksum}
    if request.is_shard:
        for other in find_shards(output.parent):
            if other.name != output.name:
                vectors = {"vectors": documents.manifest}
                validate_shard(output, about | vectors, other, open_index(other).manifest)
    progress = Progress("documents", None if request.is_shard else documents.manifest.documents or None)
    checked = CheckedDocuments(documents, progress, stored)
    with atomic_directory(output, request.overwrite, _is_replaceable) as directory:
        built = engine.build(checked, directory, request.threads)
        checked.validate_unique_ids()
        if not request.is_shard and (documents.path / BM25_FILE).is_file():
            # Texts that are added later are encoded by it.
            copy_file(documents.path / BM25_FILE, directory / BM25_FILE)
        is_empty = not documents.manifest.documents and not documents.manifest.plain
        if not built.documents and not (engine.may_be_empty and is_empty):
            without = f" with a term ({built.empty:,} without)" if built.empty else ""
            pruned = documents.manifest.pruning if built.empty else None
            after = f" after pruning by {pruned}" if pruned else ""
            raise MilcoError(f"{visible(documents.path)} holds no document{without}{after}: nothing to index")
        manifest = IndexManifest(
            format_version=FORMAT_VERSION,
            **about,
            exactness=engine.exactness,
            documents=built.documents,
            empty_documents=built.empty,
            search_settings=engine.settings(SEARCH),
            id_with_space=checked.id_with_space,
            milco_pyserini=__version__,
            postings=checked.postings,
            # External impacts do not state their scale: for a ranking, any that is fine enough will do.
            query_scale=SCALE if documents.manifest.plain else documents.manifest.scale,
            vectors=documents.manifest,
            files=describe_files(directory, list_files(directory)),
            **cast(Any, engine.versions()),
        )
        is_approximate = Capability.APPROXIMATE in engine.capabilities
        if is_approximate:
            progress.close("Indexed")
            truth = find_ground_truth(documents, topics, built.documents)
            write_ground_truth(directory, truth)
            manifest = structs.replace(manifest, recall=report_recall(engine.open(directory, manifest), truth))
        write_checked(directory / MANIFEST, manifest)
    if is_approximate:
        log(f"Indexed into {output}")
        if (manifest.recall or {})["recall@10"] < _LOW_RECALL:
            tune = f"milco index tune --index {output} --recall {_LOW_RECALL:g}"
            log(f"For a higher recall, use other settings ({tune}), or build with a larger n_postings")
    else:
        progress.close(f"Indexed into {visible(output)}")
    log(f"{visible(output)} takes {size_on_disk(output) / 1e6:,.1f} MB on disk")
    return Index(output, manifest)


def _describe_build(engine: Engine, request: BuildRequest) -> dict[str, Any]:
    """Return what the manifest of an index states of how it is built; None for what is not given."""
    return {
        "engine": engine.name,
        "build_settings": engine.settings(BUILD),
        "shard": ShardRecord(id=request.shard_id, num=request.shard_num) if request.is_shard else None,
        "topics": None if request.topics is None else str(request.topics),
        "stores_vectors": engine.settings(CONTENT).get("store_vectors"),
    }


def _open_artifact(path: Path) -> Artifact:
    """Return what is at path, to build an index there."""
    recorded = None
    with contextlib.suppress(MilcoError):
        index = open_index(path)
        recorded = None if index.shards else index.manifest
    return Artifact(path, _is_replaceable, recorded)


def _report_dropped(documents: SparseDocuments, index: Index) -> None:
    """Report the terms and documents that a new index does not have."""
    if isinstance(documents, PrunedStore):
        log(f"Pruning kept {documents.kept / max(documents.entries, 1):.1%} of the terms")
        if documents.emptied:
            log(f"Pruning left {counted(documents.emptied, 'document')} without terms")
    if index.manifest.empty_documents:
        empty = counted(index.manifest.empty_documents, "document")
        log(f"Skipped {empty} without terms, which no query can find")


def _is_replaceable(path: Path) -> bool:
    """Return is_index(). Raises MilcoError if the directory also holds files that are not of the index."""
    if not is_index(path):
        return False
    shards = {shard.name: shard for shard in find_shards(path)}
    others = [file.as_posix() for file in list_files(path) if shards and file.parts[0] not in shards]
    for place in shards.values() or [path]:
        # Files that a damaged manifest lists are not known.
        with contextlib.suppress(DamagedError):
            manifest = read_manifest(place, FilesRecord)
            others += [(place / file).relative_to(path).as_posix() for file in unlisted_files(place, manifest)]
    if others:
        raise MilcoError(
            f"{path} holds {named_files(others)}, which are not part of the index there and would be lost",
            Message("Choose another {path}, or move such files."),
        )
    return True


def is_index(path: Path) -> bool:
    """Return whether a directory holds an index of this project, of whatever version, or shards of one."""
    return any(is_json_with(place / MANIFEST, "format_version", "engine") for place in (path, *find_shards(path)))


def manifest_state(path: Path) -> list[tuple[str, int, int]]:
    """Return name, file number and time of the manifest of an index, or of its shards; none of one that is missing."""
    found = []
    for directory in find_shards(path) or [path]:
        with contextlib.suppress(OSError):
            about = (directory / MANIFEST).stat()
            found.append((directory.name, about.st_ino, about.st_mtime_ns))
    return found


def open_index(path: str | Path) -> Index:
    """Open the index at path. Raises MilcoError if there is none, if it is not finished, or of another version."""
    if not isinstance(path, str | Path):
        raise TypeError(f"expected the directory of an index, a str or Path, not {type(path).__name__}")
    path = Path(path)
    if shards := find_shards(path):
        return _open_shards(path, [open_index(shard) for shard in shards])
    if not path.is_dir():
        vectors = VECTORS / path.stem
        raise MilcoError(
            f"no index at {path}: build it with milco index --vectors {vectors} --output {path}"
            + ("" if vectors.is_dir() else f", where {vectors} is a store that milco encode wrote")
        )
    if not (path / MANIFEST).is_file() and any(path.glob("segments_*")):
        raise MilcoError(
            f"{path} is an index that Anserini or Pyserini built: search it with milco pyserini search.lucene --impact "
            f"--index {path} --encoder NAME, or, if it holds English words (BM25), with milco keywords --index {path}"
        )
    if not (path / MANIFEST).is_file():
        raise MilcoError(f"{path} has no {MANIFEST}: it is not an index that milco index finished")
    content = read_checked(path / MANIFEST)
    version, name = content.get("format_version"), content.get("engine")
    if name is None:
        raise MilcoError(f"{path} is not an index: build one from it with milco index --vectors {path}")
    if version != FORMAT_VERSION:
        raise MilcoError(f"{path} has index version {version}, this is version {FORMAT_VERSION}: build it again")
    if not isinstance(name, str):
        raise DamagedError(path, MANIFEST, f"engine: expected a string, got {name!r}")
    try:
        engine = find_engine(name)
    except MilcoError as error:
        raise MilcoError(f"{path}: " + error.message, error.hint) from None
    return Index(path, read_record(content, engine.record, path))


def _open_shards(path: Path, shards: Sequence[Index]) -> Index:
    """Open the shards at path as one index. Raises MilcoError if some are missing, or are those of another index."""
    if missing := missing_shards(path):
        fix = Message("Build each with the milco index command of the others and its {shard_id}.")
        raise MilcoError(f"{path} lacks {missing}", fix)
    for shard in shards[1:]:
        validate_shard(shards[0].path, structs.asdict(shards[0].manifest), shard.path, shard.manifest)
    return _joined(path, shards)


def _joined(path: Path, shards: Sequence[Index]) -> Index:
    return Index(path, joined_manifest([shard.manifest for shard in shards]), tuple(shards))
