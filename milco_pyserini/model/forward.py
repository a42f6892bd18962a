"""The network over a batch of texts in the form that is fast on its device: what MilcoModel.forward says of them."""

import contextlib
import copy
import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from milco_pyserini.console import say
from milco_pyserini.model import MilcoModel
from milco_pyserini.model.packed import NotPacked, PackedForward
from milco_pyserini.model.pooling import highest_logits

# Logits in memory at a time: enough of them that a GPU is not kept waiting for the next launch (64 MB in bfloat16).
_BLOCK_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 25}
# Attention with a mask is fast on a GPU where its rows are aligned.
_LENGTH_MULTIPLE = {"cpu": 1, "cuda": 8}
# Padded tokens from which a batch is worth the compiled layers. The batch alone decides, so that the same texts in
# the same batch have the same bits in every run.
_COMPILED_FROM = 8192
_COMPILATION: dict[str, Any] = {"dynamic": True}


class Forward(Protocol):
    """Rows of token ids (<s> to </s>), none empty, to what the network says of them, on its device.

    Returns logits, float32 [B, V_e], each English piece's highest logit over a text's tokens; and echo, float32 [T],
    the weights of all T tokens in the order of the rows, or None without a LexEcho head.
    """

    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]: ...


class PaddedForward:
    """A Forward for any device and any encoder: rows padded to the longest, the parts of a MilcoModel under autocast.

    The matrices are kept in dtype beside the model's own, as autocast would make them for every batch; all else is
    the model's. compiled: whether the layers of a large batch go through torch.compile (by default on CUDA).
    """

    def __init__(
        self, model: MilcoModel, device: torch.device, dtype: torch.dtype, compiled: bool | None = None
    ) -> None:
        self.device = device
        self.dtype = dtype
        self._network = _in_dtype(model, dtype)
        self._compile = device.type == "cuda" if compiled is None else compiled

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """As Forward. On a GPU it returns before the network is done."""
        network, echo = self._network, None
        ids, mask = self._padded(rows)
        input_ids, attention_mask, real = (self._on_device(array) for array in (ids, mask, np.flatnonzero(mask)))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            hidden = self._states(input_ids, attention_mask)
            projected = network.connector(hidden)
            if network.echo is not None:
                states = projected if network.echo.variant == "paper" else hidden
                echo = network.echo(states, attention_mask.bool()).flatten()[real]
            logits = max_logits(projected.to(self.dtype), attention_mask.bool(), network.decoder)
        return logits, echo

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        longest, multiple = max(map(len, rows)), _LENGTH_MULTIPLE[self.device.type]
        longest = max(longest, min(-(-longest // multiple) * multiple, self._positions))
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
        ids = np.full(mask.shape, self._network.config.encoder.pad_token_id, np.int64)
        ids[mask.astype(bool)] = np.fromiter(itertools.chain.from_iterable(rows), np.int64, int(lengths.sum()))
        return ids, mask

    @property
    def _positions(self) -> int:
        config = self._network.config.encoder
        return config.max_position_embeddings - config.pad_token_id - 1

    def _on_device(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)

    def _states(self, ids: Tensor, mask: Tensor) -> Tensor:
        from torch._dynamo.exc import TorchDynamoException

        if self._compile and ids.numel() >= _COMPILED_FROM:
            try:
                return self._compiled_encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            except TorchDynamoException as error:
                # What compiling needs (Triton, a C compiler) is not everywhere; the layers themselves run without.
                say(f"torch.compile does not work here, encoding goes on without it: {str(error).splitlines()[0]}")
                self._compile = False
        return self._network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state

    @cached_property
    def _compiled_encoder(self) -> nn.Module:
        """The encoder with its layers compiled, which are equal and so are compiled once for all."""
        encoder = _twin(self._network.encoder)
        for module in encoder.modules():
            if isinstance(module, nn.ModuleList) and len(module) == encoder.config.num_hidden_layers:
                for layer in module:
                    layer.compile(**_COMPILATION)
        return encoder


def choose_forward(model: MilcoModel, device: torch.device, dtype: torch.dtype) -> Forward:
    """The fastest Forward of a model that is on that device."""
    if device.type == "cpu":
        # A network of a kind that is not packed is padded; nothing is lost but time.
        with contextlib.suppress(NotPacked):
            return PackedForward(model, dtype)
    return PaddedForward(model, device, dtype)


def max_logits(states: Tensor, mask: Tensor, decoder: nn.Linear) -> Tensor:
    """As model.pooling.max_logits, without gradients, and a GPU is not waited for.

    states: [B, S, D_e], of the decoder's dtype. mask: bool [B, S], right padding only. Returns float32 [B, V_e].
    """
    # A padded position becomes a copy of <s>, which the maximum already holds.
    states = torch.where(mask.unsqueeze(-1), states, states[:, :1])
    return highest_logits(states, decoder.weight, decoder.bias, _BLOCK_LOGITS[states.device.type])


def _twin(module: Any) -> Any:
    """A copy of a module's structure over the same tensors."""
    return copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())})


def _in_dtype(model: MilcoModel, dtype: torch.dtype) -> MilcoModel:
    """The model in eval mode with its matrices, and their biases, in dtype and everything else shared."""
    twin = _twin(model).eval()
    for module in twin.modules():
        if isinstance(module, nn.Linear):
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(parameter.detach().to(dtype), requires_grad=False))
    return twin
