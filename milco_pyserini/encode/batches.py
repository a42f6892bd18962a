"""Run a forward pass over tokenized texts in batches under a token budget, and return sparse vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milco_pyserini.console import log
from milco_pyserini.encode.csr import CopyStream, SourceTerms, ViewRows, concat_views, pivot_entries, positive_entries
from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.model.forward import Forward, PaddedForward
from milco_pyserini.sparse import PIVOT, SOURCE, SparseBatch

# Batches that are on the device at once.
_IN_FLIGHT = 2
# Share of a GPU's free memory that batches may take: kernels and fragmentation take the rest.
_USABLE = 0.9
# A padded batch ends before this share of it is padding, if it has this share of the token budget already.
_PADDING, _LEAST_SHARE = 0.05, 0.25


def token_budget(device: torch.device) -> int:
    """Return the maximum number of tokens in a forward pass, padding included.

    On a GPU, enough that the work takes longer than launching it; on the CPU, few enough to fit the caches.
    """
    return 4096 if device.type == "cpu" else 65536


@dataclass(frozen=True)
class _Queued:
    """A batch in computation: its outputs, and the event after which they are ready."""

    texts: int
    logits: Tensor | None
    echo: Tensor | None
    source: SourceTerms | None
    event: Any


class BatchRunner:
    """Runs a forward pass in token-budgeted batches and returns sparse vectors.

    Args:
        english_size, source_size: number of columns of each view.
        source_pool: "sum" or "max" of the weights of a repeated token.
        dropped: ids of tokens that are not terms of the source view.
    """

    def __init__(
        self,
        forward: Forward,
        device: torch.device,
        english_size: int,
        source_size: int,
        source_pool: str,
        dropped: Sequence[int],
    ) -> None:
        self.token_budget = token_budget(device)
        self.forward = forward
        self._has_weights = getattr(forward, "returns_weights", False)
        self._device = device
        self._english_size = english_size
        self._source_size = source_size
        self._source_pool = source_pool
        self._dropped = np.array(dropped, np.int64)
        self._copy_stream = CopyStream(device)

    def run(self, rows: Sequence[Sequence[int]], views: Sequence[str], batch_size: int) -> Iterator[SparseBatch]:
        """Yield the vectors of tokenized texts, sorted by length and none of them empty, batch by batch.

        Before the first batch, the token budget is halved until the batches fit into a GPU's free memory by estimate.
        If the device runs out of memory nevertheless, they have half as many tokens from then on. Raises MilcoError if
        a single text does not fit.
        """
        lengths = [len(row) for row in rows]
        self._fit_budget(lengths, batch_size)
        queued: list[_Queued] = []
        done, begun, in_flight = 0, 0, _IN_FLIGHT
        while done < len(rows):
            try:
                while begun < len(rows) and len(queued) < in_flight:
                    stop = self.batch_end(lengths, begun, batch_size)
                    queued.append(self._queue(rows[begun:stop], views))
                    begun = stop
                batch = self._collect(queued.pop(0))
            except torch.OutOfMemoryError:
                # Batches in flight are dropped, which frees their memory, and computed again.
                queued.clear()
                begun = done
                if self._device.type == "cuda":
                    torch.cuda.empty_cache()
                failed = lengths[done : self.batch_end(lengths, done, batch_size)]
                # A single text may fit if no other batch is in flight.
                if len(failed) > 1 or in_flight == 1:
                    self.token_budget = halved_budget(self.token_budget, failed, self._device)
                in_flight = 1
                continue
            done += len(batch)
            yield batch

    def batch_end(self, lengths: Sequence[int], start: int, batch_size: int) -> int:
        """Return the end of the batch that begins at start: within batch_size and token budget, or one text."""
        padded, real = isinstance(self.forward, PaddedForward), 0
        last = min(start + batch_size, len(lengths))
        for place in range(start, last):
            real += lengths[place]
            tokens = (place - start + 1) * lengths[place] if padded else real
            is_padding = tokens - real > _PADDING * tokens and tokens > _LEAST_SHARE * self.token_budget
            if place > start and (tokens > self.token_budget or is_padding):
                return place
        return last

    def largest_memory(self, lengths: Sequence[int], batch_size: int) -> int:
        """Return PaddedForward.memory() of the largest of the batches into which texts of these lengths are divided."""
        stop, largest = 0, 0
        while stop < len(lengths):
            start, stop = stop, self.batch_end(lengths, stop, batch_size)
            largest = max(largest, self.forward.memory(stop - start, lengths[stop - 1]))  # type: ignore[attr-defined]
        return largest

    def _fit_budget(self, lengths: Sequence[int], batch_size: int) -> None:
        """Halve the token budget until a batch of every length fits into a GPU's free memory, or is a single text."""
        if self._device.type != "cuda" or not isinstance(self.forward, PaddedForward) or len(lengths) < 2:
            return
        reserved = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        free = torch.cuda.mem_get_info(self._device)[0] + reserved
        before, longest = self.token_budget, max(lengths)
        while self.token_budget > longest:
            if self.largest_memory(lengths, batch_size) <= _USABLE * free:
                break
            self.token_budget //= 2
        if self.token_budget < before:
            log(
                f"{self._device} has {free / 1e9:.1f} GB of free memory: batches have {self.token_budget:,} tokens "
                f"instead of {before:,}"
            )

    def _queue(self, rows: Sequence[Sequence[int]], views: Sequence[str]) -> _Queued:
        """Start the computation of a batch; on a GPU, without waiting for it."""
        logits, echo = self.forward(rows)
        event = self._copy_stream.event()
        source = None
        if SOURCE in views and echo is not None:
            # A GPU computes meanwhile.
            source = SourceTerms.of(rows, self._source_size, self._dropped)
        return _Queued(len(rows), logits if PIVOT in views else None, echo if source else None, source, event)

    @torch.inference_mode()
    def _collect(self, queued: _Queued) -> SparseBatch:
        """Return the vectors of a batch as soon as it is computed."""
        pivot = source = ViewRows.empty(queued.texts)
        outputs = [tensor for tensor in (queued.logits, queued.echo) if tensor is not None]
        with self._copy_stream.after(queued.event, *outputs):
            entries: Any = ()
            if queued.logits is not None:
                entries = (positive_entries if self._has_weights else pivot_entries)(queued.logits)
            arrays = self._copy_stream.to_host(*entries, *(() if queued.echo is None else (queued.echo,)))
        if queued.logits is not None:
            pivot = ViewRows(*arrays[:3])
        if queued.source is not None:
            source = queued.source.pool(arrays[-1], self._source_pool, self._english_size)
        return concat_views(pivot, source, self._english_size)


def halved_budget(budget: int, lengths: Sequence[int], device: torch.device) -> int:
    """Return half the tokens of a batch for which a device had no memory, and report it. lengths: of its texts.

    Raises MilcoError if the batch is a single text.
    """
    if len(lengths) == 1:
        fix = Message("Use a smaller {max_length}, or {device}.", device="cpu")
        raise MilcoError(f"{device} has no memory for a text of {lengths[0]:,} tokens", fix)
    before = min(budget, len(lengths) * max(lengths))
    log(f"{device} is out of memory: continuing with {before // 2:,} instead of {before:,} tokens per batch")
    return before // 2
