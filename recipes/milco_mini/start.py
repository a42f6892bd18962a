"""Write the start of training: the base with a new connector and English head, and the base as the dense teacher."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from milco_pyserini.console import log
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.io.files import atomic_directory, write_json
from milco_pyserini.model.modeling import MilcoConfig, MilcoModel
from milco_pyserini.model.tokenization import TextTokenizer

from .base import Base, choose_pieces, configuration, make_tokenizer, to_xlm_r, write_tokenizer

# Pieces that are kept because they are probable, and occurrences in the training data from which any other one is.
_FREQUENT_PIECES, _LEAST_OCCURRENCES = 60_000, 3
# GELU is close to the identity around this value, and LayerNorm subtracts it again.
_LINEAR = 2.5
# Norm of a decoder row and level of the logits: a text's own words are above 0, nearly all others are not.
_ROW_NORM, _LEVEL = 0.12, -0.6
# Prefixes that the base was trained with.
_QUERY, _PASSAGE = "query: ", "passage: "
_BATCH = 512


def write_start(base: Base, english: Tokenizer, texts: Iterable[str], start: Path, teacher: Path) -> None:
    """Write a MILCO checkpoint to start, and the base as a dense encoder to teacher.

    Args:
        base: the encoder.
        english: tokenizer whose pieces are the pivot terms.
        texts: of the languages to keep.
        start, teacher: directories that do not exist.
    """
    kept = choose_pieces(base.pieces, texts, _FREQUENT_PIECES, _LEAST_OCCURRENCES)
    log(f"Vocabulary: {len(kept):,} of {len(base.pieces):,} pieces")
    tokenizer = make_tokenizer([base.pieces[piece] for piece in kept])
    state = write_dense(base, kept, tokenizer, teacher)
    values = configuration(base.sizes, len(kept))
    model = connect(values, state, english.get_vocab_size())
    start_decoder(model, tokenizer, [english.id_to_token(i) or "" for i in range(english.get_vocab_size())])
    encoder = MilcoEncoder(model, TextTokenizer(tokenizer), english, str(start), "cpu", "float32")
    with atomic_directory(start, overwrite=False, is_owned=lambda _: False) as directory:
        encoder.save_pretrained(directory)


def write_dense(base: Base, kept: list[int], tokenizer: Tokenizer, output: Path) -> dict[str, Tensor]:
    """Write the base as a dense encoder, and return its tensors by XLM-R's names.

    Args:
        base: the encoder.
        kept: ids of the pieces of the tokenizer.
        tokenizer: as make_tokenizer() returns it.
        output: a directory that does not exist.
    """
    state = to_xlm_r(base.state(), kept)
    with atomic_directory(output, overwrite=False, is_owned=lambda _: False) as directory:
        save_file(state, directory / "model.safetensors", metadata={"format": "pt"})
        config = configuration(base.sizes, len(kept)) | {"architectures": ["XLMRobertaModel"]}
        write_json(directory / "config.json", config)
        prompts = {"query": _QUERY, "document": _PASSAGE}
        write_json(directory / "config_sentence_transformers.json", {"prompts": prompts})
        special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}
        write_tokenizer(tokenizer, directory, kind | special)
    return state


def connect(encoder: dict[str, Any], state: dict[str, Tensor], pieces: int) -> MilcoModel:
    """Return a model whose connector only normalizes the encoder's states, and whose decoder is zero."""
    width = encoder["hidden_size"]
    config = MilcoConfig(
        encoder=encoder,
        english_hidden_size=width,
        english_vocab_size=pieces,
        source_pool="max",
        source_drop_special=True,
        # Every processor is to print the figures of the documentation.
        cpu_dtype="float32",
    )
    model = MilcoModel(config).eval()
    model.encoder.load_state_dict(state)
    connector = model.connector
    with torch.no_grad():
        for layer in (connector.projector, connector.dense):
            layer.weight.copy_(torch.eye(width))
            layer.bias.zero_()
        connector.projector.bias.fill_(_LINEAR)
        for part in (model.decoder, model.echo):
            part.weight.zero_()
            part.bias.zero_()
    return model


@torch.inference_mode()
def start_decoder(model: MilcoModel, tokenizer: Tokenizer, pieces: list[str]) -> None:
    """Set each row of the decoder to the direction of the states of its piece, encoded as a text of its own."""
    first = len(tokenizer.encode(_QUERY).ids) - 1
    rows = [tokenizer.encode(_QUERY + piece.removeprefix("##")).ids for piece in pieces]
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    found = torch.zeros(len(rows), model.config.english_hidden_size)
    total, tokens = torch.zeros(found.shape[1]), 0
    for begin in range(0, len(order), _BATCH):
        numbers = order[begin : begin + _BATCH]
        batch = torch.nn.utils.rnn.pad_sequence([torch.tensor(rows[n]) for n in numbers], True, 1)
        mask = (batch != 1).long()
        states = model.connector(model.encoder(input_ids=batch, attention_mask=mask).last_hidden_state)
        for number, row in zip(numbers, states, strict=True):
            own = row[first : max(first + 1, len(rows[number]) - 1)]
            found[number] = own.mean(dim=0)
            total, tokens = total + own.sum(dim=0), tokens + len(own)
    weight = _ROW_NORM * functional.normalize(found - found.mean(dim=0), dim=1)
    model.decoder.weight.copy_(weight)
    model.decoder.bias.copy_(_LEVEL - weight @ (total / tokens))
