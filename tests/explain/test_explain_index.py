"""Promises of explanations towards the engine: the parts are its own numbers, and add up to its score."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from explained_set import CHECKPOINT, CORPUS, explainer, index, queries, query_encoder, store
from synthetic_stores import write_plain

from milco_pyserini.corpora import open_corpus
from milco_pyserini.encode import MilcoQueryEncoder, open_query_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain import Explainer, Explanation, compare
from milco_pyserini.explain import explainer as explainer_module
from milco_pyserini.explain.numbers import FloatNumbers
from milco_pyserini.explain.page import comparison_html
from milco_pyserini.explain.parts import Part, Side, Term
from milco_pyserini.explain.sources import ScannedTexts, ShelvedTexts, corpus_of, store_of, stored_vector
from milco_pyserini.explain.terminal import comparison_text
from milco_pyserini.index import build_index, find_engine, jvm
from milco_pyserini.sparse import open_store


@pytest.fixture(params=["exact", pytest.param("lucene", marks=pytest.mark.integration)])
def engine(request: pytest.FixtureRequest) -> str:
    """Both engines whose postings can be read."""
    if request.param == "lucene":
        try:
            jvm.start()
        except MilcoError as error:
            pytest.skip(str(error))
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_query_has_one_vector_alone_in_a_run_and_on_the_page(dtype: str) -> None:
    """The same to the bit, so that the page and Python show the scores of the run."""
    encoder = open_query_encoder(store().manifest, device="cpu", dtype=dtype)
    asked = queries(13)
    page = Explainer(index("exact"), encoder).explain
    for text, vector in zip(asked, encoder.encode_batch(asked), strict=True):
        alone = encoder.encoder.encode_query(text, max_length=encoder.max_length)
        assert alone.to_dicts(encoder.encoder.vocabulary) == [vector]
        assert all(shown.query.weights == vector for shown in page(text, hits=1))


def texts() -> ScannedTexts:
    """The corpus."""
    return ScannedTexts(open_corpus(CORPUS))


def summed(explanation: Explanation) -> float:
    """The parts as a reader would add them up."""
    amount = 0.0
    for part in explanation.parts:
        amount += part.contribution
    return amount


@pytest.mark.parametrize(("prune", "count", "hits"), [("", 200, 3), ("", 4, 50), ("top-k:12", 40, 3)])
def test_the_parts_of_every_hit_add_up_to_the_engines_score(engine: str, prune: str, count: int, hits: int) -> None:
    """Difference 0, in whole numbers for Lucene; each part is query x document."""
    built = index(engine, prune=prune)
    explain, searcher = explainer(built).explain, built.searcher()
    for query in queries(count):
        found = searcher.search(query_encoder().encode_batch([query]), hits)[0]
        explanations = explain(query, hits=hits)
        assert [one.document.name for one in explanations] == found.docids
        for rank, (one, score) in enumerate(zip(explanations, found.scores.tolist(), strict=True), 1):
            assert (one.score, one.rank, one.difference) == (score, rank, 0)
            assert summed(one) == one.total == score
            assert all(part.contribution == part.query * part.document for part in one.parts)
            assert engine == "exact" or all(isinstance(part.contribution, int) for part in one.parts)


@pytest.mark.parametrize("alpha", [None, 0.3])
def test_a_search_finds_what_is_explained_later(
    engine: str, alpha: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same documents, scores and texts, without a document that is encoded again."""
    one = Explainer(index(engine), query_encoder(), texts(), alpha=alpha)
    explained = {query: one.explain(query) for query in queries(5)}
    for module in ("documents", "explainer"):
        monkeypatch.delattr(f"milco_pyserini.explain.{module}.read_text")
    for query, found in explained.items():
        expected = [(each.document.name, each.score, each.unit, each.document.text) for each in found]
        assert [(hit.docid, hit.score, hit.unit, hit.text) for hit in one.search(query, 3)] == expected


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_with_alpha_the_parts_add_up_to_what_search_alpha_finds(engine: str, alpha: float) -> None:
    """Difference 0 to the score of the query as encode_query(alpha) gives it; a view that counts 0 has no part."""
    built, plain = index(engine), query_encoder()
    explain, searcher = Explainer(built, plain, alpha=alpha).explain, built.searcher()
    for query in queries(25):
        vector = plain.encoder.encode_query([query], alpha, max_length=plain.max_length).to_dicts(
            plain.encoder.vocabulary
        )
        found = searcher.search(vector, 3)[0]
        explanations = explain(query)
        assert [one.document.name for one in explanations] == found.docids
        for one, score in zip(explanations, found.scores.tolist(), strict=True):
            assert (one.alpha, one.score, one.difference) == (alpha, score, 0)
            assert summed(one) == one.total == score
            assert {part.term.view for part in one.parts} <= {"pivot"} if alpha == 1 else True
            assert {part.term.view for part in one.parts} <= {"source"} if alpha == 0 else True


