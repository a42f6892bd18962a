"""Engines of sparse vectors equal the definition, for difficult terms and ids: what tests/contract does not cover."""

from types import SimpleNamespace

import pytest
from synthetic_stores import synthetic_batch, synthetic_queries, vocabulary, write_store

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Hits, Index, build_index, find_engine
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.request import BuildRequest
from milco_pyserini.sparse import open_store

# The engines, with the settings of searches that make them exact.
ENGINES = {"exact": {}, "lucene": {}, "qdrant": {}, "seismic": {"query_cut": 1000, "heap_factor": 0.01}}
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
    return build_index(vectors.store, find_engine(request.param), vectors.root / request.param, BuildRequest(threads=2))


@pytest.fixture(scope="module")
def searcher(index: Index) -> EngineSearcher:
    return Index.open(str(index.path)).searcher(ENGINES[index.manifest.engine])


def pairs(hits: Hits) -> list[tuple[str, float]]:
    return [(hit.docid, hit.score) for hit in hits]


def test_hits_are_those_of_the_definition(vectors: SimpleNamespace, index: Index, searcher: EngineSearcher) -> None:
    """The documents with a positive dot product; scores are proportional to it, up to the engine's precision."""
    queries = synthetic_queries(40)
    scale = 100.0**2 if index.manifest.exactness == "exact integer" else 1.0
    for query, hits in zip(queries, searcher.search(queries, DOCUMENTS), strict=True):
        expected = dict(pairs(vectors.exact.search([query], DOCUMENTS)[0]))
        assert set(hits.docids) == set(expected)
        assert hits.scores / scale == pytest.approx([expected[docid] for docid in hits.docids], rel=1e-3)


def test_every_term_finds_its_documents(vectors: SimpleNamespace, searcher: EngineSearcher) -> None:
    """NUL, emoji, delimiters, spaces, the empty piece and overlong pieces, under ids of any script."""
    terms = vocabulary().terms.tolist()
    documents = dict(vectors.store.vectors())
    found = searcher.search([{term: 1.0} for term in terms], DOCUMENTS)
    for term, hits in zip(terms, found, strict=True):
        assert set(hits.docids) == {docid for docid, vector in documents.items() if term in vector}, repr(term)
