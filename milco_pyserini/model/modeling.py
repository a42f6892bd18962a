"""The MILCO network (ICLR 2026): multilingual encoder, connector, English decoder, LexEcho head."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel, XLMRobertaConfig
from transformers.activations import ACT2FN

from milco_pyserini.errors import unknown_name
from milco_pyserini.model.checkpoint import Checkpoint, loading
from milco_pyserini.model.configuration import MODEL_TYPE, NetworkConfig, encoder_values, validate_encoder_sizes
from milco_pyserini.model.layouts import read_checkpoint
from milco_pyserini.model.pooling import CONNECTOR_EPS, echo_weights, log_saturation, max_logits
from milco_pyserini.model.quantized import Weights
from milco_pyserini.model.weights import NetworkWeights, make_config, select_tensors

__all__ = ["MilcoConfig", "MilcoModel"]


class MilcoConfig(NetworkConfig, PretrainedConfig):
    """Configuration of a MilcoModel: the fields and errors of NetworkConfig, and transformers' own.

    encoder: an object or a dict, of any encoder with BERT's names of tensors (default: XLM-R large).
    """

    model_type = MODEL_TYPE
    sub_configs = {"encoder": AutoConfig}  # type: ignore[dict-item]  # noqa: RUF012
    # In transformers 5, a class without an __init__ of its own gets that of a dataclass.
    __init__ = NetworkConfig.__init__

    def _encoder_config(self, encoder: Any) -> PretrainedConfig:
        if isinstance(encoder, PretrainedConfig):
            return encoder
        if encoder is None:
            return XLMRobertaConfig(
                vocab_size=250002,
                hidden_size=1024,
                num_hidden_layers=24,
                num_attention_heads=16,
                intermediate_size=4096,
                max_position_embeddings=8194,
                type_vocab_size=1,
                layer_norm_eps=1e-5,
            )
        values = encoder_values(encoder)
        if values.get("hidden_act", "gelu") not in ACT2FN:
            raise unknown_name("encoder.hidden_act", values["hidden_act"], ACT2FN)
        config = AutoConfig.for_model(values.pop("model_type"), **values)
        validate_encoder_sizes(config)
        return config

    def _set_others(self, others: dict[str, Any]) -> None:
        PretrainedConfig.__init__(self, **others)


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
        self.layer_norm = nn.LayerNorm(english_size, eps=CONNECTOR_EPS)

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
        # The paper's variant has no scale, and distributed training fails if a trainable parameter gets no gradient.
        self.scale = nn.Parameter(torch.ones(1), requires_grad=variant != "paper")

    def forward(self, tokens: Tensor, hidden: Tensor, projected: Tensor, mask: Tensor) -> Tensor:
        """tokens, hidden, projected: [B, S, ...], as for echo_weights(). mask: bool [B, S]. Returns float32 [B, S]."""
        return echo_weights(tokens, hidden, projected, self.variant, self.weight, self.bias, self.scale) * mask


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
        echo = None if self.echo is None else self.echo(input_ids, hidden, projected, mask)
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
        self.echo = LexEcho(config.echo_size, config.echo_variant) if config.echo else None
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | LexEcho):
            module.weight.data.normal_(mean=0.0, std=0.02)
            module.bias.data.zero_()
        if isinstance(module, LexEcho) and module.variant == "token":
            # All tokens begin equal: relu would never teach one that begins below 0.
            module.weight.data.fill_(1.0)

    @classmethod
    def from_pretrained(cls, name_or_path: str | os.PathLike | Checkpoint, **variants: Any) -> "MilcoModel":
        """Load a checkpoint, float32, in eval mode.

        Args:
            name_or_path: a directory in our layout or the authors', a hub name, or "mini".
            variants: MilcoConfig fields (configuration.VARIANTS) that replace the checkpoint's: source_pool="max".

        Raises:
            MilcoError: the checkpoint cannot be found or read; a tensor is missing, of another shape or not finite.
        """
        checkpoint = Checkpoint.open(name_or_path)
        values, tensors = read_checkpoint(checkpoint, variants)
        config = make_config(MilcoConfig, checkpoint.directory, values, variants)
        return cls.from_tensors(config, tensors, checkpoint.directory)

    @classmethod
    def from_weights(cls, weights: NetworkWeights) -> "MilcoModel":
        """Return the network of weights as modules, which share the tensors."""
        config = MilcoConfig(**{**vars(weights.config), "encoder": vars(weights.config.encoder)})
        # Modules that are made in inference mode can never be trained.
        with torch.inference_mode(False):
            return cls.from_tensors(config, weights.state_dict(), weights.directory)

    @classmethod
    def from_tensors(cls, config: MilcoConfig, tensors: Weights, directory: Path) -> "MilcoModel":
        """Build the network of a configuration over these tensors, in eval mode. float32 tensors are not copied.

        Shapes are compared before the network takes memory. Tensors that the network lacks are named on stderr.

        Args:
            config: sizes and variants.
            tensors: by the names of the network's parameters.
            directory: the checkpoint's, for messages.

        Raises:
            MilcoError: the configuration is impossible; a tensor is missing or of another shape; there are more
                encoder layers than config states.
        """
        with loading(directory / "config.json", "a configuration"), torch.device("meta"), warnings.catch_warnings():
            # An English vocabulary may be empty.
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")
            model = cls(config)
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        selected = select_tensors(directory, shapes, tensors)
        model.load_state_dict({name: tensor.float() for name, tensor in selected.items()}, assign=True)
        # Constants of transformers that no checkpoint has: the frequencies of rotary positions, or the number of each
        # position and 0 for each token's type.
        if hasattr(model.encoder, "rotary_emb"):
            model.encoder.rotary_emb = type(model.encoder.rotary_emb)(config.encoder)
        else:
            embeddings = model.encoder.embeddings
            embeddings.position_ids = torch.arange(config.encoder.max_position_embeddings).expand((1, -1))
            embeddings.token_type_ids = torch.zeros_like(embeddings.position_ids)
        return model.eval()
