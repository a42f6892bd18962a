"""The forward pass of a query network in numpy: a few layers, with embeddings and decoder of the documents' network.

Each text is computed by itself, in float64: a page and a command differ by less than weights are rounded to. Only which
terms have a positive logit is found in float32, with a margin. It loads no torch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]
Stored: TypeAlias = Mapping[str, NDArray[Any]]
_DTYPES = {"F32": "<f4", "F16": "<f2", "I8": "i1", "U8": "u1"}
# Epsilon of the connector's LayerNorm, and bytes of the number before a file's header.
_CONNECTOR_EPS, _PREFIX = 1e-12, 8
# Coefficients of erf (Abramowitz and Stegun 7.1.26): its error is below 1.5e-7.
_ERF, _ERF_SCALE = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592), 0.3275911
EMBEDDINGS = "encoder.embeddings."
WORDS = f"{EMBEDDINGS}word_embeddings.weight"
# Above the error of a logit in float32.
_MARGIN = 1e-3
# Rows of the decoder that are dequantized at a time.
_ROWS = 4096


def open_tensors(file: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a safetensors file by name; what is not read stays in the file.

    Raises KeyError for a dtype other than float32, float16, int8 and uint8, and ValueError for a damaged file.
    """
    content = np.asarray(np.memmap(file, np.uint8, "r"))
    size = _PREFIX + int.from_bytes(content[:_PREFIX].tobytes(), "little")
    header = orjson.loads(content[_PREFIX:size].tobytes())
    header.pop("__metadata__", None)
    return {
        name: content[size:][slice(*about["data_offsets"])].view(_DTYPES[about["dtype"]]).reshape(about["shape"])
        for name, about in header.items()
    }


def floats(tensors: Stored, name: str, rows: Any = slice(None)) -> NDArray[np.float32]:
    """Return a tensor, or some of its rows, dequantized as model.quantized states it: a new array."""
    values, scale = tensors[name][rows], tensors.get(f"{name}_scale")
    if scale is None:
        return values.astype(np.float32)
    if values.dtype == np.uint8:
        found = np.empty((*values.shape, 2), np.float32)
        found[..., 0], found[..., 1] = values & 15, values >> 4
        found -= 8
    else:
        found = values.astype(np.float32)
    scales = scale[rows].astype(np.float32).reshape(len(values), -1, 1)
    blocks = found.reshape(len(values), scales.shape[1], -1)
    blocks *= scales
    return blocks.reshape(len(values), -1)


