"""The remote engine: a collection that milco export filled, in the search engine that holds it.

Its index is a small directory: a manifest that names the target, the URLs and the collection, and the terms of the
columns. The code of a target's server is in its file of milco_pyserini.export.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.protocol import EXACT_INTEGER, SEARCH, Engine
from milco_pyserini.io.records import RemoteManifest
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.export.remote import RemoteSearcher


@dataclass(frozen=True)
class Remote(Engine):
    """Exact sums of integers; ties by docid, as in Lucene."""

    name = "remote"
    exactness = EXACT_INTEGER
    record = RemoteManifest
    capabilities = frozenset({Capability.STORE, Capability.BALANCE, Capability.READ, Capability.HYBRID})

    timeout: float = option(
        30.0, group=SEARCH, above=0, maximum=86_400, help="seconds for the answer to a request, of up to 64 queries"
    )

    def open(self, directory: Path, manifest: Any) -> "RemoteSearcher":
        """Connect to the server. Raises MilcoError unless the collection holds the vectors that the manifest states."""
        # The targets import the engines.
        from milco_pyserini.export.access import Access
        from milco_pyserini.export.remote import RemoteSearcher

        return RemoteSearcher.open(directory, manifest, Access.found(manifest.urls), self.timeout)
