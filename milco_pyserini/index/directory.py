"""An index on disk: the engine's files and a manifest that says which engine, which documents, which encoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milco_pyserini import __version__
from milco_pyserini.console import Progress, say
from milco_pyserini.defaults import VECTORS
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.census import count_in
from milco_pyserini.index.dense_recall import truth_of_dense_documents, truth_of_dense_topics
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.protocol import DENSE, TERMS, TEXT, Documents, Engine, Searcher
from milco_pyserini.index.recall import (
    APPROXIMATE,
    Truth,
    report,
    truth_of_documents,
    truth_of_topics,
    write_truth,
)
from milco_pyserini.index.registry import ENGINES, find_engine
from milco_pyserini.index.settings import BUILD, SEARCH, adjusted, values
from milco_pyserini.io.files import atomic_directory, is_json_with
from milco_pyserini.io.manifest import (
    DENSE_INDEX,
    INDEX,
    MANIFEST,
    SPARSE_INDEX,
    TEXT_INDEX,
    DamagedError,
    describe_files,
    list_files,
    read_checked,
    validate_fields,
    validate_files,
    write_checked,
)

FORMAT_VERSION = 1
_LOW_RECALL = 0.95
_TRUTHS: dict[str, tuple[Callable[[Any, Any], Truth], Callable[[Any, int], Truth]]] = {
    TERMS: (truth_of_topics, truth_of_documents),
    DENSE: (truth_of_dense_topics, truth_of_dense_documents),
}
_QUERIES = {TERMS: "weighted terms", DENSE: "dense vectors", TEXT: "texts"}
_FIELDS: dict[str, dict] = {TERMS: SPARSE_INDEX, DENSE: DENSE_INDEX, TEXT: TEXT_INDEX}


@dataclass(frozen=True)
class Index:
    """A finished index.

    manifest: engine, exactness, documents, the engine's build_settings and the search_settings that a search begins
    from. An index of terms adds postings (terms of all documents) and query_scale; one of terms or of dense vectors
    has the vector store's own manifest as vectors, one of texts what they are as texts.
    """

    path: Path
    manifest: dict

    @property
    def engine(self) -> Engine:
        """The engine that wrote it, with the settings that it wrote down."""
        engine = find_engine(self.manifest["engine"])
        written = {key: self.manifest.get(key, {}) for key in ("build_settings", "search_settings")}
        return adjusted(engine, written["build_settings"] | written["search_settings"], BUILD, SEARCH)

    @property
    def query_scale(self) -> float:
        """Impact of a query's term = round(weight x query_scale)."""
        return self.manifest["query_scale"]

    @property
    def vectors(self) -> dict:
        """The manifest of the vectors that it was built from: encoder, views, scale. An index of texts has none."""
        return self.manifest["vectors"]

    def searcher(self, settings: Mapping[str, float] | None = None) -> Searcher:
        """Open it. settings: for this searcher, instead of the index's own, such as {"query_cut": 20}.

        All files' sizes are compared with the manifest, and the smallest files' checksums; milco verify compares all.
        Raises MilcoError if the engine cannot work here, does not know a setting, or if a file is damaged.
        """
        engine = adjusted(self.engine, settings or {}, SEARCH)
        engine.available()
        try:
            with engine_errors(engine.name, "open", self.path):
                validate_files(self.path, self.manifest.get("files", []))
                return engine.open(self.path, self.manifest)
        except MilcoError as error:
            return self._successor(error).searcher(settings)

    def _successor(self, error: MilcoError) -> "Index":
        """Return the index of the same vectors that replaced this one while it was opened; raise error if none did."""
        try:
            manifest = read_checked(self.path / MANIFEST)
        except DamagedError:
            raise error from None
        if manifest == self.manifest:
            raise error
        changed = [name for name in manifest | self.manifest if manifest.get(name) != self.manifest.get(name)]
        if not {"files", "recall"}.issuperset(changed):
            raise MilcoError(f"{self.path} was replaced by another index while it was opened: run the command again")
        return Index(self.path, manifest)

    def write_down(self, settings: Mapping[str, float], recall: dict) -> "Index":
        """The index with these settings for every later search, and what it finds with them: a new manifest."""
        engine = adjusted(self.engine, settings, SEARCH)
        manifest = self.manifest | {"search_settings": values(engine, SEARCH), "recall": recall}
        write_checked(self.path / MANIFEST, manifest)
        return Index(self.path, manifest)


