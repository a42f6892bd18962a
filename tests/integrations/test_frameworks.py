"""LangChain, LlamaIndex and Haystack: the hits of Searcher as their documents, and vectors in their stores.

The stores are the local modes of Qdrant and Milvus.
"""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.errors import MilcoError, named
from milco_pyserini.integrations.retrieval import find_documents

pytestmark = pytest.mark.integration

TEXT = "紙を発明した国は?"
SHORT = [
    "Cai Lun made paper in China.",
    "Die Zugspitze ist der höchste Berg Deutschlands.",
    "The Nile flows north to the sea.",
    "Wasser kocht bei 100 Grad.",
]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """An index that stores the texts, as documents with a title and a language, and one that does not."""
    root = tmp_path_factory.mktemp("frameworks")
    encoder = MilcoEncoder.from_pretrained("mini", device="cpu")
    ids = [f"d{number}" for number in range(len(SHORT))]
    records = [{"id": docid, "title": "", "text": text, "lang": "de"} for docid, text in zip(ids, SHORT, strict=True)]
    records[0]["title"] = "Paper"
    batch = encoder.encode_document(SHORT)
    Index.build(batch, root / "stored", "exact", ids=records, encoder=encoder)
    Index.build(batch, root / "bare", "exact", ids=ids, encoder=encoder)
    searcher = Searcher.open(root / "stored", encoder)
    hits = [(hit.docid, hit.score, hit.text) for hit in searcher.search(TEXT, 3)]
    bare = Searcher.open(root / "bare", encoder)
    return SimpleNamespace(root=root, encoder=encoder, searcher=searcher, hits=hits, bare=bare)


@pytest.fixture(scope="module")
def expected(sample: SimpleNamespace) -> list[tuple[str, float]]:
    """The best two of the short texts for TEXT, and their scores."""
    scores = sample.encoder.similarity(sample.encoder.encode_query(TEXT), sample.encoder.encode_document(SHORT))[0]
    return sorted(zip(SHORT, scores.tolist(), strict=True), key=lambda pair: -pair[1])[:2]


def test_a_text_that_is_not_available_names_the_parameters(sample: SimpleNamespace) -> None:
    """Each by its name, which a command prints as its option."""
    with pytest.raises(MilcoError) as error:
        find_documents(sample.bare, TEXT, 1)
    mentioned: list[str] = []
    named(error.value.hint, lambda parameter: mentioned.append(parameter.name) or "")
    assert mentioned == ["store_documents"]


