"""Tab-separated lines: id and text, or id, title and text; quotes mean nothing special."""

from collections.abc import Callable, Iterator, Mapping

from milco_pyserini.corpora.records import BadLineError, Document, Query, record_id

_DOCUMENT_COLUMNS = {2: ("id", "text"), 3: ("id", "title", "text")}
_QUERY_COLUMNS = {2: ("id", "text")}

# A first line that holds nothing but these is a header, and says which column is which (DPR's has the
# title last).
_HEADERS = {
    **dict.fromkeys(("id", "_id", "docid", "doc_id", "qid", "query_id", "query-id"), "id"),
    "title": "title",
    **dict.fromkeys(("text", "contents", "passage", "query"), "text"),
}


def tsv_documents(
    lines: Iterator[tuple[int, bytes]], bad: Callable[[int, str], None]
) -> Iterator[tuple[int, Document]]:
    """Yield (line number, document); the first line decides what the columns of the whole file are.

    A line with another number of columns, as one with a tab in its text, goes to bad(number, why).
    """
    for number, fields in _rows(lines, bad, _DOCUMENT_COLUMNS):
        yield number, Document(fields["id"], fields.get("title", ""), fields["text"])


def tsv_queries(lines: Iterator[tuple[int, bytes]], bad: Callable[[int, str], None]) -> Iterator[tuple[int, Query]]:
    """Yield (line number, query) of two columns, id and text; other lines go to bad(number, why)."""
    for number, fields in _rows(lines, bad, _QUERY_COLUMNS):
        yield number, Query(fields["id"], fields["text"])


def _rows(
    lines: Iterator[tuple[int, bytes]],
    bad: Callable[[int, str], None],
    columns_by_width: Mapping[int, tuple[str, ...]],
) -> Iterator[tuple[int, dict[str, str]]]:
    columns: tuple[str, ...] | None = None
    for number, line in lines:
        try:
            cells = _cells(line)
            if columns is None:
                columns = _header(cells)
                if columns is not None:
                    continue
                columns = _columns(cells, columns_by_width)
            if len(cells) != len(columns):
                raise BadLineError(f"{_count(cells)}, where the lines before have {len(columns)}")
            fields = dict(zip(columns, cells, strict=True))
            fields["id"] = record_id(fields["id"])
        except BadLineError as error:
            bad(number, str(error))
            continue
        yield number, fields


def _cells(line: bytes) -> list[str]:
    # A text may hold a carriage return. Where each part has a tab, several lines were read as one.
    if b"\r" in line and all(b"\t" in part for part in line.split(b"\r")):
        raise BadLineError("carriage returns between columns: lines end in \\n or \\r\\n. Convert the line ends")
    try:
        return line.decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        raise BadLineError(f"not UTF-8 (byte {error.start + 1} of the line)") from None


def _header(cells: list[str]) -> tuple[str, ...] | None:
    names = tuple(_HEADERS.get(cell.strip().lower(), "") for cell in cells)
    return names if sorted(names) in (["id", "text"], ["id", "text", "title"]) else None


def _columns(cells: list[str], columns_by_width: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    if len(cells) in columns_by_width:
        return columns_by_width[len(cells)]
    wanted = " or ".join(f"{width} ({', '.join(names)})" for width, names in columns_by_width.items())
    raise BadLineError(f"{_count(cells)}, where {wanted} are needed")


def _count(cells: list[str]) -> str:
    return "1 column between tabs" if len(cells) == 1 else f"{len(cells)} columns between tabs"
