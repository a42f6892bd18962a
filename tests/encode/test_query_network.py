"""A query network: a few layers in numpy, in place of the documents' model for queries."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_set import TEXTS
from network_set import write_model, write_network

from milco_pyserini import Index, MilcoEncoder, Searcher, load_encoder
from milco_pyserini.cli.main import main
from milco_pyserini.encode.query_network import QueryNetwork
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.layouts import read_tensors
from milco_pyserini.model.quantized import QuantizedMatrix

QUERIES = ["the old harbour", "music music", " ", "a bridge <pad> over the river", "x"]
LIMITS = {"pivot_top_k": 40, "query_pivot_top_k": 12, "query_source_top_k": 3}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a weight per token and limits of terms, a query network of one of its layers, and an index."""
    root = tmp_path_factory.mktemp("networks")
    encoder = write_model(root / "model", **LIMITS, source_drop_special=True, source_pool="max")
    write_network(encoder, root / "queries")
    texts = [" ".join(text.split()) or "blank" for text in TEXTS]
    (root / "docs.tsv").write_text("".join(f"d{n}\t{text}\n" for n, text in enumerate(texts)), encoding="utf-8")
    (root / "topics.tsv").write_text("".join(f"q{n}\t{text}\n" for n, text in enumerate(QUERIES)), encoding="utf-8")
    encode = ["encode", "--corpus", str(root / "docs.tsv"), "--encoder", str(root / "model"), "--device", "cpu"]
    assert main([*encode, "--dtype", "float32", "--output", str(root / "vectors")]) == 0
    Index.build(root / "vectors", root / "index", "exact")
    return root


@pytest.fixture(scope="module")
def network(root: Path) -> QueryNetwork:
    loaded = load_encoder(root / "queries")
    assert isinstance(loaded, QueryNetwork)
    return loaded


def test_vectors_are_those_of_the_same_layers_in_torch(root: Path, network: QueryNetwork) -> None:
    """Within 1e-5: the model with its layers and connector replaced; the source view is the model's own."""
    model = MilcoEncoder.from_pretrained(root / "model", device="cpu", dtype="float32")
    own = read_tensors(Checkpoint.open(root / "queries"))
    assert any(isinstance(tensor, QuantizedMatrix) for tensor in own.values())
    module = model.model
    module.encoder.encoder.layer = module.encoder.encoder.layer[:1]
    module.encoder.config.num_hidden_layers = 1
    assert not module.load_state_dict({name: tensor.float() for name, tensor in own.items()}, False).unexpected_keys
    ids = [row.ids for row in model.tokenizer.tokenize(QUERIES, 64) if row.ids]
    for row in ids:
        with torch.inference_mode():
            logits = module(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.int64)).logits
        expected = torch.log1p(torch.relu(logits))[0].numpy()
        ((columns, weights),) = network.network.forward([row])
        found = np.zeros_like(expected)
        found[columns] = weights
        assert np.abs(found - expected).max() < 1e-5
    whole = MilcoEncoder.from_pretrained(root / "model", device="cpu", dtype="float32")
    source, expected = (one.encode(QUERIES, views="source") for one in (network, whole))
    assert np.array_equal(source.columns, expected.columns)
    assert source.weights == pytest.approx(expected.weights)


def test_a_query_has_the_limits_of_the_model_and_does_not_depend_on_others(network: QueryNetwork) -> None:
    """The strongest terms of each view; the same bits alone and among others; a blank text has none."""
    together = network.encode_query(QUERIES)
    assert max(together.view("pivot").lengths()) == LIMITS["query_pivot_top_k"]
    assert max(together.view("source").lengths()) == LIMITS["query_source_top_k"]
    for text, vector in zip(QUERIES, together, strict=True):
        alone = network.encode_query(text)
        assert np.array_equal(alone.columns, vector.columns)
        assert np.array_equal(alone.weights, vector.weights)
    assert len(network.encode_query(" ").columns) == 0


@pytest.mark.parametrize("option", ["--encoder", "--query-encoder"])
def test_search_loads_no_torch(root: Path, option: str) -> None:
    """A process that searches for a text with it has not imported torch, nor transformers."""
    search = ["search", "--index", str(root / "index"), "--query", QUERIES[0], option, str(root / "queries")]
    program = f"import sys; from milco_pyserini.cli.main import main; assert main({search!r}) == 0; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "milco_pyserini.encode.query_network" in run.stdout.split()
    assert not {"torch", "transformers", "scipy"} & {*run.stdout.split()}


