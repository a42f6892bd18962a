"""Dense vectors of a collection, for the yardstick of a latency table: encoded here, or brought as NumPy files.

A directory of them holds documents.npy and queries.npy, float [N, d], and documents.txt and queries.txt, the id of each
row on a line of its own. Every vector is brought to length 1, so that inner products are cosines.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Progress
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file, write_json

# Texts to float32 [texts, d].
Encode = Callable[[list[str]], NDArray[np.float32]]
# Texts that are sorted by length together.
_WINDOW = 1024


@dataclass(frozen=True)
class DenseVectors:
    """ids: N strings. matrix: float32 [N, d], rows of length 1; zeros for a blank text."""

    ids: list[str]
    matrix: NDArray[np.float32]


@dataclass(frozen=True)
class LoadedStore:
    """Vectors in memory as a store that can be indexed. about: what they are of."""

    path: Path
    vectors: DenseVectors
    about: dict

    @property
    def manifest(self) -> dict:
        """What they are of, and how many of what length."""
        documents, dimensions = self.vectors.matrix.shape
        return {"documents": documents, "dimensions": dimensions, "dense": True, "of": self.about}

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """All of them at once."""
        yield self.vectors.ids, self.vectors.matrix


def encode_all(encode: Encode, records: Iterable[tuple[str, str]], kind: str, total: int) -> DenseVectors:
    """Vectors of (id, text) records, in their order. kind: for messages. Raises MilcoError if they are not total."""
    progress = Progress(kind, total)
    ids: list[str] = []
    parts = []
    for window in _windows(records):
        ids += [name for name, _ in window]
        parts.append(encode([text for _, text in window]))
        progress.add(len(window))
    progress.close("dense vectors")
    if len(ids) != total:
        raise MilcoError(
            f"{len(ids):,} {kind} were read, the sparse vectors are of {total:,}: they do not belong together"
        )
    return DenseVectors(ids, np.concatenate(parts))


def save(directory: Path, kind: str, vectors: DenseVectors, about: dict) -> None:
    """Write vectors of a kind, and what they are of."""
    with atomic_file(directory / f"{kind}.npy") as file:
        np.save(file, vectors.matrix)
    with atomic_file(directory / f"{kind}.txt", "w") as lines:
        lines.writelines(f"{name}\n" for name in vectors.ids)
    write_json(directory / f"{kind}.json", about)


def load(directory: Path, kind: str) -> DenseVectors:
    """Vectors of a kind. Raises MilcoError for files that are not there or do not fit together."""
    path, names = directory / f"{kind}.npy", directory / f"{kind}.txt"
    try:
        matrix = np.load(path).astype(np.float32, copy=False)
        # Not splitlines(), which would also split at what an id may hold.
        ids = names.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise MilcoError(f"dense vectors in {directory}: {error}") from None
    if matrix.ndim != 2 or len(ids) != len(matrix):
        raise MilcoError(f"{path} is of shape {matrix.shape}, {names} has {len(ids):,} ids: one for each row is needed")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return DenseVectors(ids, matrix / np.maximum(lengths, np.float32(1e-12)))


def _windows(records: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    left = iter(records)
    while window := list(islice(left, _WINDOW)):
        yield window
