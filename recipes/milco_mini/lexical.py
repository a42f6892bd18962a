"""The second teacher: BM25 of the pool's texts, which knows names and numbers that the base's vectors blur.

Within a language BM25 and the base make different mistakes: on training queries of thirteen sets, nDCG@10 among the
passages of a pool is .828 by the base's cosines, .677 by BM25, .848 by their sum. Translations have the score of their
English sides, so that it is carried across languages.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from tokenizers import Tokenizer
from torch import Tensor

from .pool import Pool

# Defaults of Anserini.
_K1, _B = 0.9, 0.4


class Bm25Scores:
    """BM25 of texts as queries and as documents. A query that a document has all tokens of gets about 1.

    Args:
        rows: token ids of texts; empty ones are not counted.
        size: of the vocabulary.
    """

    def __init__(self, rows: Sequence[NDArray[np.integer]], size: int) -> None:
        lengths = np.array([len(row) for row in rows])
        counts = csr_array(
            (np.ones(lengths.sum(), np.float32), np.concatenate(rows).astype(np.int64), np.append(0, lengths.cumsum())),
            (len(rows), size),
        )
        counts.sum_duplicates()
        texts = np.count_nonzero(lengths)
        frequencies = np.bincount(counts.indices, minlength=size)
        idf = np.log1p((texts - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
        norms = _K1 * (1 - _B + _B * lengths / lengths[lengths > 0].mean())
        self.documents, queries = counts, counts.copy()
        self.documents.data = counts.data / (counts.data + np.repeat(norms, np.diff(counts.indptr)).astype(np.float32))
        queries.data = idf[queries.indices]
        self.queries = csr_array(diags_array(1 / np.maximum(queries.sum(axis=1), 1e-6)) @ queries)

    def __call__(self, queries: Sequence[int], documents: Sequence[int]) -> NDArray[np.float32]:
        """Return scores of texts by number, float32 [Q, D], from 0 to 1."""
        return (self.queries[queries] @ self.documents[documents].T).toarray().astype(np.float32)


class LexicalScores:
    """BM25 of a pool's texts, or of their translations where that is higher. A misspelled text counts as the text."""

    def __init__(self, pool: Pool, size: int, num_special: int, english: Tokenizer) -> None:
        numbers = [n if entry.spelling_of is None else entry.spelling_of for n, entry in enumerate(pool.entries)]
        rows = [pool.ids[pool.starts[n] : pool.starts[n + 1]] for n in numbers]
        self._source = Bm25Scores([row[row >= num_special] for row in rows], size)
        encodings = english.encode_batch_fast([entry.english for entry in pool.entries], add_special_tokens=False)
        self._english = Bm25Scores([np.array(one.ids, np.int64) for one in encodings], english.get_vocab_size())

    def __call__(self, queries: Sequence[int], documents: Sequence[int]) -> Tensor:
        """Return scores of entries by number, float32 [Q, D], from 0 to 1."""
        return torch.from_numpy(np.maximum(self._source(queries, documents), self._english(queries, documents)))
