"""milco-300m's layout: the authors' checkpoint over an encoder with rotary positions and gated layers, as published."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_set import GOLDEN, Tensors, tensors
from torch import Tensor
from torch.nn import functional
from transformers import CONFIG_MAPPING

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError

LAYERS, HEADS, WIDTH, INNER, PIECES = 2, 4, 32, 48, 577
CONFIG = {
    "model_type": "new",
    "architectures": ["NewModel"],
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    "vocab_size": PIECES,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "hidden_act": "gelu",
    "max_position_embeddings": 1024,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "pad_token_id": 1,
    "pack_qkv": True,
    "position_embedding_type": "rope",
    "rope_theta": 20000,
    "rope_scaling": {"factor": 8.0, "type": "ntk"},
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
}
TEXTS = ["Who wrote the first book about the river bridge?", "THE GREATEST CITY", "如何把陌陌直播音乐导入手机里？"]
has_gte = pytest.mark.skipif("gte" not in CONFIG_MAPPING, reason="this transformers has no gte, as 5.24 has")
pytestmark = pytest.mark.golden


def gte_tensors() -> Tensors:
    """Return random tensors by Alibaba's names."""
    draw = torch.Generator().manual_seed(3)

    def layer(name: str, *shape: int, bias: bool = True, around: float = 0.0) -> Tensors:
        weight = torch.randn(*shape, generator=draw) * 0.2 + around
        return {f"{name}.weight": weight} | (
            {f"{name}.bias": torch.randn(shape[0], generator=draw) * 0.2} if bias else {}
        )

    values = layer("embeddings.word_embeddings", PIECES, WIDTH, bias=False)
    values |= layer("embeddings.token_type_embeddings", 1, WIDTH, bias=False)
    values |= layer("embeddings.LayerNorm", WIDTH, around=1.0)
    for number in range(LAYERS):
        place = f"encoder.layer.{number}"
        values |= layer(f"{place}.attention.qkv_proj", 3 * WIDTH, WIDTH)
        values |= layer(f"{place}.attention.o_proj", WIDTH, WIDTH)
        values |= layer(f"{place}.mlp.up_gate_proj", 2 * INNER, WIDTH, bias=False)
        values |= layer(f"{place}.mlp.down_proj", WIDTH, INNER)
        values |= layer(f"{place}.attn_ln", WIDTH, around=1.0) | layer(f"{place}.mlp_ln", WIDTH, around=1.0)
    return values


