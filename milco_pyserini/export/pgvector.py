"""PostgreSQL with pgvector: a table of sparsevec, loaded by COPY."""

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import orjson

from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.export.access import Access, remaining
from milco_pyserini.export.protocol import (
    FILLED,
    Collection,
    ExportJob,
    ExportTarget,
    ImpactDocument,
    Server,
    common_impacts,
    render,
)
from milco_pyserini.export.server import client, validate_version
from milco_pyserini.index.documents import FieldFilters, field_values, filter_text, range_bounds

_COMMENT = "milco "
# Seconds for a statement.
_LONGEST = 86_400.0
# Name and type of a column.
DOCUMENT = "document"
_COLUMN = (
    "select max(format_type(atttypid, atttypmod)) from pg_attribute where attrelid = to_regclass(%s) and attname = %s"
)
# The values of a field, of a list each one; none for a document without the field.
_VALUES = (
    f"jsonb_array_elements(case jsonb_typeof({DOCUMENT} -> %(field)s) when 'array' then {DOCUMENT} -> %(field)s "
    f"else jsonb_build_array({DOCUMENT} -> %(field)s) end)"
)
_ZERO = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class PgvectorTarget(ExportTarget):
    """SQL for psql, and its data in the text form of COPY."""

    name = "pgvector"
    title = "pgvector"
    capabilities = FILLED
    schemes = ("postgresql", "postgres")
    # Limit of a sparsevec.
    max_terms = 16_000

    def write(self, export: ExportJob, directory: Path) -> None:
        """Write schema.sql, load.sql, search.sql, and their data: documents.copy, deleted.copy and queries.copy."""
        columns = len(export.documents.terms)
        _write(directory / "documents.copy", (row(vector, columns) for vector in self.documents(export)))
        _write(directory / "deleted.copy", (quoted(docid) for docid in export.deleted))
        names = ["schema.sql", "load.sql"]
        if export.topics is not None:
            _write(directory / "queries.copy", (row(vector, columns) for vector in export.topics))
            names.append("search.sql")
        for name in names:
            render(f"pgvector.{name}", export, directory / name)

    def connect(self, access: Access, collection: Collection) -> "PgvectorServer":
        """Connect to a postgresql:// URL."""
        url, password = without_password(access.urls[0])
        options = {"connect_timeout": 10, "autocommit": True, "password": password}
        connect = partial(client("psycopg", self.name).connect, url, **options)
        connected = connect()
        found = connected.execute(
            "select coalesce(installed_version, default_version) from pg_available_extensions where name = 'vector'"
        ).fetchone()
        if found is None:
            raise MilcoError("this PostgreSQL server has no pgvector", "Install it there.")
        validate_version(self.title, found[0], (0, 7))
        return PgvectorServer(connected, connect, collection)