def test_alpha_changes_the_query_alone() -> None:
    """Each part's number of the query is its own weight times its view's; the document's is the index's, as ever."""
    with_alpha, without = Explainer(index("exact"), query_encoder(), texts(), alpha=0.3), explainer(index("exact"))
    for query in queries(10):
        for one in with_alpha.explain(query):
            whole = without.explain(query, [one.document.name])[0]
            expected = {part.term: (part.query, part.document) for part in whole.parts}
            for part in one.parts:
                weight = {"pivot": 0.3, "source": 0.7}[str(part.term.view)]
                assert part.query == np.float32(expected[part.term][0]) * np.float32(weight)
                assert part.document == expected[part.term][1]
            assert one.unpruned == pytest.approx(one.total, rel=0.1)


@pytest.mark.integration
def test_seismics_scores_are_explained_with_alpha() -> None:
    """Its postings cannot be read: the documents' numbers are the texts', the score its own, and both agree."""
    try:
        find_engine("seismic").available()
    except MilcoError as error:
        pytest.skip(str(error))
    explain = Explainer(index("seismic"), query_encoder(), texts(), alpha=0.3).explain
    for one in (one for query in queries(10) for one in explain(query)):
        assert one.score == pytest.approx(one.total, rel=2e-3)


def test_alpha_needs_two_views(engine: str) -> None:
    """Refused before anything is explained, as is a number that weighs nothing."""
    encoder = MilcoQueryEncoder(query_encoder().encoder, views=("pivot",))
    with pytest.raises(MilcoError, match=r"alpha 0\.5 weighs two views of a query, and here is the pivot view alone"):
        Explainer(index(engine, "--views", "pivot"), encoder, alpha=0.5)
    with pytest.raises(MilcoError, match=r"alpha 1\.5 is not between 0 and 1"):
        Explainer(index(engine), query_encoder(), alpha=1.5)


def test_named_documents_stand_in_their_order_and_unknown_ones_are_refused(engine: str) -> None:
    """Rank and score are those of the whole ranking; an id that the index lacks is named before texts are read."""
    explain = explainer(index(engine)).explain
    query = queries(50)[7]
    ranked = explain(query, hits=3)
    names = [one.document.name for one in reversed(ranked)]
    assert [(one.document.name, one.rank, one.score) for one in explain(query, names)] == [
        (one.document.name, one.rank, one.score) for one in reversed(ranked)
    ]
    with pytest.raises(MilcoError, match="has no document 'nope', or one without terms"):
        explain(query, ["nope"])


def test_a_document_without_a_shared_term_has_no_parts_and_no_rank(tmp_path: Path, engine: str) -> None:
    """It is in the index all the same: total 0, nothing that the engine said."""
    term, other = query_encoder().encoder.vocabulary.terms[[5, 6]]
    path = write_plain(tmp_path / "vectors.jsonl", {"a": {term: 3}, "b": {other: 2, "theirs": 7}})
    built = build_index(open_store(path, plain=True), find_engine(engine), tmp_path / "index")
    encoder = query_encoder()
    one = Explainer(built, encoder, None, store_of(built, path)).explain("x", ["b"])[0]
    assert one.document.complete
    assert {term.term: term.view for term, _ in one.document_only or []}["theirs"] is None
    assert one.score is None or one.parts
    assert "others wrote these vectors" in one.notes[0]


