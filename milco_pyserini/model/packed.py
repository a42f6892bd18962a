"""The network on the CPU over texts laid end to end, without padding: the fast form of MilcoModel.forward.

Every linear layer takes the real tokens of all texts as one matrix, from weights in the order in which oneDNN
multiplies them (model-notes 2.2 to 2.4). MilcoModel.forward stays the reference; tests hold the one against the other.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import chain, groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PretrainedConfig

from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.model.pooling import VOCABULARY_CHUNK

# Encoders that are made of the same parts: absolute positions from the padding id + 1, LayerNorm after each sum.
_KNOWN = ("xlm-roberta", "roberta", "camembert")
_DTYPES = (torch.float32, torch.bfloat16)
# Tokens whose intermediate states stand in memory at a time: 16 MB of bfloat16 in the widest layer, 8 MB of logits.
_LAYER_TOKENS = 2048
_HEAD_TOKENS = 1024
# oneDNN makes a kernel for each number of rows that it meets, which takes longer than a query's products.
_FEW_ROWS, _MANY_ROWS = 16, 128
# Lengths of texts in tokens for which attention is faster as products over whole texts, and as many scores at a time
# as the allocator keeps: 4 MB of float32.
_SHORTEST_WHOLE, _LONGEST_WHOLE = 64, 1024
_SCORES = 2**20


class NotPacked(ValueError):  # noqa: N818
    """The network is of a kind that PackedForward does not compute; MilcoModel.forward does."""


class Linear:
    """A linear layer in one dtype. Called with states [T, D_in] of that dtype; returns [T, D_out]."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        self.weight = weight.to(dtype)
        self.bias = bias.to(dtype)

    def __call__(self, states: Tensor) -> Tensor:
        return functional.linear(states, self.weight, self.bias)

    def gelu(self, states: Tensor) -> Tensor:
        """The layer and an exact (erf) GELU after it."""
        return functional.gelu(self(states))


