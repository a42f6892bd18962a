"""Quantize weights to the integers of an impact index: round(weight x scale), without those that round to zero."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.options import validate_number
from milco_pyserini.sparse.batch import SparseBatch

SCALE = 100.0
# Lucene's frequencies are Java's int.
MAX_IMPACT = 2**31 - 1


def validate_scale(scale: float) -> None:
    """Raise MilcoError unless the scale is above 0 and at most MAX_IMPACT."""
    validate_number("scale", scale, above=0, maximum=MAX_IMPACT)


def quantize(batch: SparseBatch, scale: float = SCALE) -> tuple[SparseBatch, NDArray[np.int32]]:
    """Return the entries with an impact of at least 1, and their impacts: int32 [n].

    Halves are rounded to even, as by IEEE 754 and numpy. A source weight has no upper limit (a sum over a repeated
    token), so nothing is clipped: an impact above MAX_IMPACT raises MilcoError.
    """
    impacts = _impacts(batch.weights, scale)
    keep = impacts > 0
    return batch.where(keep), impacts[keep].astype(np.int32)


def quantized_vectors(batch: SparseBatch, scale: float, terms: NDArray[np.object_]) -> Iterator[dict[str, int]]:
    """Yield {term: impact} of each vector; impacts are >= 1. terms: the term of each column."""
    kept, impacts = quantize(batch, scale)
    names, values = terms[kept.columns].tolist(), impacts.tolist()
    for start, stop in pairwise(kept.indptr.tolist()):
        yield dict(zip(names[start:stop], values[start:stop], strict=True))


def quantize_vector(vector: dict[str, float], scale: float) -> dict[str, int]:
    """Return {term: impact} of one {term: weight}, by the same rule."""
    impacts = _impacts(np.fromiter(vector.values(), np.float32, len(vector)), scale)
    return {term: impact for term, impact in zip(vector, impacts.tolist(), strict=True) if impact > 0}


def _impacts(weights: NDArray[np.float32], scale: float) -> NDArray[np.int64]:
    # The product in float32 decides which values are halves; an overflow to infinity is found below.
    with np.errstate(over="ignore"):
        impacts = np.rint(weights * np.float32(scale)).astype(np.float64)
    # Negated, so that NaN is an error, too.
    wrong = np.flatnonzero(~(impacts <= MAX_IMPACT))
    if len(wrong):
        raise MilcoError(
            f"weight {weights[wrong[0]]:g} x scale {scale:g} is above {MAX_IMPACT:,}, the maximum impact",
            Message("Choose a smaller {scale}."),
        )
    return impacts.astype(np.int64)
