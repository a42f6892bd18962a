"""The remote engine: a collection that milco export filled, in the search engine that holds it.

Its index is a small directory: a manifest that names the target, the URLs and the collection, and the terms of the
columns.
"""

import contextlib
import copy
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar, cast

import numpy as np
from msgspec import structs

from milco_pyserini import __version__
from milco_pyserini.console import counted, log, warn
from milco_pyserini.encode.documents import DocumentSchema
from milco_pyserini.errors import Message, MilcoError, ParameterError, Unreachable, shown
from milco_pyserini.export.access import Access, deadline, public_url
from milco_pyserini.export.balance import FIELD, LanguageSums, read_sums
from milco_pyserini.export.faults import MOVED, ServerError, server_errors
from milco_pyserini.export.protocol import (
    Collection,
    ExportJob,
    ExportTarget,
    ImpactDocument,
    Server,
    Steps,
    TextServer,
)
from milco_pyserini.export.registry import find_target
from milco_pyserini.export.server import connect, fill
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.directory import FORMAT_VERSION
from milco_pyserini.index.documents import MAX_ID_BYTES, WHITE_SPACE, FieldFilters
from milco_pyserini.index.hits import GroupHits, Groups, Hits
from milco_pyserini.index.protocol import EXACT_INTEGER, SEARCH, Engine, EngineSearcher
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.files import atomic_directory, is_json_with
from milco_pyserini.io.manifest import (
    MANIFEST,
    DamagedError,
    describe_files,
    read_manifest,
    validate_files,
    write_checked,
)
from milco_pyserini.io.records import RemoteManifest
from milco_pyserini.options import option
from milco_pyserini.request import Balance, SearchRequest
from milco_pyserini.sparse.quantization import quantize_vector
from milco_pyserini.sparse.store import VOCABULARY, read_vocabulary

# Queries of a request, hits of its answer, and documents whose impacts are asked for.
_QUERIES, _HITS, _DOCUMENTS = 64, 100_000, 200
# A score as a 32-bit float.
_LARGEST = float(np.finfo(np.float32).max)
# Seconds for a probe.
_PING = 5.0

Ranking = list[tuple[str, float]]
T = TypeVar("T")


def export_index(
    export: ExportJob, target: ExportTarget, access: Access, output: Path, overwrite: bool = False
) -> RemoteManifest | None:
    """Fill a server, check its scores, and write the directory output, an index that Searcher.open() opens.

    An index of the same collection at output is replaced.

    Args:
        access: to one server; to a cluster, by several of its nodes. Passwords are not written.
        overwrite: replace an index of another collection.

    Returns:
        The manifest of the index; None while shards of the documents are missing.

    Raises:
        MilcoError: output holds something else, or as fill().
    """
    recorded = None
    with contextlib.suppress(DamagedError):
        recorded = read_manifest(output, RemoteManifest)
    artifact = Artifact(output, _is_replaceable, recorded)
    place = {"target": target.name, "collection": export.collection}
    overwrite = artifact.action(place, overwrite) is not Action.CREATE
    documents, schema = export.documents, export.place.schema
    languages = LanguageSums(len(documents.terms))
    if export.corpus is not None and not export.is_shard:
        export.observe = languages.add
    is_complete = fill(export, target, access)
    access.remember()
    if not is_complete:
        return None
    determining: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "engine": Remote.name,
        **place,
        "urls": list(map(public_url, access.urls)),
        "fingerprint": export.statement,
        "exactness": Remote.exactness,
        "documents": documents.manifest.documents - export.empty,
        "empty_documents": export.empty,
        "postings": export.postings,
        "query_scale": documents.about.scale,
        "id_with_space": export.id_with_space,
        "milco_pyserini": __version__,
        "vectors": structs.replace(documents.manifest, scale=documents.about.scale),
        **({} if schema is None else {"schema": asdict(schema), "fields": schema.fields}),
        **({"languages": languages.sizes} if languages.balances else {}),
        **({} if recorded is None else {"search_settings": recorded.search_settings}),
    }
    if recorded is not None and not artifact.difference(determining):
        with contextlib.suppress(DamagedError):
            validate_files(output, recorded.files)
            artifact.keep()
            return recorded
    with atomic_directory(output, overwrite, _is_replaceable) as directory:
        shutil.copyfile(documents.path / VOCABULARY, directory / VOCABULARY)
        files = [Path(VOCABULARY), *([languages.write(directory)] if languages.balances else [])]
        manifest = RemoteManifest(**determining, files=describe_files(directory, files))
        write_checked(directory / MANIFEST, manifest)
    log(f"Wrote {output}: search it with milco search --index {output}")
    return manifest


