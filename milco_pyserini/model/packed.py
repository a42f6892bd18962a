"""Fast forward pass on the CPU: the tokens of all texts of a batch as one matrix, without padding.

Linear layers use weights that oneDNN has packed once (model-notes 2.2 to 2.4). SparseEncoderModel.forward is the
reference; tests compare both. Weights are read by their names, so that transformers is not needed.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from milco_pyserini.model.configuration import XLM_R_TYPES
from milco_pyserini.model.pooling import CONNECTOR_EPS, VOCABULARY_CHUNK, echo_weights
from milco_pyserini.model.quantized import Weights

_DTYPES = (torch.float32, torch.bfloat16, torch.int8)
# Tokens with intermediate states in memory at a time: 16 MB of bfloat16 in the widest layer, 8 MB of logits.
LAYER_TOKENS = 2048
# The same in int8, whose states are float32 between products: 8 MB, which stay in the cache.
_INT8_TOKENS = 512
HEAD_TOKENS = 1024
# Rows of the residual stream that are summed, normalized and rounded at a time: 2 MB, which stay in the cache.
_STREAM_ROWS = 512
# oneDNN compiles a kernel for each number of rows, which takes longer than the products of a query.
_FEW_ROWS, _MANY_ROWS = 16, 128
# Text lengths in tokens for which batched matrix products are faster than torch's attention, and the scores that they
# compute at a time: 4 MB of float32, which the allocator reuses.
_SHORTEST_BATCHED, _LONGEST_BATCHED = 32, 1024
_SCORES = 2**20


class NotPacked(ValueError):  # noqa: N818
    """The network is of a kind that PackedForward does not support."""


class Linear:
    """A linear layer in one dtype: states [T, D_in], float32 or of that dtype, to [T, D_out] of that dtype."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.weight = weight.to(dtype)
        self.bias = bias.to(dtype)

    def __call__(self, states: Tensor) -> Tensor:
        return functional.linear(states.to(self.dtype), self.weight, self.bias)

    def gelu(self, states: Tensor) -> Tensor:
        """Apply the layer, then an exact (erf) GELU; float32 or of the layer's dtype."""
        return functional.gelu(self(states))

    def product(self, states: Tensor) -> Tensor:
        """Apply the layer to states of one block; float32 or of the layer's dtype, as it is computed."""
        return self(states)

    @classmethod
    def block_tokens(cls) -> int:
        """Return the number of tokens at a time with which several layers in a row are fastest."""
        return LAYER_TOKENS


