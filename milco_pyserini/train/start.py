"""The model that a training run starts from: a MILCO checkpoint, or a multilingual encoder and an English head."""

import re

import torch
from torch import Tensor, nn
from transformers import AutoModel

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.model import MilcoConfig, MilcoModel, find_checkpoint
from milco_pyserini.model.loading import loading, validate_weights
from milco_pyserini.model.modeling import LexEcho
from milco_pyserini.model.tokenization import load_tokenizer
from milco_pyserini.train.mlm_teacher import open_masked_language_model
from milco_pyserini.train.recipe import TrainingOptions
from milco_pyserini.train.trainer import freeze_parts

# The head of BERT, RoBERTa and DistilBERT checkpoints under our names.
_HEAD = (
    (re.compile(r"^(cls\.predictions\.transform\.dense|lm_head\.dense|vocab_transform)\."), "connector.dense."),
    (
        re.compile(r"^(cls\.predictions\.transform\.LayerNorm|lm_head\.layer_norm|vocab_layer_norm)\."),
        "connector.layer_norm.",
    ),
    (re.compile(r"^(cls\.predictions\.decoder|lm_head\.decoder|vocab_projector)\."), "decoder."),
)
_HEAD_TENSORS = ("connector.dense", "connector.layer_norm", "decoder")


def starting_encoder(options: TrainingOptions, echo: bool) -> MilcoEncoder:
    """The model of --model, or of --encoder and --english, with its tokenizers; on the CPU, float32, in training mode.

    echo: it needs a LexEcho head; a checkpoint without one gets a new one. Without it, a head that is there is frozen,
    as are the parts with learning rate 0. Raises MilcoError if it cannot be had.
    """
    if options.model is not None:
        started = MilcoEncoder.from_pretrained(options.model, device="cpu", dtype="float32")
    elif options.encoder is not None and options.english is not None:
        torch.manual_seed(options.seed)
        started = _from_parts(options.encoder, options.english)
    else:
        raise MilcoError("nothing to start from: give --model, or --encoder and --english together")
    if echo and started.model.echo is None:
        _add_echo(started.model, options.seed)
    if not echo and started.model.echo is not None:
        # Of a parameter that can be trained and has no gradient, distributed training makes an error.
        started.model.echo.requires_grad_(False)
    freeze_parts(started.model, options)
    started.model.train()
    return started


def _add_echo(model: MilcoModel, seed: int) -> None:
    torch.manual_seed(seed)
    config = model.config
    config.echo = True
    size = config.english_hidden_size if config.echo_variant == "paper" else config.encoder.hidden_size
    model.echo = LexEcho(size, config.echo_variant)
    model._init_weights(model.echo)


def _from_parts(encoder_name: str, english_name: str) -> MilcoEncoder:
    """A new connector between a pretrained encoder and the head of an English masked language model."""
    directory = find_checkpoint(encoder_name)
    with loading(directory, "a multilingual encoder"):
        encoder = AutoModel.from_pretrained(
            directory, add_pooling_layer=False, dtype=torch.float32, trust_remote_code=False
        )
    validate_weights(directory, dict(encoder.named_parameters()))
    english, english_tokenizer = open_masked_language_model(english_name)
    pieces = len(english_tokenizer)
    head = _head(english, english_name)
    # A decoder may be wider than its vocabulary, for the sake of the hardware.
    head |= {name: head[name][:pieces] for name in ("decoder.weight", "decoder.bias")}
    config = MilcoConfig(
        encoder=encoder.config.to_dict(),
        english_hidden_size=head["connector.dense.weight"].shape[0],
        english_vocab_size=pieces,
        echo=False,
    )
    model = MilcoModel(config)
    model.encoder.load_state_dict(encoder.state_dict())
    model.load_state_dict(head, strict=False)
    tokenizer = load_tokenizer(directory)
    return MilcoEncoder(model, tokenizer, english_tokenizer.backend_tokenizer, encoder_name, "cpu", "float32")


def _head(model: nn.Module, name: str) -> dict[str, Tensor]:
    found = {}
    for key, tensor in model.state_dict().items():
        for pattern, ours in _HEAD:
            if pattern.match(key):
                found[pattern.sub(ours, key)] = tensor
    lacking = [
        f"{part}.{kind}" for part in _HEAD_TENSORS for kind in ("weight", "bias") if f"{part}.{kind}" not in found
    ]
    if lacking:
        raise MilcoError(
            f"--english {name}: its head is not one that is known (BERT, RoBERTa, DistilBERT): no {lacking[0]}"
        )
    return found