def test_an_engine_that_cannot_be_asked_is_explained_by_the_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are those of the text or the store, and the difference says how near; without both, what to give."""
    monkeypatch.setattr(explainer_module, "open_numbers", lambda *_: FloatNumbers())
    built, query = index("exact"), queries(20)[3]
    for where in ((texts(), None), (None, store())):
        for one in explainer(built, *where).explain(query):
            assert one.parts
            assert one.score == pytest.approx(one.total)
            assert abs(one.difference or 0) < 1e-6
    with pytest.raises(MilcoError, match="give --corpus or --vectors"):
        explainer(built).explain(query)


def test_the_shares_of_the_views_are_the_whole(engine: str) -> None:
    """Pivot and source together are 1; each part belongs to the view of its column."""
    for query in queries(10):
        for one in explainer(index(engine)).explain(query):
            assert sum(one.shares.values()) == pytest.approx(1)
            pivot = sum(part.contribution for part in one.parts if part.term.view == "pivot")
            assert one.shares["pivot"] == pytest.approx(pivot / one.total)


def test_text_and_store_tell_of_the_terms_that_only_the_document_has(engine: str) -> None:
    """The whole vector is the index's: from the text, from the store; without both, nothing is made up."""
    built, query = index(engine), queries(20)[3]
    of_text, of_store, of_none = (
        explainer(built, *where).explain(query)[0] for where in ((texts(), None), (None, store()), (None, None))
    )
    stored = dict(store().vectors())[of_text.document.name]
    scale = 1 if engine == "lucene" else store().scale
    for one in (of_text, of_store):
        assert one.document.complete
        assert {t: round(n * scale) for t, n in one.document.weights.items()} == stored
        assert {term.term for term, _ in one.document_only or []} == stored.keys() - one.query.weights.keys()
    assert of_store.document.text is None
    assert "text is not at hand" in of_store.notes[0]
    assert (of_none.document_only, of_none.lost, of_none.unpruned) == (None, None, None)
    assert [vars(part) for part in of_none.parts] == [vars(part) for part in of_text.parts]


@pytest.mark.parametrize("known", ["text", "store"])
def test_what_pruning_took_is_told_term_by_term(engine: str, known: str) -> None:
    """Parts of the pruned index + what was lost = the parts of the index without pruning."""
    where = (texts(), None) if known == "text" else (None, store())
    lost = 0
    for query in queries(8):
        pruned = explainer(index(engine, prune="top-k:12"), *where).explain(query)
        for one in pruned:
            whole = explainer(index(engine), *where).explain(query, [one.document.name])[0]
            held = {part.term.term for part in whole.parts}
            taken = [term for term in one.lost or () if term.why == "pruning top-k:12"]
            # What rounds to 0 in either text would not have matched without pruning either.
            gone = {term.term.term for term in taken if term.document > 0.005} & one.query.weights.keys()
            assert held == {part.term.term for part in one.parts} | gone
            assert (one.dropped or {})["pruning top-k:12"] > 20
            assert one.unpruned == pytest.approx(whole.unpruned)
            lost += len(gone)
    assert lost > 20


def test_rounding_to_zero_is_told(engine: str) -> None:
    """At a scale of 1, weights below a half are no terms of the index; the text shows what they would have given."""
    built = index(engine, "--scale", "1")
    found = [
        lost for query in queries(20) for one in explainer(built, texts()).explain(query) for lost in one.lost or ()
    ]
    assert {lost.why for lost in found if lost.document < 0.5 <= lost.query} == {"rounds to 0 at scale 1"}
    assert any(why.startswith("in the query, rounds to 0") for why in (lost.why for lost in found)) == (
        engine == "lucene"
    )