class OneDnnLinear(Linear):
    """A Linear with a weight packed by oneDNN, bias and GELU fused into the product."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous(), LAYER_TOKENS)
        self.bias = bias.float()

    def __call__(self, states: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(states.to(self.dtype), self.weight, self.bias, "none", [], "")

    def gelu(self, states: Tensor) -> Tensor:
        """Apply the layer and an exact (erf) GELU as one operation."""
        return torch.ops.mkldnn._linear_pointwise(states.to(self.dtype), self.weight, self.bias, "gelu", [], "none")


class Int8Linear(Linear):
    """A Linear that multiplies integers: int8 weights with a scale per output, int8 states with a scale per token.

    A token's scale is its largest state / 127, so that its result does not depend on other tokens. The product of two
    vectors is an exact sum of integers; only the rounding to integers loses precision.

    Args:
        dtype: of the result.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._scale = _largest(weight.float()).squeeze(1) / 127
        rounded = (weight / self._scale.unsqueeze(1)).round().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, [_INT8_TOKENS, weight.shape[1]])
        self.bias = bias.float()
        self._zeros = torch.zeros(len(weight), dtype=torch.int64)

    def __call__(self, states: Tensor) -> Tensor:
        result = states.new_empty(len(states), len(self.bias), dtype=self.dtype)
        for block, part in zip(states.split(_INT8_TOKENS), result.split(_INT8_TOKENS), strict=True):
            part.copy_(self.product(block))
        return result

    def gelu(self, states: Tensor) -> Tensor:
        """Apply the layer, then an exact (erf) GELU: float32, which the next layer rounds itself."""
        return functional.gelu(self.product(states))

    @classmethod
    def block_tokens(cls) -> int:
        """Return as many tokens as have their float32 states in the cache."""
        return _INT8_TOKENS

    def product(self, states: Tensor) -> Tensor:
        """Apply the layer to states of one block: float32."""
        scale = _largest(states) / 127
        rounded = torch.mul(states, scale.reciprocal()).round_().to(torch.int8)
        # Processors multiply unsigned states by signed weights: 128 is added to the states, and oneDNN takes it off.
        unsigned = rounded.view(torch.uint8).bitwise_xor_(128)
        product = torch.ops.onednn.qlinear_pointwise(
            unsigned, 1.0, 128, self.weight, self._scale, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return torch.addcmul(self.bias, product, scale, out=product)


def _largest(rows: Tensor) -> Tensor:
    """Return the largest absolute value of each row, float32 [rows, 1]; never 0, as a scale is divided by it."""
    largest = torch.maximum(rows.amax(dim=1, keepdim=True), rows.amin(dim=1, keepdim=True).neg_())
    return largest.float().clamp_(min=torch.finfo(torch.float32).tiny * 128)


@cache
def int8_is_exact() -> bool:
    """Return True if int8 products are exact with this torch on this processor.

    Processors without VNNI or AMX add two products in 16 bits, which overflow for the largest numbers.
    """
    states, weight = torch.full((16, 64), 127.0), torch.full((32, 64), 127.0)
    weight[1] = -127
    states[1] = -127
    try:
        product = Int8Linear(weight, torch.zeros(32), torch.float32)(states)
    except (AttributeError, RuntimeError):
        return False
    return torch.allclose(product, states @ weight.T)


def native_dtype() -> torch.dtype:
    """Return bfloat16 if the processor multiplies it natively, else float32."""
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32


@cache
def linear_kind(dtype: torch.dtype) -> type[Linear]:
    """Return OneDnnLinear if its operations work in this torch on this processor, else Linear.

    The operations are private to torch, so one small product of each is compared with Linear's.
    """
    draw = torch.Generator().manual_seed(0)
    states, weight, bias = (torch.randn(*shape, generator=draw).to(dtype) for shape in ((8, 64), (96, 64), (96,)))
    plain = Linear(weight, bias, dtype)
    close = partial(torch.allclose, rtol=0.02, atol=128 * torch.finfo(dtype).eps)
    try:
        packed = OneDnnLinear(weight, bias, dtype)
        works = close(packed(states), plain(states)) and close(packed.gelu(states), plain.gelu(states))
    except (AttributeError, RuntimeError):
        return Linear
    return OneDnnLinear if works else Linear


class PackedEncoder:
    """The multilingual encoder on the CPU, without padding.

    Converts all weights but the embeddings when it is created, one layer at a time. The residual stream, LayerNorm and
    the returned states are float32.

    Args:
        config: of the network.
        tensors: its weights, on the CPU, by the names of an XLM-R-type network of transformers.
        dtype: of the matrix products, float32, bfloat16 or int8. In int8, attention has the native dtype.
        kind: of the linear layers (default: the fastest). Linear copies hardly any float32 weights.

    Raises:
        NotPacked: with the reason, for a network that is not supported.
    """

    @torch.inference_mode()
    def __init__(self, config: Any, tensors: Weights, dtype: torch.dtype, kind: type[Linear] | None = None) -> None:
        reason = why_not_packed(config, tensors, dtype)
        if reason:
            raise NotPacked(reason)
        # Int8Linear rounds states itself.
        self.states_dtype = torch.float32 if dtype == torch.int8 else dtype
        if dtype == torch.int8:
            dtype, kind = native_dtype(), Int8Linear
        make = partial(_linear, tensors, dtype, kind or linear_kind(dtype))
        # Rows are converted to float32 when a text has their token.
        self.words, self.positions, types = (
            tensors[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        self.type = types[:1].float()
        self.norm = _LayerNorm.of(tensors, "embeddings.LayerNorm", config.layer_norm_eps)
        self.padding_id: int = config.pad_token_id
        layers = [f"encoder.layer.{number}" for number in range(config.num_hidden_layers)]
        self.layers = [_Layer(config, tensors, layer, make) for layer in layers]

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the last hidden states, float32 [R, D_m], R = padded_rows(T); rows from T on belong to no token.

        rows: B lists of token ids, special ones included, none empty; T tokens in total. Rows of equal length next to
        each other are fastest.
        """
        lengths = [len(row) for row in rows]
        if not all(lengths):
            raise ValueError(f"row {lengths.index(0)} has no tokens: it needs at least <s> and </s>")
        ids = np.fromiter(chain.from_iterable(rows), np.int64, sum(lengths))
        positions = packed_positions(ids, lengths, self.padding_id)
        hidden = self.words[torch.from_numpy(ids)].float() + self.type
        hidden += self.positions[torch.from_numpy(positions)].float()
        hidden = self.norm(hidden)
        hidden = _pad_to(hidden, padded_rows(len(hidden)))
        runs = [(len(list(group)), length) for length, group in groupby(lengths)]
        states = hidden.to(self.states_dtype)
        for layer in self.layers:
            layer(hidden, states, runs)
        return hidden


class PackedForward:
    """A Forward on the CPU, without padding: PackedEncoder, connector, LexEcho head and decoder.

    Its copies of the weights take 0.67 GB in bfloat16 at the published size.

    Args:
        network: NetworkWeights, or a MilcoModel on the CPU in eval mode.
        dtype, kind: as for PackedEncoder. In int8, the connector has the native dtype.

    Raises:
        NotPacked: as PackedEncoder does.
    """

    @torch.inference_mode()
    def __init__(self, network: Any, dtype: torch.dtype, kind: type[Linear] | None = None) -> None:
        if network.training:
            raise NotPacked("the model is in training")
        tensors, self.config = network.state_dict(), network.config
        if "connector.projector.weight" not in tensors:
            raise NotPacked(f"a {type(network).__name__} has no MILCO connector")
        part = "encoder."
        encoder = {name.removeprefix(part): tensor for name, tensor in tensors.items() if name.startswith(part)}
        self.encoder = PackedEncoder(self.config.encoder, encoder, dtype, kind)
        is_int8 = dtype == torch.int8
        dtype = native_dtype() if is_int8 else dtype
        kind = kind or linear_kind(dtype)
        decoder = Int8Linear if is_int8 else kind
        self.projector = _linear(tensors, dtype, kind, "connector.projector")
        self.dense = _linear(tensors, dtype, kind, "connector.dense")
        self.norm = _LayerNorm.of(tensors, "connector.layer_norm", CONNECTOR_EPS)
        names = ("weight", "bias", "scale") if "echo.weight" in tensors else ()
        self.echo = [tensors[f"echo.{name}"].float() for name in names]
        weight, bias = tensors["decoder.weight"], tensors["decoder.bias"].float()
        chunks = [slice(start, start + VOCABULARY_CHUNK) for start in range(0, len(weight), VOCABULARY_CHUNK)]
        self.decoder = [(chunk, decoder(weight[chunk].float(), bias[chunk], dtype)) for chunk in chunks]
        self._head_tokens = min(HEAD_TOKENS, decoder.block_tokens())

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """Return logits and echo, see forward.Forward. Rows of equal length next to each other are fastest."""
        return self.head(self.encoder(rows), rows)

    @torch.inference_mode()
    def states(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return the states of all T tokens, float32: the encoder's [T, D_m] and the connector's [T, D_e]."""
        hidden = self.encoder(rows)
        return tuple(states[: sum(map(len, rows))] for states in (hidden, self._project(hidden)))  # type: ignore

    @torch.inference_mode()
    def head(self, hidden: Tensor, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """Apply connector, LexEcho and decoder, for a block of tokens and a chunk of the vocabulary at a time.

        hidden: float32 [R, D_m], R >= T, the encoder's last states. rows: token ids of B texts. Returns logits, echo.
        """
        logits = hidden.new_full((len(rows), self.config.english_vocab_size), -torch.inf)
        ids = torch.tensor(list(chain.from_iterable(rows)))
        weights = []
        start = 0
        for block in _blocks([len(row) for row in rows], self._head_tokens):
            counts = [length for _, length in block]
            tokens = sum(counts)
            states, own = hidden[start : start + padded_rows(tokens)], ids[start : start + tokens]
            start += tokens
            projected = self._project(states)
            if self.echo:
                parts = own, states[:tokens], projected[:tokens]
                weights.append(echo_weights(*parts, self.config.echo_variant, *self.echo))
            projected = projected.to(self.encoder.states_dtype)
            for chunk, decoder in self.decoder:
                for (number, _), part in zip(block, decoder.product(projected)[:tokens].split(counts), strict=True):
                    highest = logits[number, chunk]
                    torch.maximum(highest, part.amax(dim=0), out=highest)
        return logits, torch.cat(weights) if self.echo else None

    def _project(self, states: Tensor) -> Tensor:
        """Apply the connector to states [R, D_m]: float32 [R, D_e]."""
        return self.norm(self.dense.gelu(self.projector.gelu(states)).float())


class _LayerNorm(NamedTuple):
    """A LayerNorm over the last dimension: states [..., D], float32."""

    weight: Tensor
    bias: Tensor
    eps: float

    @classmethod
    def of(cls, tensors: Weights, name: str, eps: float) -> "_LayerNorm":
        return cls(tensors[f"{name}.weight"].float(), tensors[f"{name}.bias"].float(), eps)

    def __call__(self, states: Tensor) -> Tensor:
        return functional.layer_norm(states, self.weight.shape, self.weight, self.bias, self.eps)

    def add(self, hidden: Tensor, states: Tensor, change: Tensor) -> None:
        """Add a change to the residual stream, normalize it, and copy it to states, all in place: see _Layer."""
        parts = (tensor.split(_STREAM_ROWS) for tensor in (hidden, states, change))
        for stream, rounded, added in zip(*parts, strict=True):
            stream.copy_(self(stream.add_(added)))
            if rounded.dtype != stream.dtype:
                rounded.copy_(stream)


class _Layer:
    """One layer of the encoder: attention and feed-forward, each added to the residual stream and normalized."""

    def __init__(self, config: Any, tensors: Weights, name: str, linear: Callable[..., Linear]) -> None:
        self.heads: int = config.num_attention_heads
        self.query_key_value = linear(f"{name}.attention.self", ("query.", "key.", "value."))
        self.attention_output = linear(f"{name}.attention.output.dense")
        self.attention_norm = _LayerNorm.of(tensors, f"{name}.attention.output.LayerNorm", config.layer_norm_eps)
        self.up = linear(f"{name}.intermediate.dense")
        self.down = linear(f"{name}.output.dense")
        self.norm = _LayerNorm.of(tensors, f"{name}.output.LayerNorm", config.layer_norm_eps)

    def __call__(self, hidden: Tensor, states: Tensor, runs: list[tuple[int, int]]) -> None:
        """Apply the layer in place.

        hidden: float32 [R, D], the residual stream. states: hidden itself, or a copy in the dtype of the products.
        runs: number and length of texts of one length.
        """
        query_key_value = self.query_key_value(states)
        context = query_key_value.new_empty(states.shape)
        end = 0
        for count, length in runs:
            start, end = end, end + count * length
            heads = query_key_value[start:end].view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            context[start:end].view(count, length, self.heads, -1).copy_(attention(heads).transpose(1, 2))
        context[end:] = 0
        parts = (tensor.split(self.up.block_tokens()) for tensor in (hidden, states, context))
        for stream, rounded, mixed in zip(*parts, strict=True):
            self.attention_norm.add(stream, rounded, self.attention_output.product(mixed))
            self.norm.add(stream, rounded, self.down.product(self.up.gelu(rounded)))


def attention(heads: Tensor) -> Tensor:
    """Scaled dot-product attention within texts of one length.

    In bfloat16 by batched products with the softmax in float32: torch's own attention splits the queries of each head
    into blocks of 32, and setting up so small a product takes longer than computing it.

    Args:
        heads: queries, keys and values, [3, texts, heads, S, D_h].

    Returns:
        [texts, heads, S, D_h].
    """
    length, size = heads.shape[3:]
    if heads.dtype != torch.bfloat16 or not _SHORTEST_BATCHED <= length <= _LONGEST_BATCHED:
        return functional.scaled_dot_product_attention(*heads)
    # oneDNN multiplies heads that lie apart in memory so slowly that copying them first saves time.
    query, key, value = heads.contiguous().flatten(1, 2)
    query *= size**-0.5
    done = []
    for queries, keys, values in zip(*(part.split(_SCORES // length**2) for part in (query, key, value)), strict=True):
        scores = torch.bmm(queries, keys.transpose(1, 2))
        done.append(torch.bmm(scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype), values))
    return _concat(done).view(heads.shape[1:])


def why_not_packed(config: Any, tensors: Weights, dtype: torch.dtype) -> str | None:
    """Return the reason why PackedEncoder does not support this encoder; None if it does."""
    device = next(iter(tensors.values())).device.type
    if device != "cpu":
        return f"the model is on {device}"
    if dtype not in _DTYPES:
        return f"{dtype} is not float32, bfloat16 or int8"
    if config.model_type not in XLM_R_TYPES:
        return f"the encoder is of type {config.model_type}, not {', '.join(XLM_R_TYPES)}"
    for name, value in {"hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}.items():
        # transformers 5 has dropped some of these fields; then there is only this kind.
        if getattr(config, name, value) != value:
            return f"the encoder has {name} {getattr(config, name)!r}, not {value!r}"
    return None


def packed_positions(ids: np.ndarray, lengths: Sequence[int], padding_id: int) -> np.ndarray:
    """Return the position of every token as RoBERTa counts, int64 [T]: from padding_id + 1 in every text.

    A padding token within a text (which may spell it out) has position padding_id and is not counted.
    """
    real = ids != padding_id
    counted = np.cumsum(real)
    starts = np.cumsum([0, *lengths[:-1]])
    before = np.repeat(counted[starts] - real[starts], lengths)
    return (counted - before) * real + padding_id


def padded_rows(tokens: int) -> int:
    """Return the rows of a matrix for this many tokens: the next multiple of 16, of 128 above 128 tokens."""
    multiple = _FEW_ROWS if tokens <= _MANY_ROWS else _MANY_ROWS
    return -(-tokens // multiple) * multiple


def _pad_to(states: Tensor, rows: int) -> Tensor:
    """Append zeros to states [T, D]: [rows, D]."""
    return functional.pad(states, (0, 0, 0, rows - len(states))) if rows > len(states) else states


def _concat(parts: list[Tensor]) -> Tensor:
    """Concatenate rows; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _blocks(lengths: list[int], limit: int) -> Iterator[list[tuple[int, int]]]:
    """Yield blocks of (text, tokens), at most limit tokens each; a text may continue in the next block."""
    block: list[tuple[int, int]] = []
    free = limit
    for number, length in enumerate(lengths):
        while length:
            taken = min(length, free)
            block.append((number, taken))
            length -= taken
            free -= taken
            if not free:
                yield block
                block, free = [], limit
    if block:
        yield block


def _linear(
    tensors: Weights, dtype: torch.dtype, kind: type[Linear], name: str, parts: Sequence[str] = ("",)
) -> Linear:
    """Return the linear layer of a name, or of its parts with their outputs next to each other."""
    weight, bias = (
        _concat([tensors[f"{name}.{part}{which}"].float() for part in parts]) for which in ("weight", "bias")
    )
    return kind(weight, bias, dtype)
