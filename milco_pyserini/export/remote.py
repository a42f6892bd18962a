"""An index of a collection that milco export filled: its directory, and searches of the server."""

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np

from milco_pyserini import __version__
from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.export.protocol import Export, Server, Target, Vector
from milco_pyserini.export.registry import find_target
from milco_pyserini.export.server import connect, fill, server_errors, server_name, without_password
from milco_pyserini.index.directory import FORMAT_VERSION
from milco_pyserini.index.documents import Filters, indexed_corpus_paths
from milco_pyserini.index.protocol import EngineSearcher, Hits
from milco_pyserini.index.remote import Remote
from milco_pyserini.io.files import atomic_directory, recover_directory, validate_output_directory
from milco_pyserini.io.manifest import MANIFEST, describe_files, read_checked, write_checked
from milco_pyserini.sparse.quantization import quantize_vector
from milco_pyserini.sparse.store import VOCABULARY, read_vocabulary

# Queries of a request, and hits of its answer.
_QUERIES, _HITS = 64, 100_000


def export_index(
    export: Export, target: Target, urls: Sequence[str], output: Path, overwrite: bool = False
) -> dict[str, object]:
    """Fill a server, check its scores, and write the directory output, an index that Searcher.open() opens.

    An index of the same collection at output is replaced.

    Args:
        urls: of one server; of a cluster, those of several of its nodes. Passwords are not written.
        overwrite: replace an index of another collection.

    Returns:
        The manifest of the index.

    Raises:
        MilcoError: output holds something else, or as fill().
    """

    def is_index(path: Path) -> bool:
        manifest = read_checked(path / MANIFEST) if (path / MANIFEST).is_file() else {}
        return manifest.get("engine") == Remote.name

    place = {"engine": Remote.name, "target": target.name, "collection": export.collection}
    existing = read_checked(output / MANIFEST) if is_index(output) else {}
    overwrite = overwrite or (existing | place == existing)
    validate_output_directory(output, overwrite, is_index)
    fill(export, target, urls)
    documents = export.documents
    manifest = {
        "format_version": FORMAT_VERSION,
        **place,
        "urls": [without_password(url, "") for url in urls],
        "fingerprint": documents.fingerprint,
        "exactness": Remote.exactness,
        "documents": documents.manifest["documents"] - export.empty,
        "empty_documents": export.empty,
        "postings": export.postings,
        "query_scale": documents.about["scale"],
        "id_with_space": export.id_with_space,
        "milco_pyserini": __version__,
        "vectors": documents.manifest | {"scale": documents.about["scale"]},
        "corpus_paths": indexed_corpus_paths(documents, output),
        "files": describe_files(documents.path, [Path(VOCABULARY)]),
    }
    if manifest == existing:
        recover_directory(output)
        log(f"{output} is up to date")
        return manifest
    with atomic_directory(output, overwrite, is_index) as directory:
        shutil.copyfile(documents.path / VOCABULARY, directory / VOCABULARY)
        write_checked(directory / MANIFEST, manifest)
    log(f"Wrote {output}: search it with milco search --index {output}")
    return manifest


