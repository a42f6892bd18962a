"""Read qrels: TREC's four columns, or BEIR's three with a header."""

import re
from collections.abc import Iterable
from pathlib import Path

from milco_pyserini.console import counted
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.io.lines import numbered_lines

Qrels = dict[str, dict[str, int]]
"""Query id -> document id -> grade."""

# pytrec_eval reserves 8 bytes for each grade up to the highest: a docid in the grade column would take all memory.
MAX_GRADE = 1000
_GRADE = re.compile(r"[+-]?[0-9]+")


def read_qrels(path: str | Path) -> Qrels:
    """Read a qrels file, plain or gzip, as qrels_of_lines() does."""
    return qrels_of_lines(numbered_lines(path), str(path))


def qrels_of_lines(lines: Iterable[tuple[int, bytes]], where: str) -> Qrels:
    """Return the qrels in numbered lines of four columns (query, ignored, document, grade) or three (without ignored).

    Three columns may have a header. where: the file's name in errors.

    Raises:
        MilcoError: a line has another form, a grade is not an integer from -MAX_GRADE to MAX_GRADE, a pair has two
            different grades, or there are no judgments.
    """
    qrels: Qrels = {}
    width = 0
    for number, line in lines:
        place = f"{where}:{number}"
        try:
            # Bytes split only at ASCII white space, as in runs: other spaces may be part of an id.
            cells = [cell.decode("utf-8") for cell in line.split()]
        except UnicodeDecodeError:
            raise MilcoError(f"{place}: not UTF-8") from None
        if not width:
            if len(cells) not in (3, 4):
                raise MilcoError(f"{place}: {counted(len(cells), 'column')}: expected 4 (TREC) or 3 (BEIR)")
            width = len(cells)
            if width == 3 and not _GRADE.fullmatch(cells[2]):
                continue  # BEIR's header: query-id, corpus-id, score
        if len(cells) != width:
            raise MilcoError(f"{place}: {counted(len(cells), 'column')}: the lines before have {width}")
        query, document, grade = cells[0], cells[-2], cells[-1]
        if not _GRADE.fullmatch(grade):
            raise MilcoError(f"{place}: the grade {shown(grade)} is not an integer")
        if len(grade) > 9 or abs(int(grade)) > MAX_GRADE:
            rule = f"grades are from {-MAX_GRADE:,} to {MAX_GRADE:,}. Check which column holds the grade."
            raise MilcoError(f"{place}: the grade is {shown(grade)}: {rule}")
        before = qrels.setdefault(query, {}).setdefault(document, int(grade))
        if before != int(grade):
            raise MilcoError(f"{place}: {query} {document} has the grade {grade}, and {before} in an earlier line")
    if not qrels:
        raise MilcoError(f"{where} holds no judgments: expected query, 0, docid, grade (TREC) or query, docid, grade")
    return qrels
