"""An index on disk: the engine's files and a manifest that says which engine, which documents, which encoder."""

from dataclasses import dataclass
from pathlib import Path

from milco_pyserini import __version__
from milco_pyserini.console import Progress
from milco_pyserini.defaults import VECTORS
from milco_pyserini.errors import MilcoError
from milco_pyserini.files import is_json_with, read_json, whole_directory, write_json
from milco_pyserini.index.census import Census
from milco_pyserini.index.protocol import Engine, Searcher, Store
from milco_pyserini.index.registry import find_engine
from milco_pyserini.sparse.quantization import SCALE

FORMAT_VERSION = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Index:
    """A finished index. manifest: engine, exactness, documents, and the vector store's own manifest as vectors."""

    path: Path
    manifest: dict

    @property
    def engine(self) -> Engine:
        """The engine that wrote it."""
        return find_engine(self.manifest["engine"])

    @property
    def query_scale(self) -> float:
        """Impact of a query's term = round(weight x query_scale)."""
        return self.manifest["query_scale"]

    @property
    def vectors(self) -> dict:
        """The manifest of the vectors that it was built from: encoder, views, scale."""
        return self.manifest["vectors"]

    def searcher(self) -> Searcher:
        """Open it. Raises MilcoError if the engine cannot work here or its files are missing."""
        self.engine.available()
        return self.engine.open(self.path, self.manifest)


def build_index(store: Store, engine: Engine, output: Path, threads: int = 1, overwrite: bool = False) -> Index:
    """Build the index of store at output, which takes its name only when it is whole.

    Raises MilcoError if the engine cannot work here, or if output exists and overwrite is not asked for.
    """
    engine.available()
    progress = Progress("documents", store.manifest.get("documents"))
    census = Census(store, progress)
    with whole_directory(output, overwrite, is_index) as directory:
        built = engine.build(census, directory, threads)
        census.refuse_duplicates()
        if not built.documents:
            raise MilcoError(f"{store.path} holds no document with a term ({built.empty:,} without): nothing to index")
        manifest = {
            "format_version": FORMAT_VERSION,
            "engine": engine.name,
            "exactness": engine.exactness,
            "documents": built.documents,
            "empty_documents": built.empty,
            "id_with_space": census.id_with_space,
            # Others' whole numbers do not say their scale: for a ranking, any that is fine enough will do.
            "query_scale": SCALE if store.manifest.get("plain") else store.manifest["scale"],
            "milco_pyserini": __version__,
            "vectors": store.manifest,
        }
        write_json(directory / MANIFEST, manifest)
    progress.close(f"indexed into {output}")
    return Index(output, manifest)


def is_index(path: Path) -> bool:
    """Whether a directory holds an index of ours, of whatever version."""
    return is_json_with(path / MANIFEST, "format_version", "engine")


def open_index(path: Path) -> Index:
    """The index at path. Raises MilcoError if it is not there, not finished or of another version."""
    if not path.is_dir():
        vectors = VECTORS / path.stem
        raise MilcoError(
            f"no index at {path}: build it with python -m milco_pyserini.index --vectors {vectors} --output {path}"
            + ("" if vectors.is_dir() else f", where {vectors} is a store that milco_pyserini.encode wrote")
        )
    if not (path / MANIFEST).is_file():
        raise MilcoError(f"{path} has no {MANIFEST}: it is not an index that milco_pyserini.index finished")
    manifest = read_json(path / MANIFEST)
    version = manifest.get("format_version")
    if "engine" not in manifest:
        raise MilcoError(f"{path} is no index: build one from it with python -m milco_pyserini.index --vectors {path}")
    if version != FORMAT_VERSION:
        raise MilcoError(f"{path} has index version {version}, this is version {FORMAT_VERSION}: build it again")
    find_engine(manifest["engine"])
    return Index(path, manifest)