class QueryForward:
    """Token ids to logits: embeddings of the documents' network, own layers and connector, decoder of the network.

    Args:
        own: tensors of the layers and of the connector, by the names of a MilcoModel.
        documents: tensors of the documents' network.
        config: sizes of the documents' network, the fields of an XLM-R configuration.
        layers: the number of own layers.
    """

    def __init__(self, own: Stored, documents: Stored, config: Any, layers: int) -> None:
        self.own, self.documents, self.padding = own, documents, config.pad_token_id
        self.heads, self.eps, self.layers = config.num_attention_heads, config.layer_norm_eps, layers
        types = _exact(documents, f"{EMBEDDINGS}token_type_embeddings.weight", slice(1))
        self._positions = _exact(documents, f"{EMBEDDINGS}position_embeddings.weight") + types
        self._norm = _pair(documents, f"{EMBEDDINGS}LayerNorm")
        names = ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense")
        self._layers: list[list[Any]] = []
        for number in range(layers):
            layer = f"encoder.encoder.layer.{number}."
            parts = [_pair(own, f"{layer}attention.self.{name}") for name in ("query", "key", "value")]
            joined = tuple(np.concatenate(sides) for sides in zip(*parts, strict=True))
            self._layers.append([joined, *(_pair(own, layer + name) for name in (*names, "output.LayerNorm"))])
        self._connector = [_pair(own, f"connector.{name}") for name in ("projector", "dense", "layer_norm")]
        self._bias = _exact(documents, "decoder.bias")
        # LayerNorm bounds states, so that some terms, as those with a bias far below 0, have no positive logit.
        scale, shift = self._connector[2]
        bound = np.abs(scale).max() * np.sqrt(len(scale)) + np.linalg.norm(shift)
        weight, found = np.empty((len(self._bias), len(scale)), np.float32), [np.empty(0, np.int64)]
        filled = 0
        for start in range(0, len(weight), _ROWS):
            rows = floats(documents, "decoder.weight", slice(start, start + _ROWS))
            norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            found.append(np.flatnonzero(self._bias[start : start + _ROWS] + bound * norms > 0))
            weight[filled : filled + len(found[-1])] = rows[found[-1]]
            filled += len(found[-1])
            found[-1] += start
        self.columns = np.concatenate(found).astype(np.int32)
        self._decoder = weight[:filled], self._bias[self.columns].astype(np.float32)

    def __call__(self, rows: Sequence[Sequence[int]]) -> list[tuple[NDArray[np.int32], Floats]]:
        """Return the pivot terms of texts and their weights, LogSat of the logits.

        rows: token ids, special ones included, none empty.
        """
        weight, bias = self._decoder
        found = []
        states = [self.states(ids) for ids in rows]
        starts = np.cumsum([0, *map(len, states[:-1])])
        highest = np.maximum.reduceat(np.concatenate(states).astype(np.float32) @ weight.T, starts, axis=0) + bias
        for own, logits in zip(states, highest, strict=True):
            # NaN is kept, so that it is reported later.
            columns = self.columns[~(logits <= -_MARGIN)]
            logits = (own @ _exact(self.documents, "decoder.weight", columns).T).max(axis=0) + self._bias[columns]
            positive = ~(logits <= 0)
            found.append((columns[positive], np.log1p(logits[positive]).astype(np.float32)))
        return found

    def states(self, ids: Sequence[int]) -> Floats:
        """Return the states of S tokens that the decoder reads, float64 [S, D_e]."""
        tokens = np.asarray(ids)
        # As RoBERTa counts: a padding token, which a text may spell out, has no position of its own.
        real = tokens != self.padding
        states = _exact(self.documents, WORDS, tokens) + self._positions[np.cumsum(real) * real + self.padding]
        states = _layer_norm(states, self._norm, self.eps)
        for attention, output, output_norm, up, down, norm in self._layers:
            states = _layer_norm(states + _linear(self._mixed(states, attention), output), output_norm, self.eps)
            states = _layer_norm(states + _linear(_gelu(_linear(states, up)), down), norm, self.eps)
        projector, dense, norm = self._connector
        return _layer_norm(_gelu(_linear(_gelu(_linear(states, projector)), dense)), norm, _CONNECTOR_EPS)

    def _mixed(self, states: Floats, attention: Sequence[Floats]) -> Floats:
        """Return the values that attention mixes, [S, D]."""
        heads = _linear(states, attention).reshape(len(states), 3, self.heads, -1).transpose(1, 2, 0, 3)
        query, key, value = heads
        scores = query @ key.transpose(0, 2, 1) * query.shape[2] ** -0.5
        scores = np.exp(scores - scores.max(axis=2, keepdims=True))
        scores /= scores.sum(axis=2, keepdims=True)
        return (scores @ value).transpose(1, 0, 2).reshape(states.shape)


def _exact(tensors: Stored, name: str, rows: Any = slice(None)) -> Floats:
    return floats(tensors, name, rows).astype(np.float64)


def _pair(tensors: Stored, name: str) -> tuple[Floats, Floats]:
    return _exact(tensors, f"{name}.weight"), _exact(tensors, f"{name}.bias")


def _linear(states: Floats, parts: Sequence[Floats]) -> Floats:
    weight, bias = parts
    return states @ weight.T + bias


def _layer_norm(states: Floats, parts: Sequence[Floats], eps: float) -> Floats:
    weight, bias = parts
    centered = states - states.mean(axis=1, keepdims=True)
    return centered / np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + eps) * weight + bias


def _gelu(states: Floats) -> Floats:
    """Return x / 2 (1 + erf(x / sqrt 2))."""
    size = np.abs(states) * 0.5**0.5
    part = 1 / (1 + _ERF_SCALE * size)
    polynomial = np.zeros_like(part)
    for coefficient in _ERF:
        polynomial = (polynomial + coefficient) * part
    tail = polynomial * np.exp(-np.square(size))
    # 1 - erf of the size is the tail, so that large negative states keep their small values.
    return states * 0.5 * np.where(states < 0, tail, 2 - tail)
