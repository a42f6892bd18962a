"""The contract of distinct: the best document of each value of a field, in every engine, in shards and fused."""

from collections.abc import Sequence
from typing import Any

import pytest
from built import DOCUMENTS, INDEXES, SHARDS, STORED_INDEXES, Built, queries_for, stored_documents

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Hits, open_index
from milco_pyserini.index.documents import filter_text
from milco_pyserini.request import SearchRequest
from milco_pyserini.search.searched_index import SearchedIndex
from milco_pyserini.search.searcher import Searcher
from milco_pyserini.search.topics import SearchTopics, search_topics

KINDS = [*STORED_INDEXES, *(pytest.param(f"{kind.values[0]}{SHARDS}", marks=kind.marks) for kind in STORED_INDEXES)]
# They have every type: strings that are hard to quote or too long, numbers, booleans, lists, and several types.
FIELDS = ("lang", "year", "open", "tags", "a.b")
ALL = 100 * DOCUMENTS


def values(field: str) -> dict[str, tuple[str, ...]]:
    """Return the values of a field of each document, by their definition."""
    found = {}
    for document in stored_documents():
        value = document.fields.get(field, [])
        texts = set(map(filter_text, value if isinstance(value, list) else [value]))
        found[document.id] = tuple(sorted(text for text in texts if len(text.encode()) <= 1024))
    return found


def first_of_each_value(hits: Hits, field: str) -> list[str]:
    """Return the docids of a complete ranking whose value no better document has."""
    known, seen, first = values(field), set(), []
    for docid in hits.docids:
        value = known[docid] or docid
        first += [] if value in seen else [docid]
        seen.add(value)
    return first


def opened(built: Built, *kinds: str) -> Searcher:
    """Open an index, or several that are fused."""
    indexes = [SearchedIndex(open_index(built.path(kind))) for kind in kinds]
    return Searcher(indexes, fuse="rrf" if len(indexes) > 1 else None)


def search(searcher: Searcher, k: int, excluded: Sequence[str] = (), **options: Any) -> list[Hits]:
    """Return the hits of a few queries."""
    request = SearchRequest.of(k, options)  # type: ignore[arg-type]
    searcher.validate(request)
    return searcher.rank([(query,) * len(searcher.indexes) for query in queries_for("", 3)], request, excluded)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", FIELDS)
def test_hits_are_the_best_of_each_value(built: Built, kind: str, field: str) -> None:
    """As many as k where they exist, with the scores of the ranking; documents without a value are all there."""
    with opened(built, kind) as searcher:
        every = search(searcher, ALL)
        expected = [first_of_each_value(hits, field) for hits in every]
        assert all(0 < len(docids) < len(hits) for docids, hits in zip(expected, every, strict=True))
        for k, offset in ((1, 0), (4, 0), (3, 2), (ALL, 0)):
            found = search(searcher, k, distinct=field, offset=offset)
            for hits, docids, ranking in zip(found, expected, every, strict=True):
                assert hits.docids == docids[offset : offset + k] and hits.total == ranking.total
                scores = dict(zip(ranking.docids, ranking.scores.tolist(), strict=True))
                assert hits.scores.tolist() == [scores[docid] for docid in hits.docids]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", FIELDS)
def test_values_are_those_by_which_filters_find_documents(built: Built, kind: str, field: str) -> None:
    """None of a document without the field; unknown documents are left out."""
    with open_index(built.path(kind)).searcher() as searcher:
        ids = [document.id for document in stored_documents()]
        held, expected = searcher.documents(ids), values(field)
        assert searcher.field_values([*ids, "nowhere"], field) == {docid: expected[docid] for docid in held}
        assert searcher.field_values([], field) == {}
        with pytest.raises(MilcoError, match=r"unknown field of .* 'lng': did you mean 'lang'"):
            searcher.field_values(ids, "lng")
    with pytest.raises(MilcoError, match="is closed"):
        searcher.field_values(ids, field)