def _is_replaceable(path: Path) -> bool:
    """Return whether a directory holds an index of a filled collection."""
    return is_json_with(path / MANIFEST, "engine", "collection")


@dataclass(frozen=True)
class Remote(Engine):
    """Exact sums of integers; ties by docid, as in Lucene."""

    name = "remote"
    exactness = EXACT_INTEGER
    record = RemoteManifest
    capabilities = frozenset(
        {Capability.STORE, Capability.BALANCE, Capability.READ, Capability.HYBRID, Capability.APPROXIMATE}
    )
    # With the last ratio, hardly any term is weak.
    tuned = MappingProxyType(
        {"window_size": (100, 200, 500, 1000), "prune_ratio": (0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.01)}
    )

    timeout: float = option(
        30.0, group=SEARCH, above=0, maximum=86_400, help="seconds for the answer to a request, of up to 64 queries"
    )
    prune_ratio: float = option(
        0.35, group=SEARCH, minimum=0.01, maximum=1, help="with approximate: weakest strong term, next to the strongest"
    )
    window_size: int = option(
        200, group=SEARCH, minimum=100, maximum=10_000, help="with approximate: documents a shard that all terms score"
    )

    def open(self, directory: Path, manifest: Any) -> "RemoteSearcher":
        """Connect to the server. Raises MilcoError unless the collection holds the vectors that the manifest states."""
        return RemoteSearcher.open(directory, manifest, Access.found(manifest.urls), self)


