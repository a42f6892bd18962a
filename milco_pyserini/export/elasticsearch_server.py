"""An index of Elasticsearch or OpenSearch, filled by bulk requests and searched by several searches at a time."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress
from typing import Any, TypeVar

import orjson

from milco_pyserini.console import counted, log
from milco_pyserini.errors import Message, MilcoError, ParameterError, shown
from milco_pyserini.export import elasticsearch_answers as answers
from milco_pyserini.export.access import Access, deadline
from milco_pyserini.export.elasticsearch_answers import DOCID
from milco_pyserini.export.elasticsearch_documents import (
    FIELD,
    SETTINGS,
    STATED,
    filter_clauses,
    flat_properties,
    source,
    stored_json,
    text_analyzers,
    text_query,
)
from milco_pyserini.export.faults import ServerError
from milco_pyserini.export.protocol import Collection, ImpactDocument, Steps, TextServer
from milco_pyserini.export.rest import BAD_REQUEST, BUSY, FORBIDDEN, NOT_FOUND, Rest, cause_of
from milco_pyserini.export.server import BATCH
from milco_pyserini.index.documents import FieldFilters, filter_text

_DOCID_FIELD = {"type": "keyword", "index": False}
# Seconds for the first answer of each node.
_CONNECT = 10.0
# index.max_result_window: more hits are read by scrolling.
WINDOW = 10_000
# A query may have 1,024 clauses (indices.query.bool.max_clause_count).
_CLAUSES = 500
# The setting of a cluster, and its value where it is not known.
_MOST_CLAUSES, _LEAST_CLAUSES = "indices.query.bool.max_clause_count", 1024
# Settings while an index is loaded: nothing is replicated or made searchable.
_LOADING = {"number_of_replicas": "0", "refresh_interval": "-1"}
# Settings to restore, in _meta of the mapping.
_BEFORE = "milco_restore"
# Maximum size of a body; a server takes up to 100 MB.
_REQUEST_BYTES = 10 * 2**20
# Seconds between requests with what a busy server refused: four minutes in all.
_PAUSES = (1, 2, 4, 8, 16, *[30] * 7)
T = TypeVar("T")


def connect(target: Any, access: Access, collection: Collection) -> "ElasticsearchServer":
    """Connect to the nodes of one cluster. target: ElasticsearchTarget, or one with the same methods."""
    rest = Rest(access, {"Authorization": f"ApiKey {access.key}"} if access.key else {})
    try:
        with deadline(_CONNECT * len(access.urls)):
            version = rest.request("GET", "/", answers.Version, at=("version",))
        target.validate_version(version)
        # Elastic's serverless offering has replicas of its own.
        loading = {"refresh_interval": "-1"} if version.build_flavor == "serverless" else _LOADING
        return ElasticsearchServer(rest, target, collection, loading)
    except BaseException:
        rest.close()
        raise


class ElasticsearchServer(TextServer):
    """An index, by the REST API that Elasticsearch and OpenSearch have in common.

    Until it is complete for the first time, it has the settings `loading`. Its earlier settings are in _meta of its
    mapping, so the run that completes it restores them.
    """

    writers = 4
    ranged = frozenset(("string", "strings", "number"))
    counted = frozenset(("string", "strings", "number", "boolean", "mixed"))

    def __init__(
        self, client: Rest, target: Any, collection: Collection, loading: Mapping[str, str] = _LOADING
    ) -> None:
        self.client, self._target, self._loading = client, target, loading
        self._index, _, self._schema = collection
        self._before: dict[str, str | None] = {}
        # All documents of an index have the field, or, if files or an earlier version filled it, none.
        self._has_docids = True

    def stated(self, alias: bool = False) -> str | None:
        """Return the statement in the mapping.

        Raises MilcoError for an alias, unless alias is set, for another number of shards, and for replicas that have no
        node.
        """
        if self.replicas:
            nodes = self._request("GET", "_cluster/health", int, at=("number_of_data_nodes",))
            if self.replicas >= nodes:
                raise ParameterError(
                    "replicas",
                    self.replicas,
                    "each needs a data node of its own, next to that of the shard itself, and the cluster has "
                    f"{counted(nodes, 'data node')}: at most {nodes - 1}",
                )
        found = self._about()
        if found is None:
            return None
        if list(found) != [self._index] and not alias:
            fix = Message("Choose another {collection}, and let the alias point to it when it is complete.")
            raise MilcoError(f"{self._index} is an alias of {', '.join(found)}", fix)
        if len(found) != 1:
            return ""
        (about,) = found.values()
        shards = about.settings.get("index.number_of_shards")
        if self.shards is not None and str(self.shards) != shards:
            rule = f"{self._index} has {shards}, and an index keeps its number of shards"
            raise ParameterError("shards", self.shards, rule, Message("Omit {shards}, or choose another {collection}."))
        mapping = about.mappings
        properties = dict(flat_properties(mapping.get("properties", {})))
        self._has_docids = properties.pop(DOCID, None) == _DOCID_FIELD
        wanted = self._target.mapping("", self._schema)["mappings"]["properties"]
        # An older version of the documents may have had other fields; fields of others would be lost. An index of
        # documents is refused for its statement.
        common = properties.keys() & wanted.keys()
        stated = mapping.get("_meta", {}).get(STATED, "")
        is_same = properties.get(FIELD) == self._target.field
        is_same &= alias or "+" in stated or len(properties) == 1
        is_same &= all(properties[name].get("type") == wanted[name]["type"] for name in common)
        return stated if is_same else ""

    def create(self, statement: str) -> None:
        """Create the index, with the settings for loading."""
        given = {"number_of_shards": self.shards, "number_of_replicas": self.replicas}
        settings = SETTINGS["index"] | {name: value for name, value in given.items() if value is not None}
        body = {"settings": {"index": settings}, "mappings": self._mapping(statement)}
        self._request("PUT", self._index, Any, body)
        self.state(statement)

    def state(self, statement: str) -> None:
        """Replace the statement in the mapping, and add what it lacks.

        A complete index gets the settings back that loading took from it.
        """
        about = (self._about() or {}).get(self._index)
        if about is None:
            raise ServerError(f"{self._index} does not exist any more", "index_not_found")
        meta = about.mappings.get("_meta", {})
        # Another run that completed the index meanwhile took them from _meta.
        before = meta.pop(_BEFORE, self._before)
        current = {name: about.settings.get(f"index.{name}") for name in self._loading}
        untouched = {name: value for name, value in before.items() if current[name] == self._loading[name]}
        if statement.startswith(">"):
            # Remembered first: other runs, at the same time or after this one was killed, find either the settings or
            # what they were.
            self._before = current | untouched
            self._remember(meta | {STATED: statement, _BEFORE: self._before})
            self._set(self._loading)
            return
        for name, value in before.items():
            if current[name] not in (value, self._loading[name]):
                log(f"{self._index} keeps {name} {current[name]}, which was set while it was filled")
        self._set(untouched if self.replicas is None else untouched | {"number_of_replicas": self.replicas})
        self._remember(meta | {STATED: statement})

    def present(self, ids: list[str]) -> set[str]:
        body = {"docs": [{"_id": docid, "_source": False} for docid in ids]}
        return {document.id for document in self._found(body)}

    def write(self, vectors: list[ImpactDocument]) -> None:
        documents = ((vector.id, source(vector)) for vector in vectors)
        if self._has_docids:
            documents = ((docid, document | {DOCID: docid}) for docid, document in documents)
        self._bulk((orjson.dumps({"index": {"_id": docid}}), orjson.dumps(document)) for docid, document in documents)

    def delete(self, ids: list[str]) -> None:
        self._bulk((orjson.dumps({"delete": {"_id": docid}}),) for docid in ids)

    def finish(self) -> int:
        self._request("POST", f"{self._index}/_refresh", Any)
        return self.count()

    def count(self) -> int:
        """Return the number of documents. Raises ServerError if a shard is missing."""
        answer = self._request("GET", f"{self._index}/_count", answers.Count)
        answer.shards.validate(self._index)
        return answer.count

    def ping(self) -> None:
        """Raise ServerError unless the cluster has a majority of its nodes, and the index all of its shards."""
        path = f"_cluster/health/{self._index}?timeout=2s&master_timeout=2s"
        if self._request("GET", path, str, at=("status",)) == "red":
            raise ServerError(f"{self._index}: missing shards", "missing_shards")

    @property
    def max_words(self) -> int:
        """The largest number of words of a text: each is a clause for each language."""
        languages = text_analyzers(() if self._schema is None else self._schema.languages)
        return self.max_terms // (len(languages) + 1)

    @cached_property
    def max_terms(self) -> int:
        """The largest number of clauses of a query, which Elasticsearch chooses by the memory of its nodes."""
        path = f"_cluster/settings?include_defaults=true&filter_path=*.{_MOST_CLAUSES}"
        try:
            found = self._request("GET", path, dict[str, Any])
        except ServerError as error:
            # The user may not read the settings of the cluster.
            if error.status not in (BAD_REQUEST, FORBIDDEN, NOT_FOUND):
                raise
            found = {}
        for level in ("transient", "persistent", "defaults"):
            value: Any = found.get(level)
            for name in _MOST_CLAUSES.split("."):
                value = value.get(name) if isinstance(value, dict) else None
            if str(value).isdecimal():
                return int(value)
        return _LEAST_CLAUSES

    def search(
        self, queries: Sequence[ImpactDocument], k: int, filters: FieldFilters, steps: Steps | None = None
    ) -> list[list[tuple[str, float]]]:
        """Return the best documents, by one request (_msearch); for more than its window, by scrolling, exactly."""
        size, steps = min(k, WINDOW), steps if k <= WINDOW else None
        searches = [self._target.search_request(query, self._index, size, steps).body for query in queries]
        bodies = [self._prepared(body, filters) for body in searches]
        found = self._searched(bodies) if k <= WINDOW else [self._scrolled(body, k) for body in bodies]
        return [
            [(self._docid(hit), self._target.score(query, hit.score)) for hit in hits]
            for query, hits in zip(queries, found, strict=True)
        ]

    def search_texts(self, texts: Sequence[str], k: int, filters: FieldFilters) -> list[list[tuple[str, float]]]:
        """Return the best documents by BM25, with the document frequencies of all shards."""
        body, search_type = {"size": min(k, WINDOW), "_source": False}, "dfs_query_then_fetch"
        bodies = [self._prepared(body | {"query": text_query(text)}, filters) for text in texts]
        if k > WINDOW:
            found = [self._scrolled(body, k, f"&search_type={search_type}") for body in bodies]
        else:
            found = self._searched(bodies, search_type=search_type)
        return [[(self._docid(hit), hit.score) for hit in hits] for hits in found]

    def impacts(self, ids: list[str], query: ImpactDocument) -> dict[str, dict[str, int]]:
        """Return the scores of queries of one term, which are the named parts of a query for these documents."""
        units = [
            ImpactDocument("", [term], [column], [1]) for term, column in zip(query.terms, query.columns, strict=True)
        ]
        named = [{"bool": {"must": self._target.query(unit), "_name": str(place)}} for place, unit in enumerate(units)]
        path = f"{self._index}/_search?include_named_queries_score=true&allow_partial_search_results=false"
        found: dict[str, dict[str, int]] = {}
        names = set(map(str, range(len(units))))
        for start in range(0, len(named) or 1, _CLAUSES):
            parts = {"filter": {"ids": {"values": ids}}, "should": named[start : start + _CLAUSES]}
            body = {"size": len(ids), "_source": False, "query": {"bool": parts}}
            for hit in self._request("POST", path, answers.Found, body).valid_hits(self._index):
                scores = {int(place): score for place, score in hit.matched.items() if place in names}
                if hit.id not in ids or len(scores) < len(hit.matched):
                    raise ServerError(f"the answer is not a valid one: {shown(hit.id)} was not asked for")
                found.setdefault(hit.id, {}).update(
                    (query.terms[place], round(self._target.score(units[place], scores[place])))
                    for place in sorted(scores)
                )
        return found

    def stored(self, ids: list[str]) -> dict[str, str]:
        found = self._found({"ids": ids}) if ids else ()
        return {document.id: stored_json(document.id, document.source) for document in found}

    def count_values(self, field: str, limit: int) -> dict[str, int]:
        counts: dict[str, int] = {}
        pages: dict[str, Any] = {"sources": [{"value": {"terms": {"field": field}}}], "size": WINDOW}
        while len(counts) < limit:
            body = {"size": 0, "aggs": {"values": {"composite": pages}}}
            path = f"{self._index}/_search?allow_partial_search_results=false"
            page = self._request("POST", path, answers.Page, body, at=("aggregations", "values"))
            counts |= {filter_text(bucket.key.get("value")): bucket.doc_count for bucket in page.buckets}
            if page.after_key is None:
                break
            pages["after"] = page.after_key
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
            self._request("POST", "_analyze", Any, {"analyzer": name, "text": "a"})
        except ServerError as error:
            if error.status != BAD_REQUEST:
                raise
            return False
        return True

    def _prepared(self, body: dict[str, Any], filters: FieldFilters) -> dict[str, Any]:
        """Return a search with filters; its hits have their docid without a stored field, and no _id."""
        if filters and self._schema is not None:
            clauses = filter_clauses(filters, self._schema.fields)
            body["query"] = {"bool": {"must": body["query"], "filter": clauses}}
        return body | {"stored_fields": "_none_", "docvalue_fields": [DOCID]} if self._has_docids else body

    def _docid(self, hit: answers.FoundHit) -> str:
        """Return the docid of a hit of a prepared search. Raises ServerError if another program wrote the document."""
        if not self._has_docids:
            return hit.id
        docids = hit.fields.get(DOCID, ())
        if len(docids) != 1:
            raise ServerError(f"{self._index} has a document without one {DOCID}, which another program wrote")
        return docids[0]

    def _searched(self, bodies: Sequence[dict[str, Any]], **options: str) -> list[list[answers.FoundHit]]:
        """Return the hits of each search, by one request."""
        header = {"index": self._index, "allow_partial_search_results": False, **options}
        lines = [line for body in bodies for line in (header, body | {"track_total_hits": False})]
        found = self._request(
            "POST", "_msearch", list[answers.Found], _lines(map(orjson.dumps, lines)), at=("responses",)
        )
        if len(found) != len(bodies):
            raise ServerError(f"{len(found)} answers to {counted(len(bodies), 'query', 'queries')}")
        return [answer.valid_hits(self._index) for answer in found]

    def _scrolled(self, body: dict[str, Any], k: int, parameters: str = "") -> list[answers.FoundHit]:
        """Return up to k hits of a search, WINDOW at a time."""
        path = f"{self._index}/_search?scroll=1m&allow_partial_search_results=false{parameters}"
        found: list[answers.FoundHit] = []
        answer = self._request("POST", path, answers.Found, body | {"track_total_hits": True})
        total = int(((answer.hits and answer.hits.total) or {}).get("value", 0))
        while hits := answer.valid_hits(self._index):
            found += hits
            if len(found) >= k:
                break
            answer = self._request(
                "POST", "_search/scroll", answers.Found, {"scroll": "1m", "scroll_id": answer.scroll_id}
            )
        self._request("DELETE", "_search/scroll", Any, {"scroll_id": answer.scroll_id})
        # A request that was repeated after its answer was lost has skipped a page.
        if len(found) < min(k, total):
            raise ServerError(f"{self._index}: {len(found):,} of {total:,} hits, the answer is incomplete")
        return found[:k]

    def _about(self) -> dict[str, answers.IndexState] | None:
        """Return settings and mapping, of one moment, of the index, or of those of an alias; None if it is missing."""
        return self.client.find(f"/{self._index}?flat_settings=true", dict[str, answers.IndexState])

    def _set(self, settings: Mapping[str, Any]) -> None:
        if settings:
            self._request("PUT", f"{self._index}/_settings", Any, {"index": settings})

    def _remember(self, meta: dict[str, Any]) -> None:
        body = {"_meta": meta, "properties": self._mapping("")["properties"]}
        self._request("PUT", f"{self._index}/_mapping", Any, body)

    def _found(self, body: dict[str, Any]) -> list[answers.MultiGetDocument]:
        """Return those documents of a request (_mget) that the index has. Raises ServerError if a shard is missing."""
        documents = self._request("POST", f"{self._index}/_mget", list[answers.MultiGetDocument], body, at=("docs",))
        for document in documents:
            if document.error is not None or document.found is None:
                kind, reason = cause_of(document.error)
                raise ServerError(f"{self._index}: {reason or 'the answer is incomplete'}", kind)
        return [document for document in documents if document.found]

    def _bulk(self, actions: Iterable[tuple[bytes, ...]]) -> None:
        """Send actions in requests of a limited size. Actions that a busy server refuses are sent again.

        Raises ServerError for the first that it refuses otherwise.
        """
        for pending in _parts(actions):
            for pause in (*_PAUSES, None):
                kind, body = list[dict[str, answers.Result]], _lines(chain(*pending))
                items = self._request("POST", f"{self._index}/_bulk", kind, body, at=("items",))
                results = [result for item in items for result in item.values()]
                if len(results) != len(pending):
                    raise ServerError(f"{len(results)} answers to {counted(len(pending), 'document')}")
                # A document to delete may be gone.
                failed = [result.status >= 300 and result.status != NOT_FOUND for result in results]
                for result in compress(results, failed):
                    if result.status != BUSY or pause is None:
                        name, reason = cause_of(result.error)
                        raise ServerError(f"document {shown(result.id)}: {reason}", name, result.status)
                pending = list(compress(pending, failed))
                if not pending or pause is None:
                    break
                time.sleep(pause)

    def _request(self, method: str, path: str, kind: type[T], body: Any = None, at: Sequence[str] = ()) -> T:
        return self.client.request(method, f"/{path}", kind, body, at)


def _lines(lines: Iterable[bytes]) -> bytes:
    """Return lines of JSON as a body."""
    return b"".join(line + b"\n" for line in lines)


def _parts(actions: Iterable[tuple[bytes, ...]]) -> Iterator[list[tuple[bytes, ...]]]:
    """Yield the actions of one request after the other."""
    part: list[tuple[bytes, ...]] = []
    size = 0
    for action in actions:
        length = sum(map(len, action))
        if part and (size + length > _REQUEST_BYTES or len(part) == BATCH):
            yield part
            part, size = [], 0
        part.append(action)
        size += length
    if part:
        yield part
