"""Fold case: a network whose tokenizer writes texts in lower case, with the vocabulary that such texts need."""

import json
from copy import deepcopy
from pathlib import Path

import torch

from milco_pyserini.console import log
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.model.tokenization import TextTokenizer

from .base import SPECIAL_TOKENS, Base, make_tokenizer, to_xlm_r

_WORDS = "encoder.embeddings.word_embeddings.weight"


def fold_case(encoder: MilcoEncoder, base: Base) -> MilcoEncoder:
    """Return an encoder that reads texts in lower case. Pieces with capitals go, and their lower case comes.

    Args:
        encoder: with the embeddings of the base, of some of its pieces.
        base: has the pieces that come, where it knows them.
    """
    scores = dict(map(tuple, json.loads(encoder.tokenizer.tokenizer.to_str())["model"]["vocab"]))
    rows = {piece: number for number, (piece, _) in enumerate(base.pieces)}
    lowered = {piece if piece in SPECIAL_TOKENS else piece.lower() for piece in scores}
    kept = sorted(rows[piece] for piece in lowered if piece in rows)
    log(f"Vocabulary in lower case: {len(kept):,} of {len(scores):,} pieces")
    model = encoder.model
    config = deepcopy(model.config)
    config.encoder.vocab_size = len(kept)
    words = to_xlm_r(base.state(), kept)[_WORDS.removeprefix("encoder.")]
    new = MilcoModel.from_tensors(config, {**model.state_dict(), _WORDS: words}, Path(encoder.name))
    same = [number for number, row in enumerate(kept) if base.pieces[row][0] in scores]
    old = {piece: number for number, piece in enumerate(encoder.tokenizer.pieces)}
    places = [old[base.pieces[kept[number]][0]] for number in same]
    assert torch.equal(words[same], model.state_dict()[_WORDS][places]), "the embeddings are not the base's"
    tokenizer = make_tokenizer([base.pieces[row] for row in kept], folds_case=True)
    return MilcoEncoder(new, TextTokenizer(tokenizer), encoder.english_tokenizer, encoder.name, "cpu", "float32")
