"""Parquet: postings as rows, for DuckDB, Spark and every other SQL engine."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from milco_pyserini.errors import require_package
from milco_pyserini.export.protocol import ExportJob, ExportTarget, ImpactDocument, render
from milco_pyserini.index.capabilities import Capability

_VECTORS = 4096
_TYPES = {"id": "string", "term": "string", "column": "int32", "impact": "int32", "weight": "float32"}


class ParquetTarget(ExportTarget):
    """One row per document and term in documents.parquet, the same for queries, and the SQL that searches."""

    name = "parquet"
    title = "Parquet"
    capabilities = frozenset({Capability.UPDATE})

    def write(self, export: ExportJob, directory: Path) -> None:
        """Write documents.parquet, queries.parquet, deleted.parquet (docids to remove) and search.sql."""
        require_package("pyarrow", "parquet", "target parquet")
        import pyarrow as pa
        from pyarrow import parquet

        _write(directory / "documents.parquet", self.documents(export), export.documents.about.scale)
        if export.deleted:
            parquet.write_table(pa.table({"id": export.deleted}), directory / "deleted.parquet")
        if export.topics is not None:
            _write(directory / "queries.parquet", export.topics, export.topics.about.scale)
            render("parquet.search.sql", export, directory / "search.sql")


def _write(path: Path, vectors: Iterable[ImpactDocument], scale: float) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rest = iter(vectors)
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in _TYPES.items()])
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(islice(rest, _VECTORS)):
            columns: list[list[Any]] = [[vector.id for vector in group for _ in vector.terms]]
            columns.append([term for vector in group for term in vector.terms])
            columns.append([column for vector in group for column in vector.columns])
            columns.append([impact for vector in group for impact in vector.impacts])
            columns.append([impact / scale for impact in columns[-1]])
            writer.write_table(pa.table(columns, schema=schema))
