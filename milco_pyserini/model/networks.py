"""The network of a checkpoint: its weights, or modules if only transformers knows its architecture."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.configuration import NetworkConfig, is_plain
from milco_pyserini.model.layouts import read_checkpoint
from milco_pyserini.model.quantized import Weights
from milco_pyserini.model.weights import NetworkWeights, file_states, make_config

if TYPE_CHECKING:
    from milco_pyserini.model.modeling import MilcoModel


def load_checkpoint(checkpoint: Checkpoint, variants: Mapping[str, Any]) -> "NetworkWeights | MilcoModel":
    """Load a MILCO checkpoint: make_network() of it. variants and errors as for MilcoModel.from_pretrained()."""
    # Tensors that are made in inference mode can never be trained.
    with torch.inference_mode(False):
        files = file_states(checkpoint.weight_files)
        values, tensors = read_checkpoint(checkpoint, variants)
        network = make_network(checkpoint.directory, values, tensors, variants)
    if isinstance(network, NetworkWeights):
        network.files = files
    return network


def make_network(
    directory: Path, values: dict[str, Any], tensors: Weights, variants: Mapping[str, Any] | None = None
) -> "NetworkWeights | MilcoModel":
    """Return the network of a configuration: its weights, or modules if only transformers knows its architecture.

    Arguments and errors as for make_config(), and NetworkWeights or MilcoModel.from_tensors().
    """
    if is_plain(values):
        return NetworkWeights(make_config(NetworkConfig, directory, values, variants), tensors, directory)
    from milco_pyserini.model.modeling import MilcoConfig, MilcoModel

    return MilcoModel.from_tensors(make_config(MilcoConfig, directory, values, variants), tensors, directory)
