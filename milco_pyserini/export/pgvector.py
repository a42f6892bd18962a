"""PostgreSQL with pgvector: a table of sparsevec, loaded by COPY."""

from collections.abc import Iterable
from pathlib import Path

from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.export.protocol import HITS, Export, Target, Vector

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class PgvectorTarget(Target):
    """SQL for psql, and its data in the text form of COPY."""

    name = "pgvector"
    title = "pgvector"
    # Of a sparsevec.
    max_terms = 16_000

    def write(self, export: Export, directory: Path) -> None:
        """Write schema.sql, load.sql, search.sql, and their data: documents.copy, deleted.copy and queries.copy."""
        name, dimensions = export.collection, len(export.documents.terms)
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
) hits order by queries.id, hits.score desc;
""")


UPSERT = "insert into {name} select * from incoming on conflict (docid) do update set vector = excluded.vector"


def schema(name: str, dimensions: int, fingerprint: str) -> str:
    """Return the SQL that creates the table; a comment states what it is filled with."""
    return f"""create extension if not exists vector;
create table {name} (docid text primary key, vector sparsevec({dimensions}) not null);
comment on table {name} is 'milco {fingerprint}';
"""


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
