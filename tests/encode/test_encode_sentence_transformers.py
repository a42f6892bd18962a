"""A SparseEncoder of sentence-transformers as --encoder st:DIR: its own vectors, in stores, indexes and runs."""

import importlib.metadata
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_set import GOLDEN
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from milco_pyserini import MilcoEncoder, SparseBatch
from milco_pyserini.cli.encode import main as encode
from milco_pyserini.cli.index import main as index
from milco_pyserini.cli.search import main as search
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.explainer import explain_texts
from milco_pyserini.sparse import open_store

PIECES = 358
TEXTS = ["music", "the old harbour", "a bridge over the river, and a book about it " * 9, "music [MASK] [SEP] book"]
library = pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None,
    reason="needs sentence-transformers, in an environment of its own: make st runs these",
)


def splade(directory: Path, rows: int = PIECES) -> Any:
    """The modules of a random SPLADE-type model with OpenSearch's activation. rows: of its head."""
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertForMaskedLM(BertConfig(vocab_size=rows, initializer_range=0.4, max_position_embeddings=48, **sizes))
    nn.init.normal_(model.get_output_embeddings().bias, std=0.5)
    model.save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(GOLDEN / "en_lsr" / name, directory)
    network = Transformer(str(directory), transformer_task="fill-mask")
    return network, SpladePooling("max", activation_function="log1p_relu")


def save(path: Path, *modules: Any, **options: Any) -> Any:
    """Save a SparseEncoder and return it."""
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(modules=list(modules), device="cpu", **options)
    model.save_pretrained(str(path))
    return model


