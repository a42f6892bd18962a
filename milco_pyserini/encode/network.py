"""The network of an encoder on a device: token ids to sparse vectors, in batches; the states of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from milco_pyserini.console import Report
from milco_pyserini.defaults import BATCH_SIZE
from milco_pyserini.encode.batches import BatchRunner
from milco_pyserini.encode.csr import empty_batch
from milco_pyserini.encode.views import ViewEncoder
from milco_pyserini.model.checkpoint import token_limit
from milco_pyserini.model.forward import choose_forward
from milco_pyserini.model.packed import Linear, PackedForward
from milco_pyserini.model.pooling import echo_weights
from milco_pyserini.model.quantized import Weights
from milco_pyserini.model.weights import NetworkWeights, weight_hash
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.batch import validate_finite


@dataclass(eq=False, repr=False)
class Network(ViewEncoder):
    """A network bound to a device; weights are copied when the first text is encoded.

    Args:
        _source: modules of torch, or the weights of a checkpoint, which are made modules only where they are needed.
        name, tokenizer, english_size, device, dtype: as for ViewEncoder.
    """

    device: torch.device
    dtype: torch.dtype

    def on(self, device: torch.device, dtype: torch.dtype) -> "Network":
        """Return the same network on another device or with another dtype."""
        return Network(self._source, self.name, self.tokenizer, self.english_size, device, dtype)

    @property
    def model(self) -> Any:
        """The network as modules of torch; texts are encoded with their weights from then on."""
        if isinstance(self._source, NetworkWeights):
            from milco_pyserini.model.modeling import MilcoModel

            self._source = MilcoModel.from_weights(self._source)
            for name in ("runner", "_exact"):
                vars(self).pop(name, None)
        return self._source

    @property
    def token_limit(self) -> int:
        """The number of tokens, special ones included, that it has positions for."""
        if hasattr(self._source, "encoder"):
            return token_limit(self._source.encoder, self.config.encoder)
        return self.config.token_limit

    @property
    def has_token_states(self) -> bool:  # type: ignore[override]
        """True if tokens have states."""
        return not getattr(self._source, "returns_weights", False)

    def state_dict(self) -> Weights:
        """Return its stored tensors by the names of its parameters."""
        return self._source.state_dict()

    def weight_hash(self) -> str:
        """Return weight_hash() of its tensors."""
        source = self._source
        return source.weight_hash() if isinstance(source, NetworkWeights) else weight_hash(source.state_dict())

    @cached_property
    def runner(self) -> BatchRunner:
        """Runs it on batches; created for the first text, so that an encoder that is only saved stays where it is."""
        dropped = self.tokenizer.special_ids if self.config.source_drop_special else []
        source = self._source
        if not isinstance(source, NetworkWeights) or self.device.type != "cpu":
            source = self.model.to(self.device)
        forward = choose_forward(source, self.device, self.dtype) if self.has_token_states else source
        columns = self.english_size, len(self.tokenizer.pieces)
        return BatchRunner(forward, self.device, *columns, self.config.source_pool, dropped)

    def encode(
        self,
        rows: Sequence[Sequence[int]],
        views: Sequence[str],
        batch_size: int = BATCH_SIZE,
        names: Sequence[str] = (),
        report: Report | None = None,
    ) -> SparseBatch:
        """Return the vectors of tokenized texts in their order, batched by length.

        Args:
            rows: token ids, special ones included; a row without tokens has an empty vector.
            views: the views to encode.
            batch_size: the most texts in one forward pass.
            names: the texts' ids, for errors.
            report: called for each batch with its numbers of texts and tokens.

        Raises:
            MilcoError: a weight is not finite.
        """
        order = np.argsort([len(row) for row in rows], kind="stable")
        filled = [rows[number] for number in order if rows[number]]
        parts = [empty_batch(len(rows) - len(filled), self.english_size)]
        if report and len(parts[0]):
            report(len(parts[0]), 0)
        done = 0
        for batch in self.runner.run(filled, views, batch_size):
            parts.append(batch)
            if report:
                report(len(batch), sum(map(len, filled[done : done + len(batch)])))
            done += len(batch)
        vectors = SparseBatch.concatenate(parts, self.english_size).take(np.argsort(order))
        validate_finite(
            vectors.weights,
            vectors.indptr,
            f"encoder {self.name}",
            lambda row: names[row] if names else self.tokenizer.beginning(rows[row]),
        )
        return self.limit_terms(vectors)

    def _token_states(self, rows: Sequence[Sequence[int]], exact: bool) -> tuple[Tensor, Tensor]:
        """Return the states of all T tokens: float32 [T, D_m] of the encoder and [T, D_e] of the connector."""
        forward = self._exact if exact else self.runner.forward
        if isinstance(forward, PackedForward):
            return forward.states(rows)
        ids = [torch.tensor([list(row)], device=self.device) for row in rows]
        states = [
            self.model.encoder(input_ids=row, attention_mask=torch.ones_like(row)).last_hidden_state for row in ids
        ]
        hidden = torch.cat(states, dim=1)
        return hidden[0], self.model.connector(hidden)[0]

    @torch.inference_mode()
    def token_scores(
        self, rows: Sequence[Sequence[int]], columns: NDArray[np.int32], exact: bool = True
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the logits of tokens for some pivot terms, and their echo weights.

        Args:
            rows: token ids of texts, special ones included, none empty; T in all. Texts have been encoded before, so
                that the network is on its device.
            columns: n pivot columns.
            exact: compute in float32, not in the dtype of the vectors.

        Returns:
            Logits, float32 [T, n], and echo weights, float32 [T], which are 0 without a LexEcho head.
        """
        hidden, projected = self._token_states(rows, exact)
        weights = self.state_dict()
        wanted = torch.from_numpy(columns.astype(np.int64)).to(self.device)
        decoder = (weights[f"decoder.{name}"][wanted].float() for name in ("weight", "bias"))
        logits = functional.linear(projected, *decoder)
        echo = torch.zeros(len(hidden))
        if self.config.echo:
            head = (weights[f"echo.{name}"].float() for name in ("weight", "bias", "scale"))
            tokens = torch.tensor(list(chain.from_iterable(rows)), device=self.device)
            echo = echo_weights(tokens, hidden, projected, self.config.echo_variant, *head)
        return logits.cpu().numpy(), echo.cpu().numpy()

    @cached_property
    def _exact(self) -> PackedForward | None:
        """The float32 forward pass of weights that are not modules."""
        if isinstance(self._source, NetworkWeights) and self.device.type == "cpu":
            return PackedForward(self._source, torch.float32, Linear)
        return None
