"""Reuse the vectors of an existing store in a new one: only texts that the old store lacks are encoded.

A text is found by its digest, whatever its id and position. Its vectors are copied as they are in the old part, so that
the new parts have the bytes that encoding gives.
"""

import io
import itertools
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.corpora import Document, Query
from milco_pyserini.encode.documents import document_records
from milco_pyserini.encode.parts import TEXT, EncodedPart, text_digests, vector_ids
from milco_pyserini.errors import Message, ParameterError, parameter
from milco_pyserini.io.manifest import intact
from milco_pyserini.io.records import CONFIG, REUSE, StoreManifest, described, differences, may_differ, option_of
from milco_pyserini.sparse import SparseBatch, VectorStore
from milco_pyserini.sparse.batch import row_pointers
from milco_pyserini.sparse.store import read_parquet, read_part, split_jsonl, write_parquet, write_vectors

# Old parts in memory: documents seldom change their order.
_PARTS_IN_MEMORY = 4
_ENCODED = -1
# numpy reads the header of an array with Python's parser, which in Python 3.11 may fail in two threads at a time.
_PARSER = threading.Lock()


class ReusableStore:
    """A finished store whose vectors are reused in another one.

    Call load() before take() and complete(), with which every part of the new store begins and ends. Needs 24 bytes of
    memory for each text of the old store, which need not hold documents. plan: the fields of the new store's plan that
    are known so far.

    Raises MilcoError if there is no finished store at path, or if its vectors were encoded in another way.
    """

    def __init__(self, path: Path, plan: StoreManifest) -> None:
        self.path = path
        self._store = VectorStore.open(path)
        self.manifest = self._store.manifest
        self.validate(plan)
        self._is_stored = plan.kind == "topics" or bool(plan.store_documents)
        self._part = lru_cache(_PARTS_IN_MEMORY)(self._read_part)
        # New parts in progress: their records, and the part and the row of each vector in the old store.
        self._begun: dict[int, tuple[Sequence[Document | Query], NDArray[np.int64], NDArray[np.int64]]] = {}

    def validate(self, plan: StoreManifest) -> None:
        """Raise MilcoError, with the option, if the fields of a plan are not those of the store."""
        if (kind := self.manifest.kind or plan.kind) != plan.kind:
            raise ParameterError(
                "reuse", self.path, f"holds vectors of {kind}, not of {plan.kind}", Message("Omit {reuse}.")
            )
        for name, recorded, value in differences(self.manifest, plan, may_differ(REUSE, self.manifest)):
            option = option_of(name)
            before = {"encoder": self.manifest.encoder, "prune": self.manifest.rules}.get(option, recorded)
            fix: str = ("with " if before else "without ") + parameter(option, before or None)
            fix = f"with the same {CONFIG}" if option == CONFIG else fix
            rule = "its vectors were encoded " + described(name, recorded, value)
            raise ParameterError("reuse", self.path, rule, "Encode " + fix + ", or without " + parameter("reuse"))

    def load(self) -> None:
        """Read the digests of all texts. Raises MilcoError if a file of them is missing or has changed."""
        # Copies: a view would keep the counts in memory.
        digests = [self._texts(number)["digest"].copy() for number in range(len(self.manifest.parts))]
        # The first text of each part, by its position among all texts.
        self._starts = np.cumsum([0, *map(len, digests)])
        first, second = (np.concatenate([part[:, half] for part in digests]) for half in (0, 1))
        self._order = np.argsort(first, kind="stable")
        self._first, self._second = first[self._order], second[self._order]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, number: int, records: Sequence[Document | Query]) -> list[Document | Query]:
        """Return those records of the part number that have to be encoded; complete() adds the others' vectors."""
        parts, rows = self._find(text_digests(records))
        if (parts != _ENCODED).any():
            self._begun[number] = records, parts, rows
        return [record for record, part in zip(records, parts.tolist(), strict=True) if part == _ENCODED]

    def complete(self, encoded: EncodedPart) -> EncodedPart:
        """Return the part of all records that take() was given. encoded: the part of those that it returned."""
        if encoded.number not in self._begun:
            return encoded
        records, parts, rows = self._begun.pop(encoded.number)
        texts = np.zeros(len(records), TEXT)
        vectors: list[list[Any]] = [[] for _ in records]
        for part in np.unique(parts).tolist():
            if part == _ENCODED:
                stored_texts = load_texts(encoded.digests)
                stored_vectors = self._vectors(stored_texts, self.path, encoded.content)
            else:
                stored_texts, stored_vectors = self._part(part)
            places = np.flatnonzero(parts == part)
            texts[places] = stored_texts[rows[places]]
            for place, row in zip(places.tolist(), rows[places].tolist(), strict=True):
                vectors[place] = stored_vectors[row]
        ids = vector_ids(records, texts["vectors"], bool(self.manifest.split_passages))
        stored = document_records(records, ids, texts["vectors"]) if self._is_stored else None
        content = self._content(ids, list(itertools.chain.from_iterable(vectors)), stored)
        views = self.manifest.views or ()
        return EncodedPart.of(encoded.number, content, texts, views, encoded.tokens)

    def _find(self, digests: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the old part of each text, or _ENCODED, and its row in it, or in the texts to encode: int64 [B]."""
        places = np.minimum(np.searchsorted(self._first, digests[:, 0]), len(self) - 1)
        is_known = (self._first[places] == digests[:, 0]) & (self._second[places] == digests[:, 1])
        positions = self._order[places]
        parts = np.where(is_known, np.searchsorted(self._starts, positions, side="right") - 1, _ENCODED)
        return parts, np.where(is_known, positions - self._starts[parts], np.cumsum(~is_known) - 1)

    def _read_part(self, number: int) -> tuple[NDArray[np.void], list[list[Any]]]:
        part, texts = self.manifest.parts[number], self._texts(number)
        with intact(self.path, part.file):
            return texts, self._vectors(texts, self.path / part.file, read_part(self.path, part))

    def _texts(self, number: int) -> NDArray[np.void]:
        """Return the digests and counts of an old part's texts: TEXT [B]."""
        part = self.manifest.parts[number]
        digests = part.digests or part
        with intact(self.path, digests.file):
            texts = load_texts(read_part(self.path, digests))
            if texts.dtype != TEXT or texts["vectors"].sum() != part.documents:
                raise ValueError("not the digests of this part")
        return texts

    def _vectors(self, texts: NDArray[np.void], file: Path, content: bytes) -> list[list[Any]]:
        """Return the vectors of each text of a part: lines from the vector on, or columns and weights."""
        vectors: Iterator[Any]
        if self.manifest.format == "parquet":
            batches = read_parquet(file, content, self._store.vocabulary)
            vectors = (row for _, batch in batches for row in batch.rows())
        else:
            vectors = iter(split_jsonl(content))
        vectors_of_texts = [list(itertools.islice(vectors, count)) for count in texts["vectors"].tolist()]
        if (count := sum(map(len, vectors_of_texts))) != texts["vectors"].sum():
            raise ValueError(f"{count:,} vectors, not {texts['vectors'].sum():,}")
        return vectors_of_texts

    def _content(self, ids: Sequence[str], vectors: Sequence[Any], records: Sequence[bytes] | None) -> bytes:
        """Return the content of a part with such vectors."""
        file = io.BytesIO()
        if self.manifest.format == "parquet":
            columns, weights = zip(*vectors, strict=True)
            indptr = row_pointers(np.fromiter(map(len, columns), np.int64, len(columns)))
            joined = indptr, np.concatenate(columns), np.concatenate(weights)
            write_parquet(file, ids, SparseBatch(*joined, self._store.vocabulary.english_size), records)
        else:
            write_vectors(file, ids, vectors, records)
        return file.getvalue()


def load_texts(content: bytes) -> NDArray[np.void]:
    """Return the digests and counts of a part's texts, TEXT [B], from the content of their file."""
    with _PARSER:
        return np.load(io.BytesIO(content))