def test_a_view_that_the_index_lacks_is_told(engine: str) -> None:
    """With the pivot view alone, source terms of both texts are lost to that."""
    built = index(engine, "--views", "pivot")
    encoder = MilcoQueryEncoder(query_encoder().encoder, views=("pivot",))
    ones = [Explainer(built, encoder, texts()).explain(query)[0] for query in queries(10)]
    assert all(one.shares["source"] == 0 for one in ones)
    assert all("the index has no source view" in (one.dropped or {}) for one in ones)


def test_passages_are_found_in_their_documents() -> None:
    """ID#N: its own tokens alone are read, and its text is theirs."""
    built = index("exact", "--split-passages", "--max-length", "16")
    whole = {document.id: document.contents for document in open_corpus(CORPUS)}
    for one in explainer(built, texts()).explain(queries(20)[5], hits=20):
        name, _, number = one.document.name.rpartition("#")
        assert one.document.text in whole[name]
        assert (number == "0") == whole[name].startswith(one.document.text or "")
        assert not one.notes
    explained = explainer(built, texts()).explain(queries(20)[5], hits=20)
    hits = explainer(built, texts()).search(queries(20)[5], 20)
    assert [hit.text for hit in hits] == [one.document.text for one in explained]
    with pytest.raises(MilcoError, match=r"passages, ID#0"):
        explainer(built).explain("x", ["ja-01"])


def test_a_text_that_has_changed_is_noticed(tmp_path: Path) -> None:
    """Another text under the same id: the parts stay the index's, a note says so, and no term is the text's."""
    changed = tmp_path / "ja.jsonl"
    changed.write_text("".join(f'{{"id": "ja-{n:02}", "contents": "something else"}}\n' for n in range(1, 51)))
    corpus = open_corpus(str(changed))
    query = queries(20)[5]
    one = explainer(index("exact"), ScannedTexts(corpus)).explain(query)[0]
    assert one.difference == 0
    assert "does not give the vector" in one.notes[0]
    assert (one.document_only, one.lost, one.dropped, one.unpruned) == (None, None, None, None)


def test_a_comparison_adds_up_to_the_distance(engine: str) -> None:
    """The better document is the first; the terms' differences sum to that of the scores."""
    for query in queries(10):
        second, first = explainer(index(engine)).explain(query, hits=2)[::-1]
        found = compare(second, first)
        assert found.first.total >= found.second.total
        assert sum(row.difference for row in found.differences) == pytest.approx(found.total, abs=1e-9)
    with pytest.raises(ValueError, match="different queries"):
        compare(first, explainer(index(engine)).explain(queries(30)[9])[0])


def ranked(rank: int | None, score: float | None, gives: dict[str, float], name: str = "d") -> Explanation:
    """What an engine ranked so, for a query whose terms all weigh 1."""
    parts = tuple(Part(Term(term, term, "pivot"), 1.0, amount, amount) for term, amount in gives.items())
    query = Side("query", "x y", {"x": 1.0, "y": 1.0})
    total = sum(gives.values())
    return Explanation(query, Side(name, None, gives), "seismic", "approximate", 1.0, parts, total, None, score, rank)


def test_a_comparison_stands_in_the_order_of_the_engine() -> None:
    """Whatever the sums say: what the engine rounded is a row of its own, and the rows add up to the scores."""
    first, second = ranked(31, 0.52, {"x": 0.5}), ranked(32, 0.51, {"x": 0.25, "y": 0.26})
    for found in (compare(first, second), compare(second, first)):
        assert (found.first, found.second) == (first, second)
        assert found.rounding is not None
        assert found.rounding.difference == pytest.approx(0.02)
        rows = [*found.differences, found.rounding]
        assert sum(row.difference for row in rows) == pytest.approx(found.total) == 0.01
        assert "  rounding in the engine\n" in comparison_text(found, 1)
        assert "<bdi>rounding in the engine</bdi>" in comparison_html(found)
        assert found.to_json()["rounding"] == pytest.approx(0.02)


