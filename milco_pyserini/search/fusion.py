"""Several runs made one, by Pyserini's fusion: reciprocal ranks, or sums of scores.

The rows are ours: Pyserini's reader takes a topic 007 for the number 7 and a document NA for none at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from milco_pyserini.index.protocol import Hits

RRF, INTERPOLATION, AVERAGE = METHODS = ("rrf", "interpolation", "average")
_TOPICS_AT_A_TIME = 100

Run = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Method:
    """How runs are fused. rrf_k is for rrf, alpha for interpolation, normalize for the others than rrf."""

    name: str = RRF
    rrf_k: int = 60
    alpha: float = 0.5
    normalize: bool = False


def fuse(runs: Sequence[Run], method: Method, depth: int = 1000, hits: int = 1000) -> Iterator[tuple[str, Hits]]:
    """Yield (topic, hits) of every topic of the runs, topics in the order of the first run that has them.

    runs: topic -> document -> score. depth: documents of each run that count. Ties, also those that float32 makes,
    stand in ascending order of docid, and are cut so.
    """
    topics = list(dict.fromkeys(topic for run in runs for topic in run))
    for start in range(0, len(topics), _TOPICS_AT_A_TIME):
        span = topics[start : start + _TOPICS_AT_A_TIME]
        merged = _merge([_trec_run(run, span) for run in runs], method, depth)
        found = {str(topic): rows for topic, rows in merged.run_data.groupby("topic", sort=False)}
        for topic in span:
            yield topic, _best(found[topic], hits)


def _merge(runs: list[Any], method: Method, depth: int) -> Any:
    """Pyserini's fusion of Pyserini's runs, of all their documents down to depth."""
    from pyserini.fusion import average, interpolation, reciprocal_rank_fusion
    from pyserini.trectools import RescoreMethod

    if method.name == RRF:
        return reciprocal_rank_fusion(runs, rrf_k=method.rrf_k, depth=depth)
    if method.normalize:
        runs = [run.rescore(method=RescoreMethod.NORMALIZE) for run in runs]
    if method.name == INTERPOLATION:
        return interpolation(runs, alpha=method.alpha, depth=depth)
    return average(runs, depth=depth)


def _trec_run(run: Run, topics: Sequence[str]) -> Any:
    """Topics of a run as Pyserini has them: best first, which it takes for granted, with ranks from 1 on."""
    import pandas as pd
    from pyserini.trectools import TrecRun

    rows = []
    for topic in topics:
        # Equal scores stay in the order of the file.
        ranked = sorted(run.get(topic, {}).items(), key=lambda item: -item[1])
        rows += [(topic, "Q0", docid, rank, score, "run") for rank, (docid, score) in enumerate(ranked, 1)]
    made = TrecRun()
    made.run_data = pd.DataFrame(rows, columns=TrecRun.columns).astype({"rank": "int64", "score": "float64"})
    return made


def _best(rows: Any, hits: int) -> Hits:
    docids, scores = rows["docid"].tolist(), rows["score"].to_numpy(np.float32)
    order = np.lexsort((np.array(docids), -scores))[:hits]
    return Hits([docids[place] for place in order], scores[order])
