"""SPLADE-type encoders: masked language models whose pooled logits are the weights of their own vocabulary.

The weight of a piece is LogSat of its highest logit over all tokens, <s> and </s> included (SPLADE-max; Formal et al.,
2021, arXiv:2109.10086). Special tokens are never terms.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.model.checkpoint import Checkpoint, token_limit
from milco_pyserini.model.modeling import MilcoConfig, SparseEncoderModel

# sentence-transformers' files: how logits are pooled, and that queries have an encoder of their own.
_POOLING = "*_SpladePooling/config.json"
_SUPPORTED_POOLING = {"pooling_strategy": "max", "activation_function": "relu"}
_ROUTER = "router_config.json"
# Tokens of the probe that shows whether the decoder is the last step.
_PROBE_TOKENS = 8


class SpladeModel(SparseEncoderModel):
    """A masked language model as a pivot view over its own vocabulary.

    Args:
        model: the masked language model without its decoder: its logits are the decoder's input.
        decoder: the output matrix; it may have more rows than there are pieces.
        pieces: size of the vocabulary.
        special_ids: pieces with a logit of -inf, whatever the text.
        length: default maximum length of queries and passages, in tokens.
    """

    def __init__(
        self, model: PreTrainedModel, decoder: nn.Linear, pieces: int, special_ids: Sequence[int], length: int
    ) -> None:
        super().__init__()
        self.config = MilcoConfig(
            # A copy: a configuration that contains another one sets its attention implementation.
            encoder=copy.deepcopy(model.config),
            english_hidden_size=decoder.in_features,
            english_vocab_size=pieces,
            echo=False,
            query_max_length=length,
            passage_max_length=length,
        )
        self.encoder = _HiddenStates(model)
        self.connector = nn.Identity()
        self.decoder = nn.Linear(decoder.in_features, pieces, device="meta")
        self.decoder.weight = nn.Parameter(decoder.weight.detach()[:pieces])
        bias = decoder.bias.detach()[:pieces].clone()
        bias[list(special_ids)] = -torch.inf
        self.decoder.bias = nn.Parameter(bias)
        self.echo = None
        self.requires_grad_(False).eval()


class _HiddenStates(nn.Module):
    """A masked language model without its decoder, with the output of an encoder."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.config = model.config
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.model(input_ids=input_ids, attention_mask=attention_mask).logits)


def load(checkpoint: Checkpoint, *options: Any) -> MilcoEncoder:
    """Load a masked language model's checkpoint, float32. options: device, dtype, english_prefix of MilcoEncoder.

    Raises MilcoError if the checkpoint cannot be read, lacks its head, or states another pooling than SPLADE-max.
    """
    directory, tokenizer = checkpoint.directory, checkpoint.tokenizer
    if (directory / _ROUTER).is_file():
        message = f"encoder {directory} encodes queries and documents differently ({_ROUTER})"
        raise MilcoError(message, Message("Load it by sentence-transformers: {encoder}.", encoder="st:NAME"))
    for path in sorted(directory.glob(_POOLING)):
        config = read_json(path)
        for field, value in _SUPPORTED_POOLING.items():
            if config.get(field, value) != value:
                fix = Message("Load it by sentence-transformers: {encoder}.", encoder="st:NAME")
                raise MilcoError(f"{path}: {field} {config[field]!r} is not supported, only {value!r}", fix)
    model = load_masked_language_model(checkpoint)
    length = checkpoint.text_length(token_limit(model, model.config))
    decoder = take_off_decoder(model)
    if decoder is None:
        raise MilcoError(
            f"encoder {directory}: the logits of a {type(model).__name__} are not one matrix product of its states, "
            "which a SPLADE encoder needs"
        )
    pieces = len(tokenizer.pieces)
    if pieces > decoder.out_features:
        raise MilcoError(
            f"encoder {directory}: its tokenizer has {pieces:,} pieces, its head scores {decoder.out_features:,}"
        )
    network = SpladeModel(model, decoder, pieces, tokenizer.special_ids, length)
    return MilcoEncoder(network, tokenizer, checkpoint.english_tokenizer, checkpoint.name, *options)


def load_masked_language_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """Load a masked language model, float32, in eval mode.

    Raises MilcoError if it cannot be read, or lacks its head.
    """
    from transformers import AutoModelForMaskedLM

    model, missing = checkpoint.load_model(AutoModelForMaskedLM, "a masked language model", dtype=torch.float32)
    if missing:
        raise MilcoError(
            f"{checkpoint.noun} {checkpoint.directory} lacks {', '.join(missing[:4])}: it needs a trained masked "
            "language model's head, like SPLADE's"
        )
    return model


@torch.no_grad()
def take_off_decoder(model: PreTrainedModel) -> nn.Linear | None:
    """Remove the last matrix product from a masked language model, which then returns the decoder's input as logits.

    Whether the decoder is the last step is tested on a probe, not known by class.

    Returns:
        The decoder, with a bias of zeros if it had none; None, with the model unchanged, if it is not the last step.
    """
    decoder = model.get_output_embeddings()
    names = [name for name, module in model.named_modules() if module is decoder]
    if not isinstance(decoder, nn.Linear) or not names:
        return None
    parent, _, leaf = names[0].rpartition(".")
    probe = torch.arange(min(_PROBE_TOKENS, decoder.out_features), device=decoder.weight.device).unsqueeze(0)
    inputs = {"input_ids": probe, "attention_mask": torch.ones_like(probe)}
    expected = model(**inputs).logits
    setattr(model.get_submodule(parent), leaf, nn.Identity())
    try:
        rebuilt = functional.linear(model(**inputs).logits, decoder.weight, decoder.bias)
        if torch.allclose(rebuilt, expected, rtol=1e-4, atol=1e-4):
            if decoder.bias is None:
                decoder.bias = nn.Parameter(decoder.weight.new_zeros(decoder.out_features), requires_grad=False)
            return decoder
    except (AttributeError, RuntimeError):
        # The model does more with its decoder, or with its logits, than to call it.
        pass
    setattr(model.get_submodule(parent), leaf, decoder)
    return None