def test_what_the_engine_did_not_rank_comes_last() -> None:
    """With the larger sum too, and then that is said; among such, the larger sum is the first."""
    found, missed, less = (
        ranked(3, 0.5, {"x": 0.5}),
        ranked(None, None, {"x": 0.7}, "m"),
        ranked(None, None, {"y": 0.1}),
    )
    assert compare(missed, found).first is found
    assert compare(missed, found).note == "m is not among the documents that seismic (approximate) ranked"
    assert "m is not among" in comparison_html(compare(missed, found))
    assert compare(less, missed).first is missed
    assert compare(less, found).note == compare(less, missed).note == ""


def test_what_is_not_0_is_not_shown_as_0() -> None:
    """A distance of a few millionths is one."""
    said = comparison_text(compare(ranked(1, 0.500003, {"x": 0.500003}), ranked(2, 0.5, {"x": 0.5})), 1)
    assert "): 3e-06\n" in said


def test_terms_that_give_the_same_explain_no_distance() -> None:
    """They are left out of a comparison."""
    found = compare(ranked(1, 0.7, {"x": 0.5, "y": 0.2}), ranked(2, 0.6, {"x": 0.5, "y": 0.1}))
    assert [row.term.term for row in found.differences] == ["y"]


def test_a_score_far_from_its_parts_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an engine that cannot be asked for a document's terms, a changed text is known by that alone."""
    monkeypatch.setattr(explainer_module, "open_numbers", lambda *_: FloatNumbers())
    built, query = index("exact"), queries(20)[3]

    class Changed(ScannedTexts):
        def find(self, ids: Iterable[str]) -> dict[str, str]:
            return dict.fromkeys(ids, "something else")

    changed = explainer(built, Changed(open_corpus(CORPUS))).explain(query)
    assert all("the engine's score is far from the sum" in one.notes[0] for one in changed)
    assert not any(one.notes for one in explainer(built, texts()).explain(query))


def test_every_way_to_a_text_gives_the_same() -> None:
    """Scanned or put on a shelf; ids that are not there are left out."""
    corpus = open_corpus(CORPUS)
    shelf = ShelvedTexts(corpus)
    wanted = ["ja-07", "nope", "ja-50", "ja-01"]
    assert shelf.find(wanted) == ScannedTexts(corpus).find(wanted)
    assert set(shelf.find(wanted)) == {"ja-07", "ja-50", "ja-01"}
    shelf.close()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_one_vector_is_found_in_a_store(form: str) -> None:
    """The same numbers as a pass over all of it gives."""
    opened = store("--format", form)
    everything = {
        name: dict(zip(columns.tolist(), weights.tolist(), strict=True))
        for names, batch in opened.batches()
        for name, (columns, weights) in zip(names, batch.rows(), strict=True)
    }
    for name in ("ja-01", "ja-33", "ja-50"):
        found = stored_vector(opened, name)
        assert found is not None
        columns, weights = found.row(0)
        assert dict(zip(columns.tolist(), weights.tolist(), strict=True)) == everything[name]
        assert np.all(np.diff(columns) > 0)
    assert stored_vector(opened, "ja-0") is None


def test_only_the_vectors_of_the_index_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--vectors of another store are refused by what differs; by default, the store under the index's name is tried."""
    built = index("exact")
    assert store_of(built, store().path) is not None
    with pytest.raises(MilcoError, match=r"built from others, with max_length 32, not 16"):
        store_of(built, store("--max-length", "16").path)
    monkeypatch.chdir(tmp_path)
    assert store_of(built, None) is None
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / built.path.name.removesuffix(".exact")).symlink_to(store().path)
    found = store_of(built, None)
    assert found is not None
    assert found.manifest == store().manifest


def test_nothing_is_fetched_for_an_explanation() -> None:
    """The corpus that the manifest names counts where it is a path or the sample; other names are for --corpus."""
    assert corpus_of({"corpus": "miracl-ar"}, None) is None
    assert corpus_of({}, None) is None
    found = corpus_of({"corpus": CORPUS}, None)
    assert found is not None
    assert found.name == CORPUS
    assert CHECKPOINT.is_dir()
