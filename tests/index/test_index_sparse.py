"""Engines of sparse vectors equal the definition, for difficult terms and ids: what tests/contract does not cover."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic_stores import synthetic_batch, synthetic_queries, vocabulary, write_store

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Hits, Index, build_index, find_engine
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.sparse import open_store

# The engines, with the settings of searches that make them exact.
ENGINES = {
    "exact": {},
    "lucene": {},
    "qdrant": {},
    "seismic": {"query_cut": 1000, "heap_factor": 0.01},
}
DOCUMENTS = 400


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A vector store with difficult terms and ids, many ties and some empty documents, and its exact index."""
    root = tmp_path_factory.mktemp("engines")
    ids, batch = synthetic_batch(DOCUMENTS)
    store = open_store(write_store(root / "vectors", ids, batch))
    exact = build_index(store, find_engine("exact"), root / "truth").searcher()
    return SimpleNamespace(root=root, batch=batch, store=store, exact=exact)


@pytest.fixture(scope="module", params=ENGINES)
def index(request: pytest.FixtureRequest, vectors: SimpleNamespace) -> Index:
    try:
        find_engine(request.param).available()
    except MilcoError as error:
        pytest.skip(str(error))
    return build_index(vectors.store, find_engine(request.param), vectors.root / request.param, threads=2)


@pytest.fixture(scope="module")
def searcher(index: Index) -> EngineSearcher:
    return Index.open(str(index.path)).searcher(ENGINES[index.manifest["engine"]])


def pairs(hits: Hits) -> list[tuple[str, float]]:
    return [(hit.docid, hit.score) for hit in hits]


def test_hits_are_those_of_the_definition(vectors: SimpleNamespace, index: Index, searcher: EngineSearcher) -> None:
    """The documents with a positive dot product; scores are proportional to it, up to the engine's precision."""
    queries = synthetic_queries(40)
    scale = 100.0**2 if index.manifest["exactness"] == "exact integer" else 1.0
    for query, hits in zip(queries, searcher.search(queries, DOCUMENTS), strict=True):
        expected = dict(pairs(vectors.exact.search_by_definition(query, DOCUMENTS)))
        assert set(hits.docids) == set(expected)
        assert hits.scores / scale == pytest.approx([expected[docid] for docid in hits.docids], rel=1e-3)


@pytest.mark.parametrize("threads", [1, 2])
def test_queries_without_known_terms_have_no_hits(searcher: EngineSearcher, threads: int) -> None:
    """No terms, or only terms that no document has, alone or between other queries."""
    found = searcher.search([{}, synthetic_queries(1)[0], {"never": 1.0}], 10, threads)
    assert [len(hits) > 0 for hits in found] == [False, True, False]
    assert len(searcher.search([{}], 10, threads)[0]) == 0


@pytest.mark.parametrize("k", [DOCUMENTS, 2**31, 10**25])
def test_k_may_exceed_the_number_of_documents(index: Index, searcher: EngineSearcher, k: int) -> None:
    """No engine allocates room for more hits than there are documents."""
    query = dict.fromkeys(vocabulary().terms.tolist(), 1.0)
    (hits,) = searcher.search([query], k, threads=2)
    assert len(hits) == index.manifest["documents"]


def test_empty_documents_are_skipped_and_counted(vectors: SimpleNamespace, index: Index) -> None:
    """The manifest states both numbers."""
    empty = int((vectors.batch.lengths() == 0).sum())
    assert index.manifest["empty_documents"] == empty > 0
    assert index.manifest["documents"] == DOCUMENTS - empty


def test_every_term_finds_its_documents(vectors: SimpleNamespace, searcher: EngineSearcher) -> None:
    """NUL, emoji, delimiters, spaces, the empty piece and overlong pieces, under ids of any script."""
    terms = vocabulary().terms.tolist()
    documents = dict(vectors.store.vectors())
    found = searcher.search([{term: 1.0} for term in terms], DOCUMENTS)
    for term, hits in zip(terms, found, strict=True):
        assert set(hits.docids) == {docid for docid, vector in documents.items() if term in vector}, repr(term)


def test_a_missing_file_is_reported_as_damage(index: Index, tmp_path: Path) -> None:
    """One line that names the directory."""
    (tmp_path / "manifest.json").write_bytes((index.path / "manifest.json").read_bytes())
    with pytest.raises(MilcoError, match=r"is damaged .*: it is missing") as refused:
        Index.open(tmp_path).searcher()
    assert "\n" not in str(refused.value)
