"""Vespa: an application with one weighted set of terms. Its form is tested, but no Vespa was available to load it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from milco_pyserini.export.protocol import HITS, Export, Target, Vector, render, write_lines


class VespaTarget(Target):
    """An application package, the feed of its documents, and queries."""

    name = "vespa"
    title = "Vespa"

    def write(self, export: Export, directory: Path) -> None:
        """Write services.xml, schemas/NAME.sd, documents.jsonl and queries.jsonl."""
        name = export.collection
        (directory / "schemas").mkdir()
        render("vespa.services.xml", export, directory / "services.xml")
        render("vespa.schema.sd", export, directory / "schemas" / f"{name}.sd")
        write_lines(directory / "documents.jsonl", self._feed(export))
        if export.topics is not None:
            write_lines(directory / "queries.jsonl", (_search(vector, name) for vector in export.topics))

    def _feed(self, export: Export) -> Iterator[dict[str, Any]]:
        place = f"id:milco:{export.collection}::"
        for vector in self.documents(export):
            yield {"put": place + quote(vector.id, safe=""), "fields": {"docid": vector.id, "terms": vector.weights}}
        for docid in export.deleted:
            yield {"remove": place + quote(docid, safe="")}


def _search(vector: Vector, name: str) -> dict[str, Any]:
    where = f"{{targetHits: {HITS}}}wand(terms, {orjson.dumps(vector.weights).decode()})"
    return {"yql": f"select docid from {name} where {where}", "ranking": "impacts", "hits": HITS}
