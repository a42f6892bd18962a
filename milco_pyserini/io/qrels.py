"""Judgements: TREC's four columns, or BEIR's three with a header."""

import re
from collections.abc import Iterable
from pathlib import Path

from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.io.lines import numbered_lines

Qrels = dict[str, dict[str, int]]

# pytrec_eval reserves 8 bytes for each grade up to the highest: a docid in the grade column would take all memory.
MAX_GRADE = 1000
_GRADE = re.compile(r"[+-]?[0-9]+")


def read_qrels(path: Path) -> Qrels:
    """Query id -> document id -> grade, from a file, plain or gzip; as qrels_of_lines."""
    return qrels_of_lines(numbered_lines(path), str(path))


def qrels_of_lines(lines: Iterable[tuple[int, bytes]], where: str) -> Qrels:
    """Query id -> document id -> grade, from numbered lines of what errors call where.

    Four columns are query, ignored, document, grade; three are query, document, grade, with or without a
    header. Raises MilcoError with where and line if a line is neither, if a grade is no whole number from -MAX_GRADE to
    MAX_GRADE, if one pair is judged twice with different grades, or if nothing is judged.
    """
    qrels: Qrels = {}
    width = 0
    for number, line in lines:
        cells = _cells(where, number, line)
        if not width:
            if len(cells) not in (3, 4):
                raise _bad(where, number, f"{len(cells)} columns, where 4 (TREC) or 3 (BEIR) are needed")
            width = len(cells)
            if width == 3 and not _is_grade(cells[2]):
                continue  # BEIR's header: query-id, corpus-id, score
        if len(cells) != width:
            raise _bad(where, number, f"{len(cells)} columns, where the lines before have {width}")
        query, document, grade = cells[0], cells[-2], cells[-1]
        if not _is_grade(grade):
            raise _bad(where, number, f"the grade {shown(grade)} is no whole number")
        if len(grade) > 9 or abs(int(grade)) > MAX_GRADE:
            wanted = f"grades are from {-MAX_GRADE:,} to {MAX_GRADE:,}. Check which column holds the grade"
            raise _bad(where, number, f"the grade is {shown(grade)}: {wanted}")
        before = qrels.setdefault(query, {}).setdefault(document, int(grade))
        if before != int(grade):
            raise _bad(where, number, f"{query} {document} is graded {grade}, and {before} further up")
    if not qrels:
        raise MilcoError(f"{where} holds no judgement")
    return qrels


def _cells(where: str, number: int, line: bytes) -> list[str]:
    try:
        return line.decode("utf-8").split()
    except UnicodeDecodeError:
        raise _bad(where, number, "not UTF-8") from None


def _is_grade(cell: str) -> bool:
    return _GRADE.fullmatch(cell) is not None


def _bad(where: str, number: int, why: str) -> MilcoError:
    return MilcoError(f"{where}:{number}: {why}")