@pytest.mark.parametrize("kind", KINDS)
def test_other_options_apply_first_or_to_what_is_left(built: Built, kind: str) -> None:
    """Filters and a document to leave out before, a least share after."""
    with opened(built, kind) as searcher:
        for options in ({"filters": "year>=2001"}, {"excluded": ["d1", "d2", "nowhere"]}):
            every = search(searcher, ALL, **options)
            found = search(searcher, 3, distinct="lang", **options)
            assert [hits.docids for hits in found] == [first_of_each_value(hits, "lang")[:3] for hits in every]
        for some, hits in zip(
            search(searcher, 5, distinct="lang", min_share=0.4), search(searcher, 5, distinct="lang"), strict=True
        ):
            assert some.docids == [hit.docid for hit in hits if hit.share >= 0.4]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.values[0].startswith("qdrant")])
def test_balanced_hits_are_distinct_by_their_balanced_scores(built: Built, kind: str) -> None:
    """The order is that of the balanced search."""
    with opened(built, kind) as searcher:
        every = search(searcher, ALL, balance="lang")
        found = search(searcher, 4, balance="lang", distinct="year")
        assert [hits.docids for hits in found] == [first_of_each_value(hits, "year")[:4] for hits in every]


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("fuse", ["rrf", "rsf"])
def test_fused_hits_are_distinct_if_one_index_stores_the_field(built: Built, kind: str, fuse: str) -> None:
    """The best of each value of the fused ranking, also of documents that only the other index returned."""
    with opened(built, kind, "exact-stored-shards") as searcher:
        every = search(searcher, ALL, fuse=fuse)
        for field in FIELDS:
            expected = [first_of_each_value(hits, field) for hits in every]
            found = search(searcher, 4, distinct=field, fuse=fuse, offset=1)
            assert [hits.docids for hits in found] == [docids[1:5] for docids in expected]
            assert all(hit.by_index for hits in found for hit in hits)
            # Few documents of each index count at first: more are fetched until there are k values.
            for hits, docids in zip(search(searcher, 6, distinct=field, fuse=fuse, depth=1), expected, strict=True):
                assert len(hits) == min(6, len(docids)) and first_of_each_value(hits, field) == hits.docids


def test_passages_are_of_distinct_documents_with_distinct_values(built: Built) -> None:
    """By this delimiter the ids of most documents are passages of one document, whose best passage has its value."""
    with opened(built, "exact-stored") as searcher:
        every = search(searcher, ALL, max_passage="d")
        for hits, ranking in zip(search(searcher, 4, max_passage="d", distinct="open"), every, strict=True):
            known, seen, expected = values("open"), set(), []
            for docid in ranking.docids:
                value = known[ranking.passages[docid]] or docid
                expected += [] if value in seen else [docid]
                seen.add(value)
            assert hits.docids == expected[:4]


def test_topics_leave_out_their_document_before_the_best_of_each_value(built: Built) -> None:
    """Another document of its value takes its place."""
    with opened(built, "lucene-stored") as searcher:
        query = next(iter(queries_for("")))
        ((every,), request) = search(searcher, ALL)[:1], SearchRequest(3, distinct="lang")
        topics = SearchTopics([every.docids[0]], vectors=[query])
        ((_, _, hits),) = search_topics(searcher, topics, request, remove_query=True)
        assert hits.docids == first_of_each_value(every[1:], "lang")[:3]


@pytest.mark.parametrize("kind", INDEXES)
def test_a_field_that_no_index_stores_is_refused(built: Built, kind: str) -> None:
    """Before anything is encoded or searched; with the nearest name where there are fields."""
    with opened(built, kind) as searcher, pytest.raises(MilcoError, match=r"distinct='lang': engine .* cannot|--store"):
        search(searcher, 3, distinct="lang")
    with opened(built, "exact-stored") as searcher:
        with pytest.raises(MilcoError, match=r"unknown field of .* 'lng': did you mean 'lang'"):
            search(searcher, 3, distinct="lng")
        with pytest.raises(MilcoError, match="distinct is empty"):
            search(searcher, 3, distinct="")