@pytest.mark.parametrize(
    ("adapter", "package", "fix"),
    [
        ("langchain", "langchain_core", "'.[langchain]'"),
        ("langchain_milvus", "langchain_milvus", "langchain-milvus"),
        ("langchain_qdrant", "langchain_qdrant", "langchain-qdrant"),
        ("llama_index", "llama_index", "'.[llama-index]'"),
        ("haystack", "haystack", "'.[haystack]'"),
        ("pyterrier", "pyterrier", "'.[pyterrier]'"),
    ],
)
def test_a_missing_framework_is_named_with_what_installs_it(
    adapter: str, package: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its adapter is imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"milco_pyserini.integrations.{adapter}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MilcoError) as error:
        importlib.import_module(f"milco_pyserini.integrations.{adapter}")
    assert str(error.value).startswith(f"the package {package}")
    assert str(error.value).endswith(f" is not installed. Run pip install {fix}.")


def test_langchain_retrieves_the_hits_of_the_searcher(sample: SimpleNamespace) -> None:
    """With the arguments of a search; a document whose text is not available is an error."""
    pytest.importorskip("langchain_core", reason="LangChain is not installed")
    from milco_pyserini.integrations.langchain import LangChainRetriever

    retriever = LangChainRetriever(searcher=sample.searcher, k=3)
    documents = retriever.invoke(TEXT)
    assert [(one.id, one.metadata["score"], one.page_content) for one in documents] == sample.hits
    assert documents[0].metadata | {"score": 0} == {"lang": "de", "title": "Paper", "score": 0}
    assert retriever.batch([TEXT, TEXT]) == [documents, documents]
    assert not LangChainRetriever(searcher=sample.searcher, search_kwargs={"filters": {"lang": "fr"}}).invoke(TEXT)
    with pytest.raises(MilcoError, match="store_documents"):
        LangChainRetriever(searcher=sample.bare).invoke(TEXT)


def test_langchain_searches_milvus(sample: SimpleNamespace, expected: list[tuple[str, float]], tmp_path: Path) -> None:
    """By dot products of the vectors."""
    milvus = pytest.importorskip("langchain_milvus", reason="langchain-milvus is not installed")
    from milco_pyserini.integrations.langchain_milvus import MilvusSparseEmbeddings

    store = milvus.Milvus.from_texts(
        SHORT,
        MilvusSparseEmbeddings(sample.encoder),
        connection_args={"uri": str(tmp_path / "milvus.db")},
        index_params={"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP"},
        search_params={"metric_type": "IP"},
    )
    assert_equal([(one.page_content, score) for one, score in store.similarity_search_with_score(TEXT, 2)], expected)


def test_llama_index_retrieves_the_hits_of_the_searcher(sample: SimpleNamespace) -> None:
    """With the arguments of a search."""
    pytest.importorskip("llama_index.core", reason="LlamaIndex is not installed")
    from milco_pyserini.integrations.llama_index import LlamaIndexRetriever

    nodes = LlamaIndexRetriever(sample.searcher, similarity_top_k=3).retrieve(TEXT)
    assert [(one.node_id, one.score, one.text) for one in nodes] == sample.hits
    assert nodes[0].metadata == {"lang": "de", "title": "Paper"}
    assert not LlamaIndexRetriever(sample.searcher, filters={"lang": "fr"}).retrieve(TEXT)


def test_haystack_retrieves_the_hits_of_the_searcher(sample: SimpleNamespace) -> None:
    """In a pipeline that was saved and loaded; the arguments of a run replace the component's."""
    haystack = pytest.importorskip("haystack", reason="Haystack is not installed")
    from haystack.core.serialization import allow_deserialization_module

    from milco_pyserini.integrations.haystack import HaystackRetriever

    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", HaystackRetriever(str(sample.root / "stored"), device="cpu", top_k=3))
    allow_deserialization_module("milco_pyserini")
    loaded = haystack.Pipeline.loads(pipeline.dumps())

    def run(**arguments: Any) -> list[Any]:
        return loaded.run({"retriever": {"query": TEXT, **arguments}})["retriever"]["documents"]

    documents = run()
    assert [(one.id, one.score, one.content) for one in documents] == sample.hits
    assert documents[0].meta == {"lang": "de", "title": "Paper"}
    assert run(top_k=1) == documents[:1]
    assert not run(filters={"lang": "fr"})
    loaded.close()
    assert run() == documents
    loaded.close()


def test_haystack_searches_qdrant(sample: SimpleNamespace, expected: list[tuple[str, float]]) -> None:
    """By dot products of the vectors; documents are not changed in place, and metadata can be encoded, too."""
    haystack = pytest.importorskip("haystack", reason="Haystack is not installed")
    pytest.importorskip("haystack_integrations.document_stores.qdrant", reason="qdrant-haystack is not installed")
    from haystack_integrations.components.retrievers.qdrant import QdrantSparseEmbeddingRetriever
    from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

    from milco_pyserini.integrations.haystack import HaystackDocumentEmbedder, HaystackTextEmbedder

    documents = [haystack.Document(content=text) for text in SHORT]
    store = QdrantDocumentStore(":memory:", use_sparse_embeddings=True)
    store.write_documents(HaystackDocumentEmbedder("mini", device="cpu").run(documents)["documents"])
    assert documents[0].sparse_embedding is None
    querying = haystack.Pipeline()
    querying.add_component("embedder", HaystackTextEmbedder("mini", device="cpu"))
    querying.add_component("retriever", QdrantSparseEmbeddingRetriever(store, top_k=2, scale_score=False))
    querying.connect("embedder.sparse_embedding", "retriever.query_sparse_embedding")
    found = querying.run({"embedder": {"text": TEXT}})["retriever"]["documents"]
    assert_equal([(one.content, one.score) for one in found], expected)
    titled = haystack.Document(content="Cai Lun.", meta={"title": "Paper"})
    embedder = HaystackDocumentEmbedder("mini", device="cpu", meta_fields_to_embed=["title"])
    embedding = embedder.run([titled])["documents"][0].sparse_embedding
    assert embedding.indices == sample.encoder.encode_document("Paper Cai Lun.").columns.tolist()


def assert_equal(found: list[tuple[str, float]], expected: list[tuple[str, float]]) -> None:
    """The same texts in the same order, and nearly the same scores."""
    assert [text for text, _ in found] == [text for text, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-3)
