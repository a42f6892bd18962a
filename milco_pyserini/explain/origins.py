"""Which token of a text each of its terms came from: the one whose logit won, or those that the term repeats."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from milco_pyserini.explain.parts import Origin
from milco_pyserini.model.tokenization import replace_lone_surrogates
from milco_pyserini.sparse import SparseBatch

if TYPE_CHECKING:
    from milco_pyserini.encode import MilcoEncoder


@dataclass(frozen=True)
class Reading:
    """What the encoder makes of one text.

    text: what it was given, or the passage that was asked for. read: characters of it that were within the maximum
    length. batch: one vector, with all views of the encoder. origins: by term.
    """

    text: str
    read: int
    batch: SparseBatch
    origins: dict[str, tuple[Origin, ...]]


class _Token(NamedTuple):
    id: int
    piece: str
    start: int
    stop: int


class _Cut(NamedTuple):
    """A text, or the passage that was asked for; its characters within the maximum length, and their tokens."""

    text: str
    read: int
    row: list[_Token]


def read_text(
    encoder: "MilcoEncoder", text: str, max_length: int, lowercase: bool = False, passage: int | None = None
) -> Reading:
    """Encode one text and find out where its terms came from.

    max_length: in tokens, <s> and </s> included. passage: its number, where documents were split at that length.
    Winners are found in float32: in bfloat16 another token may have been ahead by a hair.
    """
    cut = _cut(encoder, replace_lone_surrogates(text), max_length, lowercase, passage)
    batch = encoder.encode_rows([[token.id for token in cut.row]], encoder.views)
    return Reading(cut.text, cut.read, batch, _origins(encoder, cut.row, batch))


def passage_text(encoder: "MilcoEncoder", text: str, max_length: int, lowercase: bool, passage: int) -> str:
    """Return the text of one passage of a document that was split at max_length, without encoding it."""
    return _cut(encoder, replace_lone_surrogates(text), max_length, lowercase, passage).text


def _cut(encoder: "MilcoEncoder", text: str, max_length: int, lowercase: bool, passage: int | None) -> _Cut:
    tokens = _tokens(encoder, text, lowercase)
    before, after = encoder.tokenizer.num_special_tokens
    closing, room = len(tokens) - after, max_length - before - after
    inner = tokens[before:closing] if text.strip() else []
    first = 0 if passage is None else passage * room
    cut = inner[first : first + room]
    if passage is not None and cut:
        begin, end = cut[0].start, cut[-1].stop
        text = text[begin:end]
        cut = [token._replace(start=token.start - begin, stop=token.stop - begin) for token in cut]
    read = len(text) if len(cut) == len(inner) - first or passage is not None else cut[-1].stop
    return _Cut(text, read, [*tokens[:before], *cut, *tokens[closing:]] if cut else [])


def _tokens(encoder: "MilcoEncoder", text: str, lowercase: bool) -> list[_Token]:
    """All tokens with their characters in the text, white space around them left out."""
    encoding = encoder.tokenizer.tokenizer.encode(text.lower() if lowercase else text)
    # Lower case may be longer: İ is two characters then.
    places = np.cumsum([0, *(len(character.lower()) if lowercase else 1 for character in text)])
    spans = np.searchsorted(places, np.array(encoding.offsets).reshape(-1, 2), side="left")
    tokens = []
    for number, piece, (start, stop) in zip(encoding.ids, encoding.tokens, spans.tolist(), strict=True):
        inside = text[start:stop]
        start += len(inside) - len(inside.lstrip())
        tokens.append(_Token(number, piece, start, max(start, start + len(inside.strip()))))
    return tokens


def _origins(encoder: "MilcoEncoder", row: Sequence[_Token], batch: SparseBatch) -> dict[str, tuple[Origin, ...]]:
    if not row:
        return {}
    columns, _ = batch.row(0)
    pivot = columns[columns < batch.english_size]
    logits, echo = token_scores(encoder, [token.id for token in row], pivot)
    terms = encoder.vocabulary.terms
    found: dict[str, tuple[Origin, ...]] = {
        terms[column]: (Origin(row[token].start, row[token].stop, row[token].piece, 1.0),)
        for column, token in zip(pivot.tolist(), logits.argmax(axis=0).tolist(), strict=True)
    }
    ids = np.array([token.id for token in row])
    for column in columns[columns >= batch.english_size].tolist():
        places = np.flatnonzero(ids == column - batch.english_size)
        found[terms[column]] = _repeated(encoder, row, places, echo)
    return found


def _repeated(
    encoder: "MilcoEncoder", row: Sequence[_Token], places: NDArray[np.int64], echo: NDArray[np.float32]
) -> tuple[Origin, ...]:
    """The tokens of a source term with their shares: all where weights are summed, the strongest where not."""
    amounts = echo[places]
    if encoder.model.config.source_pool == "max":
        amounts = np.where(np.arange(len(places)) == amounts.argmax(), amounts, 0)
    whole = float(amounts.sum()) or 1.0
    return tuple(
        Origin(row[place].start, row[place].stop, row[place].piece, amount / whole)
        for place, amount in zip(places.tolist(), amounts.tolist(), strict=True)
        if amount > 0
    )


@torch.inference_mode()
def token_scores(
    encoder: "MilcoEncoder", ids: Sequence[int], columns: NDArray[np.int32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Every token's logit for some English pieces, float32 [S, n], and its echo, float32 [S] (zeros without a head).

    ids: S token ids, <s> and </s> included. columns: n pivot columns. The encoder has encoded something before, so
    that its model is on its device.
    """
    model = encoder.model
    row = torch.tensor([list(ids)], device=encoder.device)
    mask = torch.ones_like(row)
    hidden = model.encoder(input_ids=row, attention_mask=mask).last_hidden_state
    projected = model.connector(hidden)
    wanted = torch.from_numpy(columns.astype(np.int64)).to(encoder.device)
    logits = functional.linear(projected[0], model.decoder.weight[wanted], model.decoder.bias[wanted])
    echo = torch.zeros(len(ids))
    if model.echo is not None:
        echo = model.echo(projected if model.echo.variant == "paper" else hidden, mask.bool())[0]
    return logits.cpu().numpy(), echo.cpu().numpy()
