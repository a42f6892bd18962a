"""BGE-M3's lexical weights: a text's own pieces, each with the weight that a linear layer gives its state.

A token's weight is relu(w H + b), a repeated piece has the highest of its weights, special pieces have none (Chen et
al., ACL Findings 2024, arXiv:2402.03216). That is MILCO's source view, pooled by maximum, beside an empty English
vocabulary; so a MilcoModel is what is loaded.
"""

import contextlib
import re
import warnings
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.io.hub import fetch_hub_file
from milco_pyserini.model import MilcoModel
from milco_pyserini.model.checkpoint import build_model, make_config, read_tensors, rename_tensors, validate_weights
from milco_pyserini.model.lengths import text_length, token_limit
from milco_pyserini.model.loading import loading

HEAD = "sparse_linear.pt"

_ENCODER = "xlm-roberta"
# What stands before the encoder's names where it was saved as a part of something.
_PREFIX = re.compile(r"^((module|model|roberta)\.)+")
# What a network without English words is not asked.
_UNUSED = ("connector.", "decoder.")


def find_head(name: str, directory: Path) -> Path | None:
    """The file of the linear layer, None if there is none. name: what the checkpoint in this directory was found by.

    The hub is asked for it: beside an encoder that was downloaded for something else it may be missing.
    """
    if (directory / HEAD).is_file():
        return directory / HEAD
    if Path(name).is_dir() or name.count("/") != 1:
        return None
    # A snapshot's directory is named after its revision. If the hub has no such file or cannot be reached: None.
    with contextlib.suppress(MilcoError):
        return fetch_hub_file(name, HEAD, revision=directory.name)
    return None


def load_m3(directory: Path, head: Path) -> MilcoModel:
    """The network of a checkpoint in BGE-M3's layout, float32, in eval mode: an encoder, and the file of the layer.

    Raises MilcoError if the encoder is no XLM-R, or a tensor is missing or of another shape than config.json says.
    """
    weight, bias = _read_head(head)
    path = directory / "config.json"
    values = read_json(path)
    if values.get("model_type") != _ENCODER:
        raise MilcoError(f"{head} is beside a {values.get('model_type')} encoder: BGE-M3's is of type {_ENCODER}")
    # An English vocabulary of no pieces.
    sizes = {"english_hidden_size": 1, "english_vocab_size": 0}
    config = make_config(path, {"encoder": values, **sizes, "source_pool": "max", "source_drop_special": True})
    read = read_tensors(directory)
    tensors = rename_tensors({f"m_model.{_PREFIX.sub('', name)}": tensor for name, tensor in read.items()})
    tensors |= {"echo.weight": weight, "echo.bias": bias, "echo.scale": torch.ones(1)}
    with warnings.catch_warnings():
        # Of tensors without elements, which the empty vocabulary has.
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")
        # Random numbers, though nothing reads them, would give every loading another hash.
        model = build_model(directory, config, tensors, _UNUSED)
    length = text_length(directory, token_limit(model.encoder, config.encoder))
    config.query_max_length = config.passage_max_length = length
    return model


def no_english() -> Tokenizer:
    """The tokenizer of an empty English vocabulary."""
    return Tokenizer(WordLevel({}, unk_token=""))


def _read_head(path: Path) -> tuple[Tensor, Tensor]:
    with loading(path, "a linear layer with weight and bias"):
        layer = torch.load(path, map_location="cpu", weights_only=True)
        weight, bias = layer["weight"].float(), layer["bias"].float()
    validate_weights(path, {"weight": weight, "bias": bias})
    if weight.ndim != 2 or len(weight) != 1 or bias.shape != (1,):
        raise MilcoError(f"{path} is a layer of {tuple(weight.shape)}, not one weight for each token")
    return weight, bias
