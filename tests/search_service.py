"""A service with the part of the REST API of Elasticsearch that milco export uses.

It accepts what the documentation specifies, and computes scores with the 9 significant bits that Lucene's FeatureField
keeps. test_scores.py compares the scores of FeatureField itself.
"""

import contextlib
import gzip
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from background_server import running


class Service(BaseHTTPRequestHandler):
    """Indexes in memory: name -> mappings and documents."""

    about: dict[str, Any]
    indexes: dict[str, dict[str, Any]]

    def do(self) -> None:
        """Answer one request."""
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = (gzip.decompress(sent) if self.headers.get("Content-Encoding") == "gzip" else sent).decode()
        _, name, *action = [*self.path.partition("?")[0].split("/"), ""][:3]
        index = self.indexes.get(name)
        if not name:
            self._answer(200, {"version": self.about, "tagline": "You Know, for Search"})
        elif name == "_cluster":
            self._answer(200, {"status": "green", "number_of_data_nodes": 1} if action == ["health"] else {})
        elif name == "_msearch":
            self._answer(200, {"responses": self.msearch(list(map(json.loads, content.splitlines())))})
        elif self.command == "PUT" and action == [""]:
            body = json.loads(content)
            settings = {"number_of_shards": 1, "number_of_replicas": 1} | body.get("settings", {}).get("index", {})
            self.indexes[name] = {"mappings": body["mappings"], "settings": settings, "documents": {}}
            self._answer(200, {"acknowledged": True})
        elif index is None:
            self._answer(404, {"error": {"type": "index_not_found_exception"}, "status": 404})
        else:
            self._answer(200, getattr(self, action[0].removeprefix("_") or "head")(index, content, name))

    do_GET = do_PUT = do_POST = do_HEAD = do  # noqa: N815

    def head(self, index: dict, content: str, name: str) -> dict:
        """Return mapping and settings, as strings."""
        settings = {f"index.{key}": str(value) for key, value in index["settings"].items() if value is not None}
        return {name: {"mappings": index["mappings"], "settings": settings}}

    def mapping(self, index: dict, content: str, name: str) -> dict:
        """Change the _meta of the mapping."""
        index["mappings"] |= json.loads(content)
        return {}

    def settings(self, index: dict, content: str, name: str) -> dict:
        """Change settings."""
        index["settings"] |= json.loads(content)["index"]
        return {}

    def bulk(self, index: dict, content: str, name: str) -> dict:
        """Index and delete documents."""
        items, lines = [], iter(content.splitlines())
        for line in map(json.loads, lines):
            ((kind, about),) = line.items()
            known = index["documents"].pop(about["_id"], None)
            if kind == "index":
                index["documents"][about["_id"]] = json.loads(next(lines))
            items.append({kind: {"_id": about["_id"], "status": 404 if kind == "delete" and known is None else 200}})
        return {"errors": False, "items": items}

    def mget(self, index: dict, content: str, name: str) -> dict:
        """Return which documents exist."""
        wanted = [one["_id"] for one in json.loads(content)["docs"]]
        return {"docs": [{"_id": one, "found": one in index["documents"]} for one in wanted]}

    def refresh(self, index: dict, content: str, name: str) -> dict:
        """Do nothing: documents are searchable at once."""
        return {}

    def count(self, index: dict, content: str, name: str) -> dict:
        """Return the number of documents."""
        return {"count": len(index["documents"]), "_shards": {"total": 1, "successful": 1}}

    def msearch(self, lines: list[dict]) -> list[dict]:
        """Answer searches, each of an index that a line before it names."""
        pairs = zip(lines[::2], lines[1::2], strict=True)
        return [self.search(self.indexes[header["index"]], json.dumps(body), header["index"]) for header, body in pairs]

    def search(self, index: dict, content: str, name: str) -> dict:
        """Return the best documents by the sum of products, ties not by docid; or named queries for a docid."""
        body = json.loads(content)
        if "bool" in body["query"]:
            parts = {part["bool"]["_name"]: part["bool"]["must"] for part in body["query"]["bool"]["should"]}
            found = [{"_id": docid} for docid in body["query"]["bool"]["filter"]["ids"]["values"]]
            found = [hit for hit in found if hit["_id"] in index["documents"]]
            for hit in found:
                vector = index["documents"][hit["_id"]]["vector"]
                scores = {name: score_of(part, vector) for name, part in parts.items()}
                hit["matched_queries"] = {name: score for name, score in scores.items() if score}
        else:
            documents = index["documents"]
            ranked = [(score_of(body["query"], source["vector"]), docid) for docid, source in documents.items()]
            best = sorted((hit for hit in ranked if hit[0]), reverse=True)
            if "rescore" in body:
                window, query = body["rescore"]["window_size"], body["rescore"]["query"]
                weight = query["rescore_query_weight"]
                best = sorted(
                    (score + weight * score_of(query["rescore_query"], documents[docid]["vector"]), docid)
                    for score, docid in best[:window]
                )[::-1]
            best = best[: body["size"]]
            found = [{"_id": docid, "_score": score} for score, docid in best]
            if body.get("stored_fields") == "_none_":
                for hit in found:
                    source = documents[hit.pop("_id")]
                    if fields := {name: [source[name]] for name in body["docvalue_fields"] if name in source}:
                        hit["fields"] = fields
        return {"_shards": {"total": 1, "successful": 1}, "hits": {"hits": found}}

    def _answer(self, status: int, value: dict) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


def score_of(query: dict, document: dict[str, int]) -> float:
    """Return the score of a document for a query of weighted terms."""
    assert query["sparse_vector"]["prune"] is False
    weights = query["sparse_vector"]["query_vector"]
    return sum(weights[term] * nine_bits(document[term]) for term in weights.keys() & document.keys())


def nine_bits(weight: float) -> float:
    """Return a weight as FeatureField stores it."""
    return float((np.float32(weight).view(np.int32) >> 15 << 15).view(np.float32))


@contextlib.contextmanager
def search_service(**about: str) -> Iterator[str]:
    """Run a service; yield its URL. about: of the version that it states."""
    handler = type("Handler", (Service,), {"about": {"number": "9.1.0"} | about, "indexes": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with running(server) as port:
        yield f"http://127.0.0.1:{port}"
