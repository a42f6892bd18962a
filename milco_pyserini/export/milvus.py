"""Milvus: rows with the docid as primary key and a sparse float vector."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.export.access import Access, remaining
from milco_pyserini.export.protocol import (
    FILLED,
    HITS,
    Collection,
    EngineRequest,
    ExportJob,
    ExportTarget,
    ImpactDocument,
    Server,
    common_impacts,
    write_lines,
    write_parts,
)
from milco_pyserini.export.server import client, validate_version
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import FieldFilters, field_values, range_bounds
from milco_pyserini.io.files import write_json

FIELD = "vector"
DOCUMENT = "document"
# No document has this id.
_NOTHING = 'docid == ""'
# JSON writes these characters as \u and a number, which Milvus does not read in filters.
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")
_MOST_HITS = 16_384
# Seconds for a request, and to start Milvus Lite.
_ATTEMPT = 60.0


class MilvusTarget(ExportTarget):
    """Bodies of its REST API: the collection, rows to insert or replace, and one search with all queries."""

    name = "milvus"
    title = "Milvus"
    capabilities = FILLED | {Capability.REQUEST}
    schemes = ("http", "https")
    takes_paths = True
    # The length of a VARCHAR, in bytes.
    max_id_bytes = 512
    # The limit of a JSON field.
    max_document_bytes = 65_536

    def write(self, export: ExportJob, directory: Path) -> None:
        """Write schema.json, documents-*.json.gz, deleted-*.json.gz, and queries.json with queries.ids, its ids."""
        name = export.collection
        fields: list[dict[str, Any]] = [
            {"fieldName": "docid", "dataType": "VarChar", "isPrimary": True},
            {"fieldName": FIELD, "dataType": "SparseFloatVector"},
        ]
        fields += [] if export.corpus is None else [{"fieldName": DOCUMENT, "dataType": "JSON"}]
        fields[0]["elementTypeParams"] = {"max_length": self.max_id_bytes}
        index = {"fieldName": FIELD, "indexName": FIELD, "indexType": "SPARSE_INVERTED_INDEX", "metricType": "IP"}
        schema = {"autoId": False, "enableDynamicField": False, "fields": fields}
        write_json(directory / "schema.json", {"collectionName": name, "schema": schema, "indexParams": [index]})
        start = b'{"collectionName":"%s",' % name.encode()
        rows = map(orjson.dumps, map(row, self.documents(export)))
        write_parts(directory, "documents", "json", rows, start + b'"data":[\n', b",\n", b"\n]}\n")
        # The filter is a string that contains strings, so docids are escaped twice.
        deleted = (orjson.dumps(orjson.dumps(docid).decode())[1:-1] for docid in export.deleted)
        write_parts(directory, "deleted", "json", deleted, start + b'"filter":"docid in [', b",", b']"}\n')
        if export.topics is not None:
            write_json(directory / "queries.json", _search(name, export.topics, HITS))
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))

    def documents(self, export: ExportJob) -> Iterator[ImpactDocument]:
        """Yield the documents to write. Raises MilcoError for one whose id cannot be in a filter."""
        for vector in super().documents(export):
            if _CONTROL.search(vector.id):
                raise MilcoError(
                    f"document {shown(vector.id)}: its id has a control character, by which Milvus cannot find it"
                )
            yield vector

    def search_request(self, query: ImpactDocument, collection: str, k: int = HITS) -> EngineRequest:
        return EngineRequest("/v2/vectordb/entities/search", _search(collection, [query], k))

    def connect(self, access: Access, collection: Collection) -> "MilvusServer":
        """Connect to a URL, or open the file of Milvus Lite (NAME.db)."""
        module = client("pymilvus", self.name)
        connected = module.MilvusClient(access.urls[0], token=access.key or "", timeout=remaining(_ATTEMPT))
        version = connected.get_server_version(timeout=remaining(_ATTEMPT))
        if "lite" not in version:
            validate_version(self.title, version, (2, 5))
        return MilvusServer(connected, module.DataType, collection, self.max_id_bytes)


class MilvusServer(Server):
    """A collection."""

    ranged = frozenset(("string", "number"))
    counted: frozenset[str] = frozenset()

    def __init__(self, connected: Any, types: Any, collection: Collection, max_id_bytes: int) -> None:
        self.client, self._types, self._max_id_bytes = connected, types, max_id_bytes
        self._name, _, self._schema = collection
        self._fields = {FIELD: types.SPARSE_FLOAT_VECTOR} | ({} if self._schema is None else {DOCUMENT: types.JSON})

    def stated(self, alias: bool = False) -> str | None:
        """Return the statement in the collection's properties."""
        timeout = {"timeout": remaining(_ATTEMPT)}
        if not self.client.has_collection(self._name, **timeout):
            return None
        about = self.client.describe_collection(self._name, **timeout)
        fields = {field["name"]: field["type"] for field in about["fields"]}
        types = self._types
        wanted = {"docid": types.VARCHAR, FIELD: types.SPARSE_FLOAT_VECTOR, DOCUMENT: types.JSON}
        if fields | {DOCUMENT: types.JSON} != wanted:
            return ""
        # After a restart of the server it may not be in memory.
        self.client.load_collection(self._name, **timeout)
        return dict(about.get("properties", {})).get("milco", "")

    def create(self, statement: str) -> None:
        """Create the collection with its index, loaded."""
        schema, index = self.client.create_schema(auto_id=False), self.client.prepare_index_params()
        schema.add_field("docid", self._types.VARCHAR, is_primary=True, max_length=self._max_id_bytes)
        for name, kind in self._fields.items():
            schema.add_field(name, kind)
        index.add_index(FIELD, index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
        about = {"milco": statement}
        self.client.create_collection(self._name, schema=schema, index_params=index, properties=about)

    def state(self, statement: str) -> None:
        self.client.alter_collection_properties(self._name, {"milco": statement})

    def present(self, ids: list[str]) -> set[str]:
        # get() would not escape the docids.
        found = self.client.query(self._name, filter=_filter(ids), output_fields=["docid"], **_latest())
        return {row["docid"] for row in found}

    def write(self, vectors: list[ImpactDocument]) -> None:
        self.client.upsert(self._name, list(map(row, vectors)))

    def delete(self, ids: list[str]) -> None:
        self.client.delete(self._name, filter=_filter(ids))

    def finish(self) -> int:
        """Write all rows to segments, and return their number."""
        self.client.flush(self._name)
        return self.count()

    def count(self) -> int:
        return self.client.query(self._name, filter="", output_fields=["count(*)"], **_latest())[0]["count(*)"]

    def search(self, queries: Sequence[ImpactDocument], k: int, filters: FieldFilters) -> list[list[tuple[str, float]]]:
        """Return the best documents, by one request. Raises MilcoError for more than Milvus returns."""
        if k > _MOST_HITS:
            raise MilcoError(
                f"Milvus returns up to {_MOST_HITS:,} documents of a query: {k:,} are needed, those that tie with the "
                "last one included"
            )
        vectors = [dict(zip(query.columns, map(float, query.impacts), strict=True)) for query in queries]
        options: dict[str, Any] = {"anns_field": FIELD, "limit": k, "output_fields": ["docid"]}
        if filters and self._schema is not None:
            options["filter"] = document_filter(filters, self._schema.fields)
        found = self.client.search(self._name, vectors, **options, **_latest())
        return [[(hit["docid"], hit["distance"]) for hit in hits] for hits in found]

    def impacts(self, ids: list[str], query: ImpactDocument) -> dict[str, dict[str, int]]:
        found = self.client.query(self._name, filter=_filter(ids), output_fields=["docid", FIELD], **_latest())
        return {row["docid"]: common_impacts(query, row[FIELD]) for row in found}

    def stored(self, ids: list[str]) -> dict[str, str]:
        found = self.client.query(self._name, filter=_filter(ids), output_fields=["docid", DOCUMENT], **_latest())
        return {hit["docid"]: orjson.dumps(hit[DOCUMENT]).decode() for hit in found}

    def count_values(self, field: str, limit: int) -> dict[str, int]:
        """Raise: Milvus counts no values."""
        raise NotImplementedError


def _latest() -> dict[str, Any]:
    """Return the options of a request that ends by the deadline and sees everything that was written before."""
    return {"consistency_level": "Strong", "timeout": remaining(_ATTEMPT)}


def row(vector: ImpactDocument) -> dict[str, Any]:
    """Return a document as a row."""
    document = {} if vector.document is None else {DOCUMENT: vector.document}
    return {"docid": vector.id, FIELD: weights(vector)} | document


def weights(vector: ImpactDocument) -> dict[str, float]:
    """Return {column: impact}; Milvus takes floats only."""
    return {str(column): float(impact) for column, impact in zip(vector.columns, vector.impacts, strict=True)}


def _search(collection: str, queries: Iterable[ImpactDocument], k: int) -> dict[str, Any]:
    about = {"collectionName": collection, "annsField": FIELD, "limit": k, "outputFields": ["docid"]}
    return about | {"data": [weights(query) for query in queries]}


def _filter(ids: list[str]) -> str:
    return f"docid in {orjson.dumps(ids).decode()}"


def document_filter(filters: FieldFilters, fields: Mapping[str, str]) -> str:
    """Return a filter expression. fields: the type of each field; ranges are of numbers and of single strings."""
    conditions = []
    for name, wanted in filters.items():
        place, kind = f"{DOCUMENT}[{_literal(name)}]", fields[name]
        if isinstance(wanted, Mapping):
            bounds = range_bounds(wanted, kind).items()
            conditions += [f"{place} {operator} {_literal(value)}" for operator, value in bounds]
            continue
        # Milvus Lite has no "in" for members of JSON.
        alternatives = [f"{place} == {_literal(value)}" for value in field_values(wanted, kind)]
        if kind in ("strings", "mixed"):
            alternatives.append(f"json_contains_any({place}, {_literal(wanted)})")
        conditions.append(f"({' or '.join(alternatives) or _NOTHING})")
    return " and ".join(conditions)


def _literal(value: object) -> str:
    return orjson.dumps(value).decode()
