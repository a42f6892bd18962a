"""Compare the documents a second of milco export --url with those of the bulk helper of OpenSearch's own client.

python benchmarks/opensearch_load.py --url http://localhost:9200

Both read the same vector store and fill an index of the same mapping, in turn: the helper with its defaults, an index
with the server's defaults, until the documents are searchable; milco export until the index has its settings again.
The index is deleted. Vectors are synthetic, of both views, with 217 terms on average.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate
from topical_vectors import write_topical_store

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import Progress
from milco_pyserini.errors import MilcoError
from milco_pyserini.export import ExportJob
from milco_pyserini.export.access import Access
from milco_pyserini.export.elasticsearch_documents import FIELD
from milco_pyserini.export.opensearch import OpenSearchTarget
from milco_pyserini.export.protocol import ImpactStore
from milco_pyserini.export.server import client, fill
from milco_pyserini.options import option

INDEX = "milco_load"


@dataclass(frozen=True)
class LoadOptions:
    """Compare documents a second of milco export --url and of the client's bulk helper."""

    url: str = option(metavar="URL", help="running OpenSearch")
    vectors: Path | None = option(None, metavar="DIR", help="vector store (default: synthetic vectors)")
    documents: int = option(8_000, minimum=1, metavar="N", help="documents of the synthetic store")
    repeats: int = option(3, minimum=1, metavar="N", help="rounds; medians are printed")


class Timed(Progress):
    """Knows when the documents were written, before their scores are compared."""

    ended = 0.0

    def close(self, outcome: str | None = "done") -> None:
        """Take the time."""
        self.ended = time.perf_counter()
        super().close(outcome)


def command(options: LoadOptions) -> None:
    """Print the medians of both, and that of the rounds' ratios."""
    with tempfile.TemporaryDirectory() as name:
        path = options.vectors or Path(name) / "vectors"
        if options.vectors is None:
            write_topical_store(path, options.documents, both_views=True)
        server = client("opensearchpy", "opensearch").OpenSearch(options.url, timeout=120)
        if server.indices.exists(index=INDEX):
            raise MilcoError(f"{INDEX} exists at `url`, and would be deleted: delete it")
        rates: dict[str, list[float]] = {"bulk helper": [], "milco export": []}
        for _ in range(options.repeats):
            for system, load in (("bulk helper", load_by_helper), ("milco export", load_by_export)):
                export = ExportJob(ImpactStore.open(path), INDEX)
                try:
                    seconds = load(server, export, options.url)
                finally:
                    server.indices.delete(index=INDEX, ignore_unavailable=True)
                rates[system].append(export.written / seconds)
    ratios = (mine / theirs for theirs, mine in zip(*rates.values(), strict=True))
    rows = [(system, f"{statistics.median(found):,.0f} documents/s") for system, found in rates.items()]
    sys.stdout.write(tabulate([*rows, ("ratio", f"{statistics.median(ratios):.2f}")], tablefmt="plain") + "\n")


def load_by_helper(server: Any, export: ExportJob, url: str) -> float:
    """Return the seconds of opensearchpy.helpers.bulk with its defaults."""
    target = OpenSearchTarget()
    mappings = target.mapping("")["mappings"]
    server.indices.create(index=INDEX, body={"mappings": mappings})
    started = time.perf_counter()
    actions = ({"_id": vector.id, "_source": {FIELD: vector.weights}} for vector in target.documents(export))
    client("opensearchpy.helpers", "opensearch").bulk(server, actions, index=INDEX)
    server.indices.refresh(index=INDEX)
    return time.perf_counter() - started


def load_by_export(server: Any, export: ExportJob, url: str) -> float:
    """Return the seconds of milco export, without the comparison of scores."""
    export.progress = timed = Timed("documents", len(export.documents))
    started = time.perf_counter()
    fill(export, OpenSearchTarget(), Access((url,)))
    return timed.ended - started


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("opensearch_load.py", LoadOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