class OneDnnLinear(Linear):
    """The same by oneDNN from a packed weight, bias and GELU fused into the product."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous(), _LAYER_TOKENS)
        self.bias = bias.float()

    def __call__(self, states: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")

    def gelu(self, states: Tensor) -> Tensor:
        """The layer and an exact (erf) GELU after it."""
        return torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "gelu", [], "none")


@cache
def linear_kind(dtype: torch.dtype) -> type[Linear]:
    """OneDnnLinear where torch has its operations and they multiply rightly, Linear elsewhere.

    They are private to torch and for some processors only, so one small product of each is compared.
    """
    draw = torch.Generator().manual_seed(0)
    states, weight, bias = (torch.randn(*shape, generator=draw).to(dtype) for shape in ((8, 64), (96, 64), (96,)))
    plain = Linear(weight, bias, dtype)
    close = partial(torch.allclose, rtol=0.02, atol=128 * torch.finfo(dtype).eps)
    try:
        packed = OneDnnLinear(weight, bias, dtype)
        right = close(packed(states), plain(states)) and close(packed.gelu(states), plain.gelu(states))
    except (AttributeError, RuntimeError):
        return Linear
    return OneDnnLinear if right else Linear


class PackedEncoder:
    """The multilingual encoder alone on the CPU, without padding.

    dtype: of the matrix products, float32 or bfloat16; the residual stream, LayerNorm and what it returns are
    float32. Takes the weights as they are at that moment and keeps a packed copy of all but the embeddings. Raises
    NotPacked, with the reason, for a network that it does not compute.
    """

    @torch.inference_mode()
    def __init__(self, encoder: Any, dtype: torch.dtype) -> None:
        reason = why_not_packed(encoder, dtype)
        if reason:
            raise NotPacked(reason)
        self.embeddings = encoder.embeddings
        self.padding_id: int = encoder.config.pad_token_id
        heads = encoder.config.num_attention_heads
        self.layers = [_Layer(layer, heads, dtype) for layer in encoder.encoder.layer]

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """rows: B lists of token ids, <s> and </s> included, none empty; T tokens in all.

        Returns the last states, float32 [R, D_m], R = padded_rows(T), text after text; rows from T on are no token's.
        Equal lengths side by side are fastest.
        """
        lengths = [len(row) for row in rows]
        if not all(lengths):
            raise ValueError(f"row {lengths.index(0)} has no tokens: give <s> and </s> at least")
        ids = np.fromiter(chain.from_iterable(rows), np.int64, sum(lengths))
        positions = packed_positions(ids, lengths, self.padding_id)
        embeddings = self.embeddings
        hidden = embeddings.word_embeddings(torch.from_numpy(ids)) + embeddings.token_type_embeddings.weight[0]
        hidden += embeddings.position_embeddings(torch.from_numpy(positions))
        hidden = _normalised(hidden, embeddings.LayerNorm)
        hidden = _filled(hidden, padded_rows(len(hidden)))
        runs = list(_equal_runs(lengths))
        for layer in self.layers:
            hidden = layer(hidden, runs)
        return hidden


class PackedForward:
    """MilcoModel.forward on the CPU, without padding.

    dtype: of the matrix products, as for PackedEncoder, which it is with a head (in all .67 GB in bfloat16 at the
    published size). Raises NotPacked, with the reason, for a network that it does not compute.
    """

    @torch.inference_mode()
    def __init__(self, model: MilcoModel, dtype: torch.dtype) -> None:
        self.model: Any = model
        self.dtype = dtype
        self.encoder = PackedEncoder(model.encoder, dtype)
        self.projector = _linear(self.model.connector.projector, dtype)
        self.dense = _linear(self.model.connector.dense, dtype)
        kind = linear_kind(dtype)
        weight, bias = model.decoder.weight, model.decoder.bias
        chunks = [slice(start, start + VOCABULARY_CHUNK) for start in range(0, len(weight), VOCABULARY_CHUNK)]
        self.decoder = [(chunk, kind(weight[chunk], bias[chunk], dtype)) for chunk in chunks]

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """rows: B lists of token ids, <s> and </s> included, none empty; T tokens in all.

        Returns logits float32 [B, V_e], the highest of every English piece over a text's tokens, before LogSat; and
        echo float32 [T], the weights of all tokens in the order of the rows, None without a LexEcho head. Equal
        lengths side by side are fastest.
        """
        return self.head(self.encoder(rows), [len(row) for row in rows])

    @torch.inference_mode()
    def head(self, hidden: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor | None]:
        """Connector, LexEcho and decoder, for _HEAD_TOKENS tokens and one chunk of the vocabulary at a time.

        hidden: float32 [R, D_m], R >= T, the encoder's last states. lengths: of the B texts. Returns as a call does.
        """
        connector, echo = self.model.connector, self.model.echo
        logits = hidden.new_full((len(lengths), self.model.config.english_vocab_size), -torch.inf)
        weights = []
        start = 0
        for block in _blocks(lengths, _HEAD_TOKENS):
            tokens = sum(length for _, length in block)
            states = hidden[start : start + padded_rows(tokens)]
            start += tokens
            projected = self.dense.gelu(self.projector.gelu(states.to(self.dtype)))
            projected = _normalised(projected.float(), connector.layer_norm)
            if echo is not None:
                mask = torch.ones(len(states), dtype=torch.bool)
                weights.append(echo(projected if echo.variant == "paper" else states, mask)[:tokens])
            self._highest(projected.to(self.dtype), block, logits)
        return logits, torch.cat(weights) if echo is not None else None

    def _highest(self, projected: Tensor, block: list[tuple[int, int]], logits: Tensor) -> None:
        """Raise the logits [B, V_e] to those of a block's tokens."""
        counts = [length for _, length in block]
        for chunk, decoder in self.decoder:
            for (number, _), part in zip(block, decoder(projected)[: sum(counts)].split(counts), strict=True):
                highest = logits[number, chunk]
                torch.maximum(highest, part.amax(dim=0), out=highest)


class _Layer:
    """One layer of the encoder: attention and feed-forward, each added to the residual stream and normalised."""

    def __init__(self, layer: Any, heads: int, dtype: torch.dtype) -> None:
        attention = layer.attention
        parts = attention.self.query, attention.self.key, attention.self.value
        weight, bias = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
        self.heads = heads
        self.dtype = dtype
        self.query_key_value = linear_kind(dtype)(weight, bias, dtype)
        self.attention_output = _linear(attention.output.dense, dtype)
        self.attention_norm = attention.output.LayerNorm
        self.up = _linear(layer.intermediate.dense, dtype)
        self.down = _linear(layer.output.dense, dtype)
        self.norm = layer.output.LayerNorm

    def __call__(self, hidden: Tensor, runs: list[tuple[int, int]]) -> Tensor:
        """hidden: float32 [R, D], overwritten. runs: number and length of texts of one length. Returns as hidden."""
        context = self._attention(self.query_key_value(hidden.to(self.dtype)), runs)
        parts = zip(hidden.split(_LAYER_TOKENS), context.split(_LAYER_TOKENS), strict=True)
        done = [self._feed_forward(states, attended) for states, attended in parts]
        return _joined(done)

    def _attention(self, query_key_value: Tensor, runs: list[tuple[int, int]]) -> Tensor:
        """query_key_value: [R, 3D]. Returns [R, D]; every text attends to itself alone."""
        done = []
        tokens = sum(count * length for count, length in runs)
        texts = query_key_value[:tokens].split([count * length for count, length in runs])
        for part, (count, length) in zip(texts, runs, strict=True):
            parts = part.view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            done.append(_attended(*parts).transpose(1, 2).reshape(count * length, -1))
        return _filled(_joined(done), len(query_key_value))

    def _feed_forward(self, hidden: Tensor, context: Tensor) -> Tensor:
        states = _normalised(hidden.add_(self.attention_output(context)), self.attention_norm)
        return _normalised(states.add_(self.down(self.up.gelu(states.to(self.dtype)))), self.norm)


