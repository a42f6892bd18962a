"""MILCO as a SparseEncoder of sentence-transformers, with the same vectors, and a SparseEncoder as an encoder."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_set import EXACT, GOLDEN

from milco_pyserini import MilcoEncoder, SparseBatch
from milco_pyserini.errors import MilcoError

pytest.importorskip(
    "sentence_transformers", reason="needs sentence-transformers, in an environment of its own: make st runs these"
)

from sentence_transformers import SparseEncoder

from milco_pyserini.integrations.sentence_transformers import MilcoModule, load

CHECKPOINT = GOLDEN / "ckpt_distillation"
QUERIES = ["music", "the old harbour of the city", "", "book " * 100, "خريطة"]
DOCUMENTS = ["The old harbour.", "a bridge over the river, and a book about it " * 60, " ", "sept heures 陌陌"]


@pytest.fixture(scope="module")
def milco() -> MilcoEncoder:
    return MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def model() -> SparseEncoder:
    return load(CHECKPOINT, device="cpu", dtype="float32")


def assert_equal(found: torch.Tensor, expected: SparseBatch) -> None:
    """Equal to the bit."""
    assert found.is_sparse and found.shape == expected.shape
    assert torch.equal(found.to_dense(), expected.to_torch().to_dense())


@pytest.mark.parametrize("options", [{}, {"alpha": 0.3}, {"views": "pivot"}, {"views": ("source",)}])
def test_queries_equal_milcos(milco: MilcoEncoder, model: SparseEncoder, options: dict[str, Any]) -> None:
    """Truncated to the query length; alpha and views for one call, or for all."""
    expected = milco.encode_query(QUERIES, **options)
    assert_equal(model.encode_query(QUERIES, **options), expected)
    assert_equal(SparseEncoder(modules=[MilcoModule(milco, **options)], device="cpu").encode_query(QUERIES), expected)


def test_documents_equal_milcos(milco: MilcoEncoder, model: SparseEncoder) -> None:
    """Truncated to the passage length, in any number of batches; alpha does not concern them."""
    expected = milco.encode_document(DOCUMENTS)
    assert_equal(model.encode_document(DOCUMENTS), expected)
    assert_equal(model.encode(DOCUMENTS), expected)
    weighted = load(CHECKPOINT, device="cpu", dtype="float32", alpha=0.3, views="pivot")
    assert_equal(weighted.encode_document(DOCUMENTS, batch_size=1), expected.view("pivot"))
    with pytest.raises(MilcoError, match=r"alpha weighs the views of queries: pass it to encode_query\(\)"):
        model.encode_document(DOCUMENTS, alpha=0.3)


def test_texts_are_lowercased_and_truncated_on_request(milco: MilcoEncoder) -> None:
    """max_seq_length bounds queries too, as for every SparseEncoder; it may not exceed the network's positions."""
    short = load(CHECKPOINT, device="cpu", dtype="float32", lowercase=True)
    short.max_seq_length = 9
    expected = milco.encode_document(DOCUMENTS, max_length=9, lowercase=True).to_torch().to_dense()
    # Texts of one length have another order in the batch.
    for found in (short.encode_query(DOCUMENTS), short.encode_document(DOCUMENTS)):
        torch.testing.assert_close(found.to_dense(), expected, **EXACT)
    short.max_seq_length = 1 << 20
    with pytest.raises(MilcoError, match=r"maximum length 1048576: encoder .* takes 3 to"):
        short.encode_document(DOCUMENTS)


def test_similarity_and_statistics_equal_milcos(milco: MilcoEncoder, model: SparseEncoder) -> None:
    """similarity, intersection, sparsity and decode; max_active_dims keeps the strongest terms."""
    queries, documents = milco.encode_query(QUERIES), milco.encode_document(DOCUMENTS)
    left, right = model.encode_query(QUERIES), model.encode_document(DOCUMENTS)
    np.testing.assert_array_equal(model.similarity(left, right).numpy(), milco.similarity(queries, documents))
    assert_equal(model.intersection(left[1], right), milco.intersection(queries[1], documents))
    assert model.sparsity(right) == milco.sparsity(documents)
    for found, expected in zip(model.decode(right), milco.decode(documents), strict=True):
        assert sorted(found) == sorted(expected)
    assert [[pair[1] for pair in terms] for terms in model.decode(right, top_k=3)] == [
        [weight for _, weight in terms] for terms in milco.decode(documents, top_k=3)
    ]
    kept = model.encode_document(DOCUMENTS, max_active_dims=5).to_dense()
    best = [[weight for _, weight in terms] for terms in milco.decode(documents, top_k=5)]
    assert [sorted(row[row > 0].tolist(), reverse=True) for row in kept] == best


def test_saved_checkpoints_load_in_sentence_transformers(milco: MilcoEncoder, tmp_path: Path) -> None:
    """From its own files, if their code is trusted; on another device, the module follows."""
    milco.save_pretrained(tmp_path)
    assert_equal(
        SparseEncoder(
            str(tmp_path), device="cpu", trust_remote_code=True, model_kwargs={"dtype": "float32"}
        ).encode_query(QUERIES),
        milco.encode_query(QUERIES),
    )
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SparseEncoder(str(tmp_path), device="cpu")


