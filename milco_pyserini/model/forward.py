"""Fast forward passes by device: PackedForward on the CPU, PaddedForward anywhere else.

SparseEncoderModel.forward is the reference; tests compare both with it.
"""

import contextlib
import copy
import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from milco_pyserini.console import log
from milco_pyserini.model.modeling import SparseEncoderModel
from milco_pyserini.model.packed import NotPacked, PackedForward
from milco_pyserini.model.pooling import highest_logits

# Logits in memory at a time. On a GPU as many that launching the next kernel takes less time than they do (64 MB in
# bfloat16).
_BLOCK_LOGITS = {"cpu": 1 << 22}
_GPU_BLOCK_LOGITS = 1 << 25
# Masked attention is fast on a GPU if its rows are aligned.
_LENGTH_MULTIPLE = {"cpu": 1}
_GPU_LENGTH_MULTIPLE = 8
# Padded tokens of the smallest batch that runs through the compiled layers. Only the batch decides, so that the same
# texts in the same batch have the same bits in every run.
_COMPILED_FROM = 8192
_COMPILATION: dict[str, Any] = {"dynamic": True}


class Forward(Protocol):
    """Rows of token ids (<s> to </s>), none empty, to logits and echo weights, on the network's device.

    Returns logits, float32 [B, V_e], the highest logit of each English piece over a text's tokens; and echo, float32
    [T], the weights of all T tokens in the order of the rows, or None without a LexEcho head. A Forward with an
    attribute returns_weights that is true returns weights in place of logits.
    """

    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]: ...


def choose_forward(model: SparseEncoderModel, device: torch.device, dtype: torch.dtype) -> Forward:
    """Return the fastest Forward of a model that is on that device."""
    if device.type == "cpu":
        # Padding gives the same vectors for networks that cannot be packed, only slower.
        with contextlib.suppress(NotPacked):
            return PackedForward(model, dtype)
    return PaddedForward(model, device, dtype)


class PaddedForward:
    """A Forward for any device and any encoder: rows padded to the longest, the model's modules under autocast.

    The matrices are kept in dtype in addition to the model's own, as autocast would make them for every batch;
    everything else is shared with the model.

    Args:
        model: on the device.
        device: any of torch's.
        dtype: of the matrix products, float32 or bfloat16.
        compiled: whether large batches run through torch.compile (default: on CUDA).
    """

    def __init__(
        self, model: SparseEncoderModel, device: torch.device, dtype: torch.dtype, compiled: bool | None = None
    ) -> None:
        self.device = device
        self.dtype = dtype
        config = model.config.encoder
        self._padding_id = config.pad_token_id
        self._positions = config.max_position_embeddings - config.pad_token_id - 1
        self._compile = device.type == "cuda" if compiled is None else compiled
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
        ids, mask, real = (_to_device(array, self.device) for array in (*arrays, np.flatnonzero(arrays[1])))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            hidden = self._hidden_states(ids, mask)
            projected = network.connector(hidden)
            if network.echo is not None:
                states = projected if network.echo.variant == "paper" else hidden
                echo = network.echo(states, mask.bool()).flatten()[real]
            logits = max_logits(projected.to(self.dtype), mask.bool(), network.decoder)
        return logits, echo

    def _hidden_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        from torch._dynamo.exc import TorchDynamoException

        if self._compile and ids.numel() >= _COMPILED_FROM:
            try:
                return self._compiled_encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            except TorchDynamoException as error:
                # Compiling needs Triton and a C compiler, which are not everywhere; eager layers need neither.
                log(f"torch.compile failed, encoding continues without it: {str(error).splitlines()[0]}")
                self._compile = False
        return self._network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state

    @cached_property
    def _compiled_encoder(self) -> nn.Module:
        """The encoder with compiled layers; they are equal, so one compilation serves all."""
        encoder: Any = _share_parameters(self._network.encoder)
        for module in encoder.modules():
            if isinstance(module, nn.ModuleList) and len(module) == encoder.config.num_hidden_layers:
                for layer in module:
                    layer.compile(**_COMPILATION)
        return encoder


def pad_rows(
    rows: Sequence[Sequence[int]], padding_id: int, limit: int, device: torch.device
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids and mask, int64 [B, S]: S is the longest row, rounded up to what the device likes, at most limit."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    longest, multiple = int(lengths.max()), _LENGTH_MULTIPLE.get(device.type, _GPU_LENGTH_MULTIPLE)
    width = max(longest, min(-(-longest // multiple) * multiple, limit))
    mask = (np.arange(width) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, padding_id, np.int64)
    ids[mask.astype(bool)] = np.fromiter(itertools.chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return ids, mask


def max_logits(states: Tensor, mask: Tensor, decoder: nn.Linear) -> Tensor:
    """Return what pooling.max_logits() returns, without gradients and without waiting for a GPU.

    states: [B, S, D_e], of the decoder's dtype. mask: bool [B, S], right padding only. Returns float32 [B, V_e].
    """
    # A padded position becomes a copy of <s>, which the maximum already includes.
    states = torch.where(mask.unsqueeze(-1), states, states[:, :1])
    block = _BLOCK_LOGITS.get(states.device.type, _GPU_BLOCK_LOGITS)
    return highest_logits(states, decoder.weight, decoder.bias, block)


def _to_device(array: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _share_parameters(module: Any) -> Any:
    """Return a copy of a module's structure over the same tensors."""
    return copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())})
