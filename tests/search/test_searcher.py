"""The Python API: build an index, search it with texts, whatever the engine."""

import io
import json
import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_set import GOLDEN
from scipy.sparse import csr_array

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.cli.encode import main as encode
from milco_pyserini.cli.index import main as index_command
from milco_pyserini.cli.search import main as search
from milco_pyserini.corpora import Document
from milco_pyserini.encode import contract
from milco_pyserini.encode.opening import open_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Exact, Hits
from milco_pyserini.index.exact import ExactSearcher
from milco_pyserini.request import SearchRequest
from milco_pyserini.search import SearchTopics, search_topics
from milco_pyserini.sparse import SparseBatch, Vocabulary

TEXTS = {
    "phone": "Alexander Graham Bell patented the telephone.",
    "river": "The Nile is a long river in Africa.",
    "music": "The orchestra played music by Mozart.",
}
QUERY = "telephone"
CHECKPOINT = str(GOLDEN / "ckpt_distillation")


@pytest.fixture(scope="module")
def encoder() -> MilcoEncoder:
    return MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("searcher") / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": i, "title": i, "text": text}) + "\n" for i, text in TEXTS.items()))
    return path


@pytest.fixture(scope="module")
def vectors(corpus: Path) -> Path:
    """A vector store of the corpus."""
    output = corpus.with_name("vectors")
    common = ["--device", "cpu", "--dtype", "float32"]
    assert encode(["--corpus", str(corpus), "--encoder", CHECKPOINT, "--output", str(output), *common]) == 0
    return output


@pytest.fixture(scope="module")
def index(vectors: Path) -> Path:
    return Index.build(str(vectors), vectors.with_name("docs.exact"), "exact").path


@pytest.fixture(scope="module")
def searcher(index: Path, encoder: MilcoEncoder) -> Searcher:
    return Searcher.open(index, encoder)


@pytest.mark.integration
def test_texts_of_an_updated_index_are_those_of_the_update(
    vectors: Path, encoder: MilcoEncoder, tmp_path: Path
) -> None:
    """Replaced documents have the new text. Vectors without documents cannot update an index that stores them."""
    index = Index.build(str(vectors), tmp_path / "docs", "lucene")
    corpus, new = tmp_path / "new.jsonl", tmp_path / "new"
    corpus.write_text(json.dumps({"id": "phone", "text": "Meucci invented the telephone, too."}) + "\n")
    common = ["--encoder", CHECKPOINT, "--device", "cpu", "--dtype", "float32"]
    assert encode(["--corpus", str(corpus), "--output", str(new), *common]) == 0
    index.update(new)
    texts = {hit.docid: hit.text for hit in Searcher.open(index.path, encoder).search(QUERY + " Music, rivers.", 3)}
    assert texts["phone"] == "Meucci invented the telephone, too."
    assert texts["river"] == f"river {TEXTS['river']}"
    assert encode(["--corpus", str(corpus), "--output", str(tmp_path / "bare"), "--no-store", *common]) == 0
    with pytest.raises(MilcoError, match="bare holds vectors without their documents"):
        index.update(tmp_path / "bare")


def test_hits_have_docid_score_and_text(searcher: Searcher) -> None:
    """They are a sequence, best first; texts are those that the index stores."""
    hits = searcher.search(QUERY, k=2)
    assert len(hits) == 2 and hits[0].docid == "phone"
    assert hits[0].score > hits[1].score > 0
    assert hits[0].text == f"phone {TEXTS['phone']}"
    assert [hit.docid for hit in hits] == hits.docids
    assert hits[:1].docids == ["phone"] and hits[-1].docid == hits.docids[-1]


