"""Default names and directories that the commands share."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from milco_pyserini.errors import MilcoError, parameter

DEFAULT_ENCODER = "omai-research/milco-650m"
MINI = "mini"
MINI_QUERY = "mini-query"
VIEWS = ("pivot", "source")
DTYPES = ("auto", "fast", "float32", "bfloat16")
# Defaults of MilcoEncoder on the CPU.
ENCODER_DTYPES = (*DTYPES, "int8")
# Maximum number of texts in a batch. The token budget ends a batch earlier unless its texts have fewer than 8 tokens.
BATCH_SIZE = 8192
VECTORS = Path("vectors")
INDEXES = Path("indexes")
RUNS = Path("runs")


def data_home() -> Path:
    """Return the directory of downloads and caches: MILCO_DATA, or milco_pyserini in the user's cache directory."""
    named = os.environ.get("MILCO_DATA")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "milco_pyserini"


def vectors_directory(name: str, topics: bool) -> Path:
    """Return the default vector store of a corpus or topics, which may share a name."""
    return VECTORS / (directory_name(name) + (".topics" if topics else ""))


def only_index() -> Path:
    """Return the only index in indexes/. Raises MilcoError if there is none, or more than one."""
    # Names of directories that are being written begin with a dot.
    shards = INDEXES.glob("[!.]*/shard-*-of-*/manifest.json")
    indexes = INDEXES.glob("[!.]*/manifest.json")
    found = sorted({path.parent for path in indexes} | {path.parent.parent for path in shards})
    if len(found) != 1:
        raise _which("index", found, INDEXES, "Build one with milco index --vectors VECTORS.")
    return found[0]


def missing_vectors() -> MilcoError:
    """Return an error that lists the stores in vectors/ of which an index can be built."""
    found = sorted(path.parent for path in VECTORS.glob("[!.]*/manifest.json") if path.parent.suffix != ".topics")
    return _which("vectors", found, VECTORS, "Make them with milco encode --corpus CORPUS.")


def _which(name: str, found: Sequence[Path], directory: Path, fix: str) -> MilcoError:
    which = f"{'there are' if len(found) > 1 else 'there is'} {', '.join(map(str, found))}"
    message = "which " + parameter(name) + f"? {which if found else f'there is none in {directory}/'}"
    return MilcoError(message, "" if found else fix)


def directory_name(name: str) -> str:
    """Return NAME in vectors/NAME and indexes/NAME for a corpus or topics given by name or path."""
    path = Path(name)
    stem = re.sub(r"(\.(jsonl|json|ndjson|tsv|txt|trec))?(\.gz)?$", "", path.name) if path.exists() else name
    return re.sub(r"[^\w.-]+", "-", stem).strip("-") or "corpus"
