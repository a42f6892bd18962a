"""Elasticsearch: a sparse_vector field without token pruning, filled by bulk requests."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.export.elasticsearch_documents import (
    filter_clauses,
    flat_properties,
    stored_json,
    stored_properties,
    stored_source,
    text_analyzers,
    text_query,
)
from milco_pyserini.export.protocol import (
    HITS,
    HYBRID_DEPTH,
    RANK_CONSTANT,
    EngineRequest,
    Export,
    Server,
    Target,
    Vector,
    write_lines,
    write_parts,
)
from milco_pyserini.export.server import API_KEY, BAD_REQUEST, BATCH, CA_FILE, client, validate_version
from milco_pyserini.index.documents import DocumentSchema, FieldFilters, filter_text
from milco_pyserini.io.files import write_json

FIELD = "vector"
# The docid as doc values: to read _id, a server decompresses the stored fields, with the vectors or texts in them.
DOCID = "milco_docid"
_DOCID_FIELD = {"type": "keyword", "index": False}
# Until a server answers at all, at each of some tries.
CONNECT_SECONDS = 10
# index.max_result_window: more hits are read by scrolling.
WINDOW = 10_000
# A query may have 1,024 clauses (indices.query.bool.max_clause_count).
_CLAUSES = 500
# A quarter less on disk.
SETTINGS = {"index": {"codec": "best_compression"}}
# While it is loaded: nothing is written twice, nor made searchable.
_LOADING = {"number_of_replicas": "0", "refresh_interval": "-1"}
# In _meta of the mapping: the statement, and settings to restore.
_STATED, _BEFORE = "milco", "milco_restore"
# Of a body; a server takes up to 100 MB.
_REQUEST_BYTES = 10 * 2**20
# The client waits 1, 2, 4 ... 30 s, four minutes in all, while the server is busy.
_PATIENCE = {"max_retries": 12, "initial_backoff": 1, "max_backoff": 30}


class ElasticsearchTarget(Target):
    """Bodies of its REST API: mapping, bulk requests, and one multi-search with all queries."""

    name = "elasticsearch"
    title = "Elasticsearch"
    # An _id.
    max_id_bytes = 512
    # Lucene's FeatureField keeps 9 significant bits of a weight.
    exact_up_to = 512
    has_shards = True
    # Measured with OpenSearch 2.19 on two cores, with documents of 217 terms.
    posting_bytes = 10
    postings_per_second = 290_000
    stores_documents = True
    field: Mapping[str, Any] = {"type": "sparse_vector", "index_options": {"prune": False}}

    def mapping(
        self, statement: str, schema: DocumentSchema | None = None, lacking: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return the body that creates the index. lacking: analyzers that the server lacks."""
        about: dict[str, Any] = {"_meta": {_STATED: statement}, "dynamic": False, "properties": {FIELD: self.field}}
        if schema is not None:
            about["_source"] = {"excludes": [FIELD]}
            about["properties"] |= stored_properties(schema, lacking)
        return {"settings": SETTINGS, "mappings": about}

    def query(self, vector: Vector) -> dict[str, Any]:
        """Return the query for a vector."""
        return {"sparse_vector": {"field": FIELD, "prune": False, "query_vector": vector.weights}}

    def write(self, export: Export, directory: Path) -> None:
        """Write mapping.json, documents-*.ndjson, and queries.ndjson with queries.ids, the ids in its order."""
        write_json(directory / "mapping.json", self.mapping(export.statement, export.schema))
        write_parts(directory, "documents", "ndjson", self._bulk(export))
        if export.topics is not None:
            write_lines(directory / "queries.ndjson", self._searches(export.collection, export.topics))
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))

    def _bulk(self, export: Export) -> Iterator[bytes]:
        for vector in self.documents(export):
            yield orjson.dumps({"index": {"_id": vector.id}}) + b"\n" + orjson.dumps(source(vector))
        for docid in export.deleted:
            yield orjson.dumps({"delete": {"_id": docid}})

    def _searches(self, collection: str, queries: Iterable[Vector]) -> Iterator[dict[str, Any]]:
        for vector in queries:
            yield {"index": collection}
            yield self.search_request(vector, collection).body

    def search_request(self, query: Vector, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request for the best documents of a query; their docids are _id."""
        body = {"size": k, "_source": False, "query": self.query(query)}
        return EngineRequest(f"/{collection}/_search", body)

    def hybrid_request(self, query: Vector, text: str, collection: str, k: int = HITS) -> EngineRequest:
        """Return the request with the retriever rrf, which needs a license of Elastic."""
        retrievers = [{"standard": {"query": query}} for query in (self.query(query), text_query(text))]
        depths = {"rank_window_size": max(k, HYBRID_DEPTH), "rank_constant": RANK_CONSTANT}
        body = {"size": k, "_source": False, "retriever": {"rrf": {"retrievers": retrievers, **depths}}}
        return EngineRequest(f"/{collection}/_search", body)

    def connect(
        self, urls: Sequence[str], collection: str, columns: int, schema: DocumentSchema | None = None
    ) -> "ElasticsearchServer":
        """Connect to URLs of one cluster, which may have a user and a password."""
        module = client("elasticsearch", self.name)
        # Otherwise the client trusts only the authorities of the package certifi.
        own = os.environ.get(CA_FILE)
        trusted = {"ca_certs": own} if own and all(url.startswith("https:") for url in urls) else {}
        options = {"request_timeout": 120, "max_retries": 5, "retry_on_timeout": True, **trusted}
        connected = module.Elasticsearch(list(urls), api_key=os.environ.get(API_KEY), **options)
        version = connected.options(request_timeout=CONNECT_SECONDS).info()["version"]
        helpers = client("elasticsearch.helpers", self.name)
        # Elastic's serverless offering has the newest version, and gives another number; replicas are its own.
        if version.get("build_flavor") == "serverless":
            return ElasticsearchServer(connected, helpers, self, collection, schema, {"refresh_interval": "-1"})
        validate_version(self.title, version["number"], (8, 19), (9, 1))
        return ElasticsearchServer(connected, helpers, self, collection, schema)

    def score(self, query: Vector, score: float) -> float:
        """Return the score of a hit in units of impacts."""
        return score


class ElasticsearchServer(Server):
    """An index, by the methods that the clients of Elasticsearch and OpenSearch have in common.

    Until it is complete for the first time it has the settings `loading`. Those that it had before are in _meta of its
    mapping, so that whichever run completes it restores them.
    """

    writers = 4
    ranged = frozenset(("string", "strings", "number"))
    counted = frozenset(("string", "strings", "number", "boolean", "mixed"))

    def __init__(
        self,
        connected: Any,
        helpers: Any,
        target: ElasticsearchTarget,
        index: str,
        schema: DocumentSchema | None,
        loading: Mapping[str, str] = _LOADING,
    ) -> None:
        self.client, self._helpers, self._target, self._index = connected, helpers, target, index
        self._schema, self._loading = schema, loading
        self._before: dict[str, str | None] = {}
        # All documents of an index have the field, or, if files or an earlier version filled it, none.
        self._has_docids = True

    def stated(self, alias: bool = False) -> str | None:
        """Return the statement in the mapping.

        Raises MilcoError for an alias, unless alias is set, and for another number of shards.
        """
        if not self.client.indices.exists(index=self._index):
            return None
        found = self._about()
        if list(found) != [self._index] and not alias:
            raise MilcoError(
                f"{self._index} is an alias of {', '.join(found)}",
                "Choose another `collection`, and let the alias point to it when it is complete.",
            )
        if len(found) > 1:
            return ""
        (about,) = found.values()
        shards = about["settings"].get("index.number_of_shards")
        if self.shards is not None and str(self.shards) != shards:
            raise MilcoError(
                f"`shards={self.shards}`: {self._index} has {shards}, and an index keeps its number of shards",
                "Omit `shards`, or choose another `collection`.",
            )
        mapping = about["mappings"]
        properties = dict(flat_properties(mapping.get("properties", {})))
        self._has_docids = properties.pop(DOCID, None) == _DOCID_FIELD
        wanted = self._target.mapping("", self._schema)["mappings"]["properties"]
        # An older version of the documents may have had other fields; fields of others would be lost. An index of
        # documents is refused for its statement.
        common = properties.keys() & wanted.keys()
        stated = mapping.get("_meta", {}).get(_STATED, "")
        is_same = properties.get(FIELD) == self._target.field
        is_same &= alias or "+" in stated or len(properties) == 1
        is_same &= all(properties[name].get("type") == wanted[name]["type"] for name in common)
        return stated if is_same else ""

    def create(self, statement: str) -> None:
        """Create the index, with the settings for loading."""
        given = {"number_of_shards": self.shards, "number_of_replicas": self.replicas}
        settings = SETTINGS["index"] | {name: value for name, value in given.items() if value is not None}
        body = {"settings": {"index": settings}, "mappings": self._mapping(statement)}
        self.client.indices.create(index=self._index, body=body)
        self.state(statement)

    def state(self, statement: str) -> None:
        """Replace the statement in the mapping, and add what it lacks.

        A complete index gets the settings back that loading took from it.
        """
        about = self._about()[self._index]
        meta = about["mappings"].get("_meta", {})
        # Another run that completed the index meanwhile took them from _meta.
        before = meta.pop(_BEFORE, self._before)
        current = {name: about["settings"].get(f"index.{name}") for name in self._loading}
        untouched = {name: value for name, value in before.items() if current[name] == self._loading[name]}
        if statement.startswith(">"):
            # Remembered first: other runs, at the same time or after this one was killed, find either the settings or
            # what they were.
            self._before = current | untouched
            self._remember(meta | {_STATED: statement, _BEFORE: self._before})
            self._set(self._loading)
            return
        for name, value in before.items():
            if current[name] not in (value, self._loading[name]):
                log(f"{self._index} keeps {name} {current[name]}, which was set while it was filled")
        self._set(untouched if self.replicas is None else untouched | {"number_of_replicas": self.replicas})
        self._remember(meta | {_STATED: statement})

    def present(self, ids: list[str]) -> set[str]:
        """Return those docids that are an _id."""
        body = {"docs": [{"_id": docid, "_source": False} for docid in ids]}
        return {answer["_id"] for answer in self._found(body)}

    def write(self, vectors: list[Vector]) -> None:
        """Index documents by a bulk request."""
        documents = ((vector.id, source(vector)) for vector in vectors)
        if self._has_docids:
            documents = ((docid, document | {DOCID: docid}) for docid, document in documents)
        self._bulk(({"index": {"_id": docid}}, orjson.dumps(document).decode()) for docid, document in documents)

    def delete(self, ids: list[str]) -> None:
        """Delete documents by a bulk request."""
        self._bulk(({"delete": {"_id": docid}}, None) for docid in ids)

    def finish(self) -> int:
        """Refresh the index, and return the number of documents. Raises MilcoError if a shard is missing."""
        self.client.indices.refresh(index=self._index)
        answer = self.client.count(index=self._index)
        shards = answer["_shards"]
        if shards["successful"] < shards["total"]:
            raise self._missing_shards(f"{shards['total'] - shards['successful']} of {shards['total']}")
        return answer["count"]

    def search(self, queries: Sequence[Vector], k: int, filters: FieldFilters) -> list[list[tuple[str, float]]]:
        """Return the best documents, by one request (_msearch); for more than its window, by scrolling."""
        searches = [self._target.search_request(query, self._index, min(k, WINDOW)).body for query in queries]
        bodies = [self._prepared(body, filters) for body in searches]
        if k <= WINDOW:
            found = self._searched(bodies)
        else:
            options = {"preserve_order": True, "size": WINDOW, "allow_partial_search_results": False}
            scans = (self._helpers.scan(self.client, body, index=self._index, **options) for body in bodies)
            found = [list(islice(hits, k)) for hits in scans]
        return [
            [(self._docid(hit), self._target.score(query, hit["_score"])) for hit in hits]
            for query, hits in zip(queries, found, strict=True)
        ]

    def search_texts(self, texts: Sequence[str], k: int, filters: FieldFilters) -> list[list[tuple[str, float]]]:
        """Return the best documents by BM25, with the document frequencies of all shards."""
        bodies = [self._prepared({"size": k, "_source": False, "query": text_query(text)}, filters) for text in texts]
        found = self._searched(bodies, search_type="dfs_query_then_fetch")
        return [[(self._docid(hit), hit["_score"]) for hit in hits] for hits in found]

    def impacts(self, ids: list[str], query: Vector) -> dict[str, dict[str, int]]:
        """Return the scores of queries of one term, which are the named parts of a query for these documents."""
        units = [Vector("", [term], [column], [1]) for term, column in zip(query.terms, query.columns, strict=True)]
        named = [{"bool": {"must": self._target.query(unit), "_name": str(place)}} for place, unit in enumerate(units)]
        options = {"include_named_queries_score": True, "allow_partial_search_results": False}
        found: dict[str, dict[str, int]] = {}
        for start in range(0, len(named) or 1, _CLAUSES):
            parts = {"filter": {"ids": {"values": ids}}, "should": named[start : start + _CLAUSES]}
            body = {"size": len(ids), "_source": False, "query": {"bool": parts}}
            for hit in self._hits(self.client.search(index=self._index, body=body, **options)):
                scores = {int(place): score for place, score in hit.get("matched_queries", {}).items()}
                found.setdefault(hit["_id"], {}).update(
                    (query.terms[place], round(self._target.score(units[place], scores[place])))
                    for place in sorted(scores)
                )
        return found

    def stored(self, ids: list[str]) -> dict[str, str]:
        """Return the stored JSON of those documents that the index has."""
        found = self._found({"ids": ids}) if ids else ()
        return {answer["_id"]: stored_json(answer["_id"], answer["_source"]) for answer in found}

    def count_values(self, field: str, limit: int) -> dict[str, int]:
        """Return how many documents have each value of a field."""
        counts: dict[str, int] = {}
        pages: dict[str, Any] = {"sources": [{"value": {"terms": {"field": field}}}], "size": WINDOW}
        while len(counts) < limit:
            body = {"size": 0, "aggs": {"values": {"composite": pages}}}
            found = self.client.search(index=self._index, body=body, allow_partial_search_results=False)
            page = found["aggregations"]["values"]
            counts |= {filter_text(bucket["key"]["value"]): bucket["doc_count"] for bucket in page["buckets"]}
            if "after_key" not in page:
                break
            pages["after"] = page["after_key"]
        return counts

    def _mapping(self, statement: str) -> dict[str, Any]:
        about = self._target.mapping(statement, self._schema, self._lacking)["mappings"]
        if self._has_docids:
            about["properties"] |= {DOCID: _DOCID_FIELD}
            if self._schema is not None:
                about["_source"]["excludes"].append(DOCID)
        return about

    @cached_property
    def _lacking(self) -> list[str]:
        """The analyzers of languages that the server does not have."""
        languages = text_analyzers(() if self._schema is None else self._schema.languages)
        lacking = [analyzer for analyzer in sorted(set(languages.values())) if not self._has_analyzer(analyzer)]
        if lacking:
            codes = ", ".join(language for language, analyzer in languages.items() if analyzer in lacking)
            log(f"{self._target.title} lacks the analyzers {', '.join(lacking)}: texts in {codes} get the standard one")
        return lacking

    def _has_analyzer(self, name: str) -> bool:
        try:
            self.client.indices.analyze(body={"analyzer": name, "text": "a"})
        except Exception as error:
            if getattr(error, "status_code", None) != BAD_REQUEST:
                raise
            return False
        return True

    def _prepared(self, body: dict[str, Any], filters: FieldFilters) -> dict[str, Any]:
        """Return a search with filters; its hits have their docid without a stored field, and no _id."""
        if filters and self._schema is not None:
            clauses = filter_clauses(filters, self._schema.fields)
            body["query"] = {"bool": {"must": body["query"], "filter": clauses}}
        return body | {"stored_fields": "_none_", "docvalue_fields": [DOCID]} if self._has_docids else body

    def _docid(self, hit: dict[str, Any]) -> str:
        """Return the docid of a hit of a prepared search. Raises MilcoError if another program wrote the document."""
        if not self._has_docids:
            return hit["_id"]
        if "fields" not in hit:
            raise MilcoError(
                f"{self._index} has a document without {DOCID}, which another program wrote",
                "Delete the index, and run milco export again.",
            )
        return hit["fields"][DOCID][0]

    def _searched(self, bodies: Sequence[dict[str, Any]], **options: str) -> list[list[dict[str, Any]]]:
        """Return the hits of each search, by one request."""
        header = {"index": self._index, "allow_partial_search_results": False, **options}
        lines = [line for body in bodies for line in (header, body | {"track_total_hits": False})]
        return [self._hits(answer) for answer in self.client.msearch(body=lines)["responses"]]

    def _hits(self, answer: Any) -> list[dict[str, Any]]:
        """Return the hits of an answer. Raises RuntimeError if the search failed, or a shard is missing."""
        if "error" in answer:
            error = answer["error"]
            causes = [error, *error.get("root_cause", ()), error.get("caused_by", {})]
            reasons = dict.fromkeys(cause["reason"] for cause in causes if cause.get("reason"))
            raise RuntimeError(f"{self._index}: {': '.join(reasons)}")
        shards = answer["_shards"]
        if shards["successful"] != shards["total"]:
            raise RuntimeError(f"{self._index}: {shards['successful']} of {shards['total']} shards have answered")
        return answer["hits"]["hits"]

    def _about(self) -> dict[str, dict[str, Any]]:
        """Return settings and mapping, of one moment, of the index, or of those of an alias."""
        return dict(self.client.indices.get(index=self._index, flat_settings=True))

    def _set(self, settings: Mapping[str, Any]) -> None:
        if settings:
            self.client.indices.put_settings(index=self._index, body={"index": settings})

    def _remember(self, meta: dict[str, Any]) -> None:
        body = {"_meta": meta, "properties": self._mapping("")["properties"]}
        self.client.indices.put_mapping(index=self._index, body=body)

    def _found(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Return those documents of a request (_mget) that the index has. Raises MilcoError if a shard is missing."""
        answers = self.client.mget(index=self._index, body=body)["docs"]
        if any("error" in answer for answer in answers):
            raise self._missing_shards("some")
        return [answer for answer in answers if answer["found"]]

    def _missing_shards(self, number: str) -> MilcoError:
        return MilcoError(
            f"{number} shards of {self._index} are missing, because nodes have stopped",
            "Start the nodes, and run the same command again.",
        )

    def _bulk(self, actions: Iterable[tuple[dict[str, Any], str | None]]) -> None:
        limits = {"chunk_size": BATCH, "max_chunk_bytes": _REQUEST_BYTES, "expand_action_callback": tuple}
        # A document to delete may be gone.
        self._helpers.bulk(self.client, actions, index=self._index, ignore_status=(404,), **limits, **_PATIENCE)


def source(vector: Vector) -> dict[str, Any]:
    """Return the source of a document."""
    return {FIELD: vector.weights} | ({} if vector.document is None else stored_source(vector.document))
