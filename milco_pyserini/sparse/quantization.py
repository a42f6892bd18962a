"""Weights to the whole numbers of an impact index: round(weight x scale), what rounds to zero left out."""

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse.batch import SparseBatch

SCALE = 100.0
# Lucene's frequencies are Java's int.
MAX_IMPACT = 2**31 - 1


def validate_scale(scale: float) -> None:
    """Raise MilcoError for a scale that no weight could be multiplied with: NaN and infinity are such."""
    if not 0 < scale <= MAX_IMPACT:
        raise MilcoError(f"--scale {scale:g}: must be above 0 and at most {MAX_IMPACT:,}, the greatest impact there is")


def quantize(batch: SparseBatch, scale: float = SCALE) -> tuple[SparseBatch, NDArray[np.int32]]:
    """The entries that stay, and their whole-number weights: int32 [n], >= 1.

    A half goes to the even number, as IEEE 754 and numpy round. A source weight has no upper limit (a sum over a
    repeated token), so nothing is clipped: an impact above MAX_IMPACT raises MilcoError.
    """
    impacts = _impacts(batch.weights, scale)
    keep = impacts > 0
    return batch.where(keep), impacts[keep].astype(np.int32)


def quantize_vector(vector: dict[str, float], scale: float) -> dict[str, int]:
    """One {term: weight} as {term: impact}: the same rule for a query."""
    impacts = _impacts(np.fromiter(vector.values(), np.float32, len(vector)), scale)
    return {term: impact for term, impact in zip(vector, impacts.tolist(), strict=True) if impact > 0}


def _impacts(weights: NDArray[np.float32], scale: float) -> NDArray[np.int64]:
    # The product in float32 decides where a half stands; an overflow to infinity is found below.
    with np.errstate(over="ignore"):
        impacts = np.rint(weights * np.float32(scale)).astype(np.float64)
    # Written so that NaN, which is neither above nor below, is refused too.
    wrong = np.flatnonzero(~(impacts <= MAX_IMPACT))
    if len(wrong):
        raise MilcoError(
            f"weight {weights[wrong[0]]:g} x scale {scale:g} is above {MAX_IMPACT:,}, the greatest impact there is: "
            "choose a smaller --scale"
        )
    return impacts.astype(np.int64)
