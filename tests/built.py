"""Stores and indexes of every kind, built once from synthetic vectors: what the contracts are checked on."""

import importlib.util
import io
import operator
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from synthetic_stores import stored_records, synthetic_batch, synthetic_queries, vocabulary

from milco_pyserini.corpora import Document
from milco_pyserini.encode.writer import StoreWriter
from milco_pyserini.index import Index, build_index, find_engine, open_index
from milco_pyserini.index.documents import filter_text
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.sparse import open_store
from milco_pyserini.sparse.store import write_jsonl, write_parquet

DOCUMENTS = 60
STORES = ("jsonl", "parquet")
NEEDS = {"qdrant": "qdrant_edge", "seismic": "seismic"}
INDEXES = tuple(
    pytest.param(
        name, marks=pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is missing")
    )
    for name in ("exact", "lucene", "qdrant", "seismic")
    for module in (NEEDS.get(name, "numpy"),)
)
# Indexes that store documents.
STORED = "-stored"
STORED_INDEXES = tuple(
    pytest.param(f"{one.values[0]}{STORED}", marks=one.marks)
    for one in INDEXES
    if one.values[0] in ("exact", "lucene", "qdrant")
)
# Indexes in two shards.
SHARDS = "-shards"
SHARDED_INDEXES = tuple(pytest.param(f"{one.values[0]}{SHARDS}", marks=one.marks) for one in INDEXES)
EVERY = (*STORES, *INDEXES, *STORED_INDEXES)

# Filters on the fields of stored_documents().
FILTERS: list[dict[str, Any]] = [
    {"lang": ["de"]},
    {"lang": "fr", "year": [2001, 2002]},
    {"lang": ["ドイツ語", 'a "b" = \\', "\ue000"], "open": True},
    {"tags": ["b"]},
    {"a.b": "1.5", "tags": "a"},
    {"lang": ["nowhere"]},
    {"year": {">": 2000, "<=": "2002.0"}, "lang": ["de", "fr"]},
    {"lang": {">=": "e", "<": "x"}},
]


COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def passes(document: Document, filters: Mapping[str, Any]) -> bool:
    """Return whether a document has the values of filters, by their definition."""
    for name, wanted in filters.items():
        value = document.fields.get(name, [])
        values = value if isinstance(value, list) else [value]
        if isinstance(wanted, Mapping):
            is_found = any(
                all(
                    COMPARISONS[sign](each, float(bound) if name == "year" else bound) for sign, bound in wanted.items()
                )
                for each in values
            )
        else:
            texts = {filter_text(one) for one in (wanted if isinstance(wanted, list) else [wanted])}
            is_found = not texts.isdisjoint(map(filter_text, values))
        if not is_found:
            return False
    return True


class Built:
    """Builds each kind of store and index once, in one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = cache(self._build)

    def _build(self, kind: str) -> Path:
        path = self.root / kind
        if kind.removesuffix(STORED) in STORES:
            encode(path, kind)
        elif kind.endswith(SHARDS):
            engine = kind.removesuffix(SHARDS)
            for shard_id in (0, 1):
                Index.build(
                    self.documents(engine),
                    path,
                    engine.removesuffix(STORED),
                    shard_id=shard_id,
                    shard_num=2,
                )
        elif kind.endswith(STORED):
            build_index(self.documents(kind), find_engine(kind.removesuffix(STORED)), path)
        else:
            build_index(self.documents(kind), find_engine(kind), path)
        return path

    def documents(self, kind: str) -> Any:
        """Return what an index of this kind is built from."""
        return open_store(self.path(f"parquet{STORED}" if STORED in kind else "parquet"))


def stored_documents() -> list[Document]:
    """Return documents for the synthetic vectors: fields of every type, missing ones, hard strings."""
    ids, _ = synthetic_batch(DOCUMENTS)
    languages = ["de", "fr", 'a "b" = \\', "ドイツ語", "\ue000", "x" * 2000]
    documents = []
    for row, docid in enumerate(ids):
        fields = {
            "lang": languages[row % 6],
            "year": 2000 + row % 3,
            "open": row % 2 == 0,
            "tags": ["a", "b", "a"][: row % 4],
        }
        fields["a.b"] = 1.5 if row % 5 else "1.5"
        kept = {name: value for name, value in fields.items() if value != [] and (name != "year" or row % 7)}
        documents.append(Document(docid, "" if row % 3 else f"T{row}", f"text\n{row} é 😀 \ud800", kept))
    return documents


def queries_for(kind: str, count: int = 5) -> list[Any]:
    """Return queries."""
    return list(synthetic_queries(count))


def encode(path: Path, kind: str) -> None:
    """Write a store of synthetic vectors in two parts, with the writer of milco encode."""
    ids, batch = synthetic_batch(DOCUMENTS)
    plan: dict[str, Any] = {"format_version": 1, "kind": "documents", "encoder": "tiny", "texts": DOCUMENTS}
    plan |= {"scale": 100.0, "views": ["pivot", "source"]}
    records = None
    if kind.endswith(STORED):
        records, about = stored_records(ids, stored_documents())
        plan |= about
    kind = kind.removesuffix(STORED)
    half = DOCUMENTS // 2
    with StoreWriter(path, StoreManifest(**plan)) as writer:
        for number in (0, 1):
            rows = range(number * half, (number + 1) * half)
            names, part, content = [ids[row] for row in rows], batch.take(rows), io.BytesIO()
            beside = records and [records[row] for row in rows]
            if kind == "parquet":
                write_parquet(content, names, part, beside)
            else:
                write_jsonl(content, names, part, vocabulary(), 100.0, beside)
            counts = {"documents": half, "texts": half, "terms": {"pivot": 1, "source": 1}, "empty": 0, "truncated": 0}
            writer.write(number, kind, content.getvalue(), **counts)
        assert writer.complete(2, ("pivot", "source"), vocabulary())


def answers(kind: str, path: Path) -> list[Any]:
    """Return the hits of an index, or the vectors of a store."""
    if kind in STORES:
        return [open_store(path).terms, *open_store(path).vectors()]
    return [(hits.docids, hits.scores.tolist()) for hits in open_index(path).searcher().search(queries_for(kind), 10)]
