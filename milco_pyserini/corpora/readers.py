"""Read documents and queries from JSON lines, TSV and TREC topic files.

A reader takes numbered lines and yields numbered records. It passes invalid lines to bad(number, reason).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import orjson

from milco_pyserini.corpora.records import BadLineError, Document, Query, document_fields, record_id, text_of
from milco_pyserini.errors import shown

T = TypeVar("T")
Lines = Iterator[tuple[int, bytes]]
BadLine = Callable[[int, str], None]
Reader = Callable[[Lines, BadLine], Iterator[tuple[int, T]]]
Judgment = tuple[str, str, int]
"""Query id, document id, grade."""


ID_NAMES = ("id", "_id", "docid")
"""Names of a document's id, the preferred one first."""

_NOT_UTF8 = (
    "not UTF-8{}: convert the file from its encoding (Shift_JIS, GBK, windows-1256 ...) by iconv -f ... -t utf-8"
)
_ONE_PER_LINE = ": write one object per line (jq -c . FILE, or jq -c '.[]' FILE for a list)"


def json_reader(make: Callable[[dict], T | None]) -> Reader[T]:
    """Return a reader of JSON lines, one object per line.

    Args:
        make: turns an object into a record, or None to skip it. It may raise BadLineError; a KeyError is reported as a
            missing field, a TypeError or AttributeError as one of an unexpected type.
    """

    def read(lines: Lines, bad: BadLine) -> Iterator[tuple[int, T]]:
        return make_records(json_objects(lines, bad), make, bad)

    return read


def json_objects(lines: Lines, bad: BadLine) -> Iterator[tuple[int, dict]]:
    """Yield the object in each line."""
    for number, line in lines:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            invalid = f"not JSON: {error.msg} (column {error.colno})"
            if line.strip() in (b"[", b"{"):
                invalid = f"the beginning of JSON in several lines{_ONE_PER_LINE}"
            bad(number, _NOT_UTF8.format("") if "UTF-8" in error.msg else invalid)
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            bad(number, f"not a JSON object{_ONE_PER_LINE if isinstance(value, list) else ''}")


def make_records(
    rows: Iterable[tuple[int, dict]], make: Callable[[dict], T | None], bad: BadLine
) -> Iterator[tuple[int, T]]:
    """Yield the record of each row. make: as for json_reader()."""
    for number, row in rows:
        try:
            record = make(row)
        except BadLineError as error:
            bad(number, str(error))
        except KeyError as error:
            bad(number, f"no field {error}")
        except (AttributeError, TypeError) as error:
            bad(number, f"a field has an unexpected type ({error})")
        else:
            if record is not None:
                yield number, record


def json_document(fields: dict) -> Document:
    """Return the document of a JSON object, as jsonl_documents does. Raises BadLineError for anything else."""
    name, value = _first_of(fields, *ID_NAMES)
    identity = record_id(value)
    if "contents" in fields:
        return Document(identity, "", text_of(fields["contents"], "contents"), document_fields(fields, name))
    if "text" not in fields:
        raise BadLineError(f"no field 'contents' or 'text' among {', '.join(map(shown, fields))}")
    # Databases export absent values as null.
    title = "" if fields.get("title") is None else text_of(fields["title"], "title")
    text = "" if fields["text"] is None and title else text_of(fields["text"], "text")
    return Document(identity, title, text, document_fields(fields, name, "title", "text"))


def _json_query(fields: dict) -> Query:
    identity = record_id(_first_of(fields, "id", "_id", "qid", "query_id")[1])
    name, text = _first_of(fields, "text", "query", "contents", "title")
    return Query(identity, text_of(text, name))


def _first_of(fields: dict, *names: str) -> tuple[str, object]:
    for name in names:
        if name in fields:
            return name, fields[name]
    raise BadLineError(f"no field {', '.join(map(repr, names[:-1]))} or {names[-1]!r}")


jsonl_documents = json_reader(json_document)
"""Documents as in Anserini, BEIR and MIRACL: id, _id or docid; contents, or without it title and text.

All other members of an object are the document's fields.
"""

jsonl_queries = json_reader(_json_query)
"""Queries: id, _id, qid or query_id; text, query, contents or title."""


