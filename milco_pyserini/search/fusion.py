"""Fuse runs: reciprocal rank fusion, interpolation or average of scores, with the results of Pyserini's fusion."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from milco_pyserini.index.protocol import Hits

RRF, INTERPOLATION, AVERAGE = METHODS = ("rrf", "interpolation", "average")

Run = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class FusionMethod:
    """A way to fuse runs.

    Args:
        name: "rrf" sums 1 / (rrf_k + rank) (Cormack et al., 2009), "interpolation" weighs the scores of two runs,
            "average" takes the mean score.
        rrf_k: of rrf; the larger, the less the first ranks dominate.
        alpha: of interpolation; weight of the first run, the second has 1 - alpha.
        normalize: of interpolation and average; min-max normalize the scores of each run and topic first.
    """

    name: str = RRF
    rrf_k: int = 60
    alpha: float = 0.5
    normalize: bool = False


def fuse(runs: Sequence[Run], method: FusionMethod, depth: int = 1000, hits: int = 1000) -> Iterator[tuple[str, Hits]]:
    """Yield (topic, hits) for every topic of the runs, in the order of the first run that has it.

    Ties, also those of float32 scores, are in ascending order of docid.

    Args:
        runs: topic -> docid -> score. Equal scores are ranked in the order of the run.
        depth: number of best documents of each run that count.
        hits: number of documents per topic in the result.
    """
    for topic in dict.fromkeys(topic for run in runs for topic in run):
        values: dict[str, list[float]] = defaultdict(list)
        for number, run in enumerate(runs):
            ranked = sorted(run.get(topic, {}).items(), key=lambda item: -item[1])
            scores = np.array([score for _, score in ranked])
            if method.name == RRF:
                scores = 1 / (method.rrf_k + np.arange(1, len(ranked) + 1))
            elif method.normalize and len(ranked):
                span = scores.max() - scores.min()
                scores = (scores - scores.min()) / span if span else np.ones(len(scores))
            if method.name == AVERAGE:
                scores = scores / len(runs)
            elif method.name == INTERPOLATION:
                scores = scores * (method.alpha if number == 0 else 1 - method.alpha)
            for (docid, _), score in zip(ranked[:depth], scores.tolist(), strict=False):
                values[docid].append(score)
        docids = list(values)
        # The sum does not depend on the order of the runs.
        fused = np.array([math.fsum(values[docid]) for docid in docids], np.float32)
        order = np.lexsort((np.array(docids), -fused))[:hits]
        yield topic, Hits([docids[place] for place in order], fused[order])