def test_documents_are_read_once_and_only_if_they_are_asked_for() -> None:
    """Reading a corpus takes time; those of a ranking are read in one pass."""
    asked: list[list[str]] = []

    def lookup(docids: list[str]) -> dict[str, Document]:
        asked.append(docids)
        return {"a": Document("a", "", "text")}

    hits = Hits(["a", "b"], np.asarray([2.0, 1.0]), lookup)
    assert [(hit.docid, hit.score) for hit in hits] == [("a", 2.0), ("b", 1.0)] and hits[0].docid == "a"
    assert not asked
    assert [hit.text for hit in hits] == ["text", None] and hits[0].text == "text"
    assert asked == [["a", "b"]]
    # Neither the ranking nor its lookup, which may hold a database or an index, is pickled or copied with a hit.
    copy = pickle.loads(pickle.dumps(hits[0]))
    assert (copy, copy.text) == (hits[0], "text") and asdict(hits[1]) == {"docid": "b", "score": 1.0, "rank": 2}


def test_an_index_that_stores_documents_needs_no_corpus(
    vectors: Path, encoder: MilcoEncoder, searcher: Searcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hits have the documents with their fields, which filter searches, in Python and on the command line."""
    languages = {"phone": "en", "river": "en", "music": "de"}
    corpus = [Document(name, name, text, {"lang": languages[name], "year": 1876}) for name, text in TEXTS.items()]
    batch = encoder.encode_document([document.contents for document in corpus])
    built = Index.build(batch, tmp_path / "index", "exact", ids=corpus, encoder=encoder)
    assert built.manifest.fields == {"lang": "string", "year": "number"}
    stored = Searcher.open(built.path, encoder)
    every, english = stored.search(QUERY, 3), stored.search(QUERY, 3, filters={"lang": "en", "year": 1876})
    assert every.docids == searcher.search(QUERY, 3).docids and every.total == len(every)
    assert [hit.document for hit in every] == [
        document for docid in every.docids for document in corpus if document.id == docid
    ]
    hit = stored.search(QUERY, 1, filters="year>=1876")[0]
    assert (hit.title, hit.fields) == (hit.docid, {"lang": languages[hit.docid], "year": 1876})
    assert repr(stored) == repr(stored.index).replace("Index", "Searcher")
    assert repr(built) == f"Index('{built.path}', engine='exact', documents=3)"
    assert english.docids == [docid for docid in every.docids if docid != "music"] and english.total == 2
    assert stored.search_batch([QUERY], filters={"lang": ["de", "fr"]})[0].docids == ["music"]
    topics = SearchTopics(["q"], texts=[QUERY])
    assert [hits.docids for _, _, hits in search_topics(stored, topics, SearchRequest(filters={"lang": "de"}))] == [
        ["music"]
    ]
    assert stored.explain(QUERY, "phone").document.text == f"phone {TEXTS['phone']}"
    common = ["--index", str(built.path), "--query", QUERY, "--device", "cpu"]
    capsys.readouterr()
    assert search([*common, "--json", "--filter", "lang=de", "--filter", "lang=fr", "year=1876"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["total"] == 1 and found["hits"][0]["fields"] == {"lang": "de", "year": 1876}
    assert search([*common, "--filter", "lang=german"]) == 0
    assert (
        "No document that passes the filters has a term of this query; without filters, the best have lang de, en"
        in (capsys.readouterr().err)
    )
    assert not any(stored.search_batch([QUERY, "music"], filters=["lang=fr"]))
    logged = capsys.readouterr().err
    assert logged.count("No document that passes the filters") == logged.count("these 2 queries; without filters") == 1
    for given, message in (("lang", "expected FIELD=VALUE"), ("lng=de", "did you mean 'lang'"), ("=x", "FIELD=VALUE")):
        assert search([*common, "--filter", given]) == 2
        assert message in capsys.readouterr().err


def test_documents_are_stored_unless_they_are_left_out(
    vectors: Path, encoder: MilcoEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--no-store leaves them out, and hits have no texts; engines that cannot store them refuse --store."""
    common = ["--vectors", str(vectors), "--output", str(tmp_path / "index"), "--engine", "exact"]
    assert index_command([*common, "--store", "--set", "store_vectors=true"]) == 2
    assert "--set store_vectors=true: exact has no settings" in capsys.readouterr().err
    with pytest.raises(
        MilcoError, match="store_documents=True: engine seismic cannot store documents, exact, lucene, "
    ):
        Index.build(vectors, tmp_path / "index", "seismic", store_documents=True)
    assert not (tmp_path / "index").exists()
    assert index_command([*common, "--no-store"]) == 0
    with Searcher.open(tmp_path / "index", encoder) as bare:
        assert not bare.has_documents and bare.search(QUERY)[0].text is None
    assert index_command([*common, "--overwrite"]) == 0
    assert Index.open(tmp_path / "index").searcher().documents(["phone"])["phone"].title == "phone"


def test_a_batch_finds_what_single_searches_find(searcher: Searcher) -> None:
    """In the order of the texts, on any number of threads; an empty text of a batch has no hits."""
    texts = [QUERY, "Africa"]
    found = searcher.search_batch(texts, k=3, threads=2)
    for text, hits in zip(texts, found, strict=True):
        alone = searcher.search(text, k=3)
        assert hits.docids == alone.docids
        assert hits.scores == pytest.approx(alone.scores, rel=1e-5)
    assert searcher.search_batch([]) == []
    assert not searcher.search_batch(["", QUERY])[0].docids


def test_an_offset_continues_a_ranking(searcher: Searcher) -> None:
    """As a page of results does."""
    every = searcher.search(QUERY + " music, river", k=3)
    assert searcher.search(QUERY + " music, river", k=2, offset=1).docids == every.docids[1:]
    assert not searcher.search(QUERY, offset=3)


def test_the_index_knows_its_encoder(index: Path, searcher: Searcher) -> None:
    """Without an encoder, the manifest's is loaded; another one is refused."""
    opened = Searcher.open(str(index), device="cpu", dtype="float32")
    assert opened.search(QUERY).docids == searcher.search(QUERY).docids
    with pytest.raises(MilcoError, match="does not fit"):
        Searcher.open(index, GOLDEN / "ckpt_alignment", device="cpu").search(QUERY)


def test_vectors_in_memory_are_indexed_with_their_encoder(
    encoder: MilcoEncoder, tmp_path: Path, searcher: Searcher
) -> None:
    """A SparseBatch, its ids and its encoder give the index that the same texts in a store give."""
    batch = encoder.encode_document([f"{name} {text}" for name, text in TEXTS.items()])
    built = Index.build(batch, tmp_path / "index", "exact", ids=list(TEXTS), encoder=encoder)
    query = QUERY + " Music, rivers."
    found = Searcher.open(built.path, encoder).search(query)
    assert found.docids == searcher.search(query).docids
    assert found.scores == pytest.approx(searcher.search(query).scores, rel=0.02)
    similarities = encoder.similarity(encoder.encode_query(query), batch)[0]
    assert found.scores == pytest.approx(sorted(similarities, reverse=True), rel=1e-5)
    assert found[0].text is None
    about = Index.open(str(built.path)).vectors
    assert (about.encoder, about.views) == (CHECKPOINT, ["pivot", "source"])
    pivots = Index.build(batch.view("pivot"), tmp_path / "pivots", "exact", ids=list(TEXTS), encoder=encoder)
    assert pivots.vectors.views == ["pivot"]
    other = SparseBatch.from_dicts([{"w": 1.0}], Vocabulary(["w"], []))
    with pytest.raises(MilcoError, match="the vectors have another vocabulary than encoder "):
        Index.build(other, tmp_path / "other", "exact", ids=["a"], encoder=encoder)
    with pytest.raises(MilcoError, match="a document has an empty id"):
        Index.build(batch, tmp_path / "other", "exact", ids=["a", "", "c"], encoder=encoder)
    unnamed = Index.build(batch, tmp_path / "unnamed", "exact", ids=list(TEXTS))
    assert Searcher.open(unnamed.path, encoder).search(query).docids == found.docids
    with pytest.raises(MilcoError, match="encoder"):
        Searcher.open(unnamed.path).search(QUERY)
    with pytest.raises(TypeError, match="pass ids="):
        Index.build(batch, tmp_path / "other", "exact", encoder=encoder)
    with pytest.raises(TypeError, match="docids are strings, got int 1"):
        Index.build(batch, tmp_path / "other", "exact", ids=[1, 2, 3], encoder=encoder)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="one docid for each of 3 vectors"):
        Index.build(batch, tmp_path / "other", "exact", ids=["a"], encoder=encoder)
    assert not (tmp_path / "other").exists()


