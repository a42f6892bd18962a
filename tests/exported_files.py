"""Read the files of an export back, as the engine that they are for would."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Weights = dict[str, float]


def lines_of(directory: Path, pattern: str) -> list[Any]:
    """Return the JSON of every line of the files that match a pattern, in order."""
    paths = sorted(directory.glob(pattern))
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").split("\n") if line]


def terms_of(directory: Path) -> list[str]:
    """Return the terms of vocabulary.json."""
    from milco_pyserini.sparse import Vocabulary

    return Vocabulary.from_json(json.loads((directory / "vocabulary.json").read_text("utf-8"))).terms.tolist()


def elasticsearch(directory: Path) -> tuple[dict[str, Weights], set[str]]:
    """Return the documents that bulk requests index, and the docids that they delete."""
    documents, deleted, lines = {}, set(), iter(lines_of(directory, "documents-*.ndjson"))
    for action in lines:
        if "index" in action:
            documents[action["index"]["_id"]] = next(lines)["vector"]
        else:
            deleted.add(action["delete"]["_id"])
    return documents, deleted


def qdrant(directory: Path) -> tuple[dict[str, Weights], set[str]]:
    """Return the documents of the points, and the ids of points to delete."""
    terms = terms_of(directory)
    bodies = {
        kind: [one for path in sorted(directory.glob(f"{kind}-*")) for one in json.loads(path.read_bytes())["points"]]
        for kind in ("documents", "deleted")
    }
    documents = {
        point["payload"]["docid"]: dict(zip(map(terms.__getitem__, vector["indices"]), vector["values"], strict=True))
        for point in bodies["documents"]
        for vector in point["vector"].values()
    }
    return documents, set(bodies["deleted"])


def parquet(directory: Path) -> tuple[dict[str, Weights], set[str]]:
    """Return the documents of the rows, and deleted docids."""
    from pyarrow.parquet import read_table

    documents: dict[str, Weights] = {}
    for row in read_table(directory / "documents.parquet").to_pylist():
        documents.setdefault(row["id"], {})[row["term"]] = row["impact"]
    deleted = directory / "deleted.parquet"
    return documents, set(read_table(deleted)["id"].to_pylist()) if deleted.exists() else set()


READERS: dict[str, Callable[[Path], tuple[dict[str, Weights], set[str]]]] = {
    "elasticsearch": elasticsearch,
    "opensearch": elasticsearch,
    "qdrant": qdrant,
    "parquet": parquet,
}
