"""PyTerrier: the hits of milco search, by its own retriever and through PISA. Terrier's Java is not started."""

import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyterrier", reason="PyTerrier is not installed")

import pandas as pd
import pyterrier as pt
from golden_set import GOLDEN
from lz4.frame import LZ4FrameFile

from milco_pyserini.corpora import open_corpus, open_topics
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index
from milco_pyserini.index.hits import Hits
from milco_pyserini.integrations.pyterrier import Milco, MilcoIndex
from milco_pyserini.search import Searcher

pytestmark = pytest.mark.integration

CHECKPOINT = str(GOLDEN / "ckpt_distillation")
TEXT = "Wer machte Penicillin zum Arzneimittel?"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The German sample: documents with their terms, queries, and an index of each engine."""
    root = tmp_path_factory.mktemp("pyterrier")
    milco = Milco(CHECKPOINT)
    documents = pd.DataFrame([{"docno": one.id, "text": one.contents} for one in open_corpus("sample-de")])
    queries = pd.DataFrame([{"qid": one.id, "query": one.text, "lang": "de"} for one in open_topics("sample-de")])
    batch = milco.encoder.encode_document(documents.text.tolist())
    for engine in ("lucene", "exact"):
        Index.build(batch, root / engine, engine, ids=documents.docno.tolist(), encoder=milco.encoder)
    Index.build(batch, root / "stored", ids=list(open_corpus("sample-de")), encoder=milco.encoder)
    return SimpleNamespace(root=root, milco=milco, documents=milco.doc_encoder()(documents), queries=queries)


def hits_of(results: pd.DataFrame) -> dict[str, list[tuple[str, float]]]:
    """Docno and score of every query's results, by rank."""
    ordered = results.sort_values(["qid", "rank"])
    return {qid: list(zip(one.docno, one.score, strict=True)) for qid, one in ordered.groupby("qid")}


def searched(index: Path, queries: pd.DataFrame, k: int) -> dict[str, list[tuple[str, float]]]:
    """The same by Searcher."""
    found: list[Hits] = Searcher.open(index).search_batch(queries["query"].tolist(), k)
    return {
        qid: list(zip(hits.docids, hits.scores.tolist(), strict=True))
        for qid, hits in zip(queries.qid, found, strict=True)
    }


def test_pisa_finds_the_products_of_the_terms(sample: SimpleNamespace) -> None:
    """Texts are lowercase, because PISA lowercases queries; it orders ties in its own way."""
    pisa = pytest.importorskip("pyterrier_pisa", reason="pyterrier-pisa is not installed")
    index = pisa.PisaIndex(str(sample.root / "pisa"), stemmer="none", stops="none")
    milco = Milco(sample.milco.encoder, lowercase=True)
    documents, queries = milco.doc_encoder()(sample.documents), milco.query_encoder()(sample.queries)
    # PISA finds nothing for [SEP] and <s>, to which only a random checkpoint gives weights.
    queries["query_toks"] = [
        {term: weight for term, weight in terms.items() if not set("[<") & set(term)} for terms in queries.query_toks
    ]
    index.toks_indexer(scale=1.0).index(documents[["docno", "toks"]].to_dict("records"))
    found = hits_of(index.quantized(num_results=10, toks_scale=1.0)(queries))
    for qid, terms in zip(queries.qid, queries.query_toks, strict=True):
        scores = [sum(weight * toks.get(term, 0) for term, weight in terms.items()) for toks in documents.toks]
        assert [score for _, score in found[qid]] == sorted(filter(None, scores), reverse=True)[:10]
    assert not pt.java.started()


@pytest.mark.parametrize("engine", ["lucene", "exact"])
def test_the_retriever_finds_what_the_searcher_finds(sample: SimpleNamespace, engine: str) -> None:
    """Documents, scores and ranks from 0 for every query; its columns are kept, the size of batches does not matter."""
    retriever = MilcoIndex(sample.root / engine).retriever(num_results=10, batch_size=7)
    results = retriever(sample.queries)
    assert list(results.columns) == ["qid", "query", "lang", "docno", "score", "rank"]
    assert hits_of(results) == searched(sample.root / engine, sample.queries, 10)
    assert results.groupby("qid")["rank"].min().eq(0).all()
    first = results[results.qid == results.qid[0]]
    assert retriever.search(first["query"][0]).docno.tolist() == first.docno.tolist()
    assert list((retriever % 3).compile()(sample.queries)["rank"].unique()) == [0, 1, 2]


