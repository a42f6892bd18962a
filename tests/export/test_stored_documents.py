"""The contract of a filled server for documents that are stored with their vectors."""

import json
import os
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built import passes
from search_servers import Server, fill
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.errors import MilcoError
from milco_pyserini.export import ExportJob, find_target
from milco_pyserini.export.access import Access
from milco_pyserini.export.protocol import ImpactDocument, ImpactStore
from milco_pyserini.export.qdrant import QdrantServer
from milco_pyserini.index import Index
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import StoredDocuments
from milco_pyserini.request import Balance, SearchRequest
from milco_pyserini.search.searcher import Searcher
from milco_pyserini.sparse import VectorStore

FILTERS: list[dict[str, Any]] = [
    {"lang": ["de", "fr"]},
    {"lang": "en", "year": [2003, "2004"]},
    {"year": {">=": 2003, "<": "2010"}},
    {"price": {">": 1.5}},
    {"price": ["0.25", "7.5"]},
    {"tags": "red"},
    {"public": True},
    {"meta.source": "b c"},
    {"date": {">=": "2026-01-10"}},
    {"mixed": ["1", "one"]},
]


def store_documents(path: Path, store: Path, year: int) -> Path:
    """Write the vectors of a store with documents with fields of all types; year: of the first one."""
    ids, batch = VectorStore.open(store).load()
    corpus = path.with_suffix(".jsonl")
    with corpus.open("w", encoding="utf-8") as handle:
        for number, docid in enumerate(ids):
            record = {
                "id": docid,
                "title": f"Häuser {number}" if number % 3 else "",
                "text": 'Zwei\x00 Häuser, a "house" \\u0000\ud83d\ude00',
                "lang": ["de", "en", "sw", "fr"][number % 4],
                "year": 2000 + number % 20 if number else year,
                "price": number / 4,
                "tags": ["red", "blue"] if number % 2 else ["blue"],
                "public": number % 5 == 0,
                "meta": {"source": ["a", "b c"][number % 2]},
                "date": f"2026-01-{number % 28 + 1:02}",
                "mixed": [1, "one", ["one", "two"]][number % 3],
            }
            if number % 7 == 6:
                del record["lang"], record["date"]
            handle.write(json.dumps(record) + "\n")
    return write_store(path, ids, batch, documents=list(open_corpus(corpus)))


