"""Post-hoc pruning: four different things under four names (MILCO, ICLR 2026, pruning tables; model-notes 1.1).

top-k keeps the k strongest terms; percentile drops the weakest p percent of a vector's terms by count (the
paper's mass-pruning table); mass drops the weakest terms that together hold p percent of its weight (the paper's
Seismic table); threshold drops weights below t. Ties go to the lower column, so that a vector alone decides;
percentile and mass always leave the strongest term. A rule ranks both views of a vector together, or one view alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.sparse.batch import PIVOT, VIEWS, SparseBatch

_SPELLING = "Written METHOD:VALUE or VIEW:METHOD:VALUE, such as top-k:100 or pivot:mass:30."


@dataclass(frozen=True)
class Pruning:
    """A pruning rule: method and its value, as in "top-k:100" or "mass:30", for one view alone where one is named."""

    method: str
    value: float
    view: str | None = None

    def __str__(self) -> str:
        rule = f"{self.method}:{int(self.value) if self.value == int(self.value) else self.value}"
        return f"{self.view}:{rule}" if self.view else rule

    def __call__(self, batch: SparseBatch) -> SparseBatch:
        """The pruned vectors; with a view, the other one as it was."""
        if self.view is None:
            return batch.where(_METHODS[self.method](batch, self.value))
        mine = (batch.columns < batch.english_size) == (self.view == PIVOT)
        keep = ~mine
        keep[mine] = _METHODS[self.method](batch.where(mine), self.value)
        return batch.where(keep)

    @classmethod
    def parse(cls, text: str) -> "Pruning":
        """Read "METHOD:VALUE" or "VIEW:METHOD:VALUE".

        Raises MilcoError for an unknown view or method, or a value out of its range.
        """
        view, rule = (None, text) if text.count(":") < 2 else text.split(":", 1)
        if view is not None and view not in VIEWS:
            raise unknown_name("view", view, VIEWS, _SPELLING)
        method, _, value = rule.partition(":")
        if method not in _METHODS:
            raise unknown_name("pruning", rule, _METHODS, _SPELLING)
        try:
            number = float(value)
            if not math.isfinite(number):
                raise ValueError
        except ValueError:
            raise MilcoError(f"pruning {text!r}: {method} takes a number, as in {method}:{_EXAMPLE[method]}") from None
        _check(text, method, number)
        return cls(method, number, view)


def _check(text: str, method: str, value: float) -> None:
    if method == "top-k" and (value < 1 or value != int(value)):
        raise MilcoError(f"pruning {text!r}: top-k takes a whole number of terms, at least 1")
    if method in ("percentile", "mass") and not 0 <= value < 100:
        raise MilcoError(f"pruning {text!r}: {method} takes a percentage from 0 to below 100")
    if method == "threshold" and not value >= 0:
        raise MilcoError(f"pruning {text!r}: threshold takes a weight of at least 0")


def _strongest_first(batch: SparseBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Entries by row and falling weight, and the place (0, 1, ...) of each in its row."""
    order = np.lexsort((batch.columns, -batch.weights, batch.row_numbers()))
    place = np.arange(len(order)) - np.repeat(batch.indptr[:-1], batch.lengths())
    return order, place


def _keep_first(batch: SparseBatch, limits: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the limits[i] strongest entries of each row i."""
    order, place = _strongest_first(batch)
    keep = np.zeros(len(order), dtype=bool)
    keep[order] = place < np.repeat(limits, batch.lengths())
    return keep


def _top_k(batch: SparseBatch, k: float) -> NDArray[np.bool_]:
    return _keep_first(batch, np.full(len(batch), int(k)))


def _percentile(batch: SparseBatch, percent: float) -> NDArray[np.bool_]:
    lengths = batch.lengths()
    return _keep_first(batch, lengths - np.floor(lengths * percent / 100).astype(np.int64))


def _mass(batch: SparseBatch, percent: float) -> NDArray[np.bool_]:
    order, _ = _strongest_first(batch)
    # Sums of whole numbers are exact, so that the other vectors of the batch cannot tip a tie.
    before = np.concatenate([[0], np.cumsum(np.rint(batch.weights[order] * _MASS_UNITS).astype(np.int64))])
    totals = before[batch.indptr[1:]] - before[batch.indptr[:-1]]
    # What stands from an entry to its row's end: as long as that is within p percent, the entry is the tail.
    tail = np.repeat(before[batch.indptr[1:]], batch.lengths()) - before[:-1]
    keep = np.zeros(len(order), dtype=bool)
    keep[order] = tail > np.repeat(totals, batch.lengths()) * (percent / 100) * (1 + 1e-12)
    return keep


def _threshold(batch: SparseBatch, weight: float) -> NDArray[np.bool_]:
    return batch.weights >= np.float32(weight)


_METHODS: dict[str, Callable[[SparseBatch, float], NDArray[np.bool_]]] = {
    "top-k": _top_k,
    "percentile": _percentile,
    "mass": _mass,
    "threshold": _threshold,
}
_MASS_UNITS = np.float64(1 << 24)
_EXAMPLE = {"top-k": 100, "percentile": 50, "mass": 30, "threshold": 0.1}
