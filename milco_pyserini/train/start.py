"""The model that a training run starts from: a MILCO checkpoint, or a multilingual encoder and an English head."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import AutoModel

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import Message, MilcoError, ParameterError
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.modeling import LexEcho, MilcoConfig, MilcoModel
from milco_pyserini.train.config import ContrastOptions, StartOptions
from milco_pyserini.train.teachers import open_english_model

# Parameter names of BERT, RoBERTa and DistilBERT heads, and ours.
_HEAD_NAMES = {
    r"^(cls\.predictions\.transform\.dense|lm_head\.dense|vocab_transform)\.": "connector.dense.",
    r"^(cls\.predictions\.transform\.LayerNorm|lm_head\.layer_norm|vocab_layer_norm)\.": "connector.layer_norm.",
    r"^(cls\.predictions\.decoder|lm_head\.decoder|vocab_projector)\.": "decoder.",
}


def load_start(
    config: StartOptions, seed: int, lengths: Sequence[int], source_view: ContrastOptions | None = None
) -> MilcoEncoder:
    """Load config.model, or connect config.encoder and config.english, on the CPU, in float32 and training mode.

    Args:
        seed: of new weights.
        lengths: of texts in tokens, for which it must have positions.
        source_view: a LexEcho head is added where the checkpoint has none; without, a head is frozen.

    Raises:
        MilcoError: a checkpoint cannot be loaded, or has a head of another variant, or too few positions.
    """
    if config.model is not None:
        encoder = MilcoEncoder.from_pretrained(config.model, device="cpu", dtype="float32")
    elif config.encoder is not None and config.english is not None:
        torch.manual_seed(seed)
        encoder = connect(config.encoder, config.english)
    else:
        raise MilcoError("no starting point", Message("Give {model}, or {encoder} and {english} together."))
    model = encoder.model
    if source_view is not None:
        variant = source_view.echo_variant or model.config.echo_variant
        if model.echo is None:
            torch.manual_seed(seed)
            model.config.echo = True
            model.config.echo_variant = variant
            model.echo = LexEcho(model.config.echo_size, variant)
            model._init_weights(model.echo)
        elif variant != model.config.echo_variant:
            rule = f"the model has a LexEcho head of the variant {model.config.echo_variant}"
            raise ParameterError("echo_variant", variant, rule, "Omit it, or start from a model without a head.")
        model.config.source_pool = source_view.source_pool or model.config.source_pool
        model.config.source_drop_special |= source_view.source_drop_special
    elif model.echo is not None:
        # Distributed training fails if a trainable parameter gets no gradient.
        model.echo.requires_grad_(False)
    for length in lengths:
        encoder.network.validate_length(length)
    model.train()
    return encoder


def connect(encoder_name: str, english_name: str) -> MilcoEncoder:
    """Put a new connector between a pretrained encoder and the head of an English masked language model."""
    checkpoint, what = Checkpoint.open(encoder_name), "a multilingual encoder"
    encoder, missing = checkpoint.load_model(AutoModel, what, add_pooling_layer=False, dtype=torch.float32)
    if missing:
        lacking = ", ".join(missing[:3])
        raise ParameterError("encoder", encoder_name, f"lacks weights of its network ({lacking}): download it again")
    english, english_tokenizer = open_english_model(english_name)
    head: dict[str, Tensor] = {}
    for key, tensor in english.state_dict().items():
        for pattern, name in _HEAD_NAMES.items():
            if re.match(pattern, key):
                head[re.sub(pattern, name, key)] = tensor
    for part in ("connector.dense", "connector.layer_norm", "decoder"):
        for name in (f"{part}.weight", f"{part}.bias"):
            if name not in head:
                rule = f"has no {name}: its head must be that of BERT, RoBERTa or DistilBERT"
                raise ParameterError("english", english_name, rule)
    size = len(english_tokenizer)
    # A decoder may be wider than its vocabulary, for alignment in hardware.
    head |= {name: head[name][:size] for name in ("decoder.weight", "decoder.bias")}
    config = MilcoConfig(
        encoder=encoder.config.to_dict(),
        english_hidden_size=head["connector.dense.weight"].shape[0],
        english_vocab_size=size,
        echo=False,
    )
    model = MilcoModel(config)
    model.encoder.load_state_dict(encoder.state_dict())
    model.load_state_dict(head, strict=False)
    return MilcoEncoder(
        model, checkpoint.tokenizer, english_tokenizer.backend_tokenizer, encoder_name, "cpu", "float32"
    )
