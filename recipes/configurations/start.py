"""The starting checkpoints of the configurations: an encoder and a head with an untrained connector.

The paper starts from a multilingual encoder, an English head and a new connector. In milco-mini the connector joins
the two by construction, so it is replaced by a random rotation: all information passes, which makes it trainable in a
few hundred steps, but the terms are those of another text. There is no LexEcho head: as in the paper, SCT adds one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from torch import nn

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.io.files import atomic_directory
from milco_pyserini.model.modeling import MilcoConfig, MilcoModel
from milco_pyserini.model.tokenization import TextTokenizer

# GELU(x + 4) is nearly x + 4, so a layer lifted by 4 is an identity; LayerNorm removes the 4.
_LIFT, _SHRINK = 4.0, 0.5
_UNKNOWN = "<unk>"
# Terms per token under the new multilingual head, about as many as the English head has at the start.
_TERMS_PER_TOKEN = 2.0
_SAMPLE = 2000


def write_pivot_start(name: str, seed: int, directory: Path) -> None:
    """Write a checkpoint with a new connector and without a LexEcho head. Does nothing if the directory exists."""
    if directory.exists():
        return
    encoder = _without_echo(name)
    torch.manual_seed(seed)
    connector = encoder.model.connector
    _rotate(connector.projector, _SHRINK, lifted=False)
    _pass_through(connector.dense, 1.0, lifted=True)
    _reset(connector.layer_norm)
    _save(encoder, directory)


def write_multilingual_start(name: str, seed: int, texts: Iterable[str], directory: Path) -> None:
    """Write a checkpoint's encoder with a head over its own tokens (the paper's noMILCO).

    The decoder starts as the tokens' embeddings, the head's transform as a random rotation (connector.dense), and the
    projector, which such a model does not have, as an identity that must not be trained.

    Args:
        name: of the checkpoint.
        seed: of the rotation.
        texts: the training data. Only tokens that occur in them are output terms: training would not reach the others.
        directory: nothing is done if it exists.
    """
    if directory.exists():
        return
    encoder = _without_echo(name)
    ids = occurring_pieces(encoder.tokenizer, texts)
    torch.manual_seed(seed)
    model = _multilingual_model(encoder.model, ids)
    pieces = [encoder.tokenizer.pieces[number] for number in ids]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    # It only names the columns: nothing is tokenized with it.
    names = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))
    _save(MilcoEncoder(model, encoder.tokenizer, names, name, "cpu", "float32"), directory)


def occurring_pieces(tokenizer: TextTokenizer, texts: Iterable[str]) -> list[int]:
    """Return the unknown token, then the ids of the texts' tokens, most frequent first."""
    unknown = tokenizer.pieces.index(_UNKNOWN)
    special = {*tokenizer.special_ids, unknown}
    seen = Counter(number for ids in tokenizer.ids(list(texts)) for number in ids if number not in special)
    return [unknown, *(number for number, _ in seen.most_common())]


def _without_echo(name: str) -> MilcoEncoder:
    encoder = MilcoEncoder.from_pretrained(name, device="cpu", dtype="float32")
    encoder.model.echo, encoder.model.config.echo = None, False
    return encoder


def _multilingual_model(start: MilcoModel, ids: Sequence[int]) -> MilcoModel:
    size = start.config.encoder.hidden_size
    values = {**start.config.to_dict(), "english_hidden_size": size, "english_vocab_size": len(ids)}
    model = MilcoModel(MilcoConfig(**values))
    model.encoder.load_state_dict(start.encoder.state_dict())
    connector = model.connector
    _pass_through(connector.projector, _SHRINK, lifted=False)
    _rotate(connector.dense, 1.0, lifted=True)
    _reset(connector.layer_norm)
    with torch.no_grad():
        rows = start.encoder.embeddings.word_embeddings.weight[list(ids)]
        model.decoder.weight.copy_(rows * (start.decoder.weight.norm(dim=1).mean() / rows.norm(dim=1).mean()))
        model.decoder.bias.fill_(_threshold(model, ids))
    return model


def _threshold(model: MilcoModel, ids: Sequence[int]) -> float:
    """Return the bias with which a token has about _TERMS_PER_TOKEN terms."""
    sample = torch.tensor(ids[: min(_SAMPLE, len(ids))]).unsqueeze(1)
    states = model.encoder(input_ids=sample, attention_mask=torch.ones_like(sample)).last_hidden_state
    logits = model.connector(states)[:, 0] @ model.decoder.weight.T
    kept = min(logits.numel(), round(_TERMS_PER_TOKEN * len(sample)))
    return -logits.flatten().topk(kept).values[-1].item()


@torch.no_grad()
def _rotate(layer: nn.Linear, scale: float, lifted: bool) -> None:
    nn.init.orthogonal_(layer.weight, scale)
    _lift(layer, lifted)


@torch.no_grad()
def _pass_through(layer: nn.Linear, scale: float, lifted: bool) -> None:
    nn.init.eye_(layer.weight)
    layer.weight.mul_(scale)
    _lift(layer, lifted)


def _lift(layer: nn.Linear, lifted: bool) -> None:
    """Set the bias. lifted: the input is lifted already."""
    layer.bias.copy_(_LIFT - _LIFT * layer.weight.sum(dim=1) * lifted)


@torch.no_grad()
def _reset(norm: nn.LayerNorm) -> None:
    norm.weight.fill_(1.0)
    norm.bias.zero_()


def _save(encoder: MilcoEncoder, directory: Path) -> None:
    with atomic_directory(directory, overwrite=False, is_owned=lambda _: False) as partial:
        encoder.save_pretrained(partial)
