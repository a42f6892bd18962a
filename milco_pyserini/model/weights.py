"""The weights of a MILCO checkpoint by name, all that PackedForward needs: without transformers' modeling code.

Importing that takes longer than encoding a query.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.configuration import NetworkConfig, is_plain
from milco_pyserini.model.layouts import make_config, read_checkpoint, select_tensors

if TYPE_CHECKING:
    from milco_pyserini.model.modeling import MilcoConfig, MilcoModel


class NetworkWeights:
    """Configuration and weights of a network, float32, on the CPU: the state_dict() of the MilcoModel that to_model()
    builds over the same tensors.

    Args:
        config: sizes and variants.
        tensors: by the names of the network's parameters. Those that it lacks are named on stderr.
        directory: the checkpoint's, for messages.

    Raises:
        MilcoError: a tensor is missing or of another shape; there are more encoder layers than config states.
    """

    training = False

    def __init__(self, config: NetworkConfig, tensors: Mapping[str, Tensor], directory: Path) -> None:
        self.config = config
        self._tensors = select_tensors(directory, _shapes(config), tensors)
        self._directory = directory

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors by the names of a MilcoModel's parameters."""
        return self._tensors

    def to_model(self) -> "MilcoModel":
        """Return the network as modules, which share the tensors."""
        from milco_pyserini.model.modeling import MilcoConfig, MilcoModel

        config = MilcoConfig(**{**vars(self.config), "encoder": vars(self.config.encoder)})
        # Modules that are made in inference mode can never be trained.
        with torch.inference_mode(False):
            return MilcoModel.from_tensors(config, self._tensors, self._directory)


def load_checkpoint(checkpoint: Checkpoint, variants: Mapping[str, Any]) -> "NetworkWeights | MilcoModel":
    """Load a MILCO checkpoint: make_network() of it. variants and errors as for MilcoModel.from_pretrained()."""
    # Tensors that are made in inference mode can never be trained.
    with torch.inference_mode(False):
        values, tensors = read_checkpoint(checkpoint, variants)
        config = choose_config(checkpoint.directory, values, variants)
        return make_network(config, tensors, checkpoint.directory)


def choose_config(
    directory: Path, values: dict[str, Any], variants: Mapping[str, Any] | None = None
) -> "NetworkConfig | MilcoConfig":
    """Return the configuration of a network, a MilcoConfig if only transformers knows its architecture.

    Arguments and errors as for make_config().
    """
    if is_plain(values):
        return make_config(NetworkConfig, directory, values, variants)
    from milco_pyserini.model.modeling import MilcoConfig

    return make_config(MilcoConfig, directory, values, variants)


def make_network(
    config: "NetworkConfig | MilcoConfig", tensors: Mapping[str, Tensor], directory: Path
) -> "NetworkWeights | MilcoModel":
    """Return the weights of a NetworkConfig, or the MilcoModel of a MilcoConfig. Arguments and errors as for both."""
    if type(config) is NetworkConfig:
        return NetworkWeights(config, tensors, directory)
    from milco_pyserini.model.modeling import MilcoModel

    return MilcoModel.from_tensors(config, tensors, directory)  # type: ignore[arg-type]


def weight_hash(tensors: Mapping[str, Tensor]) -> str:
    """Return BLAKE2b over every tensor's name, shape and float32 values: equal weights, equal hash."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().float().contiguous().numpy().data)
    return digest.hexdigest()


def token_limit(network: nn.Module, config: Any) -> int:
    """Return the number of tokens, special ones included, that a network has positions for."""
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            # RoBERTa and its relatives count positions from the padding id + 1.
            return config.max_position_embeddings - module.padding_idx - 1
    return config.max_position_embeddings


def _shapes(config: NetworkConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's tensors by their names, in the order of its modules."""
    encoder, english = config.encoder, config.english_hidden_size
    width = encoder.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.embeddings.word_embeddings.weight": (encoder.vocab_size, width),
        "encoder.embeddings.position_embeddings.weight": (encoder.max_position_embeddings, width),
        "encoder.embeddings.token_type_embeddings.weight": (encoder.type_vocab_size, width),
    }
    layers: dict[str, tuple[int, ...]] = {"encoder.embeddings.LayerNorm": (width,)}
    for number in range(encoder.num_hidden_layers):
        layer = f"encoder.encoder.layer.{number}"
        layers |= {f"{layer}.attention.self.{part}": (width, width) for part in ("query", "key", "value")}
        layers[f"{layer}.attention.output.dense"] = (width, width)
        layers[f"{layer}.attention.output.LayerNorm"] = (width,)
        layers[f"{layer}.intermediate.dense"] = (encoder.intermediate_size, width)
        layers[f"{layer}.output.dense"] = (width, encoder.intermediate_size)
        layers[f"{layer}.output.LayerNorm"] = (width,)
    layers["connector.projector"] = (english, width)
    layers["connector.dense"] = (english, english)
    layers["connector.layer_norm"] = (english,)
    layers["decoder"] = (config.english_vocab_size, english)
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    if config.echo:
        size = english if config.echo_variant == "paper" else width
        shapes |= {"echo.weight": (1, size), "echo.bias": (1,), "echo.scale": (1,)}
    return shapes
