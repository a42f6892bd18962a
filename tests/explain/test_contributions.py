"""Contributions are the numbers that the engine multiplies, and sum to its score."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from explained_set import CORPUS, documents, explainer, index, queries, query_encoder, store
from synthetic_stores import write_plain

from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.encode.contract import MilcoQueryEncoder, open_query_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.contributions import find_store
from milco_pyserini.explain.explainer import Explainer
from milco_pyserini.explain.explanation import Explanation, compare, report_page
from milco_pyserini.explain.terms import Contribution, ExplainedText, Term
from milco_pyserini.index import build_index, find_engine
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.exact import ExactSearcher
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse import open_store


@pytest.fixture(params=["exact", "qdrant", pytest.param("lucene", marks=pytest.mark.integration)])
def engine(request: pytest.FixtureRequest) -> str:
    """Name the engines whose postings can be read."""
    try:
        find_engine(request.param).available()
    except MilcoError as error:
        pytest.skip(str(error))
    return request.param


def plain_sum(explanation: Explanation) -> float:
    """Add up the contributions in their order."""
    total = 0.0
    for contribution in explanation.contributions:
        total += contribution.score
    return total


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_explained_queries_have_the_vectors_of_a_run(dtype: str) -> None:
    """To the bit, so that scores of the page, of Python and of a run are equal."""
    encoder = open_query_encoder(store().manifest, device="cpu", dtype=dtype)
    texts = queries(13)
    explain = Explainer(index("exact"), encoder).explain
    for text, vector in zip(texts, encoder.encode_batch(texts), strict=True):
        single = encoder.encoder.encode_query(text, max_length=encoder.max_length)
        assert single.to_dicts(encoder.encoder.vocabulary) == [vector]
        assert all(one.query.weights == vector for one in explain(text, request=SearchRequest(1)))


@pytest.mark.parametrize(("prune", "count", "k"), [("", 12, 3), ("", 1, 50), ("top-k:12", 6, 3)])
def test_contributions_sum_to_the_engines_score(engine: str, prune: str, count: int, k: int) -> None:
    """Each is query x document, in integers for Lucene and Qdrant; the difference to the score is 0."""
    built = index(engine, prune=prune)
    explain, searcher = explainer(built).explain, built.searcher()
    for query in queries(count):
        hits = searcher.search(query_encoder().encode_batch([query]), k)[0]
        explanations = explain(query, request=SearchRequest(k))
        assert [one.docid for one in explanations] == hits.docids
        for rank, (one, score) in enumerate(zip(explanations, hits.scores.tolist(), strict=True), 1):
            assert (one.score, one.rank, one.difference) == (score, rank, 0)
            assert plain_sum(one) == one.total == score
            assert all(part.score == part.query * part.document for part in one.contributions)
            assert engine == "exact" or all(isinstance(part.score, int) for part in one.contributions)
            pivot = sum(part.score for part in one.contributions if part.term.view == "pivot")
            assert one.shares == pytest.approx({"pivot": pivot / score, "source": 1 - pivot / score})


def test_the_index_that_is_searched_is_explained(engine: str, tmp_path: Path) -> None:
    """Also if an update has deleted the document since it was opened."""
    built = build_index(store(), find_engine(engine), tmp_path / "index")
    searcher, query = built.searcher(), queries(1)[0]
    docid = searcher.search(query_encoder().encode_batch([query]), 1)[0].docids[0]
    if Capability.UPDATE in find_engine(engine).capabilities:
        built.update(delete=[docid])
    one = Explainer(built, query_encoder(), searcher=searcher).explain(query, [docid])[0]
    assert one.score and one.difference == 0


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_contributions_sum_to_the_score_with_alpha(engine: str, alpha: float) -> None:
    """As encode_query(alpha) weighs the views; a view with weight 0 contributes nothing."""
    built, encoder = index(engine), query_encoder()
    explain, searcher = Explainer(built, encoder.with_alpha(alpha)).explain, built.searcher()
    views = {0.0: {"source"}, 1.0: {"pivot"}}.get(alpha, {"pivot", "source"})
    for query in queries(4):
        batch = encoder.encoder.encode_query([query], alpha=alpha, max_length=encoder.max_length)
        hits = searcher.search(batch.to_dicts(encoder.encoder.vocabulary), 3)[0]
        explanations = explain(query)
        assert [one.docid for one in explanations] == hits.docids
        for one, score in zip(explanations, hits.scores.tolist(), strict=True):
            assert (one.alpha, one.score, one.difference) == (alpha, score, 0)
            assert plain_sum(one) == one.total == score
            assert {part.term.view for part in one.contributions} <= views


@pytest.mark.integration
def test_seismic_scores_are_explained_by_the_texts() -> None:
    """Its postings cannot be read: the document's numbers are the encoder's, and their sum is near the score."""
    try:
        find_engine("seismic").available()
    except MilcoError as error:
        pytest.skip(str(error))
    explain = Explainer(index("seismic"), query_encoder().with_alpha(0.3), documents(index("seismic"))).explain
    for one in (one for query in queries(3) for one in explain(query)):
        assert one.score == pytest.approx(one.total, rel=2e-3)


def test_named_documents_keep_their_order_and_rank(engine: str) -> None:
    """Rank and score are those of the complete ranking; an unknown docid is an error."""
    explain = explainer(index(engine)).explain
    query = queries(50)[7]
    ranked = list(reversed(explain(query, request=SearchRequest(3))))
    named = explain(query, [one.docid for one in ranked])
    assert [(one.docid, one.rank, one.score) for one in named] == [(one.docid, one.rank, one.score) for one in ranked]
    with pytest.raises(MilcoError, match="has no document 'nope', or it has no terms"):
        explain(query, ["nope"])


def test_external_vectors_are_explained_without_origins(tmp_path: Path, engine: str) -> None:
    """A document without a shared term has neither contributions nor a rank; an unknown term has view "other"."""
    term, other = query_encoder().encoder.vocabulary.terms[[5, 6]]
    path = write_plain(tmp_path / "vectors.jsonl", {"a": {term: 3}, "b": {other: 2, "theirs": 7}})
    built = build_index(open_store(path, plain=True), find_engine(engine), tmp_path / "index")
    one = Explainer(built, query_encoder(), None, find_store(built, path)).explain("x", ["b"])[0]
    assert one.document.complete
    assert {term.term: term.view for term, _ in one.document_only or []}["theirs"] == "other"
    assert one.score is None or one.contributions
    assert "external vectors" in one.notes[0]


def test_unreadable_engines_are_explained_by_text_or_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without both, an error names the options; a text that was not indexed is noted."""
    monkeypatch.setattr(ExactSearcher, "capabilities", frozenset())
    built, query = index("exact"), queries(20)[3]
    for source in ((documents(built), None), (None, store())):
        for one in explainer(built, *source).explain(query):
            assert one.contributions
            assert one.score == pytest.approx(one.total)
            assert abs(one.difference or 0) < 1e-6
            assert source[0] is None or not one.notes
    with pytest.raises(MilcoError, match="Pass vectors"):
        explainer(built).explain(query)

    def changed_documents(docids: Sequence[str]) -> Mapping[str, Document]:
        return {docid: Document(docid, "", "something else") for docid in docids}

    changed = explainer(built, changed_documents).explain(query)
    assert all("the engine's score is far from the sum" in one.notes[0] for one in changed)


