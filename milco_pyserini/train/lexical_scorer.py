"""A teacher without a download: BM25 over the encoder's own word pieces, plus the encoder's own score.

Word pieces need no analyzer, so one rule serves every language, with or without spaces. Between languages BM25 finds
names and numbers alone, and the encoder's score does the rest.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.train.data.retrieval import RetrievalSource
from milco_pyserini.train.mining import distinct_passages

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Pyserini's defaults.
K1, B = 0.9, 0.4

_PAIRS_AT_A_TIME = 8192


class LexicalScorer:
    """score = bm25_weight x BM25 + encoder_weight x the encoder's score; idf and lengths are the collection's own."""

    def __init__(
        self, encoder: MilcoEncoder, bm25_weight: float = 1.0, encoder_weight: float = 1.0, batch_size: int = 64
    ) -> None:
        self._encoder = encoder
        self._weights = bm25_weight, encoder_weight
        self._batch_size = batch_size
        self._passages: dict[str, int] = {}

    @property
    def identity(self) -> str:
        """The encoder's weights."""
        return self._encoder.weight_hash

    def read(self, source: RetrievalSource) -> None:
        """Count the pieces of the source's passages, and encode them."""
        self._passages = distinct_passages(source)
        texts = list(self._passages)
        self._bm25 = bm25_matrix(self._counts(texts))
        self._vectors = self._matrix(self._encoder.encode_document(texts, batch_size=self._batch_size))

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Scores of (query, passage) pairs, float64 [n], >= 0. Raises KeyError for a passage that was not read."""
        queries = list(dict.fromkeys(query for query, _ in pairs))
        numbers = {query: number for number, query in enumerate(queries)}
        left = np.array([numbers[query] for query, _ in pairs], np.int64)
        right = np.array([self._passages[passage] for _, passage in pairs], np.int64)
        vectors = self._matrix(self._encoder.encode_query(queries, batch_size=self._batch_size))
        bm25 = pair_products(self._counts(queries), self._bm25, left, right)
        return self._weights[0] * bm25 + self._weights[1] * pair_products(vectors, self._vectors, left, right)

    def _counts(self, texts: Sequence[str]) -> "csr_array":
        """How often each text has each piece: float [texts, pieces]; marks such as <s> are not counted."""
        from scipy.sparse import csr_array

        tokenizer = self._encoder.tokenizer
        marks = set(tokenizer.special_ids)
        rows = [[piece for piece in ids if piece not in marks] for ids in tokenizer.ids(texts)]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        columns = np.fromiter((piece for row in rows for piece in row), np.int64, int(indptr[-1]))
        counts = csr_array((np.ones(len(columns)), columns, indptr), shape=(len(rows), len(tokenizer.pieces)))
        counts.sum_duplicates()
        return counts

    def _matrix(self, batch: SparseBatch) -> "csr_array":
        from scipy.sparse import csr_array

        shape = (len(batch), len(self._encoder.vocabulary))
        return csr_array((batch.weights, batch.columns, batch.indptr), shape=shape)


def bm25_matrix(counts: "csr_array") -> "csr_array":
    """BM25 weight of every term of every document, as Lucene defines it: float [documents, terms] from counts."""
    from scipy.sparse import csr_array

    documents = counts.shape[0]
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))
    saturated = counts.data / (counts.data + np.repeat(norms, np.diff(counts.indptr)))
    return csr_array((idf[counts.indices] * saturated, counts.indices, counts.indptr), shape=counts.shape)


def pair_products(
    queries: "csr_array", documents: "csr_array", left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Dot product of row left[i] of queries and row right[i] of documents: float64 [n]."""
    products = np.zeros(len(left))
    for start in range(0, len(left), _PAIRS_AT_A_TIME):
        span = slice(start, start + _PAIRS_AT_A_TIME)
        products[span] = queries[left[span]].multiply(documents[right[span]]).sum(axis=1)
    return products
