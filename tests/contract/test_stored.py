"""The contract of every engine that stores documents: they come back as they were, and filters are exact."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import orjson
import pytest
from built import DOCUMENTS, FILTERS, INDEXES, STORED, STORED_INDEXES, Built, passes, queries_for, stored_documents
from synthetic_stores import synthetic_batch, vocabulary, write_plain, write_store

from milco_pyserini.corpora import Document
from milco_pyserini.encode.documents import SchemaReader
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, open_index
from milco_pyserini.index.documents import filter_text
from milco_pyserini.sparse import SparseBatch, VectorStore

LONG = "x" * 2000


@pytest.mark.parametrize("kind", STORED_INDEXES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_filtered_ranking_is_the_ranking_without_the_others(built: Built, kind: str, threads: int) -> None:
    """Ties included, for every k; total counts all that match, with and without filters, or is None."""
    is_counted = kind != "qdrant-stored"
    searcher = open_index(built.path(kind)).searcher()
    documents = {document.id: document for document in stored_documents()}
    complete = searcher.search(queries_for(kind), DOCUMENTS)
    assert [hits.total for hits in complete] == [len(hits) if is_counted else None for hits in complete]
    for filters in FILTERS:
        for k in (1, 7, 10 * DOCUMENTS):
            found = searcher.search(queries_for(kind), k, threads=threads, filters=filters)
            for hits, every in zip(found, complete, strict=True):
                kept = [place for place, docid in enumerate(every.docids) if passes(documents[docid], filters)]
                assert hits.docids == [every.docids[place] for place in kept[:k]]
                np.testing.assert_array_equal(hits.scores, every.scores[kept[:k]])
                assert hits.total == (len(kept) if is_counted else None)
    assert [len(hits) for hits in searcher.search([{}, {"no such term": 1.0}], 5, filters=FILTERS[0])] == [0, 0]


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_hits_are_those_of_an_index_without_documents(built: Built, kind: str) -> None:
    """Storing documents changes no ranking."""
    found = [
        open_index(built.path(one)).searcher().search(queries_for(kind), 9) for one in (kind, kind.removesuffix(STORED))
    ]
    for stored, plain in zip(*found, strict=True):
        assert stored.docids == plain.docids and stored.scores.tolist() == plain.scores.tolist()


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_documents_come_back_as_they_were(built: Built, kind: str) -> None:
    """Title, text and fields with their types, except for lone surrogates; unknown docids are left out."""
    index = open_index(built.path(kind))
    assert index.manifest.fields == {
        "a.b": "mixed",
        "lang": "string",
        "open": "boolean",
        "tags": "strings",
        "year": "number",
    }
    documents = {document.id: document for document in stored_documents()}
    searcher = index.searcher()
    found = searcher.documents([*documents, "nowhere"])
    assert len(found) == index.manifest.documents and "nowhere" not in found
    for docid, document in found.items():
        expected = documents[docid]
        assert (document.id, document.title, document.fields) == (docid, expected.title, expected.fields)
        assert document.text == expected.text.replace("\ud800", "\ufffd")
    assert searcher.documents([]) == {}


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_invalid_filters_are_one_error(built: Built, kind: str) -> None:
    """An unknown field with the nearest, a value that no index holds, no value; values without a comparison."""
    searcher = open_index(built.path(kind)).searcher()
    for filters, message in (
        ({"lng": ["de"]}, "unknown field .* 'lng': did you mean 'lang'"),
        ({"lang": [LONG]}, "a value has 2,000 bytes"),
        ({"lang": []}, "filter 'lang' has no value"),
        ({"year": {}}, "filter 'year' has no value"),
        ({"year": {">=": "new"}}, "filter 'year': its values are numbers, 'new' is not"),
        ({"year": ">=2000"}, """'>=2000' is not.* "year>=20", or {"year": {">=": 20}}"""),
        ({"year": (">=", 2000)}, "'>=' is not"),
        ({"lang": (">=", "de")}, "filter 'lang': >= is a comparison, not a value"),
        ({"lang": {">=": 5}}, "not all begin with as many digits as '5': index numbers"),
        (["lang>=5"], "index numbers"),
        (["year=2000", "year>2000"], "a field has values .* or a range, not both"),
        ({"year": {"=>": 2000}}, "unknown comparison '=>': valid are"),
        ({"open": {">": 0}}, "ranges are for fields of numbers or strings, its values are boolean"),
    ):
        with pytest.raises(MilcoError, match=message):
            searcher.search(queries_for(kind), 5, filters=filters)
    for given, error in (({"lang": [None]}, "filters compare"), (7, "filters=7: expected"), ([7], "expected")):
        with pytest.raises(TypeError, match=error):
            searcher.search(queries_for(kind), 5, filters=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_filters_are_conditions_or_a_dict(built: Built, kind: str) -> None:
    """A string or several, as on the command line; a number has any spelling."""
    searcher = open_index(built.path(kind)).searcher()
    for given, same in (
        ("year>=2001", {"year": {">=": 2001}}),
        (["year>2000", "year<=2002", "lang=de", "lang=fr"], {"year": {">": 2000, "<=": 2002}, "lang": ["de", "fr"]}),
        ("year=2001.0", {"year": 2001}),
    ):
        found = [searcher.search(queries_for(kind), 9, filters=filters) for filters in (given, same)]
        assert [hits.docids for hits in found[0]] == [hits.docids for hits in found[1]] and any(map(len, found[0]))


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_values_are_counted(built: Built, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts have the values by which filters find documents; a field with too many has neither counts nor ranges."""
    searcher = open_index(built.path(kind)).searcher()
    held = searcher.documents([document.id for document in stored_documents()]).values()
    for field in ("lang", "tags", "open", "year", "a.b"):
        lists = [
            value if isinstance(value, list) else [value]
            for one in held
            if (value := one.fields.get(field, [])) or value is False
        ]
        counts = Counter(text for values in lists for text in set(map(filter_text, values)) if text != LONG)
        assert searcher.values(field) == counts
    assert searcher.search(queries_for(kind, 1), 5, filters={"year": {">": 2000, "<": 2001}})[0].docids == []
    with pytest.raises(MilcoError, match="did you mean 'lang'"):
        searcher.values("lng")
    monkeypatch.setattr("milco_pyserini.index.protocol.MAX_VALUES", 2)
    other = open_index(built.path(kind)).searcher()
    assert other.values("lang") is None
    with pytest.raises(MilcoError, match="100,000"):
        other.search(queries_for(kind, 1), 5, filters={"year": {">": 2000}})