def test_text_and_store_give_the_documents_other_terms(engine: str) -> None:
    """Both complete the document's vector; without them, the other terms are unknown."""
    built, query = index(engine), queries(20)[3]
    of_text, of_store, of_none = (
        explainer(built, *source).explain(query)[0]
        for source in ((documents(built), None), (None, store()), (None, None))
    )
    stored = dict(store().vectors())[of_text.docid]
    scale = store().manifest.scale if engine == "exact" else 1
    for one in (of_text, of_store):
        assert one.document.complete
        assert {term: round(number * scale) for term, number in one.document.weights.items()} == stored
        assert {term.term for term, _ in one.document_only or []} == stored.keys() - one.query.weights.keys()
    assert of_store.document.text is None
    assert "does not store the document's text" in of_store.notes[0]
    assert (of_none.document_only, of_none.lost, of_none.unpruned) == (None, None, None)
    assert of_none.contributions == of_text.contributions


@pytest.mark.parametrize("source", ["text", "store"])
def test_pruned_matches_are_listed(engine: str, source: str) -> None:
    """Matches in the pruned index and lost matches are the matches in the index without pruning."""
    sources = (documents(index(engine)), None) if source == "text" else (None, store())
    lost = 0
    for query in queries(3):
        for one in explainer(index(engine, prune="top-k:12"), *sources).explain(query):
            full = explainer(index(engine), *sources).explain(query, [one.docid])[0]
            # A term that rounds to 0 in either text would not have matched without pruning either.
            pruned = {
                term.term.term
                for term in one.lost or ()
                if term.reason == "pruning top-k:12" and term.document > 0.005 and term.term.term in one.query.weights
            }
            matched = {part.term.term for part in one.contributions}
            assert {part.term.term for part in full.contributions} == matched | pruned
            assert (one.dropped or {})["pruning top-k:12"] > 20
            assert one.unpruned == pytest.approx(full.unpruned)
            lost += len(pruned)
    assert lost


def test_matches_lost_to_rounding_are_listed(engine: str) -> None:
    """At scale 1, weights below 0.5 round to 0."""
    built = index(engine, "--scale", "1")
    lost = [
        one
        for query in queries(5)
        for each in explainer(built, documents(built)).explain(query)
        for one in each.lost or ()
    ]
    assert {one.reason for one in lost if one.document < 0.5 <= one.query} == {"rounds to 0 at scale 1"}
    assert any(one.reason.startswith("in the query, rounds to 0") for one in lost) == (engine != "exact")