def test_command_vectors_and_python_find_the_same(root: Path, network: QueryNetwork, tmp_path: Path) -> None:
    """Texts, encoded topics, and Searcher.open() with either parameter; scores are of both views."""
    search = ["search", "--index", str(root / "index"), "--query-encoder", str(root / "queries"), "--k", "3"]
    encode = ["encode", "--topics", str(root / "topics.tsv"), "--encoder", str(root / "queries")]
    assert main([*encode, "--format", "parquet", "--output", str(tmp_path / "vectors")]) == 0
    runs = []
    for topics in (root / "topics.tsv", tmp_path / "vectors"):
        output = tmp_path / f"{topics.stem}.txt"
        assert main([*search, "--topics", str(topics), "--output", str(output)]) == 0
        runs.append([line.split()[:-1] for line in output.read_text().splitlines()])
    assert runs[0] == runs[1]
    expected = [(row[2], pytest.approx(float(row[4]), rel=1e-4)) for row in runs[0] if row[0] == "q0"]
    for given in ({"encoder": root / "queries"}, {"query_encoder": str(root / "queries")}, {"query_encoder": network}):
        hits = Searcher.open(root / "index", **given).search(QUERIES[0], 3)
        assert [(hit.docid, hit.score) for hit in hits] == expected


def test_vectors_of_a_query_network_and_of_its_model_are_not_mixed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have the same hashes; --reuse distinguishes them."""
    encode = ["encode", "--topics", str(root / "topics.tsv"), "--device", "cpu", "--encoder"]
    assert main([*encode, str(root / "queries"), "--output", str(tmp_path / "small")]) == 0
    assert (
        main([*encode, str(root / "model"), "--output", str(tmp_path / "m"), "--reuse", str(tmp_path / "small")]) == 2
    )
    assert "query_network" in capsys.readouterr().err


def test_what_a_query_network_cannot_do_is_one_error(
    root: Path, network: QueryNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents, explanations, a model of torch, an index of other weights."""
    for command, words in (
        (f"encode --corpus {root}/docs.tsv --encoder {root}/queries --output {tmp_path}/v", "encodes topics only"),
        (f"explain --index {root}/index --encoder {root}/queries --query music --doc d0", "cannot be explained"),
    ):
        assert main(command.split()) == 2
        assert words in capsys.readouterr().err
    with pytest.raises(MilcoError, match="encode documents with"):
        network.encode_document("music")
    with pytest.raises(MilcoError, match="no model of torch"):
        _ = network.model
    other = load_encoder(root / "queries")
    other.hashes = {"weight_hash": "other"}
    with pytest.raises(MilcoError, match="weight_hash"):
        Searcher.open(root / "index", query_encoder=other).search("music")


@pytest.mark.parametrize("damage", ["truncated", "documents", "layers"])
def test_a_checkpoint_that_does_not_fit_is_refused(root: Path, tmp_path: Path, damage: str) -> None:
    """In one line with its path: a damaged file, a model of other weights under the same name, a missing layer."""
    shutil.copytree(root / "queries", tmp_path / "queries")
    shutil.copytree(root / "model", tmp_path / "model")
    config = json.loads((root / "queries" / "config.json").read_text()) | {"documents": str(tmp_path / "model")}
    words = {"truncated": "cannot be read", "documents": "does not fit", "layers": "cannot be read"}[damage]
    if damage == "truncated":
        file = tmp_path / "queries" / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "layers":
        config["layers"] = 2
    else:
        encoder = MilcoEncoder.from_pretrained(tmp_path / "model", device="cpu")
        with torch.no_grad():
            encoder.model.decoder.bias[7] += 1
        encoder.save_pretrained(tmp_path / "model")
    (tmp_path / "queries" / "config.json").write_text(json.dumps(config))
    with pytest.raises(MilcoError, match=words):
        load_encoder(tmp_path / "queries")


def test_the_embedded_query_network_is_of_the_embedded_model() -> None:
    """Its fingerprint and its hash are those of milco-mini's weights; a query has both views within the limits."""
    network, mini = load_encoder("mini-query"), MilcoEncoder.from_pretrained("mini", device="cpu")
    assert network.hashes == mini.hashes
    assert network.encode_query("Wer erfand das Telefon?", views="source").to_dicts() == (
        mini.encode_query("Wer erfand das Telefon?", views="source").to_dicts()
    )
    assert 0 < network.encode_query("Wer erfand das Telefon?").view("pivot").lengths()[0] <= 32