def _attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scaled dot-product attention within texts of one length; all [texts, heads, S, D_h].

    In bfloat16 by products over whole texts, with the softmax in float32: torch's own cuts the queries of every head
    into blocks of 32, and to set up so small a product takes longer than to compute it.
    """
    texts, heads, length, _ = query.shape
    if query.dtype != torch.bfloat16 or not _SHORTEST_WHOLE <= length <= _LONGEST_WHOLE:
        return functional.scaled_dot_product_attention(query, key, value)
    parts = ((query * query.shape[-1] ** -0.5).flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1))
    several = zip(*(part.split(_SCORES // length**2) for part in parts), strict=True)
    done = [torch.bmm(_shares(query, key), value) for query, key, value in several]
    return _joined(done).view(texts, heads, length, -1)


def _shares(query: Tensor, key: Tensor) -> Tensor:
    """How much of every value goes to every query, of the queries' dtype, [B, S, S]. query, key: [B, S, D_h]."""
    return torch.bmm(query, key.transpose(1, 2)).softmax(dim=-1, dtype=torch.float32).to(query.dtype)


def why_not_packed(encoder: Any, dtype: torch.dtype) -> str | None:
    """The reason why PackedEncoder cannot stand for this encoder; None if it can."""
    device = next(encoder.parameters()).device.type
    if device != "cpu":
        return f"the model is on {device}"
    if dtype not in _DTYPES:
        return f"{dtype} is neither float32 nor bfloat16"
    if encoder.training:
        return "the model is in training"
    return _unknown_part(encoder.config)


def _unknown_part(config: PretrainedConfig) -> str | None:
    expected = {"hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}
    if config.model_type not in _KNOWN:
        return f"the encoder is of type {config.model_type}, not {', '.join(_KNOWN)}"
    for name, value in expected.items():
        # transformers 5 knows some of these no more: then there is but the one kind.
        if getattr(config, name, value) != value:
            return f"the encoder has {name} {getattr(config, name)!r}, not {value!r}"
    return None


def packed_positions(ids: np.ndarray, lengths: Sequence[int], padding_id: int) -> np.ndarray:
    """Position of every token as RoBERTa counts, int64 [T]: from padding_id + 1 in every text.

    A padding piece within a text (its name written out there) has position padding_id, and is not counted.
    """
    real = ids != padding_id
    counted = np.cumsum(real)
    starts = np.cumsum([0, *lengths[:-1]])
    before = np.repeat(counted[starts] - real[starts], lengths)
    return (counted - before) * real + padding_id


def padded_rows(tokens: int) -> int:
    """Rows of a matrix that holds this many tokens: the next multiple of 16, of 128 where there are more than 128."""
    multiple = _FEW_ROWS if tokens <= _MANY_ROWS else _MANY_ROWS
    return -(-tokens // multiple) * multiple


def _filled(states: Tensor, rows: int) -> Tensor:
    """states [T, D] and zeros below, [rows, D]."""
    return functional.pad(states, (0, 0, 0, rows - len(states))) if rows > len(states) else states


def _joined(parts: list[Tensor]) -> Tensor:
    """The parts below each other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _equal_runs(lengths: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (number of texts, their length) for texts of one length side by side."""
    for length, group in groupby(lengths):
        yield len(list(group)), length


def _blocks(lengths: list[int], limit: int) -> Iterator[list[tuple[int, int]]]:
    """Yield blocks of (text, tokens), limit tokens at most; a text that does not fit is cut."""
    block: list[tuple[int, int]] = []
    room = limit
    for number, length in enumerate(lengths):
        while length:
            taken = min(length, room)
            block.append((number, taken))
            length -= taken
            room -= taken
            if not room:
                yield block
                block, room = [], limit
    if block:
        yield block


def _linear(layer: nn.Linear, dtype: torch.dtype) -> Linear:
    return linear_kind(dtype)(layer.weight, layer.bias, dtype)


def _normalised(states: Tensor, norm: nn.LayerNorm) -> Tensor:
    return functional.layer_norm(states, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
