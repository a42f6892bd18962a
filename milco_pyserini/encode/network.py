"""The network of an encoder on a device: its weights, its forward pass in batches, the states of tokens."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from milco_pyserini.encode.batches import BatchRunner
from milco_pyserini.encode.devices import report_spinning_threads
from milco_pyserini.model.forward import choose_forward
from milco_pyserini.model.loading import token_limit
from milco_pyserini.model.packed import Linear, PackedForward
from milco_pyserini.model.weights import NetworkWeights


class Network:
    """A network on a device, which gets its copies of the weights with the first text.

    Args:
        source: modules of torch, or the weights of a checkpoint, which are made modules only where they are needed.
        columns: number of pivot and of source terms.
        special_ids: tokens that are not terms of the source view if the configuration drops them.
        device: where it runs.
        dtype: of the matrix products.
    """

    def __init__(
        self,
        source: Any,
        columns: tuple[int, int],
        special_ids: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._source = source
        self._columns = columns
        self._special_ids = special_ids
        self.device = device
        self.dtype = dtype

    def on(self, device: torch.device, dtype: torch.dtype) -> "Network":
        """Return the same network on another device or with another dtype."""
        return Network(self._source, self._columns, self._special_ids, device, dtype)

    @property
    def model(self) -> Any:
        """The network as modules of torch; texts are encoded with their weights from then on."""
        if isinstance(self._source, NetworkWeights):
            self._source = self._source.to_model()
            for name in ("runner", "_exact"):
                vars(self).pop(name, None)
        return self._source

    @property
    def config(self) -> Any:
        """Sizes and variants: the fields of MilcoConfig."""
        return self._source.config

    @property
    def token_limit(self) -> int:
        """The number of tokens, special ones included, that it has positions for."""
        if hasattr(self._source, "encoder"):
            return token_limit(self._source.encoder, self.config.encoder)
        return self.config.token_limit

    @property
    def has_token_states(self) -> bool:
        """True if tokens have states; encoders of sentence-transformers and query tables only have weights."""
        return not getattr(self._source, "returns_weights", False)

    def state_dict(self) -> dict[str, Tensor]:
        """Return its tensors by the names of its parameters."""
        return self._source.state_dict()

    @cached_property
    def runner(self) -> BatchRunner:
        """Runs it on batches; created for the first text, so that an encoder that is only saved stays where it is."""
        if self.device.type == "cpu":
            report_spinning_threads()
        dropped = self._special_ids if self.config.source_drop_special else []
        source = self._source
        if not isinstance(source, NetworkWeights) or self.device.type != "cpu":
            source = self.model.to(self.device)
        forward = choose_forward(source, self.device, self.dtype) if self.has_token_states else source
        return BatchRunner(forward, self.device, *self._columns, self.config.source_pool, dropped)

    @torch.inference_mode()
    def token_states(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the states of one text's tokens: float32 [S, D_m] of the encoder and [S, D_e] of the connector.

        ids: S token ids, special ones included, of a text that has been encoded, so that the network is on its device.
        """
        if self._exact is not None:
            return self._exact.states(ids)
        row = torch.tensor([list(ids)], device=self.device)
        hidden = self.model.encoder(input_ids=row, attention_mask=torch.ones_like(row)).last_hidden_state
        return hidden[0], self.model.connector(hidden)[0]

    @cached_property
    def _exact(self) -> PackedForward | None:
        """The float32 forward pass of weights that are not modules."""
        if isinstance(self._source, NetworkWeights) and self.device.type == "cpu":
            return PackedForward(self._source, torch.float32, Linear)
        return None
