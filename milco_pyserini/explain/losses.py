"""What happens to a vector between the encoder and the index, step by step: views left out, pruning, rounding."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from milco_pyserini.sparse import SOURCE, VIEWS, SparseBatch, Vocabulary
from milco_pyserini.sparse.pruning import PruningRule
from milco_pyserini.sparse.quantization import quantize


@dataclass(frozen=True)
class Steps:
    """How an index's vectors were made. scale: None where weights stay as they are."""

    views: tuple[str, ...]
    rules: tuple[PruningRule, ...] = ()
    scale: float | None = None

    @classmethod
    def of(cls, engine: str, vectors: Mapping) -> Self:
        """The steps that the manifest of an index's vectors tells of; engine: its name."""
        rules = tuple(map(PruningRule.parse, (vectors.get("pruning") or "").split()))
        whole = engine == "lucene" or vectors.get("format") != "parquet"
        return cls(tuple(vectors.get("views") or VIEWS), rules, vectors["scale"] if whole else None)

    def after(self, pruning: str | None) -> Self:
        """The steps that are left for a vector that these rules have pruned already, and nothing else is known of."""
        done = len((pruning or "").split())
        return type(self)(self.views, self.rules[done:], self.scale)


@dataclass(frozen=True)
class Account:
    """One vector before and after the steps.

    weights, kept: {term: weight}, the latter as the index has them. why: what took each of the others.
    """

    weights: dict[str, float]
    kept: dict[str, float]
    why: dict[str, str]


def follow(batch: SparseBatch, steps: Steps, vocabulary: Vocabulary) -> Account:
    """Take a batch of one vector through the steps."""
    why: dict[int, str] = {}

    def taken(before: SparseBatch, after: SparseBatch, reason: str) -> SparseBatch:
        for column in np.setdiff1d(before.columns, after.columns).tolist():
            why[column] = reason
        return after

    left = "source" if SOURCE not in steps.views else "pivot"
    kept = taken(batch, batch.view(*steps.views), f"the index has no {left} view")
    for rule in steps.rules:
        kept = taken(kept, rule(kept), f"pruning {rule}")
    if steps.scale is not None:
        whole, impacts = quantize(kept, steps.scale)
        kept = taken(kept, whole, f"rounds to 0 at scale {steps.scale:g}")
        kept = replace(kept, weights=impacts.astype(np.float32) / np.float32(steps.scale))
    terms = vocabulary.terms
    before, after = (dict(zip(terms[one.columns].tolist(), one.weights.tolist(), strict=True)) for one in (batch, kept))
    return Account(before, after, {terms[column]: reason for column, reason in why.items()})