def test_terms_of_a_missing_view_are_listed() -> None:
    """An index of the pivot view has no source terms."""
    built = index("exact", "--views", "pivot")
    encoder = MilcoQueryEncoder(query_encoder().encoder, views=("pivot",))
    for one in (Explainer(built, encoder, documents(built)).explain(query)[0] for query in queries(3)):
        assert one.shares["source"] == 0
        assert "the index has no source view" in (one.dropped or {})


def test_passages_are_explained_by_their_own_text() -> None:
    """ID#N has the tokens and the text of its passage only."""
    built, query = index("exact", "--split-passages", "--max-length", "16"), queries(20)[5]
    contents = {document.id: document.contents for document in open_corpus(CORPUS)}
    for one in explainer(built, documents(built)).explain(query, request=SearchRequest(20)):
        name, _, number = one.docid.rpartition("#")
        assert one.document.text in contents[name]
        assert (number == "0") == contents[name].startswith(one.document.text or "")
        assert not one.notes
    with pytest.raises(MilcoError, match=r"passages, ID#0"):
        explainer(built).explain("x", ["ja-01"])


def test_a_comparison_sums_to_the_difference_of_the_scores(engine: str) -> None:
    """The better document comes first."""
    for query in queries(3):
        first, second = explainer(index(engine)).explain(query, request=SearchRequest(2))
        found = compare(second, first)
        assert found.first.total >= found.second.total
        assert sum(row.difference for row in found.differences) == pytest.approx(found.total, abs=1e-9)
    with pytest.raises(ValueError, match="different queries"):
        compare(first, explainer(index(engine)).explain(queries(30)[9])[0])


def ranked(rank: int | None, score: float | None, scores: dict[str, float], name: str = "d") -> Explanation:
    """Make an explanation for a query whose terms all weigh 1."""
    contributions = tuple(Contribution(Term(term, term, "pivot"), 1.0, one, one) for term, one in scores.items())
    query, document = ExplainedText("query", "x y", {"x": 1.0, "y": 1.0}), ExplainedText(name, None, scores)
    return Explanation(query, document, "seismic", "approximate", 1.0, contributions, score=score, rank=rank)


def test_a_comparison_follows_the_engines_ranking() -> None:
    """Even against the sums: what the engine rounded is a row, so that the rows sum to the difference of scores."""
    first, second = ranked(31, 0.52, {"x": 0.5}), ranked(32, 0.51, {"x": 0.25, "y": 0.26})
    for found in (compare(first, second), compare(second, first)):
        assert (found.first, found.second) == (first, second)
        (rounding,) = found.rows_beyond_terms
        assert rounding.difference == pytest.approx(0.02)
        assert sum(row.difference for row in (*found.differences, rounding)) == pytest.approx(found.total) == 0.01
        assert "  rounding in the engine\n" in found.to_text(1)
        assert "<bdi>rounding in the engine</bdi>" in report_page([first, second], found)
        assert found.to_json()["rounding"] == pytest.approx(0.02)


def test_unranked_documents_come_last() -> None:
    """Even with the larger sum, with a note; of two, the larger sum comes first."""
    found, missed = ranked(3, 0.5, {"x": 0.5}), ranked(None, None, {"x": 0.7}, "m")
    less = ranked(None, None, {"y": 0.1})
    assert compare(missed, found).first is found
    assert compare(missed, found).note == "m is not among the hits of seismic (approximate)"
    assert compare(less, missed).first is missed
    assert compare(less, found).note == compare(less, missed).note == ""


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_store_finds_the_vector_of_one_document(format: str) -> None:
    """As a pass over the complete store gives it."""
    opened = store("--format", format)
    expected = {
        name: (columns.tolist(), weights.tolist())
        for names, batch in opened.batches()
        for name, (columns, weights) in zip(names, batch.rows(), strict=True)
    }
    for name in ("ja-01", "ja-33", "ja-50"):
        found = opened.get(name)
        assert found is not None
        columns, weights = found.row(0)
        assert (columns.tolist(), weights.tolist()) == expected[name]
    assert opened.get("ja-0") is None


def test_only_the_indexs_own_vectors_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another store is refused by the field that differs; the default is the store with the index's name."""
    built = index("exact")
    assert find_store(built, store().path) is not None
    with pytest.raises(MilcoError, match=r"built from other vectors, with max_length 32, not 16"):
        find_store(built, store("--max-length", "16").path)
    monkeypatch.chdir(tmp_path)
    assert find_store(built) is None
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / built.path.name.removesuffix(".exact")).symlink_to(store().path)
    found = find_store(built)
    assert found is not None
    assert found.manifest == store().manifest
