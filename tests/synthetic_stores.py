"""Small vector stores for tests of index and search: synthetic documents with terms and ids that are hard to handle."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from milco_pyserini.corpora import Document
from milco_pyserini.encode.documents import SchemaReader, document_json, document_records
from milco_pyserini.io.files import checksum, write_json
from milco_pyserini.io.manifest import MANIFEST, RECALL, describe_files, list_files, write_checked
from milco_pyserini.sparse import SparseBatch, Vocabulary
from milco_pyserini.sparse.store import write_jsonl, write_parquet

# Java's white space, the separators of the index writer, and edge cases of JSON, UTF-8 and query parsers.
NASTY = [
    *("", " ", "\t", "\n", "\u3000", "\u2028", "\x1c", "a b", "\ue000", "\ue001", "x\ue000" + "5", "\x00", "a\x00b"),
    *("\u00a0", "\u202f", "\ufeff", "\uffff", "😀", "👨‍👩‍👧", "𠀋", "e\u0301", "é"),
    *('"', "\\", "^2", "a:b", "OR", "*", "|"),
    *("w" * 255, "w" * 256, "w" * 300, "😀" * 127, "😀" * 128, "\u3000" * 90, "#", "##ing", "▁陌", "-5", "1.5"),
]
NASTY_IDS = ["é", "ドキュメント", "𝒳", '"', "a\\b", "a#1", "a#10", "a.b", "Z", "a", "\x00", "0", "00", "x" * 300]


def vocabulary() -> Vocabulary:
    """Return 200 pivot terms, and NASTY as source terms."""
    return Vocabulary([f"w{number}" for number in range(200)], NASTY)


def synthetic_batch(documents: int, seed: int = 0) -> tuple[list[str], SparseBatch]:
    """Return ids and vectors with few distinct weights and many duplicates, so that scores tie; some are empty."""
    random = np.random.default_rng(seed)
    width = len(vocabulary())
    columns, weights = [], []
    for row in range(documents):
        if row % 5 == 4:
            # A duplicate under another id.
            columns.append(columns[-1])
            weights.append(weights[-1])
            continue
        count = 0 if row % 97 == 13 else random.integers(1, 40)
        columns.append(np.sort(random.choice(width, count, replace=False)).astype(np.int32))
        weights.append(random.choice(np.float32([0.01, 0.5, 1.0, 2.0, 40.0]), count))
    indptr = np.cumsum([0, *map(len, columns)]).astype(np.int64)
    ids = [*NASTY_IDS, *(f"d{number}" for number in range(documents))][:documents]
    order = random.permutation(documents)
    return [ids[i] for i in order], SparseBatch(indptr, np.concatenate(columns), np.concatenate(weights), 200)


def write_store(
    path: Path,
    ids: Sequence[str],
    batch: SparseBatch,
    part: int = 100,
    parquet: bool = False,
    documents: Sequence[Document] | None = None,
    **more: object,
) -> Path:
    """Write a complete vector store in parts of `part` documents; `more` are fields of its manifest.

    documents: those of the vectors, in any order, to store them; of passages ID#0, ID#1, ... the documents ID.
    """
    path.mkdir(parents=True)
    terms = vocabulary()
    parts, records = [], None
    if documents is not None:
        records, about = stored_records(ids, documents)
        more = about | more
    for number, start in enumerate(range(0, len(ids), part)):
        rows = range(start, min(start + part, len(ids)))
        file = path / f"part-{number:05d}.{'parquet' if parquet else 'jsonl'}"
        with file.open("wb") as handle:
            names, beside = [ids[row] for row in rows], records and [records[row] for row in rows]
            if parquet:
                write_parquet(handle, names, batch.take(rows), beside)
            else:
                write_jsonl(handle, names, batch.take(rows), terms, 100.0, beside)
        size = file.stat().st_size
        parts.append({"file": file.name, "bytes": size, "checksum": checksum(file), "documents": len(rows)})
    write_json(path / "vocabulary.json", terms.to_json())
    manifest = {"format_version": 1, "documents": len(ids), "encoder": "mini", "scale": 100.0, "parts": parts}
    write_checked(path / "manifest.json", manifest | more)
    return path


def stored_records(ids: Sequence[str], documents: Sequence[Document]) -> tuple[list[bytes], dict[str, Any]]:
    """Return what a store holds next to the vectors of documents or passages, and states of them in its manifest."""
    known, reader = {document.id: document for document in documents}, SchemaReader("documents")
    names = [docid if docid in known else docid.rpartition("#")[0] for docid in ids]
    counts = Counter(names)
    for name in counts:
        reader.add(known[name])
    records = document_records([known[name] for name in counts], ids, np.array(list(counts.values())))
    return records, reader.manifest_fields()


def renew_checksums(directory: Path) -> None:
    """Update the checksums of an index that a test has changed."""
    manifest = json.loads((directory / MANIFEST).read_text())
    files = describe_files(directory, list_files(directory, [RECALL]))
    write_checked(directory / MANIFEST, manifest | {"files": [file.to_json() for file in files]})


def write_plain(path: Path, vectors: dict[str, dict[str, float]], documents: Sequence[Document] = ()) -> Path:
    """Write external vectors as one JSONL file, with the documents next to them if there are any."""
    beside = {document.id: orjson.loads(document_json(document)) for document in documents}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        orjson.dumps({"id": name, "contents": "", **beside.get(name, {}), "vector": vector})
        for name, vector in vectors.items()
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def synthetic_queries(count: int, seed: int = 1) -> list[dict[str, float]]:
    """Return queries as {term: weight}; weights are hundredths, which impacts represent exactly."""
    random = np.random.default_rng(seed)
    terms = vocabulary().terms
    queries = []
    for _ in range(count):
        chosen = random.choice(len(terms), random.integers(1, 30), replace=False)
        queries.append({terms[column]: float(random.integers(1, 300)) / 100 for column in chosen})
    return queries
