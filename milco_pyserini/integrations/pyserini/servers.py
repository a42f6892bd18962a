"""Serve indexes with Pyserini's servers, REST and MCP: each impact index with the encoder of its vectors."""

import atexit
import importlib.metadata
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

from packaging.version import Version

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import open_index
from milco_pyserini.index.lucene_java import explain_newer_lucene
from milco_pyserini.integrations.pyserini.arguments import PROG, known_options
from milco_pyserini.integrations.pyserini.encoders import is_milco, query_encoder_for, vectors_of

# The first version whose servers open local impact indexes.
_FIRST = Version("2.4")
_LOOPBACK = "127.0.0.1"


def prepare_rest(arguments: list[str]) -> list[str]:
    """Let server.rest serve the indexes of --index or --config, to this machine only unless --host is given."""
    options, rest = known_options(arguments, ("--host",), ("--no-prebuilt-indexes",))
    host = ["--host", options.host or _LOOPBACK]
    prepared = prepare_server(rest)
    return [*host, *(["--no-prebuilt-indexes"] if "--config" in prepared else []), *prepared]


def prepare_server(arguments: list[str]) -> list[str]:
    """Let server.mcp serve the indexes of --index or --config.

    Impact indexes are opened before the server starts, which would report what is wrong with them to its clients only.
    """
    version = importlib.metadata.version("pyserini")
    if Version(version) < _FIRST:
        raise MilcoError(
            f"the servers of Pyserini {version} open its prebuilt indexes only: local ones need Pyserini {_FIRST} or "
            "later (Python 3.12). milco serve serves them with any version"
        )
    options, rest = known_options(arguments, ("--config",), lists=("--index",))
    if options.index and options.config:
        raise MilcoError("--index and --config both name the indexes to serve: give one of them")
    if not options.index and not options.config:
        return arguments
    config = options.config or _write_config(options.index)
    from pyserini.server import backend, utils
    from pyserini.server.config import load_server_config

    try:
        indexes, _ = load_server_config(config)
    except ValueError as error:
        raise MilcoError(f"--config {config}: {error}") from None
    opened = {
        index.path: _open(index.path, index.encoder) for index in indexes.values() if index.index_type == "impact"
    }
    utils.SEARCHER_FACTORIES["impact"] = (
        lambda path, query_encoder: opened.pop(path, None) or _open(path, query_encoder),
        *utils.SEARCHER_FACTORIES["impact"][1:],
    )
    # Otherwise local indexes are looked up among the prebuilt ones. server.mcp has no option for it.
    backend.get_backend = partial(backend.get_backend, no_prebuilt_indexes=True)
    log(f"{PROG}: serving {', '.join(name for name, index in indexes.items() if index.index_type == 'impact')}")
    return ["--config", config, *rest]


def _write_config(indexes: Sequence[str]) -> str:
    """Write a server's configuration for indexes of this project; return its path."""
    import yaml

    entries: dict[str, dict[str, str]] = {}
    for index in indexes:
        # If it is not an index of this project, open_index() raises what it is.
        vectors = vectors_of(index) or open_index(index).vectors
        name, path, encoder = Path(index).stem, str(Path(index).resolve()), vectors.encoder
        if encoder is None:
            raise MilcoError(
                f"--index {index} names no encoder: serve it by --config, where each index has a path and an encoder"
            )
        if name in entries:
            raise MilcoError(f"--index {index}: another index is served as {name}, too. Rename one, or use --config")
        # Pyserini reads texts with a searcher of words.
        texts = f"{name}-texts"
        entries[name] = {"path": path, "index_type": "impact", "encoder": encoder, "base_index": texts}
        entries[texts] = {"path": path, "index_type": "tf"}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8", delete=False) as file:
        atexit.register(Path(file.name).unlink, missing_ok=True)
        yaml.safe_dump({"indexes": entries}, file)
    return file.name


def _open(index: str, encoder: str) -> Any:
    """Return Pyserini's searcher of an impact index, with a MILCO encoder if it is one."""
    from pyserini.search.lucene import LuceneImpactSearcher

    vectors = vectors_of(index)
    with explain_newer_lucene(Path(index)):
        if not (vectors and vectors.encoder) and not is_milco(encoder):
            return LuceneImpactSearcher(index, encoder)
        opened, lock = query_encoder_for(encoder, vectors), Lock()

        def encode(text: str) -> dict[str, int]:
            """Encode one text at a time: the threads of the server share the encoder."""
            with lock:
                return opened.encode(text)

        return LuceneImpactSearcher(index, SimpleNamespace(encode=encode), min_idf=-1)
