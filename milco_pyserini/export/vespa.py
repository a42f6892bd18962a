"""Vespa: an application with one weighted set of terms. Its form is tested, but no Vespa was available to load it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from milco_pyserini.export.protocol import (
    HITS,
    EngineRequest,
    ExportJob,
    ExportTarget,
    ImpactDocument,
    render,
    write_lines,
)
from milco_pyserini.index.capabilities import Capability


class VespaTarget(ExportTarget):
    """An application package, the feed of its documents, and queries."""

    name = "vespa"
    title = "Vespa"
    capabilities = frozenset({Capability.UPDATE, Capability.REQUEST})

    def write(self, export: ExportJob, directory: Path) -> None:
        """Write application/, the package to deploy, documents.jsonl, and queries.jsonl with queries.ids, its ids."""
        name, package = export.collection, directory / "application"
        (package / "schemas").mkdir(parents=True)
        render("vespa.services.xml", export, package / "services.xml")
        render("vespa.schema.sd", export, package / "schemas" / f"{name}.sd")
        write_lines(directory / "documents.jsonl", self._feed(export))
        if export.topics is not None:
            bodies = (self.search_request(vector, name).body for vector in export.topics)
            write_lines(directory / "queries.jsonl", bodies)
            write_lines(directory / "queries.ids", (vector.id for vector in export.topics))

    def _feed(self, export: ExportJob) -> Iterator[dict[str, Any]]:
        place = f"id:milco:{export.collection}::"
        for vector in self.documents(export):
            yield {"put": place + quote(vector.id, safe=""), "fields": {"docid": vector.id, "terms": vector.weights}}
        for docid in export.deleted:
            yield {"remove": place + quote(docid, safe="")}

    def search_request(self, query: ImpactDocument, collection: str, k: int = HITS) -> EngineRequest:
        where = f"{{targetHits: {k}}}wand(terms, {orjson.dumps(query.weights).decode()})"
        body = {"yql": f"select docid from {collection} where {where}", "ranking": "impacts", "hits": k}
        return EngineRequest("/search/", body)
