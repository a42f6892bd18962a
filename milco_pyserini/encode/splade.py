"""SPLADE and its kind: a masked language model whose logits over a text's tokens are weights of its own pieces.

A piece's weight is LogSat of its highest logit over all the tokens, <s> and </s> among them (SPLADE-max; Formal et al.,
2021, arXiv:2109.10086). Special pieces are no terms.
"""

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.model import MilcoConfig, MilcoModel
from milco_pyserini.model.checkpoint import validate_weights
from milco_pyserini.model.lengths import text_length, token_limit
from milco_pyserini.model.loading import loading
from milco_pyserini.model.tokenization import TextTokenizer

_HEAD = "ForMaskedLM"
# Where sentence-transformers keep how they pool, and that queries are encoded by something else.
_POOLING = "*_SpladePooling/config.json"
_POOLED_BY = {"pooling_strategy": "max", "activation_function": "relu"}
_ROUTER = "router_config.json"
# Tokens that tell whether the decoder is the last step.
_PROBED = 8


class SpladeModel(MilcoModel):
    """A masked language model in the parts of a MilcoModel, whose forward() it has: the pivot view alone.

    encoder: the model up to its decoder. connector: nothing. decoder: of the first pieces; those that are silent have a
    logit of -inf, whatever the text. length: tokens of queries and of passages.
    """

    def __init__(
        self, model: PreTrainedModel, decoder: nn.Linear, pieces: int, silent: Sequence[int], length: int
    ) -> None:
        config = MilcoConfig(
            # A copy: what holds a configuration changes how its network attends.
            encoder=copy.deepcopy(model.config),
            english_hidden_size=decoder.in_features,
            english_vocab_size=pieces,
            echo=False,
            query_max_length=length,
            passage_max_length=length,
        )
        # Not MilcoModel's own, which would build an encoder and a connector.
        super(MilcoModel, self).__init__(config)
        self.encoder = _States(model)
        self.add_module("connector", nn.Identity())
        self.decoder = _piece_decoder(decoder, pieces, silent)
        self.echo = None
        self.requires_grad_(False).eval()

    def save_pretrained(self, *_: Any, **__: Any) -> None:
        """Raises MilcoError: in MILCO's layout there is no place for another network's head."""
        raise MilcoError("a masked language model cannot be saved as a MILCO checkpoint: copy its own directory")


class _States(nn.Module):
    """A masked language model without its decoder, as an encoder: the states that the decoder would take."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.config = model.config
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.model(input_ids=input_ids, attention_mask=attention_mask).logits)


def is_masked_language_model(config: dict) -> bool:
    """Whether a checkpoint's config.json says so."""
    return any(str(name).endswith(_HEAD) for name in config.get("architectures") or ())


def load_splade(directory: Path, tokenizer: TextTokenizer) -> SpladeModel:
    """The network of a masked language model's checkpoint, float32. tokenizer: its own.

    Raises MilcoError if the checkpoint cannot be read, if it lacks its head, or if it says that its vectors are made in
    another way than SPLADE-max.
    """
    _check_pooling(directory)
    model = load_masked_language_model(directory, "encoder")
    decoder = take_off_decoder(model)
    if decoder is None:
        raise MilcoError(
            f"encoder {directory}: the logits of a {type(model).__name__} are not one matrix product of its states, "
            "which is what a SPLADE encoder needs"
        )
    pieces = len(tokenizer.pieces)
    if pieces > decoder.out_features:
        raise MilcoError(
            f"encoder {directory}: its tokenizer has {pieces:,} pieces, its head scores {decoder.out_features:,}"
        )
    length = text_length(directory, token_limit(model, model.config))
    return SpladeModel(model, decoder, pieces, tokenizer.special_ids, length)


def load_masked_language_model(directory: Path, kind: str) -> PreTrainedModel:
    """The masked language model of a checkpoint, float32, in eval mode. Errors call it kind.

    Raises MilcoError if it cannot be read, or lacks the head.
    """
    from transformers import AutoModelForMaskedLM

    with loading(directory, "a masked language model"):
        model, report = AutoModelForMaskedLM.from_pretrained(
            directory, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
        )
    validate_weights(directory, dict(model.named_parameters()))
    missing = sorted(report["missing_keys"])
    if missing:
        raise MilcoError(
            f"{kind} {directory} lacks {', '.join(missing[:4])}: it needs a trained masked language model's head, "
            "as SPLADE has one"
        )
    return model.eval()


@torch.no_grad()
def take_off_decoder(model: PreTrainedModel) -> nn.Linear | None:
    """Cut the last matrix product off a masked language model and return it: its logits are the decoder's states then.

    It has a bias, of zeros where it had none. None, and the model as it was, where more than this product makes the
    logits. That is tried, not known by class.
    """
    decoder = model.get_output_embeddings()
    names = [name for name, module in model.named_modules() if module is decoder]
    if not isinstance(decoder, nn.Linear) or not names:
        return None
    parent, _, leaf = names[0].rpartition(".")
    probe = torch.arange(min(_PROBED, decoder.out_features), device=decoder.weight.device).unsqueeze(0)
    inputs = {"input_ids": probe, "attention_mask": torch.ones_like(probe)}
    wanted = model(**inputs).logits
    setattr(model.get_submodule(parent), leaf, nn.Identity())
    try:
        rebuilt = functional.linear(model(**inputs).logits, decoder.weight, decoder.bias)
        if torch.allclose(rebuilt, wanted, rtol=1e-4, atol=1e-4):
            if decoder.bias is None:
                decoder.bias = nn.Parameter(decoder.weight.new_zeros(decoder.out_features), requires_grad=False)
            return decoder
    except (AttributeError, RuntimeError):
        # What the model does with its decoder, or after it, is more than to call it.
        pass
    setattr(model.get_submodule(parent), leaf, decoder)
    return None


def _piece_decoder(decoder: nn.Linear, pieces: int, silent: Sequence[int]) -> nn.Linear:
    """The decoder of the first pieces: it may be wider than its vocabulary, for the sake of the hardware."""
    cut = nn.Linear(decoder.in_features, pieces, device="meta")
    cut.weight = nn.Parameter(decoder.weight.detach()[:pieces], requires_grad=False)
    bias = decoder.bias.detach()[:pieces].clone()
    bias[list(silent)] = -torch.inf
    cut.bias = nn.Parameter(bias, requires_grad=False)
    return cut


def _check_pooling(directory: Path) -> None:
    if (directory / _ROUTER).is_file():
        raise MilcoError(
            f"encoder {directory} encodes queries and documents in two ways ({_ROUTER}): only encoders that treat both "
            "alike are read"
        )
    for path in sorted(directory.glob(_POOLING)):
        said = read_json(path)
        for field, value in _POOLED_BY.items():
            if said.get(field, value) != value:
                raise MilcoError(f"{os.fspath(path)}: {field} {said[field]!r}, and only {value!r} is read")
