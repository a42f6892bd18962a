"""Compare int8 with the precision that auto chooses, on some of the texts, before a corpus is encoded with it."""

import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from milco_pyserini.console import counted, log
from milco_pyserini.corpora import Corpus, Topics
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.parts import PartEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import SparseBatch

SAMPLE = 64
_STRONGEST = 25
# Both precisions are timed in turn, on a part of the sample each time.
_ROUNDS = 4


@dataclass(frozen=True)
class Int8Comparison:
    """The gain in speed and the loss in precision of int8 on a sample of texts.

    Args:
        texts: of the sample.
        other: the dtype that int8 is compared with.
        speed: texts per second of int8 / of the other, the median of some rounds.
        overlap: share of a text's 25 strongest terms that both have, from 0 to 1: mean.
        lowest_overlap: of all texts.
        score_change: of the scores of the texts, as queries, for one another: the sum of absolute differences / the
            sum of scores.
    """

    texts: int
    other: str
    speed: float
    overlap: float
    lowest_overlap: float
    score_change: float


def validate_int8(records: Corpus | Topics, encoder: PartEncoder) -> None:
    """Compare int8 on texts of the first part and report the result. Raises MilcoError if int8 is slower.

    encoder: with its plan, of dtype int8.
    """
    found = compare_int8(records, encoder)
    common = f"{found.overlap:.1%} of a text's {_STRONGEST} strongest terms in common"
    log(
        f"int8 compared with {found.other} on {counted(found.texts, 'text')} of {records.name}: "
        f"{found.speed:.2f} times the texts/s, {common} (lowest: {found.lowest_overlap:.0%}), scores change by "
        f"{found.score_change:.1%}"
    )
    if found.speed < 1:
        raise MilcoError(
            f"--dtype int8 is slower than {found.other} here: {found.speed:.2f} times the texts/s, measured on "
            f"{counted(found.texts, 'text')} of {records.name}. Use --dtype {found.other}"
        )


def compare_int8(records: Corpus | Topics, encoder: PartEncoder) -> Int8Comparison:
    """Encode SAMPLE texts, spread over the first part, in int8 and in the dtype that "auto" chooses."""
    first = list(itertools.islice(records, encoder.plan.part_size))
    places = np.linspace(0, len(first) - 1, min(SAMPLE, len(first))).astype(int)
    part = encoder.tokenize(0, [first[place] for place in places])
    int8: MilcoEncoder = encoder.encoder.query_encoder if isinstance(records, Topics) else encoder.encoder
    precise = int8.with_dtype("auto")
    plan, rows = encoder.plan, part.rows
    # The first pass of each packs its weights.
    vectors, expected = (each.encode_rows(rows, plan.views, plan.batch_size, part.ids) for each in (int8, precise))
    rounds = [rows[start::_ROUNDS] or rows for start in range(_ROUNDS)]
    times = [[_seconds(each, some, plan.views, plan.batch_size) for each in (int8, precise)] for some in rounds]
    common = [
        len(one & other) / max(len(one), len(other), 1)
        for one, other in zip(*(_strongest(batch) for batch in (vectors, expected)), strict=True)
        if one or other
    ]
    scores = expected.dot(expected)
    change = np.abs(expected.dot(vectors) - scores).sum() / max(scores.sum(), np.finfo(np.float32).tiny)
    return Int8Comparison(
        len(places),
        str(precise.dtype).removeprefix("torch."),
        statistics.median(other / one for one, other in times),
        statistics.mean(common or [1.0]),
        min(common, default=1.0),
        float(change),
    )


def _seconds(encoder: MilcoEncoder, rows: Sequence[Sequence[int]], views: Sequence[str], batch_size: int) -> float:
    started = time.perf_counter()
    encoder.encode_rows(rows, views, batch_size)
    return time.perf_counter() - started


def _strongest(vectors: SparseBatch) -> list[set[int]]:
    """Return the columns of each vector's strongest terms."""
    found = []
    for start, end in itertools.pairwise(vectors.indptr):
        strongest = np.argsort(-vectors.weights[start:end], kind="stable")[:_STRONGEST]
        found.append(set(vectors.columns[start:end][strongest].tolist()))
    return found
