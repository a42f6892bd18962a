"""A run on disk: one line a hit, in the order of the ranking.

trec_eval reads scores as 32-bit floats and sorts by them again, ties by descending docid. A ranking with ties
survives that only if no two printed scores are equal, so each tie is printed one float32 step below the last.
"""

from typing import IO

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.errors import MilcoError
from milco_pyserini.index.protocol import Hits

FORMATS = ("trec", "msmarco")


def check_tag(tag: str) -> None:
    """Raise MilcoError for a tag that no run can hold."""
    if tag.split() != [tag]:
        raise MilcoError(f"--tag {tag!r} is empty or holds white space, which ends a run's column")


def write_hits(handle: IO[str], topic: str, hits: Hits, output_format: str, tag: str) -> None:
    """Write one topic's lines: "topic Q0 docid rank score tag", or MS MARCO's "topic<TAB>docid<TAB>rank"."""
    if output_format == "msmarco":
        lines = [f"{topic}\t{docid}\t{rank}\n" for rank, docid in enumerate(hits.docids, 1)]
    else:
        scored = zip(hits.docids, printed_scores(hits.scores), strict=True)
        lines = [f"{topic} Q0 {docid} {rank} {score} {tag}\n" for rank, (docid, score) in enumerate(scored, 1)]
    handle.writelines(lines)


def printed_scores(scores: NDArray[np.floating]) -> list[str]:
    """The scores (never increasing) as float32 text, strictly decreasing: as near to them as that allows."""
    strict = scores.astype(np.float32)
    for place in np.flatnonzero(strict[1:] >= strict[:-1]) + 1:
        # A step may reach into the scores below, and so on down the list.
        while place < len(strict) and strict[place] >= strict[place - 1]:
            strict[place] = np.nextafter(strict[place - 1], np.float32(-np.inf))
            place += 1
    return [str(score) for score in strict]