# A first line with an id and a text of these names is a header (DPR's has the title last).
_HEADERS = {
    **dict.fromkeys(("id", "_id", "docid", "doc_id", "qid", "query_id", "query-id"), "id"),
    "title": "title",
    **dict.fromkeys(("text", "contents", "passage", "query"), "text"),
}


def tsv_documents(lines: Lines, bad: BadLine) -> Iterator[tuple[int, Document]]:
    """Read id TAB text or id TAB title TAB text; the first line decides which. Quotes have no special meaning.

    If the first line is a header, its other columns are the document's fields.
    """
    for number, columns in _tsv_rows(lines, bad, {2: ("id", "text"), 3: ("id", "title", "text")}):
        fields = document_fields(columns, "id", "title", "text")
        yield number, Document(columns["id"], columns.get("title", ""), columns["text"], fields)


def tsv_queries(lines: Lines, bad: BadLine) -> Iterator[tuple[int, Query]]:
    """Read id TAB text."""
    for number, fields in _tsv_rows(lines, bad, {2: ("id", "text")}):
        yield number, Query(fields["id"], fields["text"])


def _tsv_rows(
    lines: Lines, bad: BadLine, layouts: Mapping[int, tuple[str, ...]]
) -> Iterator[tuple[int, dict[str, str]]]:
    columns: tuple[str, ...] | None = None
    for number, line in lines:
        try:
            # A text may contain a carriage return. If every part has a tab, several lines were read as one.
            if b"\r" in line and all(b"\t" in part for part in line.split(b"\r")):
                raise BadLineError("carriage returns between columns: lines must end in \\n or \\r\\n")
            cells = line.decode("utf-8").split("\t")
            width = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            if columns is None:
                header = tuple(_HEADERS.get(cell.strip().lower(), cell.strip()) for cell in cells)
                if {"id", "text"} <= set(header):
                    if repeated := [name for place, name in enumerate(header) if name in header[:place]]:
                        raise BadLineError(f"the header has two columns for {shown(repeated[0])}")
                    columns = header
                    continue
                if len(cells) not in layouts:
                    valid = " or ".join(f"{count} ({', '.join(names)})" for count, names in layouts.items())
                    raise BadLineError(f"{width} between tabs: expected {valid}, or a header with id and text")
                columns = layouts[len(cells)]
            if len(cells) != len(columns):
                raise BadLineError(f"{width} between tabs: the lines before have {len(columns)}")
            fields = dict(zip(columns, cells, strict=True))
            fields["id"] = record_id(fields["id"])
        except UnicodeDecodeError as error:
            bad(number, _NOT_UTF8.format(f" (byte {error.start + 1} of the line)"))
        except BadLineError as error:
            bad(number, str(error))
        else:
            yield number, fields


_NUM = re.compile(r"<num>\s*(?:Number:)?\s*([^<\n]*)", re.IGNORECASE)
# To the next tag: a title may contain "<".
_TITLE = re.compile(r"<title>\s*(?:Topic:)?\s*((?:[^<]|<(?!/?[a-z]))*)", re.IGNORECASE)


def trec_queries(lines: Lines, bad: BadLine) -> Iterator[tuple[int, Query]]:
    """Read the <num> and <title> of TREC topics; a topic's number is that of the line with its <top>."""
    for number, block in _trec_topics(lines, bad):
        try:
            text = block.decode("utf-8")
            if len(re.findall("<top>", text, re.IGNORECASE)) > 1:
                raise BadLineError("several <top> in one line: each must begin a line of its own")
            identity, title = _NUM.search(text), _TITLE.search(text)
            if identity is None or title is None:
                raise BadLineError(f"this <top> has no {'<num>' if identity is None else '<title>'}")
            query = Query(record_id(identity[1].strip()), " ".join(title[1].split()))
        except UnicodeDecodeError:
            bad(number, "this <top> is " + _NOT_UTF8.format(""))
        except BadLineError as error:
            bad(number, str(error))
        else:
            yield number, query


def _trec_topics(lines: Lines, bad: BadLine) -> Iterator[tuple[int, bytes]]:
    """Yield each <top>...</top> with the number of its first line."""
    start = 0
    block: list[bytes] = []
    for number, line in lines:
        if line.strip().lower().startswith(b"<top>"):
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
