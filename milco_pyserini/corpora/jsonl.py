"""JSON lines: one object a line, as Anserini, BEIR, MIRACL and MS MARCO v2 write them."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import orjson

from milco_pyserini.corpora.records import BadLineError, Document, Query, record_id, text_of

RecordT = TypeVar("RecordT")

_DOCUMENT_IDS = ("id", "_id", "docid")
_QUERY_IDS = ("id", "_id", "qid", "query_id")
_QUERY_TEXTS = ("text", "query", "contents", "title")


def jsonl_documents(
    lines: Iterator[tuple[int, bytes]], bad: Callable[[int, str], None]
) -> Iterator[tuple[int, Document]]:
    """Yield (line number, document); a line that is none goes to bad(number, why).

    The id is the field id, _id or docid; the text is contents, or else title and text. A title that is
    missing or null is no title.
    """
    return json_records(lines, bad, _document)


def jsonl_queries(lines: Iterator[tuple[int, bytes]], bad: Callable[[int, str], None]) -> Iterator[tuple[int, Query]]:
    """Yield (line number, query); the id is id, _id, qid or query_id, the text text, query, contents or title."""
    return json_records(lines, bad, _query)


def json_records(
    lines: Iterator[tuple[int, bytes]], bad: Callable[[int, str], None], make: Callable[[dict], RecordT | None]
) -> Iterator[tuple[int, RecordT]]:
    """Yield (line number, what make makes of the line's object); make raises BadLineError, or returns None for nothing.

    A field that make asks for and the object lacks makes a broken line, too.
    """
    for number, line in lines:
        try:
            record = make(_object(line))
        except BadLineError as error:
            bad(number, str(error))
            continue
        except KeyError as error:
            bad(number, f"no field {error}")
            continue
        if record is not None:
            yield number, record


def _object(line: bytes) -> dict:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if "UTF-8" in error.msg:
            raise BadLineError("not UTF-8") from None
        raise BadLineError(f"not JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(value, dict):
        raise BadLineError("not a JSON object")
    return value


def _document(fields: dict) -> Document:
    name = _first(fields, _DOCUMENT_IDS)
    if "contents" in fields:
        return Document(record_id(fields[name]), "", text_of(fields["contents"], "contents"))
    if "text" not in fields:
        raise BadLineError("neither 'contents' nor 'text' is there")
    title = fields.get("title")
    return Document(
        record_id(fields[name]),
        "" if title is None else text_of(title, "title"),
        text_of(fields["text"], "text"),
    )


def _query(fields: dict) -> Query:
    name = _first(fields, _QUERY_TEXTS)
    return Query(record_id(fields[_first(fields, _QUERY_IDS)]), text_of(fields[name], name))


def _first(fields: dict, names: tuple[str, ...]) -> str:
    for name in names:
        if name in fields:
            return name
    raise BadLineError(f"none of {', '.join(map(repr, names))} is there")
