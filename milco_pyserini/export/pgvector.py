"""PostgreSQL with pgvector: a table of sparsevec, loaded by COPY."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.export.protocol import HITS, Export, Target, Vector
from milco_pyserini.export.server import client, validate_version

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class PgvectorTarget(Target):
    """SQL for psql, and its data in the text form of COPY."""

    name = "pgvector"
    title = "pgvector"
    # Of a sparsevec.
    max_terms = 16_000

    def write(self, export: Export, directory: Path) -> None:
        """Write schema.sql, load.sql, search.sql, and their data: documents.copy, deleted.copy and queries.copy."""
        # In quotes, because it may be a word of SQL.
        name, dimensions = f'"{export.collection}"', len(export.documents.terms)
        _write(directory / "documents.copy", (row(vector, dimensions) for vector in self.documents(export)))
        _write(directory / "deleted.copy", (quoted(docid) for docid in export.deleted))
        (directory / "schema.sql").write_text(schema(name, dimensions, export.documents.fingerprint))
        (directory / "load.sql").write_text(f"""\\set ON_ERROR_STOP on
begin;
create temp table incoming (like {name}) on commit drop;
create temp table deleted (docid text) on commit drop;
\\copy incoming from 'documents.copy'
\\copy deleted from 'deleted.copy'
{UPSERT.format(name=name)};
delete from {name} using deleted where {name}.docid = deleted.docid;
commit;
analyze {name};
""")
        if export.topics is not None:
            _write(directory / "queries.copy", (row(vector, dimensions) for vector in export.topics))
            (directory / "search.sql").write_text(f"""\\set ON_ERROR_STOP on
create temp table queries (id text, vector sparsevec({dimensions}));
\\copy queries from 'queries.copy'
select queries.id, hits.docid, hits.score from queries cross join lateral (
    select docid, -({name}.vector <#> queries.vector) as score from {name}
    order by {name}.vector <#> queries.vector limit {HITS}
) hits where hits.score > 0 order by queries.id, hits.score desc;
""")

    def connect(self, url: str, collection: str) -> "PgvectorServer":
        """Connect to a postgresql:// URL, or with the parameters of libpq."""
        connected = client("psycopg", self.name).connect(url, connect_timeout=10, autocommit=True)
        found = connected.execute(
            "select default_version from pg_available_extensions where name = 'vector'"
        ).fetchone()
        if found is None:
            raise MilcoError("this PostgreSQL server has no pgvector", "Install it there.")
        validate_version(self.title, found[0], (0, 7))
        return PgvectorServer(connected, f'"{collection}"')


class PgvectorServer:
    """A table."""

    def __init__(self, connected: Any, table: str) -> None:
        self.client, self._table = connected, table
        self._dimensions = 0

    def fingerprint(self) -> str | None:
        """Return the fingerprint in the comment on the table."""
        if self._one("select to_regclass(%s)", self._table) is None:
            return None
        found = self.client.execute(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = to_regclass(%s) and "
            "attnum > 0 and not attisdropped order by attnum",
            (self._table,),
        ).fetchall()
        if len(found) != 2 or found[0] != ("docid", "text") or not found[1][1].startswith("sparsevec("):
            return ""
        self._dimensions = int(found[1][1][len("sparsevec(") : -1])
        stated = self._one("select obj_description(to_regclass(%s))", self._table) or ""
        return stated.removeprefix("milco ") if stated.startswith("milco ") else ""

    def create(self, export: Export) -> None:
        """Create the extension and the table."""
        self._dimensions = len(export.documents.terms)
        self.client.execute(schema(self._table, self._dimensions, export.documents.fingerprint))

    def present(self, ids: list[str]) -> set[str]:
        """Return those docids that have a row."""
        rows = self.client.execute(f"select docid from {self._table} where docid = any(%s)", (ids,))
        return {docid for (docid,) in rows}

    def write(self, vectors: list[Vector]) -> None:
        """Copy rows into a temporary table, and insert or replace them, in one transaction."""
        with self.client.transaction(), self.client.cursor() as cursor:
            cursor.execute(f"create temp table incoming (like {self._table}) on commit drop")
            with cursor.copy("copy incoming from stdin") as copy:
                copy.write("".join(f"{row(vector, self._dimensions)}\n" for vector in vectors))
            cursor.execute(UPSERT.format(name=self._table))

    def delete(self, ids: list[str]) -> None:
        """Delete rows."""
        self.client.execute(f"delete from {self._table} where docid = any(%s)", (ids,))

    def finish(self, fingerprint: str) -> None:
        """State the fingerprint; rows are searchable at once."""
        self.client.execute(comment(self._table, fingerprint))

    def count(self) -> int:
        """Return the number of rows."""
        return self._one(f"select count(*) from {self._table}")

    def search(self, query: Vector) -> list[float]:
        """Return the best scores."""
        vector = row(query, self._dimensions).partition("\t")[2]
        # Rows without a common term have a score of 0.
        sql = f"select -(vector <#> %s::sparsevec) as score from {self._table} order by 1 desc limit {HITS}"
        return [score for (score,) in self.client.execute(sql, (vector,)) if score > 0]

    def _one(self, sql: str, *values: object) -> Any:
        return self.client.execute(sql, values).fetchone()[0]


UPSERT = "insert into {name} select * from incoming on conflict (docid) do update set vector = excluded.vector"


def schema(name: str, dimensions: int, fingerprint: str) -> str:
    """Return the SQL that creates the table."""
    return f"""create extension if not exists vector;
create table {name} (docid text primary key, vector sparsevec({dimensions}) not null);
{comment(name, fingerprint)};
"""


def comment(name: str, fingerprint: str) -> str:
    """Return the SQL by which a table states what it is filled with."""
    return f"comment on table {name} is 'milco {fingerprint}'"


def row(vector: Vector, dimensions: int) -> str:
    """Return a line of COPY. In pgvector's text form the first column is 1."""
    pairs = ",".join(f"{column + 1}:{impact}" for column, impact in zip(vector.columns, vector.impacts, strict=True))
    return f"{quoted(vector.id)}\t{{{pairs}}}/{dimensions}"


def quoted(docid: str) -> str:
    """Return a docid as a field of COPY. Raises MilcoError for one that PostgreSQL cannot store."""
    if "\x00" in docid:
        raise MilcoError(f"document {shown(docid)}: its id has a zero byte, which PostgreSQL cannot store")
    return docid.translate(_ESCAPES)


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(f"{line}\n" for line in lines)
