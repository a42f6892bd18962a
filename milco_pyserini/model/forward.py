"""Fast forward passes by device: PackedForward on the CPU, VarlenForward on CUDA, PaddedForward anywhere else.

SparseEncoderModel.forward is the reference; tests compare both with it.
"""

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from milco_pyserini.errors import MilcoError
from milco_pyserini.model.packed import NotPacked, PackedForward
from milco_pyserini.model.pooling import BLOCK_LOGITS, GPU_BLOCK_LOGITS, highest_logits
from milco_pyserini.model.varlen import COMPILED_FROM, VarlenForward, report_uncompiled, to_device

if TYPE_CHECKING:
    from milco_pyserini.model.modeling import SparseEncoderModel


class Forward(Protocol):
    """Rows of token ids (<s> to </s>), none empty, to logits and echo weights, on the network's device.

    Returns logits, float32 [B, V_e], the highest logit of each English piece over a text's tokens; and echo, float32
    [T], the weights of all T tokens in the order of the rows, or None without a LexEcho head. A Forward with an
    attribute returns_weights that is true returns weights in place of logits.
    """

    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]: ...


def choose_forward(model: Any, device: torch.device, dtype: torch.dtype) -> Forward:
    """Return the fastest Forward of a SparseEncoderModel on that device, or of NetworkWeights on the CPU.

    Raises MilcoError for int8 and a network that cannot be packed.
    """
    if device.type == "cpu":
        try:
            return PackedForward(model, dtype)
        except NotPacked as error:
            if dtype == torch.int8:
                raise MilcoError(f"dtype int8 is not for this encoder ({error}): use auto") from None
            # Padding gives the same vectors, only slower.
    if device.type == "cuda":
        try:
            return VarlenForward(model, device, dtype)
        except ValueError:
            # Another encoder or dtype, an older card or torch.
            pass
    return PaddedForward(model, device, dtype)


class PaddedForward:
    """A Forward for any device and any encoder: rows padded to the longest, the model's modules under autocast.

    The matrices are kept in dtype in addition to the model's own, as autocast would make them for every batch;
    everything else is shared with the model.

    Args:
        model: on the device.
        device: any of torch's.
        dtype: of the matrix products, float32 or bfloat16.
        compiled_from: padded tokens of the smallest batch that runs through torch.compile (default: 8,192 on CUDA, no
            batch elsewhere). Only the batch decides, so that the same texts in the same batch have the same bits.
        backend: of torch.compile.
    """

    def __init__(
        self,
        model: "SparseEncoderModel",
        device: torch.device,
        dtype: torch.dtype,
        compiled_from: float | None = None,
        backend: str | Callable = "inductor",
    ) -> None:
        self.device, self.dtype = device, dtype
        config = model.config.encoder
        self._padding_id = config.pad_token_id
        self._positions = config.max_position_embeddings - config.pad_token_id - 1
        self._compiled_from = compiled_from or (COMPILED_FROM if device.type == "cuda" else math.inf)
        self._backend = backend
        self._block_logits = BLOCK_LOGITS if device.type == "cpu" else GPU_BLOCK_LOGITS
        self._network = _share_parameters(model).eval()
        for module in self._network.modules():
            if isinstance(module, nn.Linear):
                for name, parameter in list(module.named_parameters(recurse=False)):
                    setattr(module, name, nn.Parameter(parameter.detach().to(dtype), requires_grad=False))

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """Return logits and echo, see Forward. On a GPU it returns before the network is done."""
        network, echo = self._network, None
        arrays = pad_rows(rows, self._padding_id, self._positions, self.device)
        ids, mask, real = (to_device(array, self.device) for array in (*arrays, np.flatnonzero(arrays[1])))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            hidden = self._hidden_states(ids, mask)
            projected = network.connector(hidden)
            if network.echo is not None:
                echo = network.echo(ids, hidden, projected, mask.bool()).flatten()[real]
            # A padded position becomes a copy of <s>, which the maximum already includes.
            states = projected.to(self.dtype)
            states = torch.where(mask.bool().unsqueeze(-1), states, states[:, :1])
            decoder = network.decoder
            return highest_logits(states, decoder.weight, decoder.bias, self._block_logits), echo

    def memory(self, texts: int, length: int) -> int:
        """Return the bytes that a batch takes on a GPU in addition to the weights: an estimate, rather too high.

        texts: of the batch, and of the one before it, whose logits are still being read. length: of each, in tokens.
        """
        length = _aligned(length)
        encoder, decoder = self._network.encoder, self._network.decoder
        size, width, english = self.dtype.itemsize, encoder.config.hidden_size, decoder.in_features
        widest = max(module.out_features for module in encoder.modules() if isinstance(module, nn.Linear))
        # The residual stream, its next sum and a copy in dtype, a feed-forward layer before and after its activation;
        # or, where these are narrow, the connector's states. transformers makes the mask in float32, in several steps.
        states = max(14 * width + 2 * size * widest, 4 * width + 12 * english)
        logits = 2 * decoder.out_features * (torch.float32.itemsize + torch.bool.itemsize)
        return texts * (length * (states + 13 * length) + logits) + size * self._block_logits

    def _hidden_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        # For a single text, torch would compile the layers once more.
        if ids.numel() >= self._compiled_from and len(ids) > 1:
            try:
                return self._compiled_encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            except Exception as error:
                report_uncompiled(error)
                self._compiled_from = math.inf
        return self._network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state

    @cached_property
    def _compiled_encoder(self) -> nn.Module:
        """The encoder with compiled layers; they are equal, so one compilation serves all."""
        encoder: Any = _share_parameters(self._network.encoder)
        for module in encoder.modules():
            if isinstance(module, nn.ModuleList) and len(module) == encoder.config.num_hidden_layers:
                for layer in module:
                    layer.compile(dynamic=True, backend=self._backend)
        return encoder


def pad_rows(
    rows: Sequence[Sequence[int]], padding_id: int, limit: int, device: torch.device
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids and mask, int64 [B, S]: S is the longest row, rounded up to what the device likes, at most limit."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    width = int(lengths.max())
    if device.type != "cpu":
        width = max(width, min(_aligned(width), limit))
    mask = (np.arange(width) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, padding_id, np.int64)
    ids[mask.astype(bool)] = np.fromiter(itertools.chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return ids, mask


def _aligned(length: int) -> int:
    """Return a length at which masked attention is fast on a GPU."""
    return -(-length // 8) * 8


def _share_parameters(module: Any) -> Any:
    """Return a copy of a module's structure over the same tensors."""
    return copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())})
