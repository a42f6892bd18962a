"""The exact engine: float scores of every document, from an inverted matrix. The ground truth of all other engines.

Postings are stored term by term (postings.py), documents in ascending order of id, so that a tie goes to the lower
row. A search adds up the postings of the query's terms, one query per thread, and keeps the best k.

An update writes its documents as a segment next to the others, in segment-NNNNN/, and the rows that it deletes to
segment-NNNNN.deleted.npy, int32. It merges the segments that are small or of its size, so that few remain.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.corpora.records import PASSAGE, PASSAGE_DELIMITER
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import CheckedDocuments, Filters, StoredDocument
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.hits import GroupHits, Groups, Hits
from milco_pyserini.index.inversion import PostingRuns
from milco_pyserini.index.postings import INDPTR, ROWS, WEIGHTS, Lists, PostingLists
from milco_pyserini.index.protocol import EXACT_FLOAT, BuildResult, Engine, EngineSearcher
from milco_pyserini.index.shards import ShardedSearcher
from milco_pyserini.index.storage import StoredFiles, StoredFilesWriter, StringTable, map_array, write_strings
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import DamagedError, intact
from milco_pyserini.io.records import IndexManifest
from milco_pyserini.model.checkpoint import BM25_FILE
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse import SparseBatch

if TYPE_CHECKING:
    from scipy.sparse import csc_array

T = TypeVar("T")

# Numpy adds up this many postings in less time than numba takes to load and compile. A call of numpy costs as much as
# _CALLS postings.
UNCOMPILED = 10**8
_CALLS = 1000
# Updates merge segments of up to this number of documents, which takes milliseconds.
_SMALL_SEGMENT = 512
_CHUNK = 4096


class Exact(Engine):
    """Exact float scores; ties by docid.

    An index takes 3 to 3.5 bytes per posting if its weights are impacts, else 6. Building needs 8 more, on disk.
    """

    name = "exact"
    exactness = EXACT_FLOAT
    capabilities = frozenset(
        {Capability.BUILD, Capability.STORE, Capability.UPDATE, Capability.BALANCE, Capability.READ}
    )
    scanned = "segment-*"
    may_be_empty = True
    replaces_passages = True

    def build(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Write ids, terms, the files of PostingLists, and the documents."""
        with engine_errors(self.name, "build", directory):
            ids, empty = _write_segment(documents, directory, "")
        return BuildResult(len(ids), len(empty))

    def update(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Write a segment of the documents, delete those that it replaces, and merge segments."""
        with engine_errors(self.name, "build", directory):
            segments = [_IndexSegment(directory, prefix) for prefix in _prefixes(directory)]
            number = 1 + max(segment.number for segment in segments)
            ids, empty = _write_segment(documents, directory, _prefix(number))
            replaced, whole = {*ids, *empty}, documents.replaces_passages
            if whole:
                replaced = {PASSAGE.sub("", docid) for docid in replaced}
            for segment in segments:
                segment.delete({*replaced, *documents.deleted}, whole)
            new = _IndexSegment(directory, _prefix(number))
            if ids:
                segments.append(new)
            else:
                new.remove()
            merged, total = [], len(ids)
            for segment in sorted(segments, key=lambda segment: segment.live):
                if segment.live <= max(total, _SMALL_SEGMENT) or segment.is_mostly_deleted:
                    merged.append(segment)
                    total += segment.live
            if len(merged) > 1 or any(segment.is_mostly_deleted for segment in merged):
                if total or len(merged) == len(segments):
                    _write_segment(_LiveDocuments(merged, documents.scale), directory, _prefix(number + 1))
                for segment in merged:
                    segment.remove()
            live = sum(segment.live for segment in segments)
        return BuildResult(live, len(empty))

    def open(self, directory: Path, manifest: IndexManifest) -> EngineSearcher:
        """Map the files into memory. Rows are compared with the number of documents when they are read."""
        prefixes = _prefixes(directory)
        segments = [_IndexSegment(directory, prefix, manifest.fields).searcher for prefix in prefixes]
        if sum(segment.num_documents for segment in segments) != manifest.documents:
            raise DamagedError(directory, "ids.ends.npy", f"its segments do not hold {manifest.documents:,} documents")
        return segments[0] if prefixes == [""] else ShardedSearcher(directory, segments)


def _write_segment(documents: Any, directory: Path, prefix: str) -> tuple[list[str], list[str]]:
    """Write documents as files whose names begin with a prefix; return their ids, and those without a term."""
    ids: list[str] = []
    empty: list[str] = []
    corpus = documents.corpus
    (directory / prefix).mkdir(exist_ok=True)
    stored = None if corpus is None else StoredFilesWriter(directory / prefix, list(corpus.fields))
    with tempfile.TemporaryFile(dir=directory) as rows, tempfile.TemporaryFile(dir=directory) as weights:
        runs = PostingRuns(rows, weights, documents.scale)
        for names, batch in documents.batches():
            runs.add(batch)
            lengths = batch.lengths()
            filled = [names[row] for row in np.flatnonzero(lengths)]
            ids += filled
            empty += [names[row] for row in np.flatnonzero(lengths == 0)]
            if corpus is not None and stored is not None:
                for name in filled:
                    stored.add(corpus.entry(name, {}))
        order = np.asarray(sorted(range(len(ids)), key=ids.__getitem__), np.int32)
        ranks = np.argsort(order).astype(np.int32)
        used, terms = runs.merge(ranks, directory / prefix), documents.terms
    write_strings(directory / prefix, "terms", (terms[column] for column in used))
    write_strings(directory / prefix, "ids", (ids[row] for row in order))
    if stored is not None:
        stored.close(order.astype(np.int64))
    return ids, empty


def _prefix(number: int) -> str:
    return f"segment-{number:05d}/"


def _prefixes(directory: Path) -> list[str]:
    """Return how the names of the files of each segment begin, oldest first; those of a new index have no prefix."""
    segments = sorted(directory.glob(f"segment-*/{INDPTR}"))
    oldest = [""] if (directory / INDPTR).exists() or not segments else []
    return oldest + [f"{file.parent.name}/" for file in segments]


class _IndexSegment:
    """The files of a segment that begin with a prefix. fields: None to take what the files have."""

    def __init__(self, directory: Path, prefix: str, fields: Mapping[str, str] | None = None) -> None:
        self._directory, self._prefix = directory, prefix
        self.number = int(prefix.rstrip("/").partition("-")[2] or 0)
        self._deletions = f"segment-{self.number:05d}.deleted.npy"
        ids, terms = StringTable(directory, f"{prefix}ids"), StringTable(directory, f"{prefix}terms")
        postings = PostingLists(directory, prefix, len(ids), len(terms))
        has_documents = fields is not None or (directory / f"{prefix}documents.utf8").exists()
        stored = StoredFiles(directory, len(ids), prefix) if has_documents else None
        live = np.empty(0, np.bool_)
        if (directory / self._deletions).exists():
            live = np.ones(len(ids), np.bool_)
            with intact(directory, self._deletions):
                live[map_array(directory, self._deletions, np.int32)] = False
        self.searcher = ExactSearcher(directory, ids, terms, postings, stored, live)
        self.searcher.fields = fields

    @property
    def live(self) -> int:
        """The number of documents that are not deleted."""
        return self.searcher.num_documents

    @property
    def is_mostly_deleted(self) -> bool:
        """True if more than half of the documents are deleted."""
        return 2 * self.live < len(self.searcher.ids)

    def delete(self, docids: set[str], passages: bool = False) -> None:
        """Delete documents, which need not exist. passages: with all passages of them."""
        searcher = self.searcher
        live, found = searcher.live_rows(), list(searcher.ids.find(docids).values())
        if passages:
            found += [row for docid in docids for row in searcher.passage_rows(docid)]
        if not live[found].any():
            return
        live[found] = False
        with atomic_file(self._directory / self._deletions) as handle:
            np.save(handle, np.flatnonzero(~live).astype(np.int32))
        self.searcher = _IndexSegment(self._directory, self._prefix).searcher

    def remove(self) -> None:
        """Remove the files."""
        place = self._directory / self._prefix
        files = [file for file in place.iterdir() if file.is_file() and not file.name.startswith("segment-")]
        for file in (*files, self._directory / self._deletions):
            if self._prefix or file.name != BM25_FILE:
                file.unlink(missing_ok=True)
        if self._prefix:
            place.rmdir()


class _LiveDocuments:
    """The documents of segments that are not deleted, as _write_segment() takes them."""

    def __init__(self, segments: Sequence[_IndexSegment], scale: float) -> None:
        self.scale = scale
        self._searchers = [segment.searcher for segment in segments]
        self.terms = sorted({term for searcher in self._searchers for term in searcher.columns})
        stored = [searcher.documents_file for searcher in self._searchers]
        self.fields = sorted({field for file in stored if file is not None for field in file.fields})
        self.corpus = None if None in stored else self
        self._entries: Iterator[StoredDocument] = iter(())

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield ids and vectors. The postings of one segment at a time are in memory."""
        columns = {term: column for column, term in enumerate(self.terms)}
        for searcher in self._searchers:
            places = np.asarray([columns[term] for term in searcher.columns], np.int32)
            live = np.flatnonzero(searcher.live_rows())
            matrix = searcher.matrix().tocsr()[live]
            for start in range(0, len(live), _CHUNK):
                rows, part = live[start : start + _CHUNK], matrix[start : start + _CHUNK]
                if searcher.documents_file is not None:
                    self._entries = searcher.documents_file.entries(rows, self.fields)
                indptr = part.indptr.astype(np.int64)
                yield searcher.ids.take(rows), SparseBatch(indptr, places[part.indices], part.data, len(self.terms))

    def entry(self, docid: str, vector: Mapping[str, int]) -> StoredDocument:
        """Return the next stored document: each has a vector, and the order is that of batches()."""
        return next(self._entries)


class ExactSearcher(EngineSearcher):
    """An open segment. live: bool [documents], or bool [0] if none is deleted."""

    def __init__(
        self,
        directory: Path,
        ids: StringTable,
        terms: Iterable[str],
        postings: PostingLists,
        stored: StoredFiles | None,
        live: NDArray[np.bool_],
    ) -> None:
        super().__init__(Exact.name, directory, int(live.sum()) if len(live) else len(ids))
        self.documents_file = stored
        self._live = live
        self._groups = lru_cache(lambda field: cast(StoredFiles, stored).groups(field))
        self.ids = ids
        self.columns = {term: column for column, term in enumerate(terms)}
        self._postings = postings
        self._uncompiled = 0

    def find(self, queries: Sequence[dict[str, float]], request: SearchRequest) -> list[Hits]:
        """Return hits whose scores are float64 sums of the exact products of float32 weights."""
        allowed = self._allowed(request.filters) if request.filters else self._live

        def search(query: dict[str, float]) -> Hits:
            columns, weights = self._vector(query)
            with intact(self.path, ROWS):
                best, lists = self._best_rows(columns), self._postings.take(columns)
                rows, scores, total = best(lists, weights, len(self.ids), request.k, allowed)
            return Hits(self.ids.take(rows), scores, total=total)

        return _in_threads(search, queries, request.threads)

    def count_values(self, field: str, limit: int) -> dict[str, int]:
        """Return how many documents have each value of a field."""
        return cast(StoredFiles, self.documents_file).count_values(field, limit, self._live)

    def find_values(self, docids: Sequence[str], field: str) -> dict[str, tuple[str, ...]]:
        """Return the values of a field of each document."""
        rows = self.rows(docids)
        values = cast(StoredFiles, self.documents_file).values(field, np.asarray(list(rows.values()), np.int64))
        return {docid: values.get(row, ()) for docid, row in rows.items()}

    def find_matching(self, filters: Filters) -> list[str]:
        """Return the ids of the documents that have one of the values in each field."""
        return self.ids.take(np.flatnonzero(self._allowed(filters)))

    def find_groups(self, queries: Sequence[dict[str, float]], request: SearchRequest, field: str) -> list[Groups]:
        """Return hits as find() does, the best for each value of a field."""
        from milco_pyserini.index.exact_kernel import all_scores

        groups, members = self._groups(field)
        live, allowed = self.live_rows(), self._allowed(request.filters)
        sizes = np.bincount(groups[live], minlength=len(members)).tolist()

        def search(query: dict[str, float]) -> Groups:
            columns, weights = self._vector(query)
            with intact(self.path, ROWS):
                scores = all_scores(self._postings.take(columns), weights, len(self.ids))
            sums = np.bincount(groups, np.where(live, scores, 0), len(members)).tolist()
            matching, found = (scores > 0) & allowed, {}
            for (value, rows), total, size in zip(members.items(), sums, sizes, strict=True):
                rows = rows[matching[rows]]
                best = _best(scores, rows, request.k)
                found[value] = GroupHits(Hits(self.ids.take(best), scores[best], total=len(rows)), total, size)
            return found

        return _in_threads(search, queries, request.threads)

    def stored(self, docids: Sequence[str]) -> dict[str, str]:
        """Return the stored JSON of the documents; missing ones are left out."""
        known = self.rows(docids)
        texts = cast(StoredFiles, self.documents_file).take(np.asarray(list(known.values()), np.int64))
        return dict(zip(known, texts, strict=True))

    def weights(self, docid: str, terms: Sequence[str]) -> dict[str, float] | None:
        """Return the float32 weights in the postings, in the order of the terms."""
        if (row := self.rows([docid]).get(docid)) is None:
            return None
        known = sorted(term for term in terms if term in self.columns)
        with intact(self.path, ROWS):
            lists = self._postings.take(np.asarray([self.columns[term] for term in known], np.int64))
            return {known[number]: weight for number, weight in lists.find(row)}

    def matrix(self) -> "csc_array":
        """Return the segment as a float32 matrix [documents, terms], with the documents that are deleted."""
        from scipy.sparse import csc_array

        with intact(self.path, ROWS):
            indptr, rows, weights = self._postings.decode()
            matrix = csc_array((weights, rows, indptr), shape=(len(self.ids), len(self.columns)))
            # SciPy's products do not compare rows with the shape.
            matrix.check_format()
        if not ((weights >= 0) & (weights < np.inf)).all():
            raise DamagedError(self.path, WEIGHTS, "a weight is negative or not finite")
        return matrix

    def _best_rows(self, columns: NDArray[np.int64]) -> Callable[..., tuple[Any, Any, int]]:
        """Return the function that ranks documents for a query of these columns: numpy's for the first queries."""
        if self._uncompiled <= UNCOMPILED:
            self._uncompiled += self._postings.count(columns) + len(self.ids) + _CALLS * len(columns)
            return best_rows
        from milco_pyserini.index import exact_kernel

        return exact_kernel.best_rows

    def live_rows(self) -> NDArray[np.bool_]:
        """Return bool [documents], False for those that are deleted."""
        return self._live.copy() if len(self._live) else np.ones(len(self.ids), np.bool_)

    def rows(self, docids: Collection[str]) -> dict[str, int]:
        """Return the rows of the documents that exist and are not deleted."""
        return {docid: row for docid, row in self.ids.find(docids).items() if not len(self._live) or self._live[row]}

    def passage_rows(self, docid: str) -> Iterator[int]:
        """Yield the rows of a document's passages, also of those that are deleted."""
        prefix = docid + PASSAGE_DELIMITER
        for row in range(bisect_left(self.ids, prefix), len(self.ids)):
            if not (name := self.ids[row]).startswith(prefix):
                return
            if PASSAGE.sub("", name) == docid:
                yield row

    def _allowed(self, filters: Filters) -> NDArray[np.bool_]:
        return self.live_rows() & cast(StoredFiles, self.documents_file).allowed(filters)

    def _vector(self, query: dict[str, float]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the known terms in their order, so that a sum depends neither on the dict nor on the segment."""
        known = sorted((term, weight) for term, weight in query.items() if term in self.columns)
        columns = np.asarray([self.columns[term] for term, _ in known], np.int64)
        # A sum with infinity is refused by search().
        with np.errstate(over="ignore"):
            return columns, np.asarray([weight for _, weight in known], np.float32)


def best_rows(
    lists: Lists, query_weights: NDArray[np.float32], documents: int, k: int, allowed: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    """Rank documents as exact_kernel.best_rows() does, whose reference it is: the same sums, all at once."""
    scores = np.zeros(documents, np.float64)
    for term, query_weight in enumerate(query_weights.astype(np.float64)):
        rows, weights = lists.decode(term)
        scores[rows] += query_weight * weights.astype(np.float64)
    matching = np.flatnonzero((scores > 0) & allowed if len(allowed) else scores > 0)
    best = _best(scores, matching, k)
    return best, scores[best], len(matching)


def _best(scores: NDArray[np.float64], rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the k of these ascending rows with the highest scores, best first, ties by row."""
    if len(rows) > k:
        rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
    return rows[np.argsort(-scores[rows], kind="stable")[:k]]


def _in_threads(search: Callable[[dict[str, float]], T], queries: Sequence[dict[str, float]], threads: int) -> list[T]:
    if threads == 1:
        return [search(query) for query in queries]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(search, queries))
