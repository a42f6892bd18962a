"""What an approximate index of dense vectors is measured against: queries and their best documents by exact search."""

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Progress, counted
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.protocol import DenseStore
from milco_pyserini.index.recall import DEPTH, Truth, best_of, chosen_topics, drawn_rows, ranking

_DECIMALS = 5


def truth_of_dense_documents(store: DenseStore, documents: int) -> Truth:
    """Where there are no topics: the vectors of drawn documents. documents: how many there are that are not zero."""
    drawn = drawn_rows(documents)
    rows, before = [], 0
    for _, vectors in store.batches():
        filled = np.flatnonzero(vectors.any(axis=1))
        rows.append(vectors[filled[drawn[(drawn >= before) & (drawn < before + len(filled))] - before]])
        before += len(filled)
    queries = np.concatenate(rows)
    return find_dense_truth(store, queries, f"the vectors of {counted(len(queries), 'drawn document')}")


def truth_of_dense_topics(store: DenseStore, topics: DenseStore) -> Truth:
    """For the vectors of topics; of very many, some that lie evenly among them."""
    queries = np.concatenate([vectors for _, vectors in topics.batches()])
    queries = queries[queries.any(axis=1)]
    chosen = chosen_topics(len(queries))
    return find_dense_truth(store, queries[chosen], f"{counted(len(chosen), 'topic')} of {topics.path}")


def find_dense_truth(store: DenseStore, queries: NDArray[np.float32], what: str) -> Truth:
    """The best documents by one pass over the store, whatever its size: ties by docid. queries: float32 [Q, d].

    Raises MilcoError for queries of another length than the documents' vectors, or if there is none.
    """
    if not len(queries) or queries.shape[1] != store.manifest["dimensions"]:
        dimensions = store.manifest["dimensions"]
        raise MilcoError(f"{what}: recall is measured with vectors of {dimensions} dimensions that are not zero")
    scores = np.full((len(queries), DEPTH), -np.inf, np.float32)
    docids = np.full((len(queries), DEPTH), "", object)
    progress = Progress("documents", store.manifest.get("documents"))
    for names, vectors in store.batches():
        found = np.where(vectors.any(axis=1), queries @ vectors.T, np.float32(-np.inf))
        scores, docids = best_of(
            np.concatenate([scores, found], 1),
            np.concatenate([docids, np.broadcast_to(np.asarray(names, object), found.shape)], 1),
        )
        progress.add(len(names))
    progress.close(f"compared with {counted(len(queries), 'query', 'queries')}")
    # Two sums of the same products may differ in the last places: what is equal but for them is a tie.
    best = [ranking(*one, above=-np.inf) for one in zip(scores.round(_DECIMALS), docids, strict=True)]
    return Truth(queries.tolist(), best, what)
