"""Faiss's HNSW graph over dense vectors, as in the paper's latency table: M=32, efSearch=64, inner product."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.dense import DenseVectors
from milco_pyserini.eval.timing import Ask
from milco_pyserini.files import is_json_with, read_json, whole_directory, write_json
from milco_pyserini.index.protocol import Hits
from milco_pyserini.index.strings import StringTable, write_strings

LINKS = 32
EF_SEARCH = 64
NAME = f"hnsw M={LINKS} ef={EF_SEARCH}"
_INDEX = "hnsw.faiss"
_ABOUT = "hnsw.json"


def available() -> None:
    """Raise MilcoError if Faiss is not installed."""
    if importlib.util.find_spec("faiss") is None:
        raise MilcoError("--dense needs Faiss: pip install 'milco-pyserini[dense]'")


def built(directory: Path, about: dict) -> bool:
    """Whether build() has written an index of this there."""
    return is_json_with(directory / _ABOUT, "of") and read_json(directory / _ABOUT)["of"] == about


def build(vectors: DenseVectors, directory: Path, threads: int, about: dict) -> None:
    """Write an index, which replaces an older one."""
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexHNSWFlat(vectors.matrix.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    index.add(np.ascontiguousarray(vectors.matrix))
    with whole_directory(directory, True, lambda path: is_json_with(path / _ABOUT, "of")) as place:
        faiss.write_index(index, str(place / _INDEX))
        write_strings(place, "ids", vectors.ids)
        write_json(place / _ABOUT, {"of": about})


def opened(directory: Path, queries: np.ndarray, hits: int) -> Ask:
    """Open an index for queries: float32 [Q, d]. It searches with one thread."""
    import faiss

    faiss.omp_set_num_threads(1)
    index: Any = faiss.read_index(str(directory / _INDEX))
    index.hnsw.efSearch = EF_SEARCH
    ids = StringTable(directory, "ids")
    return lambda number: _search(index, ids, queries[number : number + 1], hits)


def _search(index: Any, ids: StringTable, query: np.ndarray, hits: int) -> Hits:
    scores, rows = index.search(query, hits)
    # Where the graph leads to fewer, Faiss fills up with -1.
    found = rows[0] >= 0
    return Hits(ids.take(rows[0][found]), scores[0][found])
