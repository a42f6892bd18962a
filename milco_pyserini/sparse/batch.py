"""Sparse vectors of a batch of texts, as compressed rows."""

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from milco_pyserini.console import counted
from milco_pyserini.defaults import VIEWS
from milco_pyserini.errors import MilcoError, shown, unknown_name
from milco_pyserini.io.files import atomic_file
from milco_pyserini.options import validate_number
from milco_pyserini.sparse.listing import html_bars
from milco_pyserini.sparse.vocabulary import Vocabulary, common_vocabulary

if TYPE_CHECKING:
    import torch
    from scipy.sparse import csr_array

PIVOT, SOURCE = VIEWS


@dataclass(frozen=True, eq=False, repr=False)
class SparseBatch:
    """B sparse vectors over a Vocabulary.

    Attributes:
        indptr: int64 [B + 1]; row i is indptr[i]:indptr[i + 1].
        columns: int32 [n], ascending in each row.
        weights: float32 [n], > 0.
        english_size: columns below it are the pivot view, the others the source view.
        vocabulary: names the columns; None if it is not known.

    Example:
        vectors = encoder.encode_document(["Bell patented the telephone.", "The Nile is a river."])
        vectors[0].to_dicts()
        vectors.to_scipy()
        vectors.save("vectors.npz")
    """

    indptr: NDArray[np.int64]
    columns: NDArray[np.int32]
    weights: NDArray[np.float32]
    english_size: int
    vocabulary: Vocabulary | None = None

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, index: int | slice | Sequence[int] | NDArray[Any]) -> "SparseBatch":
        """Return the vector at an index, as a batch of one, or those of a slice, a list of indexes or a bool mask."""
        return self.take(np.atleast_1d(np.arange(len(self))[index]))

    def __iter__(self) -> Iterator["SparseBatch"]:
        """Yield each vector as a batch of one."""
        return (self[index] for index in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        """Raise TypeError: most of a dense array would be zeros."""
        raise TypeError("a SparseBatch is not a dense array: use to_scipy(), whose toarray() is one, or to_torch()")

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: not the vocabulary, which is megabytes; dataclasses.replace() sets it again."""
        return {**vars(self), "vocabulary": None}

    def __repr__(self) -> str:
        terms_per_vector = len(self.columns) / max(len(self), 1)
        terms = counted(len(self.columns), "term")
        return f"SparseBatch({counted(len(self), 'vector')}, {terms}, {terms_per_vector:,.1f} per vector)"

    def _repr_html_(self) -> str:
        """Bars of the strongest terms of the first vectors, for notebooks."""
        first = self[:5]
        ranked = [] if self.vocabulary is None else first.ranked(self.vocabulary, 10)
        return html_bars(repr(self), ranked, first.lengths().tolist())

    @property
    def shape(self) -> tuple[int, int]:
        """Number of vectors, and of dimensions: the vocabulary's size if it is known, else those that are used."""
        if self.vocabulary is not None:
            return len(self), len(self.vocabulary)
        return len(self), max(self.english_size, int(self.columns.max(initial=-1)) + 1)

    def row(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return columns and weights of one vector."""
        span = slice(self.indptr[index], self.indptr[index + 1])
        return self.columns[span], self.weights[span]

    def rows(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Yield columns and weights of every vector, in order."""
        for start, stop in pairwise(self.indptr.tolist()):
            yield self.columns[start:stop], self.weights[start:stop]

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of terms of each vector: int64 [B]."""
        return np.diff(self.indptr)

    def row_numbers(self) -> NDArray[np.int64]:
        """Return the row of each entry: int64 [n]."""
        return np.repeat(np.arange(len(self)), self.lengths())

    def where(self, keep: NDArray[np.bool_]) -> "SparseBatch":
        """Return the same vectors with only the entries for which keep (bool [n]) is true."""
        indptr = row_pointers(np.bincount(self.row_numbers()[keep], minlength=len(self)))
        return replace(self, indptr=indptr, columns=self.columns[keep], weights=self.weights[keep])

    def view(self, *views: str) -> "SparseBatch":
        """Return the same vectors with only the entries of the named views. Raises MilcoError for an unknown view."""
        for view in views:
            if view not in VIEWS:
                raise unknown_name("view", view, VIEWS)
        pivot = self.columns < self.english_size
        return self.where((pivot & (PIVOT in views)) | (~pivot & (SOURCE in views)))

    def weighted(self, alpha: float) -> "SparseBatch":
        """Return alpha x the pivot weights and (1 - alpha) x the source weights, without zeros.

        Raises MilcoError if alpha is not from 0 to 1.
        """
        validate_number("alpha", alpha, 0, 1)
        weights = self.weights * np.where(self.columns < self.english_size, alpha, 1 - alpha).astype(np.float32)
        return replace(self, weights=weights).where(weights > 0)

    def take(self, order: Sequence[int] | NDArray[np.int64]) -> "SparseBatch":
        """Return the vectors at the given positions, in the given order."""
        order = np.asarray(order, dtype=np.int64)
        lengths = self.lengths()[order]
        indptr = row_pointers(lengths)
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[order] - indptr[:-1], lengths)
        return replace(self, indptr=indptr, columns=self.columns[entries], weights=self.weights[entries])

    def dot(self, other: "SparseBatch") -> NDArray[np.float32]:
        """Return the dot product of every vector with every vector of other: float32 [B, B'].

        Raises MilcoError if their vocabularies are known and differ.
        """
        common_vocabulary(self.vocabulary, other.vocabulary)
        # As narrow as possible: the transposed matrix has an array of this length.
        width = int(max(self.columns.max(initial=0), other.columns.max(initial=0))) + 1
        return (self.to_scipy(width) @ other.to_scipy(width).T).toarray()

    def intersection(self, other: "SparseBatch") -> "SparseBatch":
        """Return the products of the weights of common terms, vector by vector; their sum is the dot product.

        A batch of one vector is compared with every vector of the other. Raises MilcoError if the batches have
        different numbers of vectors otherwise, or different vocabularies.
        """
        vocabulary = common_vocabulary(self.vocabulary, other.vocabulary)
        if len(self) != len(other) and 1 not in (len(self), len(other)):
            raise MilcoError(
                f"intersection of {len(self):,} and {len(other):,} vectors: expects equal numbers, or one vector on "
                "either side"
            )
        count, width = len(other) if len(self) == 1 else len(self), max(self.shape[1], other.shape[1])
        left, right = (
            batch if len(batch) == count else batch.take(np.zeros(count, np.int64)) for batch in (self, other)
        )
        products = left.to_scipy(width).multiply(right.to_scipy(width))
        return SparseBatch.from_scipy(products, vocabulary, english_size=self.english_size)

    def sparsity(self) -> dict[str, float]:
        """Return active_dims, the mean number of terms, and sparsity_ratio, the mean share of dimensions without one.

        The names are those of sentence-transformers' SparseEncoder.sparsity().
        """
        active = float(self.lengths().mean()) if len(self) else 0.0
        return {"active_dims": active, "sparsity_ratio": 1 - active / max(self.shape[1], 1)}

    def ranked(self, vocabulary: Vocabulary, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """Return the terms and weights of each vector, strongest first, at most top_k of them."""
        ranked = []
        for columns, weights in self.rows():
            order = np.lexsort((columns, -weights))[:top_k]
            ranked.append(list(zip(vocabulary.terms[columns[order]].tolist(), weights[order].tolist(), strict=True)))
        return ranked

    def to_dicts(self, vocabulary: Vocabulary | None = None) -> list[dict[str, float]]:
        """Return one {term: weight} per vector. vocabulary: default the batch's own.

        Raises MilcoError if neither is given.
        """
        vocabulary = vocabulary or self.vocabulary
        if vocabulary is None:
            raise MilcoError("these vectors have no vocabulary: pass one, such as encoder.vocabulary")
        terms = vocabulary.terms
        return [dict(zip(terms[columns].tolist(), weights.tolist(), strict=True)) for columns, weights in self.rows()]

    def to_scipy(self, width: int | None = None) -> "csr_array":
        """Return the vectors as a scipy.sparse.csr_array, float32 [B, width]. width: default as in shape."""
        from scipy.sparse import csr_array

        size = (len(self), self.shape[1] if width is None else width)
        return csr_array((self.weights, self.columns, self.indptr), shape=size)

    def to_torch(self) -> "torch.Tensor":
        """Return the vectors as a coalesced sparse COO tensor, float32 [B, V]; call to_sparse_csr() on it for CSR."""
        import torch

        places = torch.from_numpy(np.stack([self.row_numbers(), self.columns.astype(np.int64)]))
        weights = torch.tensor(self.weights)
        return torch.sparse_coo_tensor(places, weights, self.shape, is_coalesced=True, check_invariants=False)

    def save(self, path: str | os.PathLike) -> None:
        """Write the vectors and their vocabulary to one .npz file, which scipy.sparse.load_npz() reads, too."""
        arrays: dict[str, Any] = {
            "format": np.array(b"csr"),
            "shape": np.array(self.shape),
            "data": self.weights,
            "indices": self.columns,
            "indptr": self.indptr,
            "english_size": np.array(self.english_size),
        }
        if self.vocabulary is not None:
            arrays["vocabulary"] = np.frombuffer(orjson.dumps(self.vocabulary.to_json()), np.uint8)
        with atomic_file(Path(path)) as handle:
            np.savez_compressed(handle, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "SparseBatch":
        """Read what save() wrote, or a CSR matrix of scipy.sparse.save_npz(), whose columns all count as pivot.

        Raises MilcoError if the file does not exist or has something else, such as weights below 0.
        """
        try:
            if Path(path).is_file() and not zipfile.is_zipfile(path):
                raise ValueError("it is no .npz file")
            with np.load(path, allow_pickle=False) as arrays:
                if (layout := str(arrays["format"].astype(str))) != "csr":
                    raise ValueError(f"its format is {layout}, not csr")
                if "english_size" not in arrays:
                    from scipy.sparse import csr_array

                    shape = tuple(arrays["shape"])
                    return cls.from_scipy(csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape))
                vocabulary = None
                if "vocabulary" in arrays:
                    vocabulary = Vocabulary(**orjson.loads(arrays["vocabulary"].tobytes()))
                return cls(
                    arrays["indptr"].astype(np.int64),
                    arrays["indices"].astype(np.int32),
                    arrays["data"].astype(np.float32),
                    int(arrays["english_size"]),
                    vocabulary,
                )
        except FileNotFoundError:
            raise MilcoError(f"no vectors at {path}: write them with SparseBatch.save()") from None
        except (ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise MilcoError(f"{path} is not a file of SparseBatch.save(): {error}") from None

    @classmethod
    def from_scipy(
        cls, matrix: Any, vocabulary: Vocabulary | None = None, english_size: int | None = None
    ) -> "SparseBatch":
        """Return the batch of a scipy sparse matrix or array of any format, [B, V], without its zeros.

        english_size: columns of the pivot view; default the vocabulary's, or all columns without one. Raises MilcoError
        for weights that are negative or not finite, and for more columns than the vocabulary has.
        """
        from scipy.sparse import csr_array

        rows = csr_array(matrix, dtype=np.float32, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        if not (np.isfinite(rows.data) & (rows.data > 0)).all():
            raise MilcoError("a sparse vector has a weight that is negative or not finite: weights must be above 0")
        if vocabulary is not None and rows.shape[1] > len(vocabulary):
            raise MilcoError(f"{rows.shape[1]:,} columns do not fit a vocabulary of {len(vocabulary):,} terms")
        if english_size is None:
            english_size = rows.shape[1] if vocabulary is None else vocabulary.english_size
        return cls(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, english_size, vocabulary)

    @classmethod
    def from_dicts(cls, vectors: Sequence[dict[str, float]], vocabulary: Vocabulary) -> "SparseBatch":
        """Return the batch of {term: weight} vectors.

        Raises:
            KeyError: a term is not in the vocabulary.
            MilcoError: a weight is 0 or negative.
        """
        batch = cls.from_columns(vectors, vocabulary.columns, vocabulary.english_size)
        if (batch.weights <= 0).any():
            raise MilcoError("a sparse vector has a weight that is 0 or negative: omit such terms")
        return replace(batch, vocabulary=vocabulary)

    @classmethod
    def from_columns(
        cls, vectors: Sequence[Mapping[str, float]], columns: Mapping[str, int], english_size: int
    ) -> "SparseBatch":
        """Return the batch of {term: weight} vectors, without a vocabulary. columns: the column of each term."""
        lengths = np.fromiter(map(len, vectors), np.int64, len(vectors))
        total = int(lengths.sum())
        numbers = np.fromiter((columns[term] for vector in vectors for term in vector), np.int32, total)
        weights = np.fromiter((weight for vector in vectors for weight in vector.values()), np.float32, total)
        order = np.lexsort((numbers, np.repeat(np.arange(len(vectors)), lengths)))
        return cls(row_pointers(lengths), numbers[order], weights[order], english_size)

    @classmethod
    def from_maxima(
        cls,
        rows: NDArray[np.int64],
        columns: NDArray[np.integer],
        weights: NDArray[np.float32],
        num_rows: int,
        english_size: int,
    ) -> "SparseBatch":
        """Return vectors of n entries in any order. Entries of one row and column count once, by the largest weight.

        Args:
            rows, columns, weights: [n] each.
        """
        order = np.lexsort((-weights, columns, rows))
        rows, columns = rows[order], columns[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (np.diff(rows) != 0) | (np.diff(columns) != 0)
        indptr = row_pointers(np.bincount(rows[is_first], minlength=num_rows))
        return cls(indptr, columns[is_first].astype(np.int32), weights[order][is_first], english_size)

    @classmethod
    def concatenate(cls, batches: Iterable["SparseBatch"], english_size: int) -> "SparseBatch":
        """Return the vectors of several batches in one; an empty batch if there are none.

        Raises MilcoError if their vocabularies are known and differ.
        """
        parts = list(batches)
        return cls(
            row_pointers(np.concatenate([np.empty(0, np.int64), *(part.lengths() for part in parts)])),
            np.concatenate([np.empty(0, np.int32), *(part.columns for part in parts)]),
            np.concatenate([np.empty(0, np.float32), *(part.weights for part in parts)]),
            english_size,
            common_vocabulary(*(part.vocabulary for part in parts)),
        )


def row_pointers(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indptr of rows with these numbers of entries: int64 [B + 1]."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def validate_finite(
    weights: NDArray[np.float32], indptr: NDArray[np.int64], encoder: str, name: Callable[[int], str]
) -> None:
    """Raise MilcoError if a vector has NaN or infinity.

    weights: float32 [n], row i at indptr[i]:indptr[i + 1]. name: returns the id of the text of a row.
    """
    if not np.isfinite(weights).all():
        entry = int(np.flatnonzero(~np.isfinite(weights))[0])
        row = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise MilcoError(
            f"the vector of {shown(name(row))} has the weight {weights[entry]}: weights must be finite. The weights of "
            f"{encoder} are damaged or too large: download or train it again"
        )
