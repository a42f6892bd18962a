"""NetworkWeights are the MilcoModel of the same checkpoint, without its modules."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_set import CHECKPOINTS, GOLDEN, TEXTS, dense, encoder

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import write_json
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.model.networks import load_checkpoint
from milco_pyserini.model.weights import NetworkWeights

pytestmark = pytest.mark.golden


def load(directory: Path, **variants: object) -> MilcoEncoder:
    return MilcoEncoder.from_pretrained(directory, device="cpu", dtype="float32", **variants)


@pytest.mark.parametrize("checkpoint", [*(GOLDEN / f"ckpt_{name}" for name in CHECKPOINTS), "mini"])
def test_the_tensors_are_the_models(checkpoint: Path | str) -> None:
    """Names, shapes and values; the model that is built later has the memory of the float32 ones."""
    weights = load_checkpoint(Checkpoint.open(checkpoint), {})
    assert isinstance(weights, NetworkWeights)
    expected = MilcoModel.from_pretrained(checkpoint)
    with torch.inference_mode():
        model = MilcoModel.from_weights(weights)
    actual = weights.state_dict()
    assert actual.keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        assert actual[name].shape == tensor.shape
        assert torch.equal(actual[name].float(), tensor)
        stored = actual[name]
        if isinstance(stored, torch.Tensor) and stored.dtype == torch.float32:
            assert stored.data_ptr() == model.state_dict()[name].data_ptr()
    # Saving a model writes these two.
    ignored = {"architectures": None, "dtype": None}
    assert model.config.to_dict() | ignored == expected.config.to_dict() | ignored
    assert all(parameter.requires_grad and not parameter.is_inference() for parameter in model.parameters())


def test_a_checkpoint_may_be_loaded_in_inference_mode() -> None:
    """Its network is built later, and can be trained."""
    with torch.inference_mode():
        loaded = MilcoEncoder.from_pretrained(GOLDEN / "ckpt_distillation", device="cpu")
    assert not any(parameter.is_inference() for parameter in loaded.model.parameters())


def test_a_configuration_may_leave_the_padding_id_to_transformers(tmp_path: Path) -> None:
    """Transformers saves no pad_token_id that is XLM-R's."""
    encoder("distillation").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["encoder"].pop("pad_token_id", 1) == 1
    write_json(tmp_path / "config.json", config)
    weights = load_checkpoint(Checkpoint.open(tmp_path), {})
    assert isinstance(weights, NetworkWeights)
    assert weights.config.encoder.pad_token_id == MilcoModel.from_weights(weights).config.encoder.pad_token_id == 1


def test_changes_of_the_model_are_encoded() -> None:
    """Whatever was encoded before, the modules' weights count as soon as they exist."""
    one = load(GOLDEN / "ckpt_distillation")
    before = dense(one.encode(TEXTS, max_length=512))
    np.testing.assert_array_equal(dense(load(GOLDEN / "ckpt_distillation").encode(TEXTS, max_length=512)), before)
    with torch.no_grad():
        one.model.decoder.bias.add_(1.0)
        one.model.echo.scale.mul_(2.0)
    one.config.pivot_top_k = 5
    changed = dense(one.encode(TEXTS, max_length=512))
    size = one.vocabulary.english_size
    np.testing.assert_allclose(changed[:, size:], 2 * before[:, size:], rtol=1e-5)
    assert (changed[:, :size] > 0).sum(axis=1).max() == 5
    assert changed[:, :size].max() > before[:, :size].max()
    assert one.hashes != encoder("distillation").hashes


def test_a_change_of_the_configuration_is_kept_by_the_model() -> None:
    """The modules are built with the configuration as it is then."""
    one = load(GOLDEN / "ckpt_distillation", source_pool="max")
    one.config.query_max_length = 7
    assert (one.model.config.query_max_length, one.model.config.source_pool) == (7, "max")
    assert one.config is one.model.config


def test_a_checkpoint_may_be_saved_over_itself(tmp_path: Path) -> None:
    """The weights in memory do not depend on the file that they were read from."""
    encoder("distillation").save_pretrained(tmp_path)
    one = load(tmp_path)
    one.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert one.hashes == encoder("distillation").hashes


@pytest.mark.parametrize(
    ("field", "value"), [("model_type", "bert"), ("hidden_act", "gelu_new"), ("adapters", None), ("num_labels", 5)]
)
def test_other_networks_are_left_to_transformers(tmp_path: Path, field: str, value: object) -> None:
    """Another architecture, another activation, a field that is not known here: a MilcoModel from the start."""
    encoder("distillation").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["encoder"][field] = value
    write_json(tmp_path / "config.json", config)
    assert isinstance(load_checkpoint(Checkpoint.open(tmp_path), {}), MilcoModel)


def test_a_bert_encoder_encodes(tmp_path: Path) -> None:
    """Its positions count from 0, and all of them can be used."""
    encoder("distillation").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["encoder"] |= {"model_type": "bert", "pad_token_id": 1}
    write_json(tmp_path / "config.json", config)
    one = load(tmp_path)
    assert len(one.encode(["x " * 600], max_length=514)) == 1
    with pytest.raises(MilcoError, match="takes 3 to 514 tokens"):
        one.network.validate_length(515)
    with pytest.raises(MilcoError, match="takes 3 to 512 tokens"):
        encoder("distillation").network.validate_length(513)