def test_a_saved_model_keeps_the_prefix_of_english_terms(tmp_path: Path) -> None:
    """Its terms would have other names."""
    model = load(CHECKPOINT, device="cpu", dtype="float32", english_prefix="e_")
    model.save(str(tmp_path))
    again = SparseEncoder(str(tmp_path), device="cpu", trust_remote_code=True, model_kwargs={"dtype": "float32"})
    expected = model.decode(model.encode_query(QUERIES[0]), top_k=5)
    assert again.decode(again.encode_query(QUERIES[0]), top_k=5) == expected
    assert any(term.startswith("e_") for term, _ in expected)


def test_a_blank_text_has_an_empty_vector_also_with_a_prompt(model: SparseEncoder) -> None:
    """As with MilcoEncoder."""
    assert model.encode_query([" "], prompt="query: ").to_dense().count_nonzero() == 0


@pytest.mark.parametrize("folder", ["", "0_MilcoModule"])
def test_models_that_sentence_transformers_saves_are_read(milco: MilcoEncoder, tmp_path: Path, folder: str) -> None:
    """With the module's settings and the prompts; we read the checkpoint, also if the module has its own directory."""
    model = SparseEncoder(
        modules=[MilcoModule(milco, alpha=0.3, lowercase=True)],
        device="cpu",
        prompts={"query": "music ", "document": ""},
    )
    model.save_pretrained(str(tmp_path))
    if folder:
        (tmp_path / folder).mkdir()
        for path in tmp_path.iterdir():
            if path.name not in ("modules.json", "config_sentence_transformers.json", folder):
                shutil.move(path, tmp_path / folder)
        modules = json.loads((tmp_path / "modules.json").read_text())
        (tmp_path / "modules.json").write_text(json.dumps([modules[0] | {"path": folder}]))
    again = SparseEncoder(str(tmp_path), device="cpu", trust_remote_code=True, model_kwargs={"dtype": torch.float32})
    texts = ["Book", "the RIVER"]
    expected = milco.encode_query([f"music {text}" for text in texts], alpha=0.3, lowercase=True)
    assert_equal(again.encode_query(texts), expected)
    ours = MilcoEncoder.from_pretrained(tmp_path, device="cpu", dtype="float32")
    assert ours.hashes == milco.hashes


def test_training_is_refused(model: SparseEncoder) -> None:
    """Without gradients, a trainer would change nothing."""
    model.train()
    with pytest.raises(MilcoError, match=r"MilcoModule has no gradients\. Train the checkpoint with milco train"):
        model(model.preprocess(["a"]))


@pytest.mark.integration
def test_evaluators_agree_with_milco_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sentence-transformers' evaluator and MTEB on the German sample; engine exact sums floats in another order."""
    mteb = pytest.importorskip("mteb", reason="needs mteb: make st runs this")
    from datasets import Dataset
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.abstasks.task_metadata import TaskMetadata
    from sentence_transformers.sparse_encoder.evaluation import SparseInformationRetrievalEvaluator

    from milco_pyserini import Index, Searcher
    from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
    from milco_pyserini.eval import evaluate

    corpus = {document.id: document.text for document in open_corpus("sample-de")}
    topics = {topic.id: topic.text for topic in open_topics("sample-de")}
    qrels = {topic: grades for topic, grades in open_qrels("sample-de").items() if topic in topics}

    class Sample(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="MilcoSample",
            description="the German sample",
            dataset={"path": "milco/sample", "revision": "1"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["deu-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, **_: Any) -> None:
            documents = [{"id": docid, "text": text, "title": ""} for docid, text in corpus.items()]
            queries = [{"id": topic, "text": text} for topic, text in topics.items()]
            split = RetrievalSplitData(
                corpus=Dataset.from_list(documents),
                queries=Dataset.from_list(queries),
                relevant_docs=qrels,
                top_ranked=None,
            )
            self.dataset, self.data_loaded = {"default": {"test": split}}, True

    monkeypatch.chdir(tmp_path)
    model = load("mini", device="cpu", dtype="float32")
    encoder = model[0].encoder
    vectors = encoder.encode_document(list(corpus.values()))
    Index.build(vectors, tmp_path / "index", engine="exact", ids=list(corpus), encoder=encoder)
    found = Searcher.open(tmp_path / "index", encoder=encoder).search_batch(list(topics.values()), k=100)
    run = {
        topic: dict(zip(hits.docids, hits.scores.tolist(), strict=True))
        for topic, hits in zip(topics, found, strict=True)
    }
    expected = evaluate(run, qrels, ["nDCG@10"]).mean["nDCG@10"]
    assert expected > 0.5

    relevant = {topic: {docid for docid, grade in grades.items() if grade > 0} for topic, grades in qrels.items()}
    evaluator = SparseInformationRetrievalEvaluator(topics, corpus, relevant, name="sample")
    assert evaluator(model)["sample_dot_ndcg@10"] == pytest.approx(expected, abs=1e-4)
    scores = mteb.evaluate(model, tasks=[Sample()], cache=None).task_results[0].scores["test"][0]
    assert scores["ndcg_at_10"] == pytest.approx(expected, abs=1e-4)
