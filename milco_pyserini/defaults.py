"""Names that several verbs must agree on, without loading anything."""

import re
from pathlib import Path

from milco_pyserini.errors import MilcoError

DEFAULT_ENCODER = "omai-research/milco-650m"
MINI = "mini"
VECTORS = Path("vectors")
INDEXES = Path("indexes")
RUNS = Path("runs")


def check_local_name(name: str, kind: str = "encoder", example: str = DEFAULT_ENCODER, embedded: str = MINI) -> None:
    """Raise MilcoError for what is no directory, nor a name that the hub could have. Fetches nothing.

    kind, example, embedded: for the message.
    """
    # An empty name would be the working directory.
    if not name or (not Path(name).is_dir() and (name.startswith((".", "/", "~")) or name.count("/") != 1)):
        raise MilcoError(
            f"no {kind} at {name!r}: give a checkpoint directory, a hub name such as {example}, or {embedded!r}"
        )


def vectors_directory(name: str, topics: bool, dense: bool = False) -> Path:
    """Where the vectors of a corpus, or of topics, stand by default: a corpus and its topics may share a name."""
    return VECTORS / (directory_name(name) + (".dense" if dense else "") + (".topics" if topics else ""))


def directory_name(name: str) -> str:
    """The name or path of a corpus or topics as one folder name: NAME in vectors/NAME and indexes/NAME."""
    path = Path(name)
    stem = re.sub(r"(\.(jsonl|json|tsv|txt|trec))?(\.gz)?$", "", path.name) if path.exists() else name
    return re.sub(r"[^\w.-]+", "-", stem).strip("-") or "corpus"