def test_alpha_and_views_of_one_search_do_not_change_others(index: Path, encoder: MilcoEncoder) -> None:
    """They equal a searcher that was opened with them, and explanations have them."""
    searcher = Searcher.open(index, encoder)
    before, pivot = searcher.search(QUERY), Searcher.open(index, encoder, alpha=1.0).search(QUERY)
    for found in (searcher.search(QUERY, alpha=1.0), searcher.search(QUERY, views=["pivot"])):
        assert (found.docids, found.scores.tolist()) == (pivot.docids, pivot.scores.tolist())
    assert searcher.search(QUERY).scores.tolist() == before.scores.tolist()
    explained = searcher.explain(QUERY, pivot.docids[0], views=["pivot"])
    assert explained.total == pytest.approx(pivot.scores[0])
    assert explained.shares["source"] == 0
    with pytest.raises(MilcoError, match=r"alpha=0\.5: it weighs two views"):
        searcher.search(QUERY, alpha=0.5, views=["pivot"])


def test_documents_in_one_language_have_the_checkpoints_alpha(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line reports it, and the caller may replace it; documents in two languages have both views as they are."""
    encoder = MilcoEncoder.from_pretrained(
        GOLDEN / "ckpt_distillation", device="cpu", dtype="float32", monolingual_alpha=0.25
    )
    documents = [{"id": "0", "text": "The river Nile."}, {"id": "1", "text": "A bridge of stone."}]
    for name, other in {"one": "en", "two": "de"}.items():
        documents = [document | {"lang": lang} for document, lang in zip(documents, ("en", other), strict=True)]
        Index.build(documents, tmp_path / name, "exact", encoder=encoder, store_documents=True)
    caplog.set_level("INFO")
    query, opened = "the Nile", {"encoder": encoder}
    with Searcher.open(tmp_path / "one", **opened) as one, Searcher.open(tmp_path / "two", **opened) as two:
        scores = one.search(query).scores
        assert "are in one language: alpha is 0.25" in caplog.text
        assert scores.tolist() == two.search(query, alpha=0.25).scores.tolist() != two.search(query).scores.tolist()
        assert one.search(query, alpha=0.5).scores.tolist() == two.search(query, alpha=0.5).scores.tolist()
        assert one.explain(query, "0").alpha == 0.25


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((["a list"],), TypeError, "expects one text, a str, not list"),
        ((None,), TypeError, "expects one text, a str, not NoneType"),
        ((QUERY, 0), MilcoError, "k=0"),
        ((QUERY, "10"), TypeError, "k is '10', expected an integer"),
    ],
)
def test_impossible_searches_are_refused(searcher: Searcher, arguments: Any, error: type, message: str) -> None:
    """One clear error."""
    with pytest.raises(error, match=message):
        searcher.search(*arguments)


def test_topics_have_the_hits_of_their_texts_with_documents(searcher: Searcher, encoder: MilcoEncoder) -> None:
    """Encoded or not, as a batch or as dicts, without the document of the topic's name or with it."""
    (single,) = searcher.search_batch([QUERY], 3)
    ((_, _, hits),) = search_topics(searcher, SearchTopics(["t"], texts=[QUERY]), SearchRequest(3))
    assert hits.docids == single.docids and hits[0].text == single[0].text is not None
    topics = SearchTopics([single.docids[0]], texts=[QUERY])
    ((_, _, others),) = search_topics(searcher, topics, SearchRequest(3), remove_query=True)
    assert others.docids == single.docids[1:] and all(hit.text for hit in others)
    (query,) = replace(encoder.encode_query([QUERY]), vocabulary=encoder.vocabulary).to_dicts()
    assert searcher.rank([(query,)], SearchRequest(3))[0].docids == single.docids
    assert hits != single and len({hits, single}) == 2
    for name in ("k", "threads", "depth"):
        with pytest.raises(MilcoError, match=f"{name}=0"):
            SearchRequest(**{name: 0})
    with pytest.raises(MilcoError, match="batch_size=0"):
        list(search_topics(searcher, SearchTopics(["t"], texts=[QUERY]), SearchRequest(), batch_size=0))


def test_impossible_batches_and_indexes_are_refused(searcher: Searcher, vectors: Path, tmp_path: Path) -> None:
    """A str for a list, None among texts, options of another engine; nothing is written."""
    with pytest.raises(TypeError, match=r"expected a list of texts, not str; see search\(\)"):
        searcher.search_batch(QUERY)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not dict; pass its \.values\(\)"):
        searcher.search_batch({"q1": QUERY})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="text 1 is NoneType"):
        searcher.search_batch([QUERY, None])  # type: ignore[list-item]
    with pytest.raises(MilcoError, match=r"prune='top-k:3': must be a list"):
        Index.build(vectors, tmp_path / "index", "exact", prune="top-k:3")
    with pytest.raises(TypeError, match="expected a name, or an engine such as Seismic"):
        Index.build(vectors, tmp_path / "index", Exact)  # type: ignore[arg-type]
    with pytest.raises(MilcoError, match="did you mean 'exact'"):
        Index.build(vectors, tmp_path / "index", "exakt")
    with pytest.raises(TypeError, match="the directory of an index"):
        Index.open(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a SparseBatch, not from csr_array; see SparseBatch\.from_scipy"):
        Index.build(csr_array([[1.0]]), tmp_path / "index", "exact")
    for call, message in (
        (lambda: searcher.search(QUERY, filters=7), "filters=7: expected"),
        (lambda: Searcher("shop.lucene"), r"use Searcher.open\('shop.lucene'\)"),
        (lambda: Searcher.open(None), "expects the directory of an index or a list of them, not None"),
        (lambda: searcher.explain(QUERY, 3), "docid is 3, expected a str"),
        (lambda: searcher.explain(3, "phone"), "text 0 is int, expected a str"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(MilcoError, match=r"no field 'nothing': the documents of .* have no fields"):
        searcher.explain(QUERY, "phone", distinct="nothing")
    with pytest.raises(MilcoError, match="no encoder at 'minni'"):
        Searcher.open(searcher.index.path, "minni")
    assert not (tmp_path / "index").exists()


def test_query_prints_hits_that_fit_the_terminal(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """milco search --query: rank, score, docid, title, and sentences of the text."""
    monkeypatch.setenv("COLUMNS", "60")
    common = ["--index", str(index), "--query", QUERY, "--device", "cpu", "--k", "2"]
    assert search(common) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == ["rank", "score", "share", "docid", "text"]
    assert first.split()[0] == "1" and first.split()[3] == "phone"
    assert "phone: Alexander Graha…" in first and len(first) <= 60


def test_lines_that_were_skipped_have_no_texts(tmp_path: Path, encoder: MilcoEncoder) -> None:
    """The others have."""
    corpus, vectors = tmp_path / "corpus.jsonl", tmp_path / "vectors"
    corpus.write_text('{"id": "bad id", "text": "x"}\n' + json.dumps({"id": "river", "text": TEXTS["river"]}) + "\n")
    common = ["--encoder", CHECKPOINT, "--device", "cpu", "--dtype", "float32"]
    assert encode(["--corpus", str(corpus), "--output", str(vectors), "--skip-bad-lines", *common]) == 0
    index = Index.build(vectors, tmp_path / "index", "exact")
    assert Searcher.open(index.path, encoder).search("a river")[0].text == TEXTS["river"]


def test_hits_of_documents_by_their_best_passage_have_texts(tmp_path: Path, encoder: MilcoEncoder) -> None:
    """The complete document, which the index stores with its first passage."""
    texts = {"long": "The Nile is a river. " * 9 + "Bell patented the telephone.", "short": "A telephone."}
    corpus, vectors = tmp_path / "corpus.jsonl", tmp_path / "vectors"
    corpus.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))
    options = ["--encoder", CHECKPOINT, "--device", "cpu", "--dtype", "float32", "--max-length", "16"]
    assert encode(["--corpus", str(corpus), "--output", str(vectors), "--split-passages", *options]) == 0
    index = Index.build(vectors, tmp_path / "index", "exact")
    request = SearchRequest(2, max_passage=True, passages=5)
    found = search_topics(Searcher.open(index.path, encoder), SearchTopics(["q"], texts=[QUERY]), request)
    for _, _, hits in found:
        assert {hit.docid: hit.text for hit in hits} == texts
        assert {hit.docid: hit.document.id for hit in hits} == {name: name for name in texts}


def test_query_prints_json(
    vectors: Path, index: Path, searcher: Searcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--json: one object with title and text; null where the index does not store them, which stderr reports."""
    common = ["--index", str(index), "--query", QUERY, "--device", "cpu", "--dtype", "float32", "--json"]
    assert search(common) == 0
    found = json.loads(capsys.readouterr().out)
    hits = searcher.search(QUERY)
    assert [hit["docid"] for hit in found["hits"]] == hits.docids
    assert np.allclose([hit["score"] for hit in found["hits"]], hits.scores)
    assert found["hits"][0]["title"] == "phone" and found["hits"][0]["text"] == TEXTS["phone"]
    bare = Index.build(vectors, tmp_path / "bare", "exact", store_documents=False)
    capsys.readouterr()
    assert search(["--index", str(bare.path), *common[2:]]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["hits"][0]["text"] is None
    assert "No texts: the index does not store its documents" in err


def test_json_does_not_depend_on_the_terminal(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Snippets are as long as those of milco serve."""
    found = set()
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        assert search(["--index", str(index), "--query", QUERY, "--device", "cpu", "--dtype", "float32", "--json"]) == 0
        found.add(capsys.readouterr().out)
    assert len(found) == 1


def test_a_hit_has_the_share_of_the_querys_weight_that_it_matches(
    searcher: Searcher,
    index: Path,
    encoder: MilcoEncoder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As explain() has it; min_share drops hits by it."""
    hits = searcher.search(QUERY)
    shares = [hit.share for hit in hits]
    assert shares == [searcher.explain(QUERY, hit.docid).share for hit in hits]
    assert 1 >= shares[0] > shares[-1] > 0
    assert [hit.share for hit in pickle.loads(pickle.dumps(list(hits[:2])))] == shares[:2]
    least = (shares[0] + shares[-1]) / 2
    kept = searcher.search(QUERY, min_share=least)
    assert (kept.docids, kept.total) == ([hit.docid for hit in hits if hit.share >= least], hits.total)
    assert not searcher.search(QUERY, min_share=1)
    with pytest.raises(MilcoError, match=r"min_share.2.*: must be from 0 to 1"):
        searcher.search(QUERY, min_share=2)
    common = ["--index", str(index), "--device", "cpu", "--dtype", "float32", "--query", QUERY]
    assert search([*common, "--min-share", str(least), "--json"]) == 0
    assert [hit["share"] for hit in json.loads(capsys.readouterr().out)["hits"]] == [hit.share for hit in kept]
    assert search([*common, "--min-share", "1"]) == 0
    assert "No document among the best 10 matches 100% of the query's weight" in capsys.readouterr().err
    monkeypatch.setattr(ExactSearcher, "capabilities", frozenset())
    other = Searcher.open(index, encoder)
    assert other.search(QUERY)[0].share is None
    with pytest.raises(MilcoError, match="engine exact cannot show the terms of documents"):
        other.search(QUERY, min_share=0.3)


def test_documents_are_found_by_their_best_passage(
    searcher: Searcher, encoder: MilcoEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its score and share, and with their complete text; other indexes hold no passages."""
    texts = {"long": f"{TEXTS['river']} {TEXTS['music']} {TEXTS['phone']}", "short": TEXTS["river"]}
    corpus, vectors = tmp_path / "corpus.jsonl", tmp_path / "vectors"
    corpus.write_text("".join(json.dumps({"id": docid, "text": text}) + "\n" for docid, text in texts.items()))
    common = ["--encoder", CHECKPOINT, "--device", "cpu", "--dtype", "float32"]
    split = ["--split-passages", "--max-length", "16", "--output", str(vectors)]
    assert encode(["--corpus", str(corpus), *split, *common]) == 0
    index = Index.build(vectors, tmp_path / "index", "exact").path
    passages = Searcher.open(index, encoder)
    best = passages.search(QUERY, 1)[0]
    hit, other = passages.search(QUERY, max_passage=True)
    assert (hit.docid, other.docid, hit.text) == ("long", "short", texts["long"])
    assert (hit.passage, hit.score, hit.share) == (best.docid, best.score, best.share)
    assert hit.passage.startswith("long#") and best.passage is None
    assert passages.search(QUERY, 1, max_passage="#").docids == ["long"]
    with pytest.raises(MilcoError, match=r"docs\.exact does not hold passages"):
        searcher.search(QUERY, max_passage=True)
    assert search(["--index", str(index), "--query", QUERY, "--max-passage", "--json", *common[2:]]) == 0
    found = json.loads(capsys.readouterr().out)["hits"]
    assert [(one["docid"], one["passage"]) for one in found] == [("long", hit.passage), ("short", other.passage)]


class Terminal(io.StringIO):
    """A terminal with lines that the user has typed; output is added after them."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("end", ["\n", ""], ids=["an empty line", "Ctrl-D"])
def test_a_terminal_is_asked_for_queries(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    """Without --query and --topics: the hits of each query, by an encoder that is loaded once."""
    common = ["--index", str(index), "--device", "cpu", "--dtype", "float32"]
    queries = [QUERY, "a river"]
    for query in queries:
        assert search([*common, "--query", query]) == 0
    expected = capsys.readouterr().out
    loaded: list[Any] = []
    monkeypatch.setattr(contract, "open_encoder", lambda *given: loaded.append(given) or open_encoder(*given))
    screen = Terminal()
    with monkeypatch.context() as patches:
        patches.setattr("sys.stdin", Terminal("".join(f"{query}\n" for query in queries) + end))
        patches.setattr("sys.stdout", screen)
        assert search(common) == 0
    assert screen.getvalue().replace("query: ", "").strip() == expected.strip()
    assert len(loaded) == 1
    monkeypatch.setattr("sys.stdin", Terminal(f"{QUERY}\n"))
    assert search(common) == 2
    assert "give exactly one of --topics, --query" in capsys.readouterr().err


def test_query_and_topics_exclude_each_other(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line names the options."""
    for arguments, message in (
        ([], "give exactly one of --topics, --query"),
        (["--query", "x", "--output", "run"], "--output requires --topics"),
        (["--query", "x", "--max-passage-delimiter", "."], "--max-passage-delimiter requires --max-passage"),
        (["--topics", "sample", "--max-passage-hits", "5"], "--max-passage-hits requires --max-passage"),
        (["--topics", "sample", "--json"], "--topics and --json exclude each other"),
        (["--topics", "sample", "--min-share", "0.5"], "--topics and --min-share exclude each other"),
        (["--query", " "], "--query is empty"),
    ):
        assert search(["--index", str(index), *arguments]) == 2
        assert message in capsys.readouterr().err
