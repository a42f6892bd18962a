"""BGE-M3's lexical weights: a linear layer weighs the text's own pieces.

The weight of a token is relu(w H + b), a repeated piece has the highest of its weights, special tokens have none (Chen
et al., ACL Findings 2024, arXiv:2402.03216). That is MILCO's source view, pooled by maximum, with an empty English
vocabulary, so such a checkpoint loads as a MILCO network.
"""

import re
from typing import Any

import torch

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import Checkpoint, loading, validate_weights
from milco_pyserini.model.configuration import NetworkConfig
from milco_pyserini.model.layouts import read_tensors, rename_tensors
from milco_pyserini.model.networks import make_network
from milco_pyserini.model.weights import make_config

_ENCODER = "xlm-roberta"
# The prefix of the encoder's tensors if it was saved as part of a larger module.
_PREFIX = re.compile(r"^((module|model|roberta)\.)+")


def load(checkpoint: Checkpoint, *options: Any) -> MilcoEncoder:
    """Load a checkpoint in BGE-M3's layout, which has its `head`. options: device, dtype, english_prefix.

    Raises MilcoError if the encoder is not XLM-R, or a tensor is missing or of another shape than config.json states.
    """
    head: Any = checkpoint.head
    with loading(head, "a linear layer with weight and bias"):
        layer = torch.load(head, map_location="cpu", weights_only=True)
        weight, bias = layer["weight"].float(), layer["bias"].float()
    validate_weights(head, {"weight": weight, "bias": bias})
    if weight.ndim != 2 or len(weight) != 1 or bias.shape != (1,):
        raise MilcoError(f"{head} is a layer of shape {tuple(weight.shape)}, not one weight for each token")
    values, directory = checkpoint.config, checkpoint.directory
    if values.get("model_type") != _ENCODER:
        raise MilcoError(f"{head} is next to a {values.get('model_type')} encoder: BGE-M3's is of type {_ENCODER}")
    sizes = {"english_hidden_size": 1, "english_vocab_size": 0}
    fields: dict[str, Any] = {"encoder": values, **sizes, "source_pool": "max", "source_drop_special": True}
    config = make_config(NetworkConfig, directory, fields)
    saved = read_tensors(checkpoint)
    tensors = rename_tensors({f"m_model.{_PREFIX.sub('', name)}": tensor for name, tensor in saved.items()})
    tensors |= {"echo.weight": weight, "echo.bias": bias, "echo.scale": torch.ones(1)}
    # Without an English vocabulary the connector is unused; as zeros it does not change the hash of the weights.
    unused: dict[str, tuple[int, ...]] = {"projector.weight": (1, config.encoder.hidden_size), "dense.weight": (1, 1)}
    unused |= dict.fromkeys(("projector.bias", "dense.bias", "layer_norm.weight", "layer_norm.bias"), (1,))
    tensors |= {f"connector.{name}": torch.zeros(shape) for name, shape in unused.items()}
    tensors |= {"decoder.weight": torch.zeros(0, 1), "decoder.bias": torch.zeros(0)}
    length = checkpoint.text_length(config.token_limit)
    network = make_network(directory, fields | {"query_max_length": length, "passage_max_length": length}, tensors)
    return MilcoEncoder(network, checkpoint.tokenizer, checkpoint.english_tokenizer, checkpoint.name, *options)
