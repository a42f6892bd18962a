"""The second teacher: BM25 of the pool's texts, which knows names and numbers that the base's vectors blur.

Within a language BM25 and the base make different mistakes: on training queries of thirteen sets, nDCG@10 among the
passages of a pool is .828 by the base's cosines, .677 by BM25, .848 by their sum. Translations have the score of their
English sides, so that it is carried across languages.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.model.configuration import term_limit
from milco_pyserini.sparse import SOURCE

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


class EchoScores:
    """Scores of the source view of a pool's texts, of a head with a weight per token, within the limits of terms."""

    def __init__(self, pool: Pool, encoder: MilcoEncoder) -> None:
        head, dropped = encoder.model.echo, encoder.tokenizer.special_ids
        weights = (torch.relu(head.weight[0] + head.bias) * head.scale).detach().numpy()
        weights[list(dropped)] = 0
        rows = [np.unique(pool.ids[start:stop]) for start, stop in itertools.pairwise(pool.starts)]
        self.sides = [
            _sparse_rows(rows, weights, term_limit(encoder.config, SOURCE, is_query)) for is_query in (True, False)
        ]

    def __call__(self, queries: Sequence[int], documents: Sequence[int]) -> Tensor:
        """Return scores of entries by number, float32 [Q, D], >= 0."""
        return torch.from_numpy((self.sides[0][queries] @ self.sides[1][documents].T).toarray())


def _sparse_rows(rows: Sequence[NDArray[np.integer]], weights: NDArray[np.float32], limit: int | None) -> csr_array:
    """Return the strongest tokens of each row with their weights, float32 [N, V]."""
    kept = [row[np.argsort(-weights[row], kind="stable")[:limit]] for row in rows]
    columns = np.concatenate(kept)
    starts = np.cumsum([0, *map(len, kept)])
    return csr_array((weights[columns], columns, starts), (len(rows), len(weights)))


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
