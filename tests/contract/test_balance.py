"""The contract of engines that balance languages: the mean score of a language is subtracted, exactly."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built import DOCUMENTS, FILTERS, INDEXES, SHARDS, STORED_INDEXES, Built, queries_for, stored_documents
from synthetic_stores import write_plain

from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, open_index
from milco_pyserini.index.documents import MAX_VALUE_BYTES, filter_text
from milco_pyserini.index.hits import Hits
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.request import Balance

KINDS = [kind for kind in STORED_INDEXES if kind.values[0] != "qdrant-stored"]
KINDS += [pytest.param(f"{kind.values[0]}{SHARDS}", marks=kind.marks) for kind in KINDS]
# Scores beyond 2**24, too, which Lucene adds up as floats.
QUERIES = [
    {term: factor * weight for term, weight in query.items()}
    for factor in (1, 1000)
    for query in queries_for("lucene", 4)
]


def balanced(searcher: EngineSearcher, query: Any, balance: Balance, docids: set[str]) -> Hits:
    """The definition: scores less the mean of all documents of the group, of those that match.

    docids: those that the index holds.
    """
    groups = {}
    for document in stored_documents():
        text = filter_text(document.fields.get(balance.field, ""))
        groups[document.id] = text if len(text.encode()) <= MAX_VALUE_BYTES else ""
    hits = searcher.search([query], DOCUMENTS)[0]
    scores = dict.fromkeys(docids, 0.0) | dict(zip(hits.docids, hits.scores.tolist(), strict=True))
    means = {
        group: np.mean([score for docid, score in scores.items() if groups[docid] == group])
        for group in {groups[docid] for docid in docids}
    }
    scored = {docid: scores[docid] - balance.strength * means[groups[docid]] for docid in hits.docids}
    ranked = sorted(scored, key=lambda docid: (-scored[docid], docid))
    return Hits(ranked, np.asarray([scored[docid] for docid in ranked]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("balance", [Balance("lang", 0.5), Balance("open", 2.0), Balance("open", 0)])
def test_a_balanced_ranking_is_that_of_scores_without_the_mean_of_their_language(
    built: Built, kind: str, balance: Balance
) -> None:
    """For every k, with filters and several threads; means are those of all documents, hits those that match."""
    with open_index(built.path(kind)).searcher() as searcher:
        documents = searcher.documents([document.id for document in stored_documents()])
        every = [balanced(searcher, query, balance, set(documents)) for query in QUERIES]
        for filters in (None, FILTERS[1]):
            passing = {docid for hits in searcher.search(QUERIES, DOCUMENTS, filters=filters) for docid in hits.docids}
            for k, threads in ((1, 2), (7, 1), (10 * DOCUMENTS, 1)):
                for hits, ranking in zip(
                    searcher.search(QUERIES, k, threads=threads, filters=filters, balance=balance), every, strict=True
                ):
                    kept = [place for place, docid in enumerate(ranking.docids) if docid in passing]
                    assert hits.docids == [ranking.docids[place] for place in kept[:k]]
                    np.testing.assert_allclose(hits.scores, ranking.scores[kept[:k]], rtol=1e-9, atol=1e-6)
                    assert hits.total == len(kept)
        assert [len(hits) for hits in searcher.search([{}, {"never": 1.0}], 5, balance=balance)] == [0, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("balance", [Balance("lang"), Balance("lang", 0.5), Balance("open", 2.0)])
def test_a_balanced_score_is_the_plain_score_and_its_balance_term(built: Built, kind: str, balance: Balance) -> None:
    """Exactly, for every hit; the term names the value of the field."""
    fields = {document.id: document.fields for document in stored_documents()}
    with open_index(built.path(kind)).searcher() as searcher:
        for query in QUERIES:
            plain, hits = (searcher.search([query], DOCUMENTS, balance=given)[0] for given in (None, balance))
            scores = dict(zip(plain.docids, plain.scores.tolist(), strict=True))
            terms = searcher.balance_terms(query, hits.docids, balance)
            assert hits.scores.tolist() == [scores[docid] + terms[docid].score for docid in hits.docids]
            for docid, term in terms.items():
                assert term.value in (filter_text(fields[docid].get(balance.field, "")), "")
        assert searcher.balance_terms(QUERIES[0], ["nowhere"], balance) == {}


def test_updated_languages_are_balanced_without_deleted_documents(built: Built, tmp_path: Path) -> None:
    """The mean scores are those of the documents that the index holds."""
    path, balance = shutil.copytree(built.path("lucene-stored"), tmp_path / "index"), Balance("lang")
    deleted = [hits.docids[0] for hits in open_index(path).searcher().search(QUERIES[:2], 1)]
    index = open_index(path).update(delete=deleted)
    with index.searcher() as searcher:
        docids = set(searcher.documents([document.id for document in stored_documents()]))
        assert not docids & set(deleted)
        for query, hits in zip(QUERIES, searcher.search(QUERIES, DOCUMENTS, balance=balance), strict=True):
            expected = balanced(searcher, query, balance, docids)
            assert hits.docids == expected.docids
            np.testing.assert_allclose(hits.scores, expected.scores, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in INDEXES if kind.values[0] not in ("lucene", "exact")])
def test_other_engines_refuse_to_balance(built: Built, kind: str) -> None:
    """The error names those that can."""
    with (
        open_index(built.path(kind)).searcher() as searcher,
        pytest.raises(MilcoError, match=f"balance='lang': engine {kind} "),
    ):
        searcher.search(queries_for(kind), 5, balance=Balance("lang"))


@pytest.mark.parametrize("engine", ["exact", "lucene"])
def test_a_field_that_cannot_be_balanced_is_one_error(built: Built, engine: str) -> None:
    """No stored documents, an unknown field, several values per document, numbers, too many different values."""
    for kind, field, message in (
        (engine, "lang", r"stores no fields to balance by.*milco index --store"),
        (f"{engine}-stored", "lng", "unknown field .* 'lng': did you mean 'lang'"),
        (f"{engine}-stored", "tags", "balance='tags': .* is strings: balance needs a field with one value"),
        (f"{engine}-stored", "a.b", "balance='a.b': .* is mixed: balance needs a field with one value"),
        (f"{engine}-stored", "year", "balance='year': .* is number: "),
    ):
        with open_index(built.path(kind)).searcher() as searcher, pytest.raises(MilcoError, match=message):
            searcher.search(queries_for(engine), 5, balance=Balance(field))
    with open_index(built.path(f"{engine}-stored")).searcher() as searcher:
        for counts, message in (
            (
                {f"{number}": 1 for number in range(501)},
                "501 different values in the 501 of 60 documents that have it:",
            ),
            (None, "over 100,000 different values in 60 documents: balance needs"),
        ):
            searcher.num_documents, searcher._values["lang"] = DOCUMENTS, counts
            with pytest.raises(MilcoError, match=f"balance='lang': it has {message}"):
                searcher.search(queries_for(engine), 5, balance=Balance("lang"))


@pytest.mark.parametrize("engine", ["exact", "lucene"])
def test_a_young_collection_is_balanced(engine: str, tmp_path: Path) -> None:
    """The first documents of a collection are enough: the only document of a language has its mean."""
    vectors = {"a": {"x": 3.0}, "b": {"x": 2.0}, "c": {"x": 1.0}, "d": {"x": 4.0}}
    languages = {"a": "de", "b": "fr", "c": ""}
    documents = [
        Document(docid, "", "text", {"lang": languages[docid]} if docid in languages else {}) for docid in vectors
    ]
    source = write_plain(tmp_path / "vectors.jsonl", vectors, documents)
    index = Index.build(source, tmp_path / "index", engine, store_documents=True, plain=True)
    with index.searcher() as searcher:
        (hits,) = searcher.search([{"x": 1.0}], 5, balance=Balance("lang"))
        assert hits.docids == ["d", "a", "b", "c"]
        assert (hits.scores / hits.scores[0]).tolist() == [1, 0, 0, -1]