def hidden_states(values: Tensors, ids: list[int]) -> Tensor:
    """Return the last states of one text, written from the published description: float32 [S, WIDTH]."""

    def norm(states: Tensor, name: str) -> Tensor:
        return functional.layer_norm(states, (WIDTH,), values[f"{name}.weight"], values[f"{name}.bias"], 1e-12)

    def linear(states: Tensor, name: str) -> Tensor:
        return functional.linear(states, values[f"{name}.weight"], values.get(f"{name}.bias"))

    size = WIDTH // HEADS
    factor = CONFIG["rope_scaling"]["factor"]
    pairs = torch.arange(size // 2)
    frequencies = (CONFIG["rope_theta"] * factor) ** (-2.0 * pairs / size) / factor ** (2 / size)
    angles = torch.outer(torch.arange(len(ids)), frequencies)

    def rotate(states: Tensor) -> Tensor:
        # Dimension i and i + size / 2 are one pair, turned by the position's angle as a complex number is.
        turned = torch.complex(states[..., : size // 2], states[..., size // 2 :]) * torch.polar(
            torch.ones_like(angles), angles
        )
        return torch.cat([turned.real, turned.imag], dim=-1)

    states = values["embeddings.word_embeddings.weight"][ids] + values["embeddings.token_type_embeddings.weight"][0]
    states = norm(states, "embeddings.LayerNorm")
    for number in range(LAYERS):
        place = f"encoder.layer.{number}"
        query, key, value = (
            linear(states, f"{place}.attention.qkv_proj").view(len(ids), 3, HEADS, size).permute(1, 2, 0, 3)
        )
        weights = (rotate(query) @ rotate(key).transpose(1, 2) / size**0.5).softmax(dim=-1)
        mixed = (weights @ value).transpose(0, 1).reshape(len(ids), WIDTH)
        states = norm(states + linear(mixed, f"{place}.attention.o_proj"), f"{place}.attn_ln")
        up, gate = linear(states, f"{place}.mlp.up_gate_proj").chunk(2, dim=-1)
        states = norm(states + linear(functional.gelu(gate) * up, f"{place}.mlp.down_proj"), f"{place}.mlp_ln")
    return states


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint in the authors' layout, without a model_type that names it, its encoder's config.json inside."""
    directory = tmp_path / "milco-300m"
    for sub_model in ("m_encoder", "en_lsr"):
        shutil.copytree(GOLDEN / sub_model, directory / sub_model, ignore=shutil.ignore_patterns("*.safetensors"))
    (directory / "m_encoder" / "config.json").write_text(json.dumps(CONFIG))
    config = json.loads((GOLDEN / "ckpt_distillation" / "config.json").read_text()) | {"model_type": "mlsr"}
    (directory / "config.json").write_text(json.dumps(config))
    heads = {name: value for name, value in tensors("distillation").items() if not name.startswith("m_model.")}
    pooler = {"m_model.pooler.dense.weight": torch.zeros(WIDTH, WIDTH)}
    torch.save(
        heads | pooler | {f"m_model.{name}": value for name, value in gte_tensors().items()},
        directory / "pytorch_model.bin",
    )
    return directory


@pytest.mark.skipif("gte" in CONFIG_MAPPING, reason="this transformers has gte")
def test_an_older_transformers_is_named(checkpoint: Path) -> None:
    """Version 4 lacks the class: the line names the version to install."""
    with pytest.raises(MilcoError, match="pip install -U"):
        load_encoder(checkpoint)


@has_gte
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_states_are_those_of_the_published_description(checkpoint: Path, dtype: str) -> None:
    """Every text's vector in a padded batch is that of its own states, computed here without transformers."""
    encoder = load_encoder(checkpoint, device="cpu", dtype=dtype)
    batch = encoder.encode(TEXTS)
    values, heads = gte_tensors(), encoder.model
    for number, row in enumerate(encoder.tokenizer.tokenize(TEXTS, 128)):
        states = hidden_states(values, row.ids)
        with torch.inference_mode():
            projected = heads.connector(states)
            logits = heads.decoder(projected).amax(dim=0)
        expected = torch.log1p(logits.relu()).numpy()
        found = np.zeros(len(encoder.vocabulary), np.float32)
        vector = batch.take([number])
        found[vector.columns] = vector.weights
        tolerance = {"float32": 1e-4, "bfloat16": 0.1}[dtype]
        np.testing.assert_allclose(found[: len(expected)], expected, atol=tolerance)


@has_gte
def test_the_own_layout_round_trips(checkpoint: Path, tmp_path: Path) -> None:
    """Saved and read again, the vectors and the hash of the weights are the same."""
    encoder = load_encoder(checkpoint, device="cpu", dtype="float32")
    encoder.save_pretrained(tmp_path / "saved")
    again = MilcoEncoder.from_pretrained(tmp_path / "saved", device="cpu", dtype="float32")
    assert again.hashes == encoder.hashes
    np.testing.assert_allclose(again.encode(TEXTS).weights, encoder.encode(TEXTS).weights, atol=1e-6)


@has_gte
@pytest.mark.parametrize("change", [{"pack_qkv": False}, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}])
def test_another_network_of_this_type_is_refused(checkpoint: Path, change: dict) -> None:
    """A field that changes what is computed is an error, not ignored."""
    path = checkpoint / "m_encoder" / "config.json"
    path.write_text(json.dumps(CONFIG | change))
    with pytest.raises(MilcoError, match=next(iter(change))):
        load_encoder(checkpoint)
