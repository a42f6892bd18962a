"""Post-hoc pruning: four methods (MILCO, ICLR 2026, pruning tables; model-notes 1.1).

top-k keeps the k strongest terms; percentile drops the weakest p percent of a vector's terms by count (the
paper's mass-pruning table); mass drops the weakest terms that together hold p percent of its weight (the paper's
Seismic table); threshold drops weights below t. Ties go to the lower column, so that a vector alone decides;
percentile and mass always keep the strongest term. A rule ranks both views of a vector together, or only one view.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from milco_pyserini.errors import MilcoError, ParameterError, parameter, unknown_name
from milco_pyserini.sparse.batch import PIVOT, VIEWS, SparseBatch
from milco_pyserini.sparse.quantization import quantized_vectors
from milco_pyserini.sparse.store import PlainStore, VectorStore

_SPELLING = "Written METHOD:VALUE or VIEW:METHOD:VALUE, such as top-k:100 or pivot:mass:30."


@dataclass(frozen=True)
class PruningRule:
    """A pruning rule: method and value, as in "top-k:100" or "mass:30", for both views together or for one view.

    Raises MilcoError for an unknown view or method, or a value out of range.
    """

    method: str
    value: float
    view: str | None = None

    def __post_init__(self) -> None:
        method, value = self.method, self.value
        if self.view is not None and self.view not in VIEWS:
            raise unknown_name("view", self.view, VIEWS, _SPELLING)
        if method not in _METHODS:
            raise unknown_name("pruning", method, _METHODS, _SPELLING)
        example = f"{method}:{_EXAMPLE[method]}"
        if not math.isfinite(value):
            raise MilcoError(f"pruning '{method}:{value}': {method} takes a number, as in {example}")
        what = f"pruning {str(self)!r}: {method} takes"
        if method == "top-k" and (value < 1 or value != int(value)):
            raise MilcoError(f"{what} an integer of at least 1, the number of terms")
        if method in ("percentile", "mass") and not 0 <= value < 100:
            raise MilcoError(f"{what} a percentage from 0 to below 100")
        if method in ("percentile", "mass") and 0 < value < 1:
            raise MilcoError(f"{what} a percentage of what to drop, as in {example}")
        if method == "threshold" and value < 0:
            raise MilcoError(f"{what} a weight of at least 0")

    def __str__(self) -> str:
        rule = f"{self.method}:{int(self.value) if self.value == int(self.value) else self.value}"
        return f"{self.view}:{rule}" if self.view else rule

    def __call__(self, batch: SparseBatch) -> SparseBatch:
        """Return the pruned vectors; a rule for one view does not change the other."""
        if self.view is None:
            return batch.where(_METHODS[self.method](batch, self.value))
        in_view = (batch.columns < batch.english_size) == (self.view == PIVOT)
        keep = ~in_view
        keep[in_view] = _METHODS[self.method](batch.where(in_view), self.value)
        return batch.where(keep)

    @classmethod
    def parse(cls, text: str) -> "PruningRule":
        """Parse "METHOD:VALUE" or "VIEW:METHOD:VALUE". Raises MilcoError as PruningRule() does."""
        view, rule = (None, text) if text.count(":") < 2 else text.split(":", 1)
        method, _, value = rule.partition(":")
        try:
            # An unknown method is reported first.
            return cls(method, float(value) if method in _METHODS else 0, view)
        except ValueError:
            raise MilcoError(f"pruning {text!r}: {method} takes a number, as in {method}:{_EXAMPLE[method]}") from None


class PrunedStore:
    """A vector store as pruning rules leave it when it is read; nothing is written.

    Its manifest names rules and views as if the encoder had pruned. Weights are the store's: in JSONL, impact / scale,
    so that the impact decides, not the float weight as during encoding.

    Args:
        store: the store to read.
        rules: applied one after the other.
        views: the views to keep (default: all).

    Attributes:
        entries, kept, emptied: of the last pass, the terms before pruning, the terms after it, and the documents that
            lost all their terms.

    Raises:
        MilcoError: a view is unknown, or the store does not have it.
    """

    def __init__(
        self, store: VectorStore | PlainStore, rules: Sequence[PruningRule] = (), views: Sequence[str] = ()
    ) -> None:
        self.entries = self.kept = self.emptied = 0
        self._store = store
        self._rules = rules
        self._views = views
        self.path, before = store.path, store.manifest
        pruning = " ".join([*before.rules, *map(str, rules)]) or None
        self.manifest = structs.replace(before, pruning=pruning, views=list(views) or before.views)
        for view in (*views, *(rule.view for rule in rules if rule.view)):
            if view not in VIEWS:
                raise unknown_name("view", view, VIEWS)
            if isinstance(store, PlainStore):
                raise MilcoError(f"view {view!r}: {store.path} holds external vectors, whose views are not known")
            if view not in (available := store.manifest.views or VIEWS):
                raise MilcoError(f"view {view!r}: {store.path} has only the {' '.join(available)} view")
            if views and view not in views:
                rule = next(rule for rule in rules if rule.view == view)
                raise ParameterError("prune", rule, f"the {view} view is dropped by " + parameter("views", views))

    @property
    def terms(self) -> list[str]:
        """Term of each column, as in the store."""
        return self._store.terms

    def documents(self) -> Iterator[bytes]:
        """Yield what the store holds next to every vector, in their order."""
        return self._store.documents()

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield every document's id and {term: impact}; impacts are >= 1."""
        for names, batch in self.batches():
            vectors = quantized_vectors(batch, self.manifest.scale, np.asarray(self.terms, object))
            yield from zip(names, vectors, strict=True)

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield document ids and float weights, part by part."""
        self.entries = self.kept = self.emptied = 0
        for names, batch in self._store.batches():
            pruned = batch.view(*self._views) if self._views else batch
            for rule in self._rules:
                pruned = rule(pruned)
            self.entries += len(batch.columns)
            self.kept += len(pruned.columns)
            self.emptied += int(np.count_nonzero((batch.lengths() > 0) & (pruned.lengths() == 0)))
            yield names, pruned


def _keep_first(batch: SparseBatch, limits: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the limits[i] strongest entries of each row i, at least one; the first of equal ones."""
    keep, lengths = np.ones(len(batch.columns), np.bool_), batch.lengths()
    over = np.flatnonzero(lengths > limits)
    # Rows of similar length are sorted at once.
    over = over[np.argsort(lengths[over], kind="stable")]
    for rows in np.split(over, range(_SORTED_ROWS, len(over), _SORTED_ROWS)):
        columns, kept = np.arange(lengths[rows].max(initial=0)), limits[rows][:, None]
        filled = columns < lengths[rows][:, None]
        places = np.where(filled, batch.indptr[rows][:, None] + columns, 0)
        weights = np.where(filled, batch.weights[places], -np.inf)
        weakest = np.take_along_axis(np.sort(weights, axis=1), len(columns) - kept, axis=1)
        above, tied = weights > weakest, weights == weakest
        ties = kept - above.sum(axis=1, keepdims=True)
        keep[places[filled]] = (above | (tied & (np.cumsum(tied, axis=1) <= ties)))[filled]
    return keep


def _top_k(batch: SparseBatch, k: float) -> NDArray[np.bool_]:
    return _keep_first(batch, np.full(len(batch), int(k)))


def _percentile(batch: SparseBatch, percent: float) -> NDArray[np.bool_]:
    lengths = batch.lengths()
    return _keep_first(batch, lengths - np.floor(lengths * percent / 100).astype(np.int64))


def _mass(batch: SparseBatch, percent: float) -> NDArray[np.bool_]:
    # Entries by row and descending weight.
    order = np.lexsort((batch.columns, -batch.weights, batch.row_numbers()))
    # Sums of integers are exact, so that the other vectors of the batch cannot decide a tie.
    before = np.concatenate([[0], np.cumsum(np.rint(batch.weights[order] * _MASS_UNITS).astype(np.int64))])
    totals = before[batch.indptr[1:]] - before[batch.indptr[:-1]]
    # The weight from an entry to the end of its row: an entry with at most p percent is part of the tail.
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
_SORTED_ROWS = 256
_MASS_UNITS = np.float64(1 << 24)
_EXAMPLE = {"top-k": 100, "percentile": 50, "mass": 30, "threshold": 0.1}