class RemoteSearcher(EngineSearcher):
    """A collection of a running server. Scores are sums of products of integers, exact up to 2**24.

    Args:
        name: of the server, for messages.
        columns: {term: column}.
        scale: impact of a query's term = round(weight x scale), as in the documents.
    """

    has_weights = True

    def __init__(
        self, directory: Path, documents: int, server: Server, name: str, columns: dict[str, int], scale: float
    ) -> None:
        super().__init__(Remote.name, directory, documents)
        self._server = server
        self._name = name
        self._columns = columns
        self._scale = scale

    @classmethod
    def open(cls, directory: Path, manifest: dict, urls: Sequence[str]) -> Self:
        """Connect. Raises MilcoError unless the collection holds the vectors that the manifest states."""
        terms = read_vocabulary(directory, manifest["files"]).terms.tolist()
        target, collection = find_target(manifest["target"]), manifest["collection"]
        server, name = connect(target, urls, collection, len(terms)), server_name(target, urls)
        try:
            with server_errors(name, ""):
                _validate_stated(server, f"{collection} of {name}", directory, manifest["fingerprint"])
        except BaseException:
            server.client.close()
            raise
        columns = {term: column for column, term in enumerate(terms)}
        return cls(directory, manifest["documents"], server, name, columns, manifest["query_scale"])

    def release(self) -> None:
        """Close the connections."""
        self._server.client.close()

    def find(self, queries: Sequence[dict[str, float]], k: int, threads: int) -> list[Hits]:
        """Return hits with float32 scores."""
        return self.find_filtered(queries, k, threads, {})

    def find_filtered(self, queries: Sequence[dict[str, float]], k: int, threads: int, filters: Filters) -> list[Hits]:
        """Return hits as find() does, of documents that have one of the values in each field.

        Ties are in ascending order of docid: where the last one ties with the next, more documents are fetched.
        """
        vectors = [self._vector(quantize_vector(query, self._scale)) for query in queries]
        found = [Hits([], np.empty(0, np.float32))] * len(vectors)
        pending, limit = [number for number, vector in enumerate(vectors) if vector.terms], k + 1
        while pending:
            batch = max(1, min(_QUERIES, -(-len(pending) // threads), _HITS // limit))
            batches = [pending[start : start + batch] for start in range(0, len(pending), batch)]
            tied = []
            for number, ranking in self._searched(vectors, batches, limit, threads, filters):
                if len(ranking) == limit and ranking[-1][1] == ranking[k - 1][1]:
                    tied.append(number)
                    continue
                best = sorted((-score, docid) for docid, score in ranking)[:k]
                scores = np.asarray([-score for score, _ in best], np.float32)
                found[number] = Hits([docid for _, docid in best], scores)
            pending, limit = tied, limit * 4
        return found

    def weights(self, docid: str, terms: Sequence[str]) -> dict[str, int] | None:
        """Return the impacts that the server has."""
        with server_errors(self._name, ""):
            return self._server.impacts(docid, self._vector(dict.fromkeys(terms, 1)))

    def _vector(self, impacts: dict[str, int]) -> Vector:
        """Return a query with the terms that the documents may have."""
        known = sorted((self._columns[term], term) for term in impacts if term in self._columns)
        terms = [term for _, term in known]
        return Vector("", terms, [column for column, _ in known], [impacts[term] for term in terms])

    def _searched(
        self, vectors: Sequence[Vector], batches: Sequence[Sequence[int]], limit: int, threads: int, filters: Filters
    ) -> Iterator[tuple[int, list[tuple[str, float]]]]:
        """Yield the number of each query of the batches, and the first documents for it, with rounded scores."""

        def search(batch: Sequence[int]) -> list[list[tuple[str, float]]]:
            return self._server.search([vectors[number] for number in batch], limit, filters)

        with server_errors(self._name, ""), ThreadPoolExecutor(threads) as pool:
            for batch, rankings in zip(batches, pool.map(search, batches), strict=True):
                for number, ranking in zip(batch, rankings, strict=True):
                    yield number, [(docid, float(round(score))) for docid, score in ranking]


def _validate_stated(server: Server, collection: str, directory: Path, fingerprint: str) -> None:
    """Raise MilcoError unless a collection states that it holds the vectors of an index."""
    stated = server.stated(alias=True)
    if stated is None:
        raise MilcoError(f"{collection} does not exist", "Fill it with milco export.")
    if stated != fingerprint:
        what = "is being filled, or its filling was interrupted" if ">" in stated else "does not hold the vectors"
        raise MilcoError(
            f"{collection} {what} of {directory}" if ">" not in stated else f"{collection} {what}",
            "Run the milco export command that fills it.",
        )
