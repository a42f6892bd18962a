"""Reading run files: TREC (qid Q0 docid rank score tag) and MS MARCO (qid docid rank), plain or .gz."""

import math
from pathlib import Path

from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.io.lines import numbered_lines

Run = dict[str, dict[str, float]]

TREC_COLUMNS = 6
MSMARCO_COLUMNS = 3
_FLOAT32_MAXIMUM = 3.4028234663852886e38


def read_run(path: Path) -> Run:
    """Read a run: query id -> document id -> score, in the order of the file.

    As in trec_eval the rank column of a TREC run counts for nothing: the scores order the documents. An
    MS MARCO run has no scores, so minus the rank stands for one. The first line says which of the two it is.

    Raises MilcoError, with file and line, for a line that is not of this form, a score that is no finite
    float32 number, and a document that is given twice for one query; and for a path that is not a regular file.
    """
    run: Run = {}
    columns = 0
    for number, line in numbered_lines(path):
        # Bytes split at ASCII white space only, as trec_eval splits: other spaces may be part of an id.
        fields = line.split()
        columns = columns or len(fields)
        try:
            if b"\r" in line:
                raise ValueError("a carriage return within the line: lines end in \\n or \\r\\n. Convert the line ends")
            query, document, score = _result(fields, columns)
        except ValueError as error:
            raise MilcoError(f"{path}:{number}: {error}") from None
        scores = run.setdefault(query, {})
        if document in scores:
            raise MilcoError(f"{path}:{number}: document {shown(document)} is there twice for query {shown(query)}")
        scores[document] = score
    if not run:
        raise MilcoError(f"{path} holds no results")
    return run


def _result(fields: list[bytes], columns: int) -> tuple[str, str, float]:
    """Query id, document id and score of one line. Raises ValueError, which UnicodeDecodeError is too."""
    if len(fields) != columns or columns not in (TREC_COLUMNS, MSMARCO_COLUMNS):
        raise ValueError(
            f"{len(fields)} columns; a TREC run has {TREC_COLUMNS} (qid Q0 docid rank score tag), "
            f"an MS MARCO run {MSMARCO_COLUMNS} (qid docid rank), the same in every line"
        )
    if columns == TREC_COLUMNS:
        return fields[0].decode(), fields[2].decode(), _score(fields[4])
    return fields[0].decode(), fields[1].decode(), -float(_rank(fields[2]))


def _score(text: bytes) -> float:
    try:
        # Python reads 1_000 as a number; no program that writes runs means it as one.
        score = math.nan if b"_" in text else float(text)
    except ValueError:
        score = math.nan
    if abs(score) <= _FLOAT32_MAXIMUM:
        return score
    raise ValueError(f"the score {text.decode(errors='replace')!r} is not a finite number")


def _rank(text: bytes) -> int:
    if text.isdigit() and len(text) < 10 and (rank := int(text)) > 0:
        return rank
    raise ValueError(f"the rank {text.decode(errors='replace')!r} is not a whole number from 1 on")
