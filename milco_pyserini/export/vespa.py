"""Vespa: an application with one weighted set of terms. Its form is tested, but no Vespa was available to load it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from milco_pyserini.export.protocol import HITS, Export, Target, Vector, write_lines

_SERVICES = """<?xml version="1.0" encoding="utf-8" ?>
<services version="1.0">
  <container id="default" version="1.0"><search /><document-api /></container>
  <content id="content" version="1.0">
    <min-redundancy>1</min-redundancy>
    <documents><document type="{name}" mode="index" /></documents>
  </content>
</services>
"""
_SCHEMA = """schema {name} {{
  document {name} {{
    field docid type string {{ indexing: attribute | summary }}
    field terms type weightedset<string> {{
      indexing: attribute
      attribute: fast-search
      match: cased
      dictionary {{ hash
        cased }}
    }}
  }}
  rank-profile impacts {{ first-phase {{ expression: rawScore(terms) }} }}
}}
"""


class VespaTarget(Target):
    """An application package, the feed of its documents, and queries."""

    name = "vespa"
    title = "Vespa"

    def write(self, export: Export, directory: Path) -> None:
        """Write services.xml, schemas/NAME.sd, documents.jsonl and queries.jsonl."""
        name = export.collection
        (directory / "services.xml").write_text(_SERVICES.format(name=name))
        (directory / "schemas").mkdir()
        (directory / "schemas" / f"{name}.sd").write_text(_SCHEMA.format(name=name))
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
