"""The remote engine: a collection that milco export filled, in the search engine that holds it.

Its index is a small directory: a manifest that names the target, the URLs and the collection, and the terms of the
columns. What a target's server does is in its file of milco_pyserini.export.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.index.protocol import EXACT_INTEGER
from milco_pyserini.index.sparse_engine import SparseEngine
from milco_pyserini.io.manifest import SPARSE_INDEX

if TYPE_CHECKING:
    from milco_pyserini.export.remote import RemoteSearcher

# The name of a variable in the environment: URLs, separated by white space, in place of those of the manifest.
URL = "MILCO_URL"


class Remote(SparseEngine):
    """Exact sums of integers; ties by docid, as in Lucene."""

    name = "remote"
    exactness = EXACT_INTEGER
    manifest_fields = SPARSE_INDEX | {
        **{"target": str, "urls": [str], "collection": str, "fingerprint": str},
        "schema?": {"kinds": {"*": str}, "languages": [str]},
        "languages?": {"*": int},
    }
    written_by = "milco export --url"

    def open(self, directory: Path, manifest: dict) -> "RemoteSearcher":
        """Connect to the server. Raises MilcoError unless the collection holds the vectors that the manifest states."""
        # The targets import the engines.
        from milco_pyserini.export.remote import RemoteSearcher

        given = os.environ.get(URL, "").strip()
        # Parameters of libpq and paths may have white space, too.
        urls = re.split(r"\s+(?=\w+://)", given) if given else manifest["urls"]
        return RemoteSearcher.open(directory, manifest, urls)