def test_encoded_queries_have_the_hits_of_their_texts(sample: SimpleNamespace) -> None:
    """By impacts or by weights."""
    retriever = MilcoIndex(sample.root / "lucene").retriever(num_results=10)
    encoded = sample.milco.query_encoder()(sample.queries)
    expected = hits_of(retriever(sample.queries))
    assert hits_of(retriever(encoded.drop(columns="query"))) == expected
    weights = encoded.query_toks.map(lambda terms: {term: impact / 100 for term, impact in terms.items()})
    assert hits_of(retriever(encoded.assign(query="ignored", query_toks=weights))) == expected
    # The type of the numbers decides for each query: 2.0 is a weight, 200 an impact.
    one = pd.DataFrame([{"qid": "1", "query_toks": {"town": 2.0}}, {"qid": "2", "query_toks": {"town": 200}}])
    scores = retriever(one).groupby("qid").score.max()
    assert scores["1"] == scores["2"] == retriever(one[:1]).score.max()
    for wrong, message in (([None], "query_toks: expected a dict of terms and impacts, got 'None'"),):
        with pytest.raises(MilcoError, match=message):
            retriever(pd.DataFrame({"qid": ["1"], "query_toks": wrong}))
    with pytest.raises(MilcoError, match="query_toks"):
        MilcoIndex(sample.root / "lucene").retriever(alpha=0.8)(encoded)
    with pytest.raises(MilcoError, match="batch_size=0"):
        MilcoIndex(sample.root / "lucene").retriever(batch_size=0)(sample.queries)
    with pytest.raises(MilcoError, match="english_prefix='e_'"):
        Milco(sample.milco.encoder, english_prefix="e_")


def test_alpha_weighs_the_views_of_queries(sample: SimpleNamespace) -> None:
    """In the retriever as in the transformer."""
    index = MilcoIndex(sample.root / "lucene", encoder=sample.milco.encoder)
    pipeline = sample.milco.query_encoder(alpha=0.8) >> index.retriever(5)
    assert hits_of(index.retriever(5, alpha=0.8)(sample.queries)) == hits_of(pipeline(sample.queries))


def test_results_have_texts_and_filters(sample: SimpleNamespace) -> None:
    """They come from the documents in the index."""
    index = MilcoIndex(sample.root / "stored")
    results = (index.retriever(2) >> index.text_loader("text", "lang")).search(TEXT)
    texts = dict(zip(sample.documents.docno, sample.documents.text, strict=True))
    assert texts[results.docno[0]].endswith(results.text[0]) and set(results.lang) == {"de"}
    assert len(index.retriever(filters={"lang": "en"}).search(TEXT)) == 0
    with pytest.raises(MilcoError, match="did you mean 'lang'"):
        index.text_loader("lagn")
    found = (index.retriever(1) >> index.text_loader("contents")).search(TEXT)
    assert found.contents[0] == texts[found.docno[0]]
    with pytest.raises(MilcoError, match=f"{found.docno[0]}"):
        unknown = MilcoIndex(sample.root / "lucene")
        (unknown.retriever(1) >> unknown.text_loader()).search(TEXT)


def test_results_of_other_retrievers_are_scored_by_their_texts(sample: SimpleNamespace) -> None:
    """With the products of the terms; ranks follow the new scores, other columns are kept."""
    queries = sample.queries.head(2)
    candidates = queries.merge(sample.documents.head(5)[["docno", "text"]], how="cross").assign(score=0.0, rank=0)
    found = sample.milco.scorer()(candidates)
    toks = dict(zip(sample.documents.docno, sample.documents.toks, strict=True))
    encoded = sample.milco.query_encoder()(queries)
    for qid, terms in zip(encoded.qid, encoded.query_toks, strict=True):
        expected = {
            docno: sum(weight * toks[docno].get(term, 0) for term, weight in terms.items())
            for docno in sample.documents.docno[:5]
        }
        ranked = found[found.qid == qid].sort_values("rank")
        # Impacts of a text may differ by one between batches.
        assert dict(zip(ranked.docno, ranked.score, strict=True)) == pytest.approx(expected, rel=0.02)
        assert ranked.score.is_monotonic_decreasing and ranked["rank"].tolist() == [0, 1, 2, 3, 4]
    assert set(candidates.columns) == set(found.columns)


def test_pipelines_know_the_columns(sample: SimpleNamespace) -> None:
    """PyTerrier infers inputs and outputs from empty frames; a query without terms has no results."""
    retriever, encoder = MilcoIndex(sample.root / "lucene").retriever(), sample.milco.doc_encoder("body")
    assert ["qid", "query"] in pt.inspect.transformer_inputs(retriever)
    assert pt.inspect.transformer_inputs(encoder) == [["body"]]
    assert pt.inspect.transformer_outputs(encoder, ["docno", "body"]) == ["docno", "body", "toks"]
    assert pt.inspect.transformer_outputs(retriever, ["qid", "query"]) == ["qid", "query", "docno", "score", "rank"]
    assert len(retriever.search("")) == 0


def test_an_index_is_an_artifact(sample: SimpleNamespace, tmp_path: Path) -> None:
    """PyTerrier recognizes its directory, packs it, and loads what was unpacked."""
    loaded = pt.Artifact.load(str(sample.root / "lucene"))
    assert isinstance(loaded, MilcoIndex) and len(loaded) == 50
    package = loaded.build_package(str(tmp_path / "index.tar.lz4"), verbose=False)
    with LZ4FrameFile(package) as stream, tarfile.open(fileobj=stream) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    unpacked = pt.Artifact.load(str(tmp_path / "unpacked"))
    assert hits_of(unpacked.retriever(5)(sample.queries)) == hits_of(loaded.retriever(5)(sample.queries))
