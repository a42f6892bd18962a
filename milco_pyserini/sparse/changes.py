"""Find which documents of a vector store differ from those of an older one."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs

from milco_pyserini.sparse.batch import SparseBatch
from milco_pyserini.sparse.quantization import quantize
from milco_pyserini.sparse.store import VectorStore


class OlderVectors:
    """Digests of the vectors of an older store: a newer one asks for each of its documents, and deletes the rest.

    documents: the store, pruned or not; None for one without documents. is_stored: documents are compared, too. empty:
    how many of these have no terms.
    """

    def __init__(self, documents: Any, is_stored: bool = False) -> None:
        self.empty = 0
        self._digests: dict[str, int] = {}
        for names, _, content in () if documents is None else vector_bytes(documents, is_stored):
            for docid, vector in zip(names, content, strict=True):
                if vector is None:
                    self.empty += 1
                else:
                    self._digests[docid] = hash(vector)

    def is_same(self, docid: str, vector: bytes) -> bool:
        """Return whether a document has this vector, of vector_bytes(), in the older store.

        Consumes the entry: call once per docid.
        """
        return self._digests.pop(docid, None) == hash(vector)

    def remaining(self) -> list[str]:
        """Return the ids that have not been asked for, sorted."""
        return sorted(self._digests)


def vector_bytes(
    documents: Any, is_stored: bool = False
) -> Iterator[tuple[list[str], SparseBatch, list[bytes | None]]]:
    """Yield ids, vectors, and each vector's columns and impacts as bytes; None for one without terms.

    is_stored: the bytes of the document are added; to those of a passage that of its document.
    """
    texts = _texts(documents) if is_stored else itertools.repeat(b"")
    for names, batch in documents.batches():
        kept, impacts = quantize(batch, documents.manifest.scale)
        starts, stops = kept.indptr[:-1].tolist(), kept.indptr[1:].tolist()
        pairs = np.stack([kept.columns.astype(np.int32), impacts], 1)
        content = [
            pairs[start:stop].tobytes() + text if stop > start else None
            for start, stop, text in zip(starts, stops, texts, strict=False)
        ]
        yield names, batch, content


def _texts(documents: Any) -> Iterator[bytes]:
    text = b""
    for record in documents.documents():
        # A further passage has only its own id, and that of the first.
        text = record if documents.manifest.split_passages is not True or b',"contents":' in record else text
        yield text
    # A store of version 0.4 has none.
    yield from itertools.repeat(b"")


def differing_parts(old: VectorStore, new: VectorStore) -> tuple[VectorStore, VectorStore]:
    """Return both stores without the parts that they share, by checksum: the documents of these do not differ."""
    checksums = [{part.checksum for part in store.manifest.parts} for store in (old, new)]
    shared = checksums[0] & checksums[1]

    def differing(store: VectorStore) -> VectorStore:
        parts = [part for part in store.manifest.parts if part.checksum not in shared]
        return replace(store, manifest=structs.replace(store.manifest, parts=parts))

    return differing(old), differing(new)