class PgvectorServer(Server):
    """A table. Its name is in quotes, because it may be a word of SQL."""

    ranged = frozenset(("string", "strings", "number"))
    counted = frozenset(("string", "strings", "number", "boolean", "mixed"))

    def __init__(self, connected: Any, connect: Callable[[], Any], collection: Collection) -> None:
        self.client, self._connect = connected, connect
        self._table, self._columns, self._schema = f'"{collection.name}"', collection.columns, collection.schema

    def stated(self, alias: bool = False) -> str | None:
        """Return the statement in the comment on the table."""
        if self._one("select to_regclass(%s)", self._table) is None:
            return None
        kind = self._one(_COLUMN, self._table, "vector")
        stated = self._one("select obj_description(to_regclass(%s))", self._table) or ""
        is_owned = kind == f"sparsevec({self._columns})" and stated.startswith(_COMMENT)
        if "+" in stated:
            is_owned &= self._one(_COLUMN, self._table, DOCUMENT) == "jsonb"
        return stated.removeprefix(_COMMENT) if is_owned else ""

    def create(self, statement: str) -> None:
        """Create the extension and the table."""
        self.client.execute("create extension if not exists vector")
        columns = f"docid text primary key, vector sparsevec({self._columns}) not null"
        columns += "" if self._schema is None else f", {DOCUMENT} jsonb not null"
        with self.client.transaction():
            self.client.execute(f"create table {self._table} ({columns})")
            self.state(statement)

    def state(self, statement: str) -> None:
        self.client.execute(f"comment on table {self._table} is '{_COMMENT}{statement}'")

    def present(self, ids: list[str]) -> set[str]:
        rows = self._execute(f"select docid from {self._table} where docid = any(%s)", (ids,))
        return {docid for (docid,) in rows}

    def write(self, vectors: list[ImpactDocument]) -> None:
        """Copy rows into a temporary table, and insert or replace them, in one transaction."""
        with self.client.transaction(), self.client.cursor() as cursor:
            cursor.execute(f"create temp table milco_incoming (like {self._table}) on commit drop")
            with cursor.copy("copy milco_incoming from stdin") as copy:
                copy.write("".join(f"{row(vector, self._columns)}\n" for vector in vectors))
            cursor.execute(
                f"insert into {self._table} select * from milco_incoming "
                "on conflict (docid) do update set vector = excluded.vector"
                + ("" if self._schema is None else f", {DOCUMENT} = excluded.{DOCUMENT}")
            )

    def delete(self, ids: list[str]) -> None:
        self.client.execute(f"delete from {self._table} where docid = any(%s)", (ids,))

    def count(self) -> int:
        """Return the number of rows, which are searchable at once."""
        return self._one(f"select count(*) from {self._table}")

    def search(self, queries: Sequence[ImpactDocument], k: int, filters: FieldFilters) -> list[list[tuple[str, float]]]:
        condition, values = "", {"limit": k}
        if filters and self._schema is not None:
            condition, filtered = document_condition(filters, self._schema.fields)
            condition, values = f"where {condition} ", values | filtered
        sql = (
            f"select docid, -(vector <#> %(vector)s::sparsevec) from {self._table} {condition}"
            "order by 2 desc limit %(limit)s"
        )
        vectors = (row(query, self._columns).partition("\t")[2] for query in queries)
        found = [self._execute(sql, {"vector": vector, **values}) for vector in vectors]
        # Rows without a common term have a score of 0.
        return [[(docid, score) for docid, score in rows if score > 0] for rows in found]

    def impacts(self, ids: list[str], query: ImpactDocument) -> dict[str, dict[str, int]]:
        found = {}
        sql = f"select docid, vector::text from {self._table} where docid = any(%s)"
        for docid, vector in self._execute(sql, (ids,)):
            pairs = (pair.split(":") for pair in vector[1:].partition("}")[0].split(","))
            found[docid] = common_impacts(query, {int(column) - 1: float(impact) for column, impact in pairs})
        return found

    def stored(self, ids: list[str]) -> dict[str, str]:
        sql = f"select docid, {DOCUMENT}::text from {self._table} where docid = any(%s)"
        return dict(self._execute(sql, (ids,)).fetchall())

    def count_values(self, field: str, limit: int) -> dict[str, int]:
        sql = (
            f"select value, count(distinct docid) from {self._table}, {_VALUES} as value "
            f"where {DOCUMENT} ? %(field)s group by value limit %(limit)s"
        )
        rows = self._execute(sql, {"field": field, "limit": limit})
        return {filter_text(value): count for value, count in rows}

    def _one(self, sql: str, *values: object) -> Any:
        return self._execute(sql, values).fetchone()[0]

    def _execute(self, sql: str, values: Any) -> Any:
        """Return a cursor with the result, by a new connection if the server ended the last one."""
        if self.client.broken:
            self.client = self._connect()
        ends = threading.Timer(remaining(_LONGEST), _shut_down, (self.client.fileno(),))
        ends.start()
        try:
            return self.client.execute(sql, values)
        finally:
            ends.cancel()


def without_password(url: str) -> tuple[str, str | None]:
    """Return a URL without its password, which libpq shows if it cannot read it, and the password."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    password = unquote(parts.password or "") or query.pop("password", "")
    user, place = quote(unquote(parts.username or ""), safe=""), parts.netloc.rpartition("@")[2]
    return urlunsplit(
        parts._replace(netloc=f"{user}@{place}" if user else place, query=urlencode(query))
    ), password or None


def _shut_down(descriptor: int) -> None:
    """End a connection whose server does not answer; libpq has no time limit of its own for that."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def row(vector: ImpactDocument, columns: int) -> str:
    """Return a line of COPY. In pgvector's text form the first column is 1."""
    pairs = ",".join(f"{column + 1}:{impact}" for column, impact in zip(vector.columns, vector.impacts, strict=True))
    line = f"{quoted(vector.id)}\t{{{pairs}}}/{columns}"
    if vector.document is None:
        return line
    # PostgreSQL cannot store a zero byte, which JSON escapes.
    document = _ZERO.sub(r"\1\\ufffd", orjson.dumps(vector.document).decode())
    return f"{line}\t{document.translate(_ESCAPES)}"


def quoted(docid: str) -> str:
    """Return a docid as a field of COPY. Raises MilcoError for one that PostgreSQL cannot store."""
    if "\x00" in docid:
        raise MilcoError(f"document {shown(docid)}: its id has a zero byte, which PostgreSQL cannot store")
    return docid.translate(_ESCAPES)


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(f"{line}\n" for line in lines)


def document_condition(filters: FieldFilters, fields: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return a condition of SQL, and its parameters by name. fields: the type of each field."""
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    for number, (name, wanted) in enumerate(filters.items()):
        is_number = fields[name] == "number"
        value = "(value #>> '{}')" + ("::numeric" if is_number else ' collate "C"')
        if isinstance(wanted, Mapping):
            bounds = range_bounds(wanted, fields[name])
            tests = [f"{value} {operator} %(value_{number}{operator})s" for operator in bounds]
            parameters |= {f"value_{number}{operator}": bound for operator, bound in bounds.items()}
        else:
            tests = [f"{value} = any(%(value_{number})s)"]
            parameters[f"value_{number}"] = field_values(wanted, "number") if is_number else list(wanted)
        parameters[f"field_{number}"] = name
        elements = _VALUES.replace("field", f"field_{number}")
        conditions.append(f"exists (select from {elements} as value where {' and '.join(tests)})")
    return " and ".join(conditions), parameters
