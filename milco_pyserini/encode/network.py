"""The network of an encoder on a device: token ids to sparse vectors, in batches; the states of tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from milco_pyserini.console import Report
from milco_pyserini.encode.batches import BatchRunner
from milco_pyserini.encode.csr import empty_batch
from milco_pyserini.errors import Message, MilcoError, unknown_name
from milco_pyserini.model.checkpoint import Checkpoint, token_limit
from milco_pyserini.model.configuration import QUERY_LIMITS, NetworkConfig, is_plain
from milco_pyserini.model.forward import choose_forward
from milco_pyserini.model.layouts import read_checkpoint
from milco_pyserini.model.packed import Linear, PackedForward
from milco_pyserini.model.pooling import echo_weights
from milco_pyserini.model.quantized import Weights
from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.model.weights import NetworkWeights, make_config
from milco_pyserini.sparse import PIVOT, SOURCE, VIEWS, SparseBatch
from milco_pyserini.sparse.batch import validate_finite
from milco_pyserini.sparse.pruning import PruningRule

if TYPE_CHECKING:
    from milco_pyserini.model.modeling import MilcoModel

BATCH_SIZE = 512


def load_checkpoint(checkpoint: Checkpoint, variants: Mapping[str, Any]) -> "NetworkWeights | MilcoModel":
    """Load a MILCO checkpoint: make_network() of it. variants and errors as for MilcoModel.from_pretrained()."""
    # Tensors that are made in inference mode can never be trained.
    with torch.inference_mode(False):
        values, tensors = read_checkpoint(checkpoint, variants)
        return make_network(checkpoint.directory, values, tensors, variants)


def make_network(
    directory: Path, values: dict[str, Any], tensors: Weights, variants: Mapping[str, Any] | None = None
) -> "NetworkWeights | MilcoModel":
    """Return the network of a configuration: its weights, or modules if only transformers knows its architecture.

    Arguments and errors as for make_config(), and NetworkWeights or MilcoModel.from_tensors().
    """
    if is_plain(values):
        return NetworkWeights(make_config(NetworkConfig, directory, values, variants), tensors, directory)
    from milco_pyserini.model.modeling import MilcoConfig, MilcoModel

    return MilcoModel.from_tensors(make_config(MilcoConfig, directory, values, variants), tensors, directory)


@dataclass(eq=False, repr=False)
class Network:
    """A network bound to a device; weights are copied when the first text is encoded.

    Args:
        _source: modules of torch, or the weights of a checkpoint, which are made modules only where they are needed.
        tokenizer: its special tokens are not terms of the source view if the configuration drops them.
        english_size: number of pivot terms.
        dtype: of the matrix products.
    """

    _source: Any
    name: str
    tokenizer: TextTokenizer
    english_size: int
    device: torch.device
    dtype: torch.dtype

    # False for encoders of queries only (QueryTable).
    encodes_documents = True

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
    def config(self) -> Any:
        """Sizes and variants: the fields of MilcoConfig."""
        return self._source.config

    @property
    def views(self) -> tuple[str, ...]:
        """The views that it has."""
        has = {PIVOT: self.config.english_vocab_size > 0, SOURCE: self.config.echo}
        return tuple(view for view in VIEWS if has[view])

    def resolve_views(self, views: str | Sequence[str] | None) -> tuple[str, ...]:
        """Return the views to encode, all by default. Raises MilcoError for a view that the checkpoint lacks."""
        views = (views,) if isinstance(views, str) else views
        for view in views or ():
            if view not in VIEWS:
                raise unknown_name("view", str(view), VIEWS)
            if view not in self.views:
                lacking = "LexEcho head" if view == SOURCE else "English vocabulary"
                other = " ".join(self.views)
                fix = Message("Use {views}.", views=other)
                raise MilcoError(f"encoder {self.name} has no {lacking}, so no {view} view", fix)
        return tuple(views or self.views)

    @property
    def token_limit(self) -> int:
        """The number of tokens, special ones included, that it has positions for."""
        if hasattr(self._source, "encoder"):
            return token_limit(self._source.encoder, self.config.encoder)
        return self.config.token_limit

    def validate_length(self, max_length: int) -> None:
        """Raise MilcoError for a maximum length in tokens that it has no positions for."""
        if not isinstance(max_length, int) or not 3 <= max_length <= self.token_limit:
            raise MilcoError(f"maximum length {max_length!r}: encoder {self.name} takes 3 to {self.token_limit} tokens")

    @property
    def has_token_states(self) -> bool:
        """True if tokens have states; encoders of sentence-transformers and query tables only have weights."""
        return not getattr(self._source, "returns_weights", False)

    def state_dict(self) -> Weights:
        """Return its stored tensors by the names of its parameters."""
        return self._source.state_dict()

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

    def limit_terms(self, vectors: SparseBatch) -> SparseBatch:
        """Return vectors with only the strongest terms of each view, as many as the configuration keeps."""
        return self._limit(vectors, self.config.pivot_top_k, self.config.source_top_k)

    def limit_query_terms(self, vectors: SparseBatch) -> SparseBatch:
        """Return vectors of queries with only the strongest terms of each view that the configuration keeps of them."""
        limits = (getattr(self.config, name, None) for name in QUERY_LIMITS)
        return self._limit(vectors, *limits)

    @staticmethod
    def _limit(vectors: SparseBatch, pivot: int | None, source: int | None) -> SparseBatch:
        for view, limit in ((PIVOT, pivot), (SOURCE, source)):
            if limit is not None and vectors.lengths().max(initial=0) > limit:
                vectors = PruningRule("top-k", limit, view)(vectors)
        return vectors

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

    @torch.inference_mode()
    def token_scores(
        self, ids: Sequence[int], columns: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the logits of one text's tokens for some pivot terms, and their echo weights.

        Args:
            ids: as for token_states().
            columns: n pivot columns.

        Returns:
            Logits, float32 [S, n], and echo weights, float32 [S], which are 0 without a LexEcho head.
        """
        hidden, projected = self.token_states(ids)
        weights = self.state_dict()
        wanted = torch.from_numpy(columns.astype(np.int64)).to(self.device)
        decoder = (weights[f"decoder.{name}"][wanted].float() for name in ("weight", "bias"))
        logits = functional.linear(projected, *decoder)
        echo = torch.zeros(len(ids))
        if self.config.echo:
            variant = self.config.echo_variant
            head = (weights[f"echo.{name}"].float() for name in ("weight", "bias", "scale"))
            echo = echo_weights(projected if variant == "paper" else hidden, variant, *head)
        return logits.cpu().numpy(), echo.cpu().numpy()

    @cached_property
    def _exact(self) -> PackedForward | None:
        """The float32 forward pass of weights that are not modules."""
        if isinstance(self._source, NetworkWeights) and self.device.type == "cpu":
            return PackedForward(self._source, torch.float32, Linear)
        return None
