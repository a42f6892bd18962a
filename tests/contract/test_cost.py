"""Every engine reads little more than it returns: a slow right answer fails, and nothing measures time."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from built import DOCUMENTS, INDEXES, SHARDED_INDEXES, SHARDS, STORED, STORED_INDEXES, Built, queries_for

from milco_pyserini.index import open_index
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.request import SearchRequest
from milco_pyserini.search.searched_index import SearchedIndex
from milco_pyserini.search.searcher import Searcher

KINDS = [*INDEXES, *STORED_INDEXES, *SHARDED_INDEXES]
KINDS += [pytest.param(f"{kind.values[0]}{SHARDS}", marks=kind.marks) for kind in STORED_INDEXES]
BALANCED = ("exact-stored", "lucene-stored", f"exact-stored{SHARDS}", f"lucene-stored{SHARDS}")
K = 5
# Values of the field lang of the documents in built.py, one of them too long to be found, and documents without one.
GROUPS = 6
# The ids of most documents are "d" and a number: by this delimiter they are passages of one document, without an id.
PASSAGES = "d"


class Reads(Counter[str]):
    """Counts what engines return: hits of all rankings and shards, documents, their weights and values."""

    def count(self, searcher: EngineSearcher) -> None:
        """Count what a searcher, or each of its shards, returns from now on."""
        for part in getattr(searcher, "shards", [searcher]):
            for name, size in (
                ("find", lambda rankings: sum(map(len, rankings))),
                ("find_groups", lambda found: sum(len(group.hits) for groups in found for group in groups.values())),
                ("stored", len),
                ("weights", lambda weights: int(weights is not None)),
                ("count_values", lambda counts: 1),
                ("find_values", len),
            ):
                setattr(part, name, self._counted(name.replace("find_groups", "find"), getattr(part, name), size))

    def _counted(self, name: str, method: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = method(*arguments, **options)
            self[name] += size(result)
            return result

        return call


@contextmanager
def opened(built: Built, *kinds: str) -> Iterator[tuple[Searcher, Reads]]:
    """Open indexes, together if there are several, and count what they return."""
    indexes, reads = [SearchedIndex(open_index(built.path(kind))) for kind in kinds], Reads()
    for index in indexes:
        reads.count(index.engine_searcher)
    with Searcher(indexes, fuse="rrf" if len(indexes) > 1 else None) as searcher:
        yield searcher, reads


def parts(kind: str) -> int:
    """Return the number of shards, each of which is asked."""
    return 2 if kind.endswith(SHARDS) else 1


def search(searcher: Searcher, k: int, **options: Any) -> list[Any]:
    """Return the hits of a few queries, as milco search ranks them."""
    request = SearchRequest.of(k, options)  # type: ignore[arg-type]
    searcher.validate(request)
    queries = [(query,) * len(searcher.indexes) for query in queries_for("", 3)]
    return searcher.rank(queries, request)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_reads_the_hits_that_it_returns(built: Built, kind: str) -> None:
    """Neither texts nor weights; the better ones that offset skips, too; never more than there are."""
    with opened(built, kind) as (searcher, reads):
        for k, offset in ((K, 0), (K, 7), (100 * DOCUMENTS, 0)):
            reads.clear()
            found = search(searcher, k, offset=offset)
            assert 0 < max(map(len, found)) <= k
            assert reads["find"] <= parts(kind) * sum(len(hits) + offset for hits in found)
            assert not reads.keys() - {"find"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if STORED in kind.values[0]])
@pytest.mark.parametrize("filters", ["lang=de", "year>=2001", ["lang>=e", "year<2002"]], ids=str)
def test_a_filter_reads_the_hits_that_it_returns(built: Built, kind: str, filters: Any) -> None:
    """And no document, though it drops most; the values of a field are counted once for all searches by a range."""
    with opened(built, kind) as (searcher, reads):
        for k in (K, 100 * DOCUMENTS):
            found = search(searcher, k, filters=filters)
            assert any(map(len, found))
            assert reads.pop("find") <= parts(kind) * sum(map(len, found))
        ranges = [one for one in ([filters] if isinstance(filters, str) else filters) if ">" in one or "<" in one]
        assert reads.pop("count_values", 0) == parts(kind) * len(ranges)
        assert not reads


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_shares_are_read_of_the_hits_only(built: Built, kind: str) -> None:
    """Each once, however often they are asked for, and none that offset skips; min_share reads those of k hits."""
    with opened(built, kind) as (searcher, reads):
        found = search(searcher, K, offset=3)
        reads.clear()
        for hits in (*found, *found):
            assert [hit.share is None for hit in hits] == [kind.startswith("seismic")] * len(hits)
            assert [hit.document is None for hit in hits] == [STORED not in kind] * len(hits)
        returned = sum(map(len, found))
        assert reads["stored"] == (returned if STORED in kind else 0)
        assert reads["weights"] == (0 if kind.startswith("seismic") else returned)
        assert not reads["find"]
        if not kind.startswith("seismic"):
            reads.clear()
            search(searcher, K, min_share=0.9)
            assert reads["weights"] <= K * len(found)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.values[0] in BALANCED])
def test_a_balanced_search_reads_the_hits_of_each_value(built: Built, kind: str) -> None:
    """At most k of each, since the mean is known when all are; never more than match."""
    with opened(built, kind) as (searcher, reads):
        for k, filters in ((K, ()), (K, "lang=de"), (100 * DOCUMENTS, ())):
            reads.clear()
            found = search(searcher, k, balance="lang", filters=filters)
            most = sum(min(GROUPS * k, hits.total) for hits in found)
            assert 0 < reads.pop("find") <= parts(kind) * most
            # The types and the values of the field are validated.
            assert reads.pop("count_values", 0) <= parts(kind) and not reads


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("passages", [None, 1])
def test_documents_by_their_best_passage_read_a_few_times_the_passages_that_they_need(
    built: Built, kind: str, passages: int | None
) -> None:
    """Also if nearly all passages are of one document, and if there are fewer documents than wanted."""
    with opened(built, kind) as (searcher, reads):
        every = search(searcher, DOCUMENTS)
        for k in (1, K, 100 * DOCUMENTS):
            reads.clear()
            found = search(searcher, k, max_passage=PASSAGES, passages=passages)
            most = 0
            for hits, ranking in zip(found, every, strict=True):
                complete = len(hits) == k
                needed = max(ranking.docids.index(name) for name in hits.passages.values()) + 1 if complete else 0
                most += 6 * max(k, needed) if complete else 3 * len(ranking)
            assert any(map(len, found)) and reads["find"] <= parts(kind) * most
            assert not reads.keys() - {"find"}
        assert all(len(hits) < len(ranking) for hits, ranking in zip(found, every, strict=True) if len(ranking) > K)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if STORED in kind.values[0]])
@pytest.mark.parametrize("field", ["lang", "year"])
def test_the_best_of_each_value_read_a_few_times_the_hits_that_they_need(built: Built, kind: str, field: str) -> None:
    """Also if there are fewer values than wanted; the value of a document is read once, and no text where it can be."""
    with opened(built, kind) as (searcher, reads):
        every = search(searcher, DOCUMENTS)
        for k in (1, K, 100 * DOCUMENTS):
            reads.clear()
            found = search(searcher, k, distinct=field)
            most = 0
            for hits, ranking in zip(found, every, strict=True):
                needed = ranking.docids.index(hits.docids[-1]) + 1 if len(hits) == k else len(ranking)
                most += min(6 * max(k, needed), 3 * len(ranking))
            assert any(map(len, found)) and reads["find"] <= parts(kind) * most
            assert reads["find_values"] <= min(most, sum(map(len, every)))
            assert reads["stored"] == (0 if kind.startswith("exact") else reads["find_values"])
            assert not reads.keys() - {"find", "find_values", "stored"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.values[0].startswith("exact")])
def test_a_fusion_reads_as_many_hits_of_each_index_as_count(built: Built, kind: str) -> None:
    """The best of each, depth or k, whichever is more; texts are read of the fused hits, from the first index."""
    with opened(built, "exact-stored", kind) as (searcher, reads):
        for k, depth in ((K, 9), (K, 1), (100 * DOCUMENTS, 1)):
            reads.clear()
            found = search(searcher, k, depth=depth)
            assert reads.pop("find") <= (1 + parts(kind)) * len(found) * min(max(k, depth), DOCUMENTS)
            assert not reads
        reads.clear()
        found = search(searcher, K)
        assert all(hit.document is not None for hits in found for hit in hits)
        assert reads["stored"] == sum(map(len, found))
