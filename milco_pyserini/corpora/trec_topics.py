"""TREC topic files: <top> blocks with a <num> and a <title>; the title is the query."""

import re
from collections.abc import Callable, Iterator

from milco_pyserini.corpora.records import BadLineError, Query, record_id

_TOP = re.compile(r"<top>", re.IGNORECASE)
_NUMBER = re.compile(r"<num>\s*(?:Number:)?\s*([^<\n]*)", re.IGNORECASE)
_TITLE = re.compile(r"<title>\s*(?:Topic:)?\s*([^<]*)", re.IGNORECASE)


def trec_queries(lines: Iterator[tuple[int, bytes]], bad: Callable[[int, str], None]) -> Iterator[tuple[int, Query]]:
    """Yield (number of the line with <top>, query); a block that is none goes to bad(number, why)."""
    for number, block in _blocks(lines, bad):
        try:
            query = _query(block)
        except BadLineError as error:
            bad(number, str(error))
            continue
        yield number, query


def _blocks(lines: Iterator[tuple[int, bytes]], bad: Callable[[int, str], None]) -> Iterator[tuple[int, bytes]]:
    start = 0
    block: list[bytes] = []
    for number, line in lines:
        opens = line.strip().lower().startswith(b"<top>")
        if opens:
            if start:
                bad(start, "this <top> is not closed by </top>")
            start, block = number, []
        if start:
            block.append(line)
            if b"</top>" in line.lower():
                yield start, b"\n".join(block)
                start = 0
    if start:
        bad(start, "this <top> is not closed by </top>")


def _query(block: bytes) -> Query:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError:
        raise BadLineError("this <top> is not UTF-8") from None
    if len(_TOP.findall(text)) > 1:
        raise BadLineError("several <top> in one line: each begins a line of its own")
    number, title = _NUMBER.search(text), _TITLE.search(text)
    if number is None or title is None:
        raise BadLineError(f"this <top> has no {'<num>' if number is None else '<title>'}")
    return Query(record_id(number[1].strip()), " ".join(title[1].split()))
