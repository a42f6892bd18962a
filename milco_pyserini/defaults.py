"""Default names and directories that the commands share."""

import re
from collections.abc import Sequence
from pathlib import Path

from milco_pyserini.errors import MilcoError

DEFAULT_ENCODER = "omai-research/milco-650m"
MINI = "mini"
# Before the name of an encoder that sentence-transformers loads.
ST = "st:"
VIEWS = ("pivot", "source")
POOLINGS = ("cls", "mean", "last")
DTYPES = ("auto", "float32", "bfloat16")
# Those of MilcoEncoder, on the CPU.
ENCODER_DTYPES = (*DTYPES, "int8")
VECTORS = Path("vectors")
INDEXES = Path("indexes")
RUNS = Path("runs")


def split_revision(name: str) -> tuple[str, str | None]:
    """Return the hub name and the revision of OWNER/NAME@REVISION; None for a name without one, and a directory."""
    repository, _, revision = name.partition("@")
    return (name, None) if Path(name).is_dir() else (repository, revision or None)


def with_revision(name: str, revision: str | None) -> str:
    """Return NAME@REVISION. Raises MilcoError for a revision of what is not on the hub, or has another one."""
    if revision is None:
        return name
    repository, other = split_revision(name.removeprefix(ST))
    if other or repository.count("/") != 1 or Path(repository).is_dir():
        reason = "names one itself" if other else "is not on the hub"
        raise MilcoError(f"revision {revision!r}: encoder {name!r} {reason}. Omit the revision.")
    return f"{name}@{revision}"


def check_local_name(
    name: str, kind: str = "encoder", example: str = DEFAULT_ENCODER, embedded: str | None = MINI
) -> None:
    """Raise MilcoError for a name that is neither a directory nor a possible hub name. Nothing is fetched.

    Args:
        kind, example, embedded: for the message.
    """
    name = name.removeprefix(ST)
    repository, _ = split_revision(name)
    # An empty path would be the working directory.
    if not name or (not Path(name).is_dir() and (repository.startswith((".", "/", "~")) or repository.count("/") != 1)):
        other = "" if embedded is None else f", or {embedded!r}"
        raise MilcoError(f"no {kind} at {name!r}: give a checkpoint directory, a hub name such as {example}{other}")


def vectors_directory(name: str, topics: bool, dense: bool = False) -> Path:
    """Return the default vector store of a corpus or topics, which may share a name."""
    return VECTORS / (directory_name(name) + (".dense" if dense else "") + (".topics" if topics else ""))


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


def _which(parameter: str, found: Sequence[Path], directory: Path, fix: str) -> MilcoError:
    which = f"{'there are' if len(found) > 1 else 'there is'} {', '.join(map(str, found))}"
    return MilcoError(
        f"which `{parameter}`? {which if found else f'there is none in {directory}/'}", "" if found else fix
    )


def directory_name(name: str) -> str:
    """Return NAME in vectors/NAME and indexes/NAME for a corpus or topics given by name or path."""
    path = Path(name)
    stem = re.sub(r"(\.(jsonl|json|ndjson|tsv|txt|trec))?(\.gz)?$", "", path.name) if path.exists() else name
    return re.sub(r"[^\w.-]+", "-", stem).strip("-") or "corpus"