class RemoteSearcher(EngineSearcher):
    """A collection of a running server. Scores are sums of products of integers, exact up to 2**24.

    Args:
        terms: of the columns.
        name: of the server, for messages.
        engine: the settings of searches.
    """

    def __init__(
        self, directory: Path, manifest: RemoteManifest, terms: Sequence[str], server: Server, name: str, engine: Remote
    ) -> None:
        super().__init__(Remote.name, directory, manifest.documents)
        self._server, self._name, self._timeout = server, name, engine.timeout
        self._steps = Steps(engine.prune_ratio, engine.window_size)
        self._target = find_target(manifest.target)
        self._columns = {term: column for column, term in enumerate(terms)}
        self._scale = manifest.query_scale
        self._languages: Mapping[str, int] = manifest.languages
        self._sums = read_sums(directory, self._languages, len(terms)) if self._languages else {}
        self._limit = server.max_terms
        self._has_space = manifest.id_with_space is not None
        # Weights of queries with more terms than the server takes, and what was searched for.
        self._truncated: list[tuple[int, int]] = []
        self.ranged = server.ranged

    @classmethod
    def open(cls, directory: Path, manifest: RemoteManifest, access: Access, engine: Remote) -> Self:
        """Connect. Raises MilcoError unless the collection holds the vectors that the manifest states.

        Another number of documents is a warning.
        """
        target, collection = find_target(manifest.target), manifest.collection
        target.validate_urls(access.urls)
        for url in access.urls:
            # A client would create it.
            if "://" not in url and not Path(url).exists():
                raise MilcoError(f"{url}, which holds {collection} of {target.title}, does not exist", MOVED)
        name = f"{target.title} at {access.shown}"
        schema = DocumentSchema(**manifest.schema) if manifest.schema else None
        terms = read_vocabulary(directory, manifest.files).terms.tolist()
        with deadline(engine.timeout):
            server = connect(target, access, Collection(collection, len(terms), schema), MOVED)
            try:
                with server_errors(name, MOVED):
                    stated = server.stated(alias=True)
                    if stated != manifest.fingerprint:
                        what = "does not exist" if stated is None else f"does not hold the vectors of {directory}"
                        if stated and ">" in stated:
                            what = "is incomplete: it is being filled, or an export was interrupted"
                        raise MilcoError(f"{collection} of {name} {what}", "Run milco export again.")
                    found = server.count()
                    searcher = cls(directory, manifest, terms, server, name, engine)
            except BaseException:
                server.client.close()
                raise
        if found != searcher.num_documents:
            warn(
                f"{collection} of {name} holds {found:,} documents, {directory} lists {searcher.num_documents:,}: "
                "another program has added or deleted some. Run milco export again"
            )
        return searcher

    def with_settings(self, window_size: int, prune_ratio: float) -> Self:
        """Return the same index, of which approximate searches have other settings."""
        other = copy.copy(self)
        other._steps = Steps(prune_ratio, window_size)
        return other

    def release(self) -> None:
        """Close the connections."""
        self._server.client.close()
        _report(self._truncated, f"more than the {self._limit:,} terms that {self._name} takes", "weight")

    def ping(self) -> None:
        """Raise Unreachable unless the server can search all documents."""
        with deadline(_PING), self._errors():
            self._server.ping()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """End requests within the block in time, and report their errors."""
        with deadline(self._timeout), server_errors(self._name, MOVED, Unreachable):
            yield

    def find(self, queries: Sequence[dict[str, float]], request: SearchRequest) -> list[Hits]:
        """Return hits with float32 scores.

        Ties are in ascending order of docid: where the last one ties with the next, more documents are fetched.
        """
        return self._ranked(self._vectors(queries, len(request.filters)), request, request.filters)

    def _ranked(self, vectors: Sequence[ImpactDocument], request: SearchRequest, filters: FieldFilters) -> list[Hits]:
        k, threads = request.k, request.threads
        found = [Hits([], np.empty(0, np.float32))] * len(vectors)
        pending, limit = [number for number, vector in enumerate(vectors) if vector.terms], k + 1
        while pending:
            size = max(1, min(_QUERIES, -(-len(pending) // threads), _HITS // limit))
            waiting = [vectors[number] for number in pending]
            batches = [waiting[start : start + size] for start in range(0, len(waiting), size)]
            tied = []
            steps: Any = {"steps": self._steps} if request.approximate else {}
            search = partial(self._server.search, k=limit, filters=filters, **steps)
            for number, hits in zip(pending, self.searched(search, batches, threads, limit), strict=True):
                ranking = [(docid, float(round(score))) for docid, score in hits]
                if len(ranking) == limit and ranking[-1][1] == ranking[k - 1][1]:
                    tied.append(number)
                    continue
                found[number] = _best(ranking, k)
            pending, limit = tied, limit * 4
        return found

    def validate_approximate(self, k: int) -> None:
        """Raise MilcoError if the target has exact searches only, or k is larger than the window."""
        self._target.require(Capability.APPROXIMATE, "approximate", True)
        if min(k, self.num_documents) > (size := self._steps.window_size):
            rule = f"approximate searches have up to window_size={size} hits, and miss many of the last of them"
            fix = Message(f"Set window_size={min(5 * k, 10_000)}, or omit {{approximate}} to search exactly.")
            raise ParameterError("k", k, rule, fix)

    def validate_balance(self, balance: Balance) -> None:
        """Raise MilcoError if the directory has no sums of that field."""
        if balance.field != FIELD or not self._languages:
            raise ParameterError(
                "balance",
                balance.field,
                f"{self.path} can be balanced by {FIELD} only, if one milco export --store filled it with documents "
                f"that all have a {FIELD}",
            )

    def find_groups(self, queries: Sequence[dict[str, float]], request: SearchRequest, field: str) -> list[Groups]:
        """Return the hits of each language, which are searched for one after the other. field: lang."""
        self.validate_balance(Balance(field))
        filters = request.filters
        vectors = self._vectors(queries, len(filters) + 1)
        wanted = filters.get(field, list(self._languages))
        if isinstance(wanted, Mapping):
            raise ParameterError("balance", field, f"a range of {field} cannot be balanced", "Name its values.")
        found: list[dict[str, GroupHits]] = [{} for _ in queries]
        for language, size in self._languages.items():
            rankings = [Hits([], np.empty(0, np.float32))] * len(queries)
            if language in wanted:
                rankings = self._ranked(vectors, request, {**filters, field: [language]})
            for groups, vector, hits in zip(found, vectors, rankings, strict=True):
                total = int(self._sums[language][vector.columns] @ np.asarray(vector.impacts, np.int64))
                groups[language] = GroupHits(hits, float(total), size)
        return list(found)

    def bm25(self) -> "RemoteTextSearcher":
        """Return a searcher of the stored texts."""
        self._target.require(Capability.HYBRID, "hybrid", True)
        if self.fields is None:
            fix = "Fill a collection by milco export --store."
            raise ParameterError("hybrid", True, f"{self.path} stores no texts", fix)
        return RemoteTextSearcher(self, cast(TextServer, self._server))

    def stored(self, docids: Sequence[str]) -> dict[str, str]:
        return self._answers(docids, self._server.stored)

    def count_values(self, field: str, limit: int) -> dict[str, int] | None:
        """Return how many documents have each value of a field; None if the server does not count them."""
        if self.fields is None or self.fields[field] not in self._server.counted:
            return None
        with self._errors():
            return self._server.count_values(field, limit)

    def weights(self, docid: str, terms: Sequence[str]) -> dict[str, int] | None:
        """Return the impacts that the server has."""
        return self.term_impacts([docid], terms).get(docid)

    def term_impacts(self, docids: Sequence[str], terms: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return the impacts of documents, requested from the server in batches."""
        query = ImpactDocument.of(dict.fromkeys(terms, 1), self._columns)
        return self._answers(docids, partial(self._server.impacts, query=query))

    def _answers(self, docids: Sequence[str], ask: Callable[[list[str]], dict[str, T]]) -> dict[str, T]:
        # Servers refuse an empty id.
        ids, found = list(filter(None, docids)), dict[str, T]()
        with self._errors():
            for start in range(0, len(ids), _DOCUMENTS):
                found |= ask(ids[start : start + _DOCUMENTS])
        return found

    def _vectors(self, queries: Sequence[dict[str, float]], clauses: int) -> list[ImpactDocument]:
        """Return queries with as many terms as the server takes next to the clauses of filters, the strongest."""
        vectors = [ImpactDocument.of(quantize_vector(query, self._scale), self._columns) for query in queries]
        for place, vector in enumerate(vectors):
            if len(vector.terms) > self._limit - clauses:
                strongest = sorted(vector.weights.items(), key=lambda item: -item[1])[: self._limit - clauses]
                vectors[place] = ImpactDocument.of(dict(strongest), self._columns)
                self._truncated.append((sum(vector.impacts), sum(vectors[place].impacts)))
        return vectors

    def searched(
        self, search: Callable[[Any], list[Ranking]], batches: Sequence[Sequence[Any]], threads: int, limit: int
    ) -> list[Ranking]:
        """Return up to limit docids and scores for each query of the batches, which are one request each.

        Each request has the time of the setting `timeout`. Raises Unreachable for what no index could answer.
        """

        def answered(batch: Sequence[Any]) -> list[Ranking]:
            with self._errors():
                rankings = search(batch)
                if len(rankings) != len(batch):
                    raise ServerError(f"{len(rankings)} answers to {counted(len(batch), 'query', 'queries')}")
                for ranking in rankings:
                    _validate_ranking(ranking, limit, self._has_space)
                return rankings

        if min(threads, len(batches)) == 1:
            found = list(map(answered, batches))
        else:
            with ThreadPoolExecutor(threads) as pool:
                found = list(pool.map(answered, batches))
        return [ranking for batch in found for ranking in batch]


def _validate_ranking(ranking: Ranking, limit: int, has_space: bool) -> None:
    """Raise ServerError unless docids and scores are those that an index can have.

    A docid with white space, in an index without such docids, would write lines of its own into a run.
    """
    seen: set[str] = set()
    for docid, score in ranking:
        is_docid = isinstance(docid, str) and 0 < len(docid) <= MAX_ID_BYTES
        if not is_docid or (not has_space and WHITE_SPACE.search(docid)):
            raise ServerError(f"the answer is not a valid one: {shown(str(docid))} is not a docid of this index")
        if docid in seen:
            raise ServerError(f"the answer is not a valid one: it has {shown(docid)} twice")
        if not isinstance(score, float | int) or not 0 < score <= _LARGEST:
            raise ServerError(f"the answer is not a valid one: {shown(docid)} has the score {score}")
        seen.add(docid)
    if len(ranking) > limit:
        raise ServerError(f"the answer is not a valid one: {len(ranking):,} hits, {limit:,} were asked for")


def _report(truncated: Sequence[tuple[int, int]], what: str, unit: str) -> None:
    """Warn of queries that were truncated. truncated: the weight or length of each, and how much of it was kept."""
    if truncated:
        total, kept = map(sum, zip(*truncated, strict=True))
        queries = counted(len(truncated), "query", "queries")
        warn(f"{queries} had {what}: the strongest were searched for, with {kept / total:.1%} of their {unit}")


def _best(ranking: Ranking, k: int) -> Hits:
    """Return the first k of a ranking with float32 scores, ties in order of docid."""
    best = sorted((-score, docid) for docid, score in ranking)[:k]
    return Hits([docid for _, docid in best], np.asarray([-score for score, _ in best], np.float32))


class RemoteTextSearcher(EngineSearcher):
    """The texts that a filled server stores, ranked by BM25. Queries are texts, ties are in order of docid.

    If documents tie with the last hit, the server chooses among them.
    """

    def __init__(self, searcher: RemoteSearcher, server: TextServer) -> None:
        super().__init__("bm25", searcher.path, searcher.num_documents)
        self.fields, self.ranged, self._searcher, self._server = searcher.fields, searcher.ranged, searcher, server
        self._limit = server.max_words
        self._truncated: list[tuple[int, int]] = []

    def release(self) -> None:
        """Report texts that were truncated."""
        _report(self._truncated, f"more than the {self._limit:,} words that the server takes", "text")

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Filters only: the server states neither the sum of a language's BM25 scores nor the terms of documents."""
        return frozenset({Capability.STORE})

    def validate_approximate(self, k: int) -> None:
        """Take an approximate search of the vectors: that of the texts is exact."""

    def find(self, queries: Sequence[str], request: SearchRequest) -> list[Hits]:
        """Return hits with the scores of the server."""
        filters, k = request.filters, request.k
        texts = [self._strongest(text, filters) for text in queries]
        batches = [texts[start : start + _QUERIES] for start in range(0, len(texts), _QUERIES)]
        search = partial(self._server.search_texts, k=k, filters=filters)
        return [_best(ranking, k) for ranking in self._searcher.searched(search, batches, request.threads, k)]

    def _strongest(self, text: str, filters: FieldFilters) -> str:
        """Return a text, or the longest of its words if they are more than the server takes."""
        # Letters without case may be those of a language without spaces, in which each may be a word.
        words = list(dict.fromkeys(re.findall(r"[^\W_]+", text)))
        parts = [part for word in words for part in ([word] if word.lower() != word.upper() else word)]
        limit = max(1, self._limit - len(filters))
        if len(parts) <= limit:
            return text
        kept = set(sorted(parts, key=len, reverse=True)[:limit])
        self._truncated.append((sum(map(len, parts)), sum(len(part) for part in parts if part in kept)))
        return " ".join(part for part in parts if part in kept)

    def stored(self, docids: Sequence[str]) -> dict[str, str]:
        return self._searcher.stored(docids)

    def count_values(self, field: str, limit: int) -> dict[str, int] | None:
        return self._searcher.count_values(field, limit)
