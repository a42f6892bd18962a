"""Fuse runs: by ranks (RRF), normalized scores (RSF), or interpolation or average of scores, as Pyserini does."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from milco_pyserini.errors import MilcoError, ParameterError, parameter, validate_name
from milco_pyserini.index.hits import Hits
from milco_pyserini.options import validate_number
from milco_pyserini.request import HYBRID_METHODS

_FLOAT32_MAX = float(np.finfo(np.float32).max)
METHODS = (*HYBRID_METHODS, "interpolation", "average")


def fuse(
    runs: Sequence[Mapping[str, Mapping[str, float]]],
    method: str = "rrf",
    *,
    rrf_k: int = 60,
    weights: Sequence[float] | None = None,
    alpha: float = 0.5,
    normalize: bool = False,
    depth: int = 1000,
    k: int = 1000,
) -> Iterator[tuple[str, Hits]]:
    """Return (topic, hits) for every topic of the runs, in the order of the first run that has it.

    Ties, also those of float32 scores, are in ascending order of docid.

    Args:
        runs: topic -> docid -> score. Equal scores are ranked in the order of the run.
        method: "rrf" sums 1 / (rrf_k + rank) (Cormack et al., 2009), "rsf" takes the weighted mean of scores that are
            min-max normalized for each run and topic (relative score fusion), "interpolation" weighs the scores of two
            runs by alpha and 1 - alpha, "average" takes the mean score.
        rrf_k: the larger, the less the first ranks dominate.
        weights: of rrf and rsf; a positive number for each run (default: equal).
        normalize: of interpolation and average; min-max normalize the scores of each run and topic first.
        depth: number of best documents of each run that count.
        k: number of documents per topic in the result.

    Raises:
        MilcoError: the method is unknown, or takes another number of runs; a number is out of range; a score is not a
            finite float32.
    """
    count = len(runs)
    if count < 2:
        raise MilcoError(f"fusion takes two runs or more, got {count}")
    validate_name("fusion method", method, METHODS)
    if method == "interpolation" and count != 2:
        raise MilcoError(f"interpolation takes two runs, got {count}: use rrf or average")
    if weights is not None and method not in HYBRID_METHODS:
        raise ParameterError("weights", None, "requires " + parameter("method", " or ".join(HYBRID_METHODS)))
    if weights is not None and len(weights) != count:
        raise ParameterError("weights", list(weights), f"must be one for each of {count}")
    for weight in weights or ():
        validate_number("weights", weight, above=0)
    for name, value in (("rrf_k", rrf_k), ("depth", depth), ("k", k)):
        validate_number(name, value, minimum=1)
    validate_number("alpha", alpha, 0, 1)
    for topic, scores in (item for run in runs for item in run.items()):
        for docid, score in scores.items():
            # False for NaN.
            if not abs(score) <= _FLOAT32_MAX:
                raise MilcoError(f"topic {topic!r}, document {docid!r}: the score {score} is not a finite float32")
    factors = [alpha, 1 - alpha] if method == "interpolation" else list(weights or [1.0] * count)
    if method in ("rsf", "average"):
        factors = [weight / math.fsum(factors) for weight in factors]

    def by_topic() -> Iterator[tuple[str, Hits]]:
        for topic in dict.fromkeys(topic for run in runs for topic in run):
            values: dict[str, list[float]] = defaultdict(list)
            for run, weight in zip(runs, factors, strict=True):
                ranked = sorted(run.get(topic, {}).items(), key=lambda item: -item[1])
                scores = np.array([score for _, score in ranked])
                if method == "rrf":
                    scores = 1 / (rrf_k + np.arange(1, len(ranked) + 1))
                elif (normalize or method == "rsf") and len(ranked):
                    span = scores.max() - scores.min()
                    scores = (scores - scores.min()) / span if span else np.ones(len(scores))
                for (docid, _), score in zip(ranked[:depth], (weight * scores).tolist(), strict=False):
                    values[docid].append(score)
            docids = list(values)
            # The sum does not depend on the order of the runs.
            fused = np.array([math.fsum(values[docid]) for docid in docids], np.float32)
            order = np.lexsort((np.array(docids), -fused))[:k]
            yield topic, Hits([docids[place] for place in order], fused[order])

    return by_topic()
