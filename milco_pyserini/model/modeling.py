"""The MILCO network (ICLR 2026): multilingual encoder, connector, English decoder, LexEcho head."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, PreTrainedModel

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import read_checkpoint
from milco_pyserini.model.configuration import MilcoConfig
from milco_pyserini.model.finding import find_checkpoint, listed
from milco_pyserini.model.loading import loading
from milco_pyserini.model.pooling import log_saturation, max_logits


@dataclass
class MilcoOutput:
    """Output of the network for B texts of S tokens.

    Attributes:
        logits: float32 [B, V_e], the highest logit of each English piece over a text's tokens.
        echo: float32 [B, S], the source weight of each token, >= 0, 0 where masked; None without a LexEcho head.
        hidden: [B, S, D_m], the last hidden states of the multilingual encoder.
    """

    logits: Tensor
    echo: Tensor | None
    hidden: Tensor

    @property
    def pivot(self) -> Tensor:
        """Float32 [B, V_e]: the pivot weight of each English piece, LogSat of its logit, >= 0."""
        return log_saturation(self.logits)


class Connector(nn.Module):
    """Project encoder states into the English space: LayerNorm(GELU(Linear(GELU(Linear(H))))), exact GELU.

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


class SparseEncoderModel(nn.Module):
    """Encoder, connector and decoder for the pivot view, LexEcho head for the source view.

    The reference that PackedForward and PaddedForward are tested against. Subclasses set the five attributes; config is
    a MilcoConfig.
    """

    config: Any
    encoder: Any
    connector: Any
    decoder: nn.Linear
    echo: LexEcho | None

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> MilcoOutput:
        """input_ids, attention_mask: int64 [B, S]; every row has at least one unmasked token."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        projected = self.connector(hidden)
        mask = attention_mask.bool()
        echo = None
        if self.echo is not None:
            echo = self.echo(projected if self.echo.variant == "paper" else hidden, mask)
        logits = max_logits(projected, mask, self.decoder.weight, self.decoder.bias)
        return MilcoOutput(logits, echo, hidden)


class MilcoModel(SparseEncoderModel, PreTrainedModel):
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
            self.echo = LexEcho(english if config.echo_variant == "paper" else multilingual, config.echo_variant)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | LexEcho):
            module.weight.data.normal_(mean=0.0, std=0.02)
            module.bias.data.zero_()

    @classmethod
    def from_pretrained(cls, name_or_path: str | os.PathLike, **variants: Any) -> "MilcoModel":
        """Load a checkpoint, float32, in eval mode.

        Args:
            name_or_path: a directory in our layout or the authors', a hub name, or "mini".
            variants: MilcoConfig fields (configuration.VARIANTS) that replace the checkpoint's: source_pool="max".

        Raises:
            MilcoError: the checkpoint cannot be found or read; a tensor is missing, of another shape or not finite.
        """
        directory = find_checkpoint(os.fspath(name_or_path))
        return cls.from_tensors(*read_checkpoint(directory, variants), directory)

    @classmethod
    def from_tensors(cls, config: MilcoConfig, tensors: Mapping[str, Tensor], directory: Path) -> "MilcoModel":
        """Build the network of a configuration with these tensors, float32, in eval mode.

        Shapes are compared before the network takes memory. Tensors that the network lacks are named on stderr.

        Args:
            config: sizes and variants.
            tensors: by the names of the network's parameters.
            directory: the checkpoint's, for messages.

        Raises:
            MilcoError: the configuration is impossible; a tensor is missing or of another shape; there are more
                encoder layers than config states.
        """
        with loading(directory / "config.json", "a configuration"), torch.device("meta"):
            # Shapes without memory: a wrong size must not exhaust the machine's.
            expected = cls(config).state_dict()
        missing = [name for name in expected if name not in tensors]
        if missing:
            raise MilcoError(f"checkpoint {directory} lacks {listed(missing)}")
        wrong = [
            f"{name} {tuple(tensors[name].shape)} instead of {tuple(tensor.shape)}"
            for name, tensor in expected.items()
            if tensors[name].shape != tensor.shape
        ]
        if wrong:
            raise MilcoError(f"checkpoint {directory} does not fit its configuration: {listed(wrong)}")
        unused = sorted(tensors.keys() - expected.keys())
        if any(name.startswith("encoder.encoder.layer.") for name in unused):
            raise MilcoError(
                f"checkpoint {directory} has more encoder layers than the {config.encoder.num_hidden_layers} of its "
                f"configuration: {listed(unused)}. Correct num_hidden_layers in config.json."
            )
        model = cls(config)
        model.load_state_dict(tensors, strict=False)
        if unused:
            log(f"Checkpoint {directory}: ignored {listed(unused)}, which the network lacks")
        return model.eval()
