"""What the network says of a batch to compressed rows: on its device, and copied while the next batch is computed."""

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milco_pyserini.sparse import SparseBatch


@dataclass(frozen=True)
class Rows:
    """Sparse rows of one view. counts: int64 [B]. columns: int32 [n], ascending in a row. weights: float32 [n]."""

    counts: NDArray[np.int64]
    columns: NDArray[np.int32]
    weights: NDArray[np.float32]


def no_rows(count: int) -> Rows:
    """That many rows with nothing in them."""
    return Rows(np.zeros(count, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))


def pivot_entries(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Counts int64 [B], columns int32 [n] and weights float32 [n] of the pivot view, on the device of the logits.

    logits: float32 [B, V_e]. LogSat is taken of what is above zero alone; NaN stays, for an error later on.
    """
    above = (logits <= 0).logical_not_()
    places = above.flatten().nonzero().squeeze(1)
    weights = logits.flatten()[places].log1p_()
    return above.sum(dim=1), (places % logits.shape[1]).int(), weights


@dataclass(frozen=True)
class SourceTerms:
    """Which source terms a batch of texts has, and to which of them each token gives its weight.

    counts: int64 [B]. pieces: int64 [n], the terms' ids, ascending in a row. tokens: int64 [K], the tokens that count,
    by their place among all T. terms: int64 [K], the term of each. Known before the network has run.
    """

    counts: NDArray[np.int64]
    pieces: NDArray[np.int64]
    tokens: NDArray[np.int64]
    terms: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], width: int, dropped: NDArray[np.int64]) -> Self:
        """rows: token ids below width. dropped: ids whose tokens do not count."""
        lengths = [len(row) for row in rows]
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int64, sum(lengths))
        tokens = np.flatnonzero(~np.isin(ids, dropped)) if len(dropped) else np.arange(len(ids))
        numbers = np.repeat(np.arange(len(rows)), lengths)[tokens]
        keys, terms = np.unique(numbers * width + ids[tokens], return_inverse=True)
        return cls(np.bincount(keys // width, minlength=len(rows)), keys % width, tokens, terms)

    def pool(self, echo: NDArray[np.float32], pool: str, first_column: int) -> Rows:
        """The source view. echo: float32 [T]. pool: "sum" or "max" of a repeated piece's weights."""
        counted = echo[self.tokens]
        if pool == "max":
            weights = np.zeros(len(self.pieces), np.float32)
            np.maximum.at(weights, self.terms, counted)
        else:
            weights = np.bincount(self.terms, counted.astype(np.float64), len(self.pieces)).astype(np.float32)
        keep = ~(weights <= 0)
        numbers = np.repeat(np.arange(len(self.counts)), self.counts)[keep]
        counts = np.bincount(numbers, minlength=len(self.counts))
        return Rows(counts, (self.pieces[keep] + first_column).astype(np.int32), weights[keep])


def beside(pivot: Rows, source: Rows, english_size: int) -> SparseBatch:
    """Both views of the same texts as one batch; every pivot column is below every source column."""
    counts = pivot.counts + source.counts
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    for rows, first in ((pivot, indptr[:-1]), (source, indptr[:-1] + pivot.counts)):
        shift = first - np.cumsum(rows.counts) + rows.counts
        places = np.arange(len(rows.columns)) + np.repeat(shift, rows.counts)
        columns[places], weights[places] = rows.columns, rows.weights
    return SparseBatch(indptr, columns, weights, english_size)


class Side:
    """Work beside a GPU's main stream, which goes on with the next batch; on the CPU everything is in order.

    mark() after a batch is queued; then, in `with side.after(mark, ...)`, what is to happen to that batch alone.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def mark(self) -> "torch.cuda.Event | None":
        """What stands for everything that is queued so far."""
        return torch.cuda.current_stream(self._device).record_event() if self._stream else None

    def after(self, mark: "torch.cuda.Event | None", *tensors: Tensor) -> contextlib.AbstractContextManager:
        """A context in which work on the tensors waits for the mark, and for nothing that was queued later."""
        if self._stream is None or mark is None:
            return contextlib.nullcontext()
        self._stream.wait_event(mark)
        for tensor in tensors:
            # Its memory must not go back to the main stream before this one has read it.
            tensor.record_stream(self._stream)
        return torch.cuda.stream(self._stream)

    def to_host(self, *tensors: Tensor) -> list[NDArray]:
        """The tensors as arrays, copied together through pinned memory; waits for these copies alone."""
        if self._stream is None:
            return [tensor.numpy() for tensor in tensors]
        pinned = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
        for copy, tensor in zip(pinned, tensors, strict=True):
            copy.copy_(tensor, non_blocking=True)
        self._stream.synchronize()
        return [copy.numpy() for copy in pinned]
