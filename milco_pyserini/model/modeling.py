"""The MILCO network (ICLR 2026): multilingual encoder, connector, English decoder, LexEcho head."""

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, PreTrainedModel

from milco_pyserini.model.configuration import MilcoConfig
from milco_pyserini.model.pooling import log_saturation, max_logits


@dataclass
class MilcoOutput:
    """What the network says of B texts of S tokens.

    logits: float32 [B, V_e], highest logit of every English piece over the text's tokens. echo: float32 [B, S],
    weight of every token of the text itself, >= 0, 0 where masked; None without a LexEcho head. hidden: [B, S, D_m],
    the encoder's states.
    """

    logits: Tensor
    echo: Tensor | None
    hidden: Tensor

    @property
    def pivot(self) -> Tensor:
        """Float32 [B, V_e]: weight of every English piece, LogSat of its logit, >= 0."""
        return log_saturation(self.logits)


class Connector(nn.Module):
    """Encoder states to the English space: LayerNorm(GELU(Linear(GELU(Linear(H))))), exact GELU.

    The paper's Z = LayerNorm(Linear(phi(H))) with one more GELU, as the authors' checkpoints have it.
    """

    def __init__(self, multilingual_size: int, english_size: int) -> None:
        super().__init__()
        self.projector = nn.Linear(multilingual_size, english_size)
        self.dense = nn.Linear(english_size, english_size)
        self.layer_norm = nn.LayerNorm(english_size, eps=1e-12)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden: [B, S, D_m]. Returns [B, S, D_e]."""
        return self.layer_norm(functional.gelu(self.dense(functional.gelu(self.projector(hidden)))))


class LexEcho(nn.Module):
    """Weight of each source token: how much of the text's own wording to keep (paper: LexEcho)."""

    def __init__(self, size: int, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.weight = nn.Parameter(torch.zeros(1, size))
        self.bias = nn.Parameter(torch.zeros(1))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """states: [B, S, D], D_m for "linear", D_e for "paper". mask: bool [B, S]. Returns float32 [B, S]."""
        # Sums of products, not a matrix product: autocast would round that to bfloat16, and duplicates add up.
        weights = torch.relu((states.float() * self.weight).sum(dim=-1) + self.bias)
        weights = torch.log1p(weights) if self.variant == "paper" else weights * self.scale
        return weights * mask


class MilcoModel(PreTrainedModel):
    """Text in any language to English terms (pivot view) and its own important tokens (source view)."""

    config_class = MilcoConfig
    base_model_prefix = "milco"
    main_input_name = "input_ids"
    _supports_sdpa = True

    def __init__(self, config: MilcoConfig) -> None:
        super().__init__(config)
        multilingual, english = config.encoder.hidden_size, config.english_hidden_size
        self.encoder = AutoModel.from_config(config.encoder, add_pooling_layer=False, trust_remote_code=False)
        self.connector = Connector(multilingual, english)
        self.decoder = nn.Linear(english, config.english_vocab_size)
        self.echo = None
        if config.echo:
            size = english if config.echo_variant == "paper" else multilingual
            self.echo = LexEcho(size, config.echo_variant)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | LexEcho):
            module.weight.data.normal_(mean=0.0, std=0.02)
            module.bias.data.zero_()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> MilcoOutput:
        """input_ids, attention_mask: int64 [B, S]; every row holds at least <s> and </s>."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        projected = self.connector(hidden)
        mask = attention_mask.bool()
        echo = None
        if self.echo is not None:
            echo = self.echo(projected if self.echo.variant == "paper" else hidden, mask)
        logits = max_logits(projected, mask, self.decoder.weight, self.decoder.bias)
        return MilcoOutput(logits, echo, hidden)

    @classmethod
    def from_pretrained(cls, name_or_path: str | os.PathLike, **variants: Any) -> "MilcoModel":
        """The model of a checkpoint in our layout or the authors', from a directory, the hub, or "mini".

        variants: MilcoConfig fields to change, such as source_pool="max". Returns it in float32 and eval mode.
        Raises MilcoError if it cannot be reached or a tensor is missing, and names which.
        """
        from milco_pyserini.model.checkpoint import find_checkpoint, load_model

        return load_model(find_checkpoint(os.fspath(name_or_path)), variants)