@pytest.mark.parametrize("kind", [f"lucene{STORED}", f"qdrant{STORED}"])
def test_values_of_deleted_documents_are_not_counted(built: Built, kind: str, tmp_path: Path) -> None:
    """Though engines keep them for a while."""
    shutil.copytree(built.path(kind), tmp_path / "index")
    before = open_index(tmp_path / "index").searcher()
    counts = before.values("year")
    first, *_ = [one for one in stored_documents() if one.fields.get("year") == 2001 and before.documents([one.id])]
    before.close()
    after = open_index(tmp_path / "index").update(delete=[first.id]).searcher()
    assert after.values("year") == {**counts, "2001": counts["2001"] - 1}


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_ranges_of_many_values_miss_no_document_after_deletes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field is refused until it has few enough values of documents that are left; then all of these are found."""
    monkeypatch.setattr("milco_pyserini.index.protocol.MAX_VALUES", 4)
    ids = [f"d{number}" for number in range(9)]
    documents = [Document(docid, "", "text", {"stamp": 100 + number}) for number, docid in enumerate(ids)]
    vectors = write_plain(tmp_path / "vectors.jsonl", {docid: {"x": 1.0} for docid in ids}, documents)
    index = Index.build(vectors, tmp_path / "index", kind.removesuffix(STORED), store_documents=True, plain=True)
    # An update of exact removes a segment that is mostly deleted.
    for left in (ids, ids[2:], ids[4:], ids[5:]):
        index = index.update(delete=ids[: len(ids) - len(left)])
        with index.searcher() as searcher:
            if len(left) > 4:
                assert searcher.values("stamp") is None
                with pytest.raises(MilcoError, match="filter 'stamp': ranges are for fields of up to"):
                    searcher.search([{"x": 1.0}], 9, filters="stamp>=100")
                continue
            assert searcher.values("stamp") == {str(100 + int(docid[1:])): 1 for docid in left}
            for bound in (100, 107):
                (hits,) = searcher.search([{"x": 1.0}], 9, filters=f"stamp>={bound}")
                assert hits.docids == [docid for docid in left if int(docid[1:]) + 100 >= bound]
            if kind == f"exact{STORED}":
                assert sorted(searcher.matching({"stamp": {">=": 100}})) == left


@pytest.mark.parametrize("kind", INDEXES)
def test_an_index_without_documents_refuses_filters(built: Built, kind: str) -> None:
    """It names the option to build it with; an empty filter is the same as None."""
    searcher = open_index(built.path(kind)).searcher()
    assert searcher.documents(["d1"]) == {}
    assert len(searcher.search(queries_for(kind, 1), 5, filters={})) == 1
    with pytest.raises(MilcoError, match=r"cannot store documents|milco index --store"):
        searcher.search(queries_for(kind, 1), 5, filters={"lang": ["de"]})


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_the_documents_of_a_store_are_indexed_unless_they_are_left_out(built: Built, kind: str, tmp_path: Path) -> None:
    """With several threads, and of parts of JSON lines, too; store_documents=False leaves the index without."""
    engine, ids = kind.removesuffix(STORED), [document.id for document in stored_documents()]
    index = Index.build(built.path(f"jsonl{STORED}"), tmp_path / "index", engine, threads=2)
    assert index.searcher().documents(ids) == open_index(built.path(kind)).searcher().documents(ids)
    without = Index.build(built.path(f"jsonl{STORED}"), tmp_path / "without", engine, store_documents=False)
    assert without.manifest.fields is None and without.searcher().documents(ids) == {}


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_passages_share_the_text_of_their_document(kind: str, tmp_path: Path) -> None:
    """It is stored once, with the first passage that has terms; filters apply to every passage."""
    weights = [{}, {"w1": 1.0}, {"w1": 2.0}, {"w1": 3.0}]
    batch = SparseBatch.from_dicts(weights, vocabulary())
    documents = [Document("a", "A", "of two", {"lang": "de"}), Document("b", "", "of one", {"lang": "fr"})]
    passages = ["a#0", "a#1", "a#2", "b#0"]
    store = write_store(tmp_path / "vectors", passages, batch, documents=documents, split_passages=True)
    searcher = Index.build(store, tmp_path / "index", kind.removesuffix(STORED)).searcher()
    assert searcher.documents(["a#2", "b#0", "a#0"]) == {
        "a#2": Document("a#2", "A", "of two", {"lang": "de"}),
        "b#0": Document("b#0", "", "of one", {"lang": "fr"}),
    }
    assert searcher.search([{"w1": 1.0}], 5, filters={"lang": "de"})[0].docids == ["a#2", "a#1"]
    assert [text.count("of two") for text in map(str, searcher.stored(["a#1", "a#2"]).values())] == [1, 0]


def test_names_that_no_store_can_hold_are_refused() -> None:
    """A store needs them itself, or a line of a manifest cannot have them."""
    for name in ("raw", "id", "vector", "a\nb", ""):
        with pytest.raises(MilcoError, match="a store cannot hold a field named"):
            SchemaReader("named").add(Document("d", "", "x", {name: 1}))


def test_vectors_without_documents_are_indexed_without(tmp_path: Path) -> None:
    """As those of version 0.4; the error for store_documents=True names the way to get them."""
    vectors = write_store(tmp_path / "old", *synthetic_batch(5))
    assert Index.build(vectors, tmp_path / "index", "exact").manifest.fields is None
    with pytest.raises(MilcoError, match=r"old holds vectors without their documents. Run milco encode --reuse "):
        Index.build(vectors, tmp_path / "other", "exact", store_documents=True)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_documents_of_external_vectors_are_stored_if_asked_for(kind: str, tmp_path: Path) -> None:
    """Contents, title and fields, as Anserini's JSONL has them."""
    documents = [Document("a", "Nile", "A river.", {"year": 2024}), Document("b", "", "A sea.", {"year": 10**30})]
    vectors = write_plain(tmp_path / "vectors.jsonl", {"a": {"x": 1.0}, "b": {"x": 2.0}}, documents)
    engine = kind.removesuffix(STORED)
    assert Index.build(vectors, tmp_path / "without", engine, plain=True).manifest.fields is None
    index = Index.build(vectors, tmp_path / "index", engine, plain=True, store_documents=True)
    with index.searcher() as searcher:
        assert searcher.documents(["a"])["a"].contents == "Nile A river."
        assert searcher.search([{"x": 1.0}], 5, filters="year<2025")[0].docids == ["a"]


def test_a_store_yields_its_documents_in_the_order_of_its_vectors(built: Built) -> None:
    """JSON lines and Parquet hold the same objects; a shard has those of its parts."""
    found = []
    for kind in (f"jsonl{STORED}", f"parquet{STORED}"):
        store = VectorStore.open(built.path(kind))
        found.append([orjson.loads(record) for record in store.documents()])
        assert [record["id"] for record in found[-1]] == [docid for docid, _ in store.vectors()]
        assert list(store.take_shard(1, 2).documents()) == list(store.documents())[DOCUMENTS // 2 :]
    assert found[0] == found[1]
    assert list(VectorStore.open(built.path("parquet")).documents()) == []