@pytest.fixture(scope="module")
def inference_free(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A checkpoint in the layout of opensearch-neural-sparse-encoding-multilingual-v1, with its names of classes."""
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    directory = tmp_path_factory.mktemp("models")
    network, pooling = splade(directory / "network")
    table = SparseStaticEmbedding(network.tokenizer, torch.rand(PIECES) * 5, frozen=True)
    path = directory / "opensearch"
    model = save(path, Router.for_query_document([table], [network, pooling]), similarity_fn_name="dot")
    (path / "document_0_Transformer").rename(path / "document_0_MLMTransformer")
    (path / "modules.json").write_text(
        json.dumps([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}])
    )
    kinds = {"query": ["SparseStaticEmbedding"], "document": ["MLMTransformer", "SpladePooling"]}
    structure = {task: [f"{task}_{place}_{kind}" for place, kind in enumerate(names)] for task, names in kinds.items()}
    types = {
        name: f"sentence_transformers.sparse_encoder.models.{name.rpartition('_')[2]}"
        for names in structure.values()
        for name in names
    }
    parameters = {"default_route": "document", "allow_empty_key": True}
    (path / "router_config.json").write_text(
        json.dumps({"types": types, "structure": structure, "parameters": parameters})
    )
    return path, model


def load(path: Path, dtype: str = "float32") -> MilcoEncoder:
    return load_encoder(f"st:{path}", "cpu", dtype)


def assert_close(found: SparseBatch, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(
        found.to_torch().to_dense(), expected.to_dense()[:, :PIECES], atol=tolerance, rtol=tolerance
    )


@library
def test_vectors_equal_the_models(inference_free: tuple[Path, Any]) -> None:
    """Queries from the table, without special tokens; documents from the network. A blank text is empty."""
    path, model = inference_free
    encoder = load(path)
    queries = encoder.encode_query(TEXTS)
    assert_close(queries, model.encode_query(TEXTS))
    assert_close(encoder.encode_document(TEXTS), model.encode_document(TEXTS))
    assert queries[0].lengths().tolist() == [1]
    assert (
        encoder.encode_query(["", " "]).lengths().tolist()
        == encoder.encode_document(["", " "]).lengths().tolist()
        == [0, 0]
    )
    assert encoder.decode(queries[0], top_k=1)[0][0][0] == "music"
    rounded = load(path, "bfloat16")
    assert rounded.hashes == encoder.hashes
    assert rounded.similarity(TEXTS, TEXTS) == pytest.approx(encoder.similarity(TEXTS, TEXTS), rel=0.1)


@library
def test_prompts_wide_heads_and_top_k_are_the_models(tmp_path: Path) -> None:
    """Prompts of queries and of documents, more rows than pieces, and the most terms of a vector."""
    options = {"prompts": {"query": "the river ", "document": "the book "}, "max_active_dims": 7}
    model = save(tmp_path / "model", *splade(tmp_path / "network", rows=360), **options)
    encoder = load(tmp_path / "model")
    assert_close(encoder.encode_query(TEXTS), model.encode_query(TEXTS))
    assert_close(encoder.encode_document(TEXTS), model.encode_document(TEXTS))
    with pytest.raises(MilcoError, match="split_passages would put the prompt 'the book ' before the first passage"):
        encoder.tokenizer.passages(TEXTS, 9)


@library
@pytest.mark.integration
def test_the_pipeline_searches_with_it(inference_free: tuple[Path, Any], tmp_path: Path) -> None:
    """Documents and topics are encoded each in their way; a run from texts equals that from encoded topics."""
    path, model = inference_free
    (tmp_path / "c.tsv").write_text("".join(f"d{number}\t{text}\n" for number, text in enumerate(TEXTS)))
    (tmp_path / "t.tsv").write_text("q1\tthe river\nq2\tharbour music\n")
    name = ["--encoder", f"st:{path}", "--device", "cpu", "--dtype", "float32"]
    vectors, topics, built = tmp_path / "vectors", tmp_path / "topics", tmp_path / "index"
    assert encode(["--corpus", str(tmp_path / "c.tsv"), "--output", str(vectors), *name]) == 0
    assert encode(["--topics", str(tmp_path / "t.tsv"), "--output", str(topics), *name]) == 0
    assert open_store(vectors).manifest.truncated_documents == 1
    weights = dict(model.decode(model.encode_query("the river")))
    assert dict(open_store(topics).vectors())["q1"] == {
        term: round(100 * weight) for term, weight in weights.items() if round(100 * weight)
    }
    assert index(["--vectors", str(vectors), "--engine", "exact", "--output", str(built)]) == 0
    runs = []
    for source in (tmp_path / "t.tsv", topics):
        output = tmp_path / f"{source.name}.txt"
        arguments = ["--index", str(built), "--topics", str(source), "--output", str(output), "--tag", "t"]
        assert search([*arguments, *(["--device", "cpu", "--dtype", "float32"] if source != topics else [])]) == 0
        runs.append([line.split()[:4] for line in output.read_text().splitlines()])
    assert runs[0] == runs[1] != []


@library
def test_matches_are_not_explained(inference_free: tuple[Path, Any]) -> None:
    """Nothing is known of what a token contributes."""
    with pytest.raises(MilcoError, match=r"encoder st:.* cannot be explained: origins of terms are known for MILCO"):
        explain_texts(load(inference_free[0]), "music", TEXTS)


@library
def test_other_checkpoints_are_refused(inference_free: tuple[Path, Any], tmp_path: Path) -> None:
    """One line each: no SparseEncoder, MILCO itself, code of its own, dimensions without names, damage."""
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

    network, pooling = splade(tmp_path / "network")
    with pytest.raises(MilcoError, match=r"is not a SparseEncoder .* does not name one\. Other masked language models"):
        load(tmp_path / "network")
    with pytest.raises(MilcoError, match="is a MILCO checkpoint: give its name without st:"):
        load(GOLDEN / "ckpt_distillation")
    save(tmp_path / "code", network, pooling)
    modules = json.loads((tmp_path / "code" / "modules.json").read_text())
    modules[0]["type"] = "modeling_own.Network"
    (tmp_path / "code" / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(MilcoError, match="it needs code from its own repository, which is never run"):
        load(tmp_path / "code")
    from sentence_transformers.base.modules import Transformer

    states = Transformer(str(tmp_path / "network"))
    save(tmp_path / "latent", states, Pooling(16), SparseAutoEncoder(16, hidden_dim=64, k=8, k_aux=16))
    with pytest.raises(MilcoError, match="has 64 dimensions, its tokenizer 358 pieces: only encoders whose dimensions"):
        load(tmp_path / "latent")
    damaged = shutil.copytree(inference_free[0], tmp_path / "damaged")
    (damaged / "document_0_MLMTransformer" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(
        MilcoError, match=r"damaged cannot be read as a SparseEncoder of sentence-transformers: [^\n]+$"
    ):
        load(damaged)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (None, "sentence-transformers is not installed"),
        ("5.1.2", r"sentence-transformers 5\.1\.2 is too old: 6\.2 or later is needed"),
    ],
)
def test_a_missing_library_is_named_with_its_command(
    version: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For encoders, and for MILCO as a SparseEncoder, whose file can be imported without it."""
    from milco_pyserini.integrations.sentence_transformers import load as load_milco

    def find(_: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(importlib.metadata, "version", find)
    for function in (lambda: load(tmp_path), lambda: load_milco("mini")):
        with pytest.raises(MilcoError, match=rf"{message}.*\. Run pip install '\.\[st\]' in an environment"):
            function()
