"""A GPU computes the vectors and losses of the CPU, in encoding and training. Runs where torch finds a CUDA GPU."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_set import CHECKPOINTS, GOLDEN, TEXTS, bent
from safetensors.torch import load_file

from milco_pyserini.cli.main import main
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.sparse import SparseBatch, VectorStore
from recipes.dense.encoder import DenseEncoder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

GPU = "cuda"
# Highest and mean difference between weights: products are added in another order, and bfloat16 has 8 bits.
TOLERANCES = {"float32": (2e-3, 1e-5), "bfloat16": (0.2, 2e-3)}
NAMES = {name: str(GOLDEN / f"ckpt_{name}") for name in CHECKPOINTS} | {"splade": str(GOLDEN / "en_lsr")}
WORDS = "river bridge book harbour town market train library letter map water doctor north morning story".split()


def assert_close(found: SparseBatch, wanted: SparseBatch, dtype: str) -> None:
    """Compare weights; a term that only one has is compared with 0."""
    width = 1 + max(int(batch.columns.max()) for batch in (found, wanted))
    difference = np.abs(rows(found, width) - rows(wanted, width))
    highest, mean = TOLERANCES[dtype]
    assert difference.max() <= highest and difference.mean() <= mean


def rows(batch: SparseBatch, width: int) -> np.ndarray:
    """Return dense vectors, float32 [B, width]."""
    dense = np.zeros((len(batch), width), np.float32)
    dense[batch.row_numbers(), batch.columns] = batch.weights
    return dense


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", [*NAMES, "mini"])
def test_vectors_are_those_of_the_cpu(name: str, dtype: str) -> None:
    """In one batch, and in the batches of so many texts that layers are compiled for them."""
    on_cpu, on_gpu = (
        load_encoder(NAMES.get(name, name), device, kind) for device, kind in (("cpu", "float32"), (GPU, dtype))
    )
    wanted = on_cpu.encode_document(TEXTS)
    assert_close(on_gpu.encode_document(TEXTS), wanted, dtype)
    many = on_gpu.encode_document(TEXTS * 200)
    assert_close(many.take(np.arange(len(many) - len(TEXTS), len(many))), wanted, dtype)


def test_dense_vectors_are_those_of_the_cpu() -> None:
    """Every pooling."""
    for pooling in ("cls", "mean", "last"):
        wanted, found = (
            DenseEncoder(GOLDEN / "ckpt_distillation", pooling, device).encode_document(TEXTS)
            for device in ("cpu", GPU)
        )
        assert np.allclose(found, wanted, atol=0.02)


def test_a_store_of_two_workers_is_that_of_one(tmp_path: Path) -> None:
    """milco encode on the card, by one process and by two that share it."""
    batches = []
    for number, device in enumerate((GPU, f"{GPU},{GPU}")):
        output = tmp_path / str(number)
        options = ["--encoder", "mini", "--dtype", "float32", "--device", device, "--output", str(output)]
        assert main(["encode", "--corpus", "sample-en", *options]) == 0
        batches.append(VectorStore.open(output).load())
    assert batches[0][0] == batches[1][0]
    assert_close(batches[1][1], batches[0][1], "float32")


@pytest.mark.parametrize("stage", ["sap", "sct"])
def test_training_is_that_of_the_cpu(stage: str, tmp_path: Path) -> None:
    """Losses of 8 steps in float32, and of the first step in bfloat16."""
    encoder = load_encoder(bent(tmp_path, "alignment"), "cpu", "float32")
    # Each device would draw other numbers.
    encoder.model.config.encoder.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    start = tmp_path / "start"
    encoder.save_pretrained(start)
    texts = [" ".join(WORDS[(number * 7 + place) % 15] for place in range(3 + number % 4)) for number in range(60)]
    values: dict[str, object] = {
        "model": str(start),
        "batch_size": 8,
        "learning_rate": 1e-4,
        "log_steps": 1,
        "steps": 8,
    }
    values |= {"workers": 0}
    if stage == "sap":
        bitext = tmp_path / "bitext"
        bitext.mkdir()
        (bitext / "de-en.tsv").write_text("".join(f"{text.upper()}\t{text}\n" for text in texts))
        values |= {"bitext": [str(bitext)], "teacher": str(GOLDEN / "en_lsr"), "max_length": 32, "save_steps": 8}
    else:
        data = tmp_path / "pairs.de.jsonl"
        lines = [
            {"query": text.split()[0], "positives": [text], "negatives": texts[:3], "scores": [4.0, 1.0, 0.5, -1.0]}
            for text in texts
        ]
        data.write_text("".join(json.dumps(line) + "\n" for line in lines))
        values |= {"data": [str(data)], "group_size": 4, "query_max_length": 16, "passage_max_length": 32}
    losses = {}
    for device, dtype in (("cpu", "float32"), (GPU, "float32"), (GPU, "bfloat16")):
        recipe, run = tmp_path / "recipe.json", tmp_path / f"{device}-{dtype}"
        recipe.write_text(json.dumps(values | {"device": "cpu" if device == "cpu" else "auto", "dtype": dtype}))
        assert main(["train", stage, "--preset", str(recipe), "--output", str(run)]) == 0
        assert all(tensor.isfinite().all() for tensor in load_file(run / "model/model.safetensors").values())
        entries = map(json.loads, (run / "log.jsonl").read_text().splitlines())
        losses[device, dtype] = [entry["loss"] for entry in entries if "loss" in entry]
    wanted = losses["cpu", "float32"]
    assert np.allclose(losses[GPU, "float32"], wanted, rtol=0.02)
    assert np.allclose(losses[GPU, "bfloat16"][0], wanted[0], rtol=0.05)
