"""Read and write run files: TREC (qid Q0 docid rank score tag) and MS MARCO (qid docid rank), plain or .gz.

trec_eval reads scores as 32-bit floats and sorts by them again, ties by descending docid. A ranking with ties survives
that only if no two printed scores are equal, so each tie is printed one float32 step below the last.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.errors import MilcoError, ParameterError, shown
from milco_pyserini.io.lines import first_line, numbered_lines

Run = dict[str, dict[str, float]]

TREC_COLUMNS = 6
MSMARCO_COLUMNS = 3
FORMATS = ("trec", "msmarco")
_TRAINED_ON = "-trained-on-"
_FLOAT32_MAX = 3.4028234663852886e38


class Ranking(Protocol):
    """Docids and scores, best first: index.Hits."""

    @property
    def docids(self) -> Sequence[str]:
        """One string per document."""

    @property
    def scores(self) -> NDArray[np.floating]:
        """Never increasing."""


def read_run(path: str | Path) -> Run:
    """Read a run: query id -> document id -> score, in the order of the file.

    As in trec_eval, the rank column of a TREC run is ignored: scores order the documents. An MS MARCO run has no
    scores, minus the rank replaces them. The number of columns of the first line decides which of the two it is.

    Raises:
        MilcoError: with file and line, for a line of another form, a score that is not a finite float32, and a document
            that is repeated for a query; and for a path that is not a regular file.
    """
    run: Run = {}
    columns = 0
    for number, line in numbered_lines(path):
        # Bytes split only at ASCII white space, as in trec_eval: other spaces may be part of an id.
        fields = line.split()
        columns = columns or len(fields)
        try:
            if b"\r" in line:
                raise ValueError("a carriage return within the line: lines end in \\n or \\r\\n. Convert the line ends")
            if len(fields) != columns or columns not in (TREC_COLUMNS, MSMARCO_COLUMNS):
                raise ValueError(
                    f"{len(fields)} columns; a TREC run has {TREC_COLUMNS} (qid Q0 docid rank score tag), "
                    f"an MS MARCO run {MSMARCO_COLUMNS} (qid docid rank), the same in every line"
                )
            # A UnicodeDecodeError is a ValueError.
            query, document = fields[0].decode(), fields[2 if columns == TREC_COLUMNS else 1].decode()
            score = _score(fields[4]) if columns == TREC_COLUMNS else -float(_rank(fields[2]))
        except ValueError as error:
            raise MilcoError(f"{path}:{number}: {error}") from None
        scores = run.setdefault(query, {})
        if document in scores:
            raise MilcoError(f"{path}:{number}: document {shown(document)} is repeated for query {shown(query)}")
        scores[document] = score
    if not run:
        raise MilcoError(f"{path} holds no results")
    return run


def default_tag(system: str, trained_on: str) -> str:
    """Return the tag of a run, which names the benchmark that its encoder was trained on, unless that is ""."""
    return f"milco-{system}{_TRAINED_ON if trained_on else ''}{trained_on}"


def read_trained_on(path: Path) -> str:
    """Return the benchmark that the default_tag() of a run names, or ""."""
    return first_line(path).decode(errors="replace").partition(_TRAINED_ON)[2].strip()


def validate_tag(tag: str) -> None:
    """Raise MilcoError for a tag that no run can hold."""
    if tag.split() != [tag]:
        rule = "must not be empty or contain white space, which separates the columns of a run"
        raise ParameterError("tag", tag, rule)


def write_hits(handle: IO[str], topic: str, hits: Ranking, format: str, tag: str) -> None:
    """Write the lines of one topic: "topic Q0 docid rank score tag", or MS MARCO's "topic<TAB>docid<TAB>rank"."""
    if format == "msmarco":
        lines = [f"{topic}\t{docid}\t{rank}\n" for rank, docid in enumerate(hits.docids, 1)]
    else:
        scored = zip(hits.docids, decreasing_scores(hits.scores), strict=True)
        lines = [f"{topic} Q0 {docid} {rank} {score} {tag}\n" for rank, (docid, score) in enumerate(scored, 1)]
    handle.writelines(lines)


def decreasing_scores(scores: NDArray[np.floating]) -> list[str]:
    """Return never increasing scores as float32 texts that strictly decrease, as close to them as that allows."""
    strict = scores.astype(np.float32)
    for place in np.flatnonzero(strict[1:] >= strict[:-1]) + 1:
        # A step may reach the next lower score, and so on down the list.
        while place < len(strict) and strict[place] >= strict[place - 1]:
            strict[place] = np.nextafter(strict[place - 1], np.float32(-np.inf))
            place += 1
    return [str(score) for score in strict]


def _score(text: bytes) -> float:
    try:
        # Python reads 1_000 as a number; no program that writes runs means it as one.
        score = math.nan if b"_" in text else float(text)
    except ValueError:
        score = math.nan
    if abs(score) <= _FLOAT32_MAX:
        return score
    raise ValueError(f"the score {text.decode(errors='replace')!r} is not a finite number")


def _rank(text: bytes) -> int:
    if text.isdigit() and len(text) < 10 and (rank := int(text)) > 0:
        return rank
    raise ValueError(f"the rank {text.decode(errors='replace')!r} is not an integer of at least 1")
