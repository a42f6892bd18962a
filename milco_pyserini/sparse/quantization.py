"""Weights to the whole numbers of an impact index: round(weight x scale), what rounds to zero left out."""

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.sparse.batch import SparseBatch

SCALE = 100.0


def quantize(batch: SparseBatch, scale: float = SCALE) -> tuple[SparseBatch, NDArray[np.int32]]:
    """The entries that stay, and their whole-number weights: int32 [n], >= 1.

    A half goes to the even number, as IEEE 754 and numpy round. A source weight has no upper limit (a sum over a
    repeated token), so nothing is clipped.
    """
    impacts = np.rint(batch.weights * np.float32(scale)).astype(np.int32)
    keep = impacts > 0
    return batch.where(keep), impacts[keep]


def quantize_vector(vector: dict[str, float], scale: float) -> dict[str, int]:
    """One {term: weight} as {term: impact}: the same rule for a query."""
    return {
        term: int(impact) for term, w in vector.items() if (impact := np.rint(np.float32(w) * np.float32(scale))) > 0
    }
