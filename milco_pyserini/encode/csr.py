"""Convert the logits and echo weights of a batch to CSR rows, while a GPU computes the next batch."""

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
from milco_pyserini.sparse.batch import row_pointers


@dataclass(frozen=True)
class ViewRows:
    """Sparse rows of one view. counts: int64 [B]. columns: int32 [n], ascending in a row. weights: float32 [n]."""

    counts: NDArray[np.int64]
    columns: NDArray[np.int32]
    weights: NDArray[np.float32]

    @classmethod
    def empty(cls, count: int) -> Self:
        """Return rows without entries."""
        return cls(np.zeros(count, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))


def pivot_entries(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the entries of the pivot view, log(1 + logit) of each positive logit; otherwise as positive_entries()."""
    counts, columns, positive = positive_entries(logits)
    return counts, columns, positive.log1p_()


def positive_entries(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the positive entries of dense rows, on their device.

    Args:
        rows: float32 [B, V_e]. NaN is kept, so that it is reported later.

    Returns:
        Counts int64 [B], columns int32 [n] and a copy of the entries, float32 [n].
    """
    above = (rows <= 0).logical_not_()
    positions = above.flatten().nonzero().squeeze(1)
    return above.sum(dim=1), (positions % rows.shape[1]).int(), rows.flatten()[positions]


@dataclass(frozen=True)
class SourceTerms:
    """The source terms of a batch and the tokens that contribute to each; known before the network has run.

    Args:
        counts: int64 [B], distinct terms per text.
        pieces: int64 [n], token ids of the terms, ascending in a row.
        tokens: int64 [K], positions among all T tokens of those that are not dropped.
        terms: int64 [K], index into pieces of the term that each of these tokens contributes to.
    """

    counts: NDArray[np.int64]
    pieces: NDArray[np.int64]
    tokens: NDArray[np.int64]
    terms: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], vocab_size: int, dropped: NDArray[np.int64]) -> Self:
        """Return the terms of texts given as token ids. dropped: ids that are not terms."""
        lengths = [len(row) for row in rows]
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int64, sum(lengths))
        tokens = np.flatnonzero(~np.isin(ids, dropped)) if len(dropped) else np.arange(len(ids))
        texts = np.repeat(np.arange(len(rows)), lengths)[tokens]
        keys, terms = np.unique(texts * vocab_size + ids[tokens], return_inverse=True)
        return cls(np.bincount(keys // vocab_size, minlength=len(rows)), keys % vocab_size, tokens, terms)

    def pool(self, echo: NDArray[np.float32], pool: str, first_column: int) -> ViewRows:
        """Return the rows of the source view.

        Args:
            echo: float32 [T], weight of each token.
            pool: "sum" or "max" of the weights of a repeated token.
            first_column: column of token id 0.
        """
        contributing = echo[self.tokens]
        if pool == "max":
            weights: NDArray[np.float32] = np.zeros(len(self.pieces), np.float32)
            np.maximum.at(weights, self.terms, contributing)
        else:
            weights = np.bincount(self.terms, contributing.astype(np.float64), len(self.pieces)).astype(np.float32)
        keep = ~(weights <= 0)
        texts = np.repeat(np.arange(len(self.counts)), self.counts)[keep]
        counts = np.bincount(texts, minlength=len(self.counts))
        return ViewRows(counts, (self.pieces[keep] + first_column).astype(np.int32), weights[keep])


def concat_views(pivot: ViewRows, source: ViewRows, english_size: int) -> SparseBatch:
    """Return both views of the same texts as one batch; every pivot column is below every source column."""
    counts = pivot.counts + source.counts
    indptr = row_pointers(counts)
    columns, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    for rows, first in ((pivot, indptr[:-1]), (source, indptr[:-1] + pivot.counts)):
        shift = first - np.cumsum(rows.counts) + rows.counts
        positions = np.arange(len(rows.columns)) + np.repeat(shift, rows.counts)
        columns[positions], weights[positions] = rows.columns, rows.weights
    return SparseBatch(indptr, columns, weights, english_size)


def empty_batch(count: int, english_size: int) -> SparseBatch:
    """Return vectors without terms."""
    return concat_views(ViewRows.empty(count), ViewRows.empty(count), english_size)


class CopyStream:
    """A CUDA stream for work on a finished batch, while the main stream computes the next; without CUDA, nothing.

    Call event() after a batch is queued; later, use `with copy_stream.after(event, ...)` for work on that batch only.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def event(self) -> "torch.cuda.Event | None":
        """Return an event that occurs when everything queued so far is computed."""
        return torch.cuda.current_stream(self._device).record_event() if self._stream else None

    def after(self, event: "torch.cuda.Event | None", *tensors: Tensor) -> contextlib.AbstractContextManager:
        """Return a context in which work on the tensors waits for the event, and for nothing queued later."""
        if self._stream is None or event is None:
            return contextlib.nullcontext()
        self._stream.wait_event(event)
        for tensor in tensors:
            # The main stream must not reuse the memory before this stream has read it.
            tensor.record_stream(self._stream)
        return torch.cuda.stream(self._stream)

    def to_host(self, *tensors: Tensor) -> list[NDArray]:
        """Return the tensors as arrays, copied together through pinned memory. Waits for these copies only."""
        if self._stream is None:
            return [tensor.cpu().numpy() for tensor in tensors]
        pinned = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
        for copy, tensor in zip(pinned, tensors, strict=True):
            copy.copy_(tensor, non_blocking=True)
        self._stream.synchronize()
        return [copy.numpy() for copy in pinned]
