"""A Forward without padding for a GPU: torch's variable-length attention, one product for queries, keys and values."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from milco_pyserini.console import log
from milco_pyserini.model.configuration import XLM_R_TYPES
from milco_pyserini.model.packed import packed_positions
from milco_pyserini.model.pooling import GPU_BLOCK_LOGITS, highest_logits

# Tokens of a batch from which compiled layers are worth their compilation.
COMPILED_FROM = 8192
# Queries, keys and values [T, H, D_h], starts of the texts int32 [B + 1], and the longest text, to [T, H, D_h].
Attention = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]


class VarlenForward:
    """A Forward: the tokens of a batch as one matrix [T, D]; states are in dtype, sums of LayerNorm in float32.

    Args:
        model: a MilcoModel on the device, with an encoder of the type of XLM-R.
        device: a CUDA GPU, or any with another attention.
        dtype: of states and products. torch's attention takes bfloat16 only here.
        attention: default torch's varlen_attn.
        compiled_from: tokens of the smallest batch that runs through torch.compile, which needs Triton and a C
            compiler. Only the batch decides, so that the same texts in the same batch have the same bits.

    Raises:
        ValueError: the encoder is of another type, or this torch, device or dtype has no variable-length attention.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Any,
        device: torch.device,
        dtype: torch.dtype,
        attention: Attention | None = None,
        compiled_from: float = COMPILED_FROM,
    ) -> None:
        config = model.config.encoder
        if config.model_type not in XLM_R_TYPES or config.hidden_act != "gelu":
            raise ValueError(f"the encoder is of type {config.model_type} with {config.hidden_act}, not XLM-R's")
        attention = attention or varlen_attention(device, dtype)
        self._device, self._dtype, self._model = device, dtype, model
        self._padding_id, size = config.pad_token_id, config.hidden_size
        self._layers = []
        for layer in model.encoder.encoder.layer:
            inner = layer.attention.self
            parts = inner.query, inner.key, inner.value
            matrices = [
                (torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])),
                *((part.weight, part.bias) for part in (layer.attention.output.dense, layer.intermediate.dense)),
                (layer.output.dense.weight, layer.output.dense.bias),
            ]
            norms = layer.attention.output.LayerNorm, layer.output.LayerNorm
            self._layers.append(
                (
                    [(weight.to(dtype), bias.to(dtype)) for weight, bias in matrices],
                    [partial(_normalized, (size,), norm.weight.float(), norm.bias.float(), norm.eps) for norm in norms],
                )
            )
        self._decoder = model.decoder.weight.to(dtype), model.decoder.bias.to(dtype)
        self._layer = partial(_layer, attention, config.num_attention_heads)
        self._compiled_from = compiled_from

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """Return logits and echo, see forward.Forward."""
        lengths = np.array([len(row) for row in rows])
        starts = np.cumsum([0, *lengths])
        ids = np.fromiter(chain.from_iterable(rows), np.int64, starts[-1])
        # Token of each place of a padded text; a place after its end has its first token, which the maximum includes.
        places = np.arange(lengths.max())
        padded = starts[:-1, None] + np.where(places < lengths[:, None], places, 0)
        arrays = ids, packed_positions(ids, lengths.tolist(), self._padding_id), starts.astype(np.int32), padded
        tokens, positions, bounds, padded_tokens = (to_device(array, self._device) for array in arrays)
        embeddings = self._model.encoder.embeddings
        hidden = embeddings.word_embeddings(tokens) + embeddings.position_embeddings(positions)
        hidden = embeddings.LayerNorm(hidden + embeddings.token_type_embeddings.weight[0]).to(self._dtype)
        hidden = self._hidden_states(hidden, bounds, int(lengths.max()))
        model, echo = self._model, None
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16):
            projected = model.connector(hidden.float())
        if model.echo is not None:
            echo = model.echo(tokens, hidden, projected, torch.ones_like(tokens, dtype=torch.bool))
        return highest_logits(projected.to(self._dtype)[padded_tokens], *self._decoder, GPU_BLOCK_LOGITS), echo

    @cached_property
    def _compiled_layer(self) -> Callable[..., Tensor]:
        """The layers are equal, so one compilation serves all."""
        return torch.compile(self._layer, dynamic=True)

    def _hidden_states(self, states: Tensor, bounds: Tensor, longest: int) -> Tensor:
        def run(layer: Callable[..., Tensor]) -> Tensor:
            hidden = states
            for matrices, norms in self._layers:
                hidden = layer(hidden, matrices, norms, bounds, longest)
            return hidden

        if len(states) >= self._compiled_from:
            try:
                return run(self._compiled_layer)
            except Exception as error:
                report_uncompiled(error)
                self._compiled_from = math.inf
        return run(self._layer)


def _layer(
    attention: Attention, heads: int, hidden: Tensor, matrices: Any, norms: Any, bounds: Tensor, longest: int
) -> Tensor:
    """Apply a layer to states [T, D]."""
    query_key_value, mixed, up, down = matrices
    parts = functional.linear(hidden, *query_key_value).unflatten(1, (3, heads, -1)).unbind(1)
    query, key, value = parts
    context = attention(query, key, value, bounds, longest).flatten(1)
    hidden = norms[0](hidden.float() + functional.linear(context, *mixed)).to(hidden.dtype)
    inner = functional.gelu(functional.linear(hidden, *up))
    return norms[1](hidden.float() + functional.linear(inner, *down)).to(hidden.dtype)


def _normalized(shape: tuple[int], weight: Tensor, bias: Tensor, eps: float, states: Tensor) -> Tensor:
    return functional.layer_norm(states, shape, weight, bias, eps)


def varlen_attention(device: torch.device, dtype: torch.dtype) -> Attention:
    """Return torch's variable-length attention. Raises ValueError if this torch, device or dtype does not have it."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        raise ValueError(f"torch {torch.__version__} has no variable-length attention, torch 2.13 does") from None
    is_card = device.type == "cuda" and torch.cuda.is_available()
    if dtype != torch.bfloat16 or not is_card or torch.cuda.get_device_capability(device) < (8, 0):
        raise ValueError(f"variable-length attention takes bfloat16 on a GPU from Ampere on, not {dtype} on {device}")

    def attend(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> Tensor:
        return cast(Tensor, varlen_attn(query, key, value, bounds, bounds, longest, longest))

    return attend


def report_uncompiled(error: Exception) -> None:
    """Report that torch.compile failed, which needs Triton and a C compiler; raise any other error."""
    # Takes seconds to import.
    from torch._dynamo.exc import TorchDynamoException

    if not isinstance(error, TorchDynamoException):
        raise error
    log(f"torch.compile failed, encoding continues without it: {str(error).splitlines()[0]}")


def varlen_attention_reference(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """Return what varlen_attention() computes, text by text, for any dtype and device: its reference."""
    texts = zip(*(part.split(bounds.diff().tolist()) for part in (query, key, value)), strict=True)
    done = [functional.scaled_dot_product_attention(*(part.transpose(0, 1) for part in text)) for text in texts]
    return torch.cat([part.transpose(0, 1) for part in done])


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device, without waiting for what a GPU has to do before the copy."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