def test_documents_are_stored_with_their_vectors(
    server: Server, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """After an interruption, too; texts and fields come back, and all filters find what they select."""
    require_real(server)
    store = store_documents(tmp_path / "vectors", store, 2000)
    given = {document.id: document for document in open_corpus(tmp_path / "vectors.jsonl")}
    stored = StoredDocuments(VectorStore.open(store))
    export = ExportJob(ImpactStore.open(store), "stored", corpus=stored)
    connected = find_target(server[0]).connect(Access((server[1],)), export.place)
    connected.create(f">{export.statement}")
    connected.write(list(export.changed())[::2])
    connected.client.close()
    assert fill(server, store, "stored", "--store", "--output", str(tmp_path / "index")) == 0
    with Index.open(tmp_path / "index").searcher() as searcher:
        assert searcher.fields == stored.fields
        vectors = [vector for _, vector in VectorStore.open(store).vectors() if vector]
        queries = [dict.fromkeys(list(vector)[:9], 1.0) for vector in vectors[:5]]
        rankings = searcher.search(queries, 1000)
        documents = searcher.documents([*rankings[0].docids, "missing", ""])
        assert documents == {docid: without_zeros(given[docid], server) for docid in rankings[0].docids}
        for filters in FILTERS:
            for ranking, found in zip(rankings, searcher.search(queries, 1000, filters=filters), strict=True):
                assert found.docids == [docid for docid in ranking.docids if passes(given[docid], filters)], filters
        counts = Counter(document.fields.get("lang") for document in given.values() if document.id in vectors_of(store))
        del counts[None]
        assert searcher.values("lang") == (None if server[0] == "milvus" else counts)


def test_fields_that_changed_are_written_again(
    server: Server, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """With --since the same vectors; a collection with documents is not filled without them."""
    require_real(server)
    output = ["--output", str(tmp_path / "index")]
    old, new = (store_documents(tmp_path / f"vectors{year}", store, year) for year in (2000, 1999))
    assert fill(server, old, "fields", "--store", *output) == 0
    assert fill(server, new, "fields", "--store", *output, "--since", str(old)) == 0
    with Index.open(tmp_path / "index").searcher() as searcher:
        first = VectorStore.open(store).load()[0][0]
        assert searcher.documents([first])[first].fields["year"] == 1999
    capsys.readouterr()
    assert fill(server, store, "fields") == 2
    assert "fields of" in (err := capsys.readouterr().err) and "was filled with documents. Pass --store" in err


def test_large_documents_are_sent_a_few_at_a_time(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server takes requests of some size only, and memory holds several of them."""
    pytest.importorskip("qdrant_client", reason="needs qdrant_client (pip install '.[qdrant]')")
    ids, batch = VectorStore.open(store).load()
    large = write_store(
        tmp_path / "vectors", ids, batch, documents=[Document(docid, "", 50_000 * "ä") for docid in ids]
    )
    sent: list[int] = []
    write = QdrantServer.write

    def counted(self: QdrantServer, vectors: list[ImpactDocument]) -> None:
        sent.append(len(vectors))
        write(self, vectors)

    monkeypatch.setattr(QdrantServer, "write", counted)
    options = ["--store", "--output", str(tmp_path / "index")]
    assert fill(("qdrant", str(tmp_path / "local")), large, "large", *options) == 0
    assert sum(sent) == len(vectors_of(store)) and max(sent) < 30


def test_texts_are_searched_with_vectors(
    server: Server, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks of BM25 are fused with those of the vectors; the server's own hybrid request is one that it accepts."""
    require_real(server)
    ids, batch = VectorStore.open(store).load()
    texts = ["river " * (place % 9) + "house" for place in range(len(ids))]
    documents = [Document(docid, "", text, {"lang": "en"}) for docid, text in zip(ids, texts, strict=True)]
    stored = write_store(tmp_path / "vectors", ids, batch, documents=documents)
    assert fill(server, stored, "hybrid", "--store", "--output", str(tmp_path / "index")) == 0
    vectors = [(docid, vector) for docid, vector in VectorStore.open(store).vectors() if vector]
    query = {term: impact / 100 for term, impact in vectors[0][1].items()}
    if Capability.HYBRID not in find_target(server[0]).capabilities:
        with pytest.raises(
            MilcoError, match="cannot search stored texts by BM25, elasticsearch, opensearch and qdrant"
        ):
            Searcher.open(tmp_path / "index").with_bm25()
        return
    with Searcher.open(tmp_path / "index").with_bm25() as searcher:
        with pytest.raises(MilcoError, match="engine bm25 cannot balance scores, exact, lucene and remote can"):
            searcher.validate(SearchRequest(balance=Balance("lang")))
        if server[0] == "qdrant" and "://" not in server[1]:
            pytest.skip("BM25 of a multilingual text needs a Qdrant server: QDRANT_URL")
        hits = searcher.rank([(query, "river")], SearchRequest(10))[0]
        vector_hits, text_hits = hits.by_index.values()
        assert len(text_hits) and all("river" in str(document.text) for document in text_hits.documents.values())
        expected = {
            docid: sum(1 / (61 + part.docids.index(docid)) for part in (vector_hits, text_hits) if docid in part.docids)
            for docid in hits.docids
        }
        assert hits.scores.tolist() == pytest.approx([expected[docid] for docid in hits.docids])
        filtered = searcher.rank([(query, "river")], SearchRequest(10, filters={"lang": "en"}))[0]
        assert filtered.docids == hits.docids
        if Capability.APPROXIMATE in find_target(server[0]).capabilities:
            approximate = SearchRequest(10, approximate=True)
            searcher.validate(approximate)
            first, second = searcher.rank([(query, "river")], approximate)[0].by_index.values()
            assert len(first) and second.docids == text_hits.docids
            # More than one request returns.
            monkeypatch.setattr("milco_pyserini.export.elasticsearch_server.WINDOW", 5)
            assert searcher.rank([(query, "river")], SearchRequest(10))[0].docids == hits.docids
        with searcher.reopened() as again:
            assert again.rank([(query, "river")], SearchRequest(10))[0].docids == hits.docids
    terms = ImpactStore.open(store).terms
    columns = sorted(terms.index(term) for term in query)
    vector = ImpactDocument(
        "", [terms[column] for column in columns], columns, [vectors[0][1][terms[c]] for c in columns]
    )
    path, body = find_target(server[0]).hybrid_request(vector, "river", "hybrid", 10)
    request = urllib.request.Request(server[1] + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)
    if server[0] != "qdrant":
        # Texts that tie have their ranks in another order.
        assert len(found["hits"]["hits"]) == len(hits)


def require_real(server: Server) -> None:
    """Skip a test that the test service for Elasticsearch cannot answer."""
    if server[0] == "elasticsearch" and "ELASTICSEARCH_URL" not in os.environ:
        pytest.skip("needs a real Elasticsearch: ELASTICSEARCH_URL")


def vectors_of(store: Path) -> set[str]:
    """Return the docids of vectors that have terms."""
    return {docid for docid, vector in VectorStore.open(store).vectors() if vector}


def without_zeros(document: Document, server: Server) -> Document:
    """Return a document as PostgreSQL can store it."""
    return replace(document, text=document.text.replace("\x00", "\ufffd")) if server[0] == "pgvector" else document


def test_languages_are_balanced_as_by_lucene(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """With filters, too; documents without a language, or another field, are refused in one line."""
    require_real(server)
    ids, batch = synthetic_batch(90)
    keep = [place for place, docid in enumerate(ids) if "\x00" not in docid]
    # Impacts that every server holds exactly.
    small = replace(batch, weights=np.minimum(batch.weights, np.float32(5)))
    for languages in (["de", "", "en"], ["de", "de", "en"]):
        documents = [Document(ids[place], "", "a", {"lang": languages[place % 3]}) for place in keep]
        name = "balanced" + languages[1]
        names = [document.id for document in documents]
        store = write_store(tmp_path / f"{name}.vectors", names, small.take(keep), documents=documents)
        assert fill(server, store, name, "--store", "--output", str(tmp_path / name)) == 0
    lucene = Index.build(store, tmp_path / "lucene")
    queries = [dict.fromkeys(list(vector)[:9], 1.0) for _, vector in VectorStore.open(store).vectors() if vector][:20]
    balance = Balance.parse("lang=0.5")
    with lucene.searcher() as wanted, Index.open(tmp_path / "balancedde").searcher() as searcher:
        for filters in ({}, {"lang": "en"}):
            rankings = (engine.search(queries, 20, filters=filters, balance=balance) for engine in (searcher, wanted))
            for found, expected in zip(*rankings, strict=True):
                assert found.docids == expected.docids and found.scores.tolist() == expected.scores.tolist()
        with pytest.raises(MilcoError, match="can be balanced by lang only"):
            searcher.search(queries, 5, balance=Balance.parse("text"))
        with pytest.raises(MilcoError, match="can be balanced by lang only"):
            searcher.find_groups(queries, SearchRequest(5), "text")
    with (
        Index.open(tmp_path / "balanced").searcher() as searcher,
        pytest.raises(MilcoError, match="documents that all have a lang"),
    ):
        searcher.search(queries, 5, balance=balance)