def build_index(
    store: Documents,
    engine: Engine,
    output: Path,
    threads: int = 1,
    overwrite: bool = False,
    settings: Mapping[str, float] | None = None,
    topics: Documents | None = None,
) -> Index:
    """Build the index of store at output, which takes its name only when it is whole.

    store: of the kind that the engine's queries say: Store, DenseStore or TextStore.
    settings: of the build, and those that every search of this index begins from, such as {"n_postings": 2000}.
    topics: what the recall of an approximate index is measured on (default: drawn documents).
    Raises MilcoError if the engine cannot work here or does not know a setting, or if output exists and overwrite is
    not asked for.
    """
    engine = adjusted(engine, settings or {}, BUILD, SEARCH)
    engine.available()
    progress = Progress("documents", store.manifest.get("documents"))
    census = count_in(engine.queries, store, progress)
    with atomic_directory(output, overwrite, is_index) as directory:
        built = engine.build(census, directory, threads)
        census.refuse_duplicates()
        if not built.documents:
            without = f" with a term ({built.empty:,} without)" if built.empty else ""
            pruned = store.manifest.get("pruning") if built.empty else None
            after = f" after pruning by {pruned}" if pruned else ""
            raise MilcoError(f"{store.path} holds no document{without}{after}: nothing to index")
        manifest: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "engine": engine.name,
            "exactness": engine.exactness,
            "documents": built.documents,
            "empty_documents": built.empty,
            "build_settings": values(engine, BUILD),
            "search_settings": values(engine, SEARCH),
            "id_with_space": census.id_with_space,
            "milco_pyserini": __version__,
            **census.described(),
        }
        files = describe_files(directory, list_files(directory))
        measured = engine.exactness == APPROXIMATE
        if measured:
            progress.close("indexed")
            manifest["recall"] = _measure(store, topics, engine, directory, manifest)
        manifest["files"] = files
        write_checked(directory / MANIFEST, manifest)
    if measured:
        say(f"indexed into {output}")
        if manifest["recall"]["recall@10"] < _LOW_RECALL and engine.queries == TERMS:
            tune = f"milco index tune --index {output} --recall {_LOW_RECALL:g}"
            say(f"more is found with other settings ({tune}), or with a larger --n-postings")
    else:
        progress.close(f"indexed into {output}")
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    say(f"{output} takes {size / 1e6:,.1f} MB on disk")
    return Index(output, manifest)


def _measure(store: Any, topics: Any, engine: Engine, directory: Path, manifest: dict) -> dict:
    """What an index finds of the exact ranking; the queries and their best documents are kept in it."""
    of_topics, of_documents = _TRUTHS[engine.queries]
    truth = of_documents(store, manifest["documents"]) if topics is None else of_topics(store, topics)
    write_truth(directory, truth)
    return report(engine.open(directory, manifest), truth)


def is_index(path: Path) -> bool:
    """Whether a directory holds an index of ours, of whatever version."""
    return is_json_with(path / MANIFEST, "format_version", "engine")


def open_index(path: str | Path, queries: str | None = None) -> Index:
    """The index at path. Raises MilcoError if it is not there, not finished or of another version.

    queries: TERMS, DENSE or TEXT for whoever can use an index with such queries alone; others are refused.
    """
    path = Path(path)
    if not path.is_dir():
        vectors = VECTORS / path.stem
        raise MilcoError(
            f"no index at {path}: build it with milco index --vectors {vectors} --output {path}"
            + ("" if vectors.is_dir() else f", where {vectors} is a store that milco encode wrote")
        )
    if not (path / MANIFEST).is_file() and any(path.glob("segments_*")):
        raise MilcoError(
            f"{path} is an index that Anserini or Pyserini built: search it with milco pyserini search.lucene --impact "
            f"--index {path} --encoder NAME"
        )
    if not (path / MANIFEST).is_file():
        raise MilcoError(f"{path} has no {MANIFEST}: it is not an index that milco index finished")
    manifest = read_checked(path / MANIFEST)
    version = manifest.get("format_version")
    if "engine" not in manifest:
        raise MilcoError(f"{path} is no index: build one from it with milco index --vectors {path}")
    if version != FORMAT_VERSION:
        raise MilcoError(f"{path} has index version {version}, this is version {FORMAT_VERSION}: build it again")
    validate_fields(manifest, INDEX, path, MANIFEST)
    engine = find_engine(manifest["engine"])
    validate_fields(manifest, _FIELDS[engine.queries], path, MANIFEST)
    if queries not in (None, engine.queries):
        fit = [name for name, other in ENGINES.items() if other.queries == queries]
        raise MilcoError(
            f"{path} is a {engine.name} index, whose queries are {_QUERIES[engine.queries]}; an index whose queries "
            f"are {_QUERIES[queries]} is needed here (engine {' or '.join(fit)})"
        )
    return Index(path, manifest)
