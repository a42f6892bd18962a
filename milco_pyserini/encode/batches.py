"""Tokenised texts to vectors on one device: batches under a token budget, compressed one behind the network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milco_pyserini.console import say
from milco_pyserini.encode.compression import Rows, Side, SourceTerms, beside, no_rows, pivot_entries
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.forward import Forward, PaddedForward
from milco_pyserini.sparse import PIVOT, SOURCE, SparseBatch

# Tokens that one forward pass takes, padding included where there is padding: so many that launching a GPU's work
# takes less time than the work, so few that they stay in the caches of a CPU.
TOKEN_BUDGET = {"cpu": 4096, "cuda": 65536}
# Batches that are on the device at once.
_IN_FLIGHT = 2


@dataclass(frozen=True)
class _Queued:
    """A batch that the network is at work on or has been: what it says, and what tells that it is done."""

    texts: int
    logits: Tensor | None
    echo: Tensor | None
    source: SourceTerms | None
    mark: Any


class BatchRunner:
    """A Forward with all that makes vectors of its output.

    english_size, source_size: how many columns either view has. source_pool: "sum" or "max" of a repeated token's
    weights. dropped: ids of tokens that have no part in the source view.
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
        self.token_budget = TOKEN_BUDGET[device.type]
        self._forward = forward
        self._device = device
        self._english_size = english_size
        self._source_size = source_size
        self._source_pool = source_pool
        self._dropped = np.array(dropped, np.int64)
        self._side = Side(device)

    def run_one(self, rows: Sequence[Sequence[int]], views: Sequence[str]) -> SparseBatch:
        """Vectors of tokenised texts, none of them blank, in one forward pass."""
        return self._finish(self._queue(rows, views))

    def run(self, rows: Sequence[Sequence[int]], views: Sequence[str], batch_size: int) -> Iterator[SparseBatch]:
        """Vectors of tokenised texts sorted by length, batch after batch.

        Where the device has no memory for a batch, half the tokens go into one from then on. Raises MilcoError if it
        has none for a single text.
        """
        lengths = [len(row) for row in rows]
        queued: list[_Queued] = []
        done, begun, in_flight = 0, 0, _IN_FLIGHT
        while done < len(rows):
            try:
                while begun < len(rows) and len(queued) < in_flight:
                    stop = self.batch_end(lengths, begun, batch_size)
                    queued.append(self._queue(rows[begun:stop], views))
                    begun = stop
                batch = self._finish(queued.pop(0))
            except torch.OutOfMemoryError:
                # What is queued is forgotten, so that its memory is free, and done again.
                queued.clear()
                begun = done
                self._halve(lengths[done : self.batch_end(lengths, done, batch_size)], alone=in_flight == 1)
                in_flight = 1
                continue
            done += len(batch)
            yield batch

    def batch_end(self, lengths: Sequence[int], start: int, batch_size: int) -> int:
        """Where the batch ends that begins at start: batch_size texts and the token budget at most, or one text."""
        padded, tokens = isinstance(self._forward, PaddedForward), 0
        last = min(start + batch_size, len(lengths))
        for place in range(start, last):
            tokens = (place - start + 1) * lengths[place] if padded else tokens + lengths[place]
            if tokens > self.token_budget and place > start:
                return place
        return last

    def _halve(self, lengths: Sequence[int], alone: bool) -> None:
        """Make batches smaller than one of these lengths, which had no room; alone: on a device without another."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if len(lengths) > 1 or alone:
            self.token_budget = halved_budget(self.token_budget, lengths, self._device)

    def _queue(self, rows: Sequence[Sequence[int]], views: Sequence[str]) -> _Queued:
        """Set the network to work on a batch; on a GPU, without waiting for it."""
        logits, echo = self._forward(rows)
        mark = self._side.mark()
        # On a GPU this is done while the network is at work.
        source = None
        if SOURCE in views and echo is not None:
            source = SourceTerms.of(rows, self._source_size, self._dropped)
        return _Queued(len(rows), logits if PIVOT in views else None, echo if source else None, source, mark)

    @torch.inference_mode()
    def _finish(self, queued: _Queued) -> SparseBatch:
        """The vectors of a batch, as soon as the network is done with it."""
        pivot = source = no_rows(queued.texts)
        given = [tensor for tensor in (queued.logits, queued.echo) if tensor is not None]
        with self._side.after(queued.mark, *given):
            entries = () if queued.logits is None else pivot_entries(queued.logits)
            arrays = self._side.to_host(*entries, *(() if queued.echo is None else (queued.echo,)))
        if queued.logits is not None:
            pivot = Rows(*arrays[:3])
        if queued.source is not None:
            source = queued.source.pool(arrays[-1], self._source_pool, self._english_size)
        return beside(pivot, source, self._english_size)


def halved_budget(budget: int, lengths: Sequence[int], device: torch.device) -> int:
    """Half the tokens of a batch of these lengths, for which a device had no memory; says so.

    Raises MilcoError if the batch was of a single text.
    """
    if len(lengths) == 1:
        raise MilcoError(
            f"{device} has no memory for one text of {lengths[0]:,} tokens: "
            "choose a smaller --max-length, or --device cpu"
        )
    before = min(budget, len(lengths) * max(lengths))
    say(f"{device} is out of memory: going on with {before // 2:,} tokens in a batch instead of {before:,}")
    return before // 2


def empty_batch(count: int, english_size: int) -> SparseBatch:
    """That many vectors without a term."""
    return beside(no_rows(count), no_rows(count), english_size)
