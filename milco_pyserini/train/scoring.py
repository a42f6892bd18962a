"""Add a teacher's scores to training sets, for distillation (SCT).

The paper's teacher is a cross-encoder; the paper's training sets have scores already. CrossEncoder reads both texts
together. LexicalScorer needs no download: BM25 over the encoder's own tokens, which serves every language without an
analyzer, plus the encoder's score, which also bridges languages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from milco_pyserini.console import counted, log
from milco_pyserini.encode.bm25 import K1, B
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.options import validate
from milco_pyserini.search.reranking import CrossEncoder
from milco_pyserini.train.config import LEXICAL
from milco_pyserini.train.data.retrieval import (
    RetrievalExample,
    RetrievalFile,
    RetrievalSource,
    distinct_passages,
    open_retrieval,
)
from milco_pyserini.train.rewriting import ScoreOptions, pending_files, rewrite

# A killed run loses at most one part, some minutes of a large cross-encoder's work.
PART_SIZE = 1024

_PAIRS_AT_A_TIME = 8192


class PassageScorer(Protocol):
    """Scores pairs of a query and a passage. Higher is better; only differences for one query matter."""

    @property
    def identity(self) -> str:
        """Hash of the weights, for the output's manifest."""

    def read(self, source: RetrievalSource) -> None:
        """Prepare to score pairs of a collection."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray:
        """Return finite scores of (query, passage) pairs: float [n]."""


def score_training_set(options: ScoreOptions, teacher: PassageScorer | None = None) -> None:
    """Write the files of a training set again with "scores", one for each passage, positives first. Resumes.

    Args:
        options: of the command.
        teacher: replaces the options' one.

    Raises:
        MilcoError: before anything is written, if data or teacher cannot be read, or the output has something else.
    """
    validate(options)
    sources = open_retrieval(options.data, options.languages or None)
    scorer = teacher or open_scorer(options)
    for source, file in pending_files(options, sources, scorer.identity):
        scorer.read(source)
        rewrite(file, source, PART_SIZE, lambda examples: score_examples(examples, scorer, options.label_weight))
        agreement = [ranks_positive_first(example, options.label_weight) for example in RetrievalFile(file).examples()]
        if agreement:
            share = sum(agreement) / len(agreement)
            queries = counted(len(agreement), "query", "queries")
            log(f"The teacher ranks a positive passage first for {share:.1%} of {queries}")


def open_scorer(options: ScoreOptions) -> PassageScorer:
    """Return the teacher of --teacher. Raises MilcoError if it cannot be loaded."""
    if options.teacher != LEXICAL:
        return TeacherCrossEncoder(
            options.teacher, options.max_length, options.batch_size, options.device, options.dtype
        )
    encoder = load_encoder(options.encoder, options.device, options.dtype)
    return LexicalScorer(encoder, options.bm25_weight, options.encoder_weight, options.batch_size)


def score_examples(
    examples: Sequence[RetrievalExample], scorer: PassageScorer, label_weight: float = 0.0
) -> Iterator[RetrievalExample]:
    """Yield the examples with scores of all passages; label_weight is added to those of positives."""
    passages = [(*example.positives, *example.negatives) for example in examples]
    pairs = [(example.query, text) for example, texts in zip(examples, passages, strict=True) for text in texts]
    values = iter(scorer.score(pairs).tolist())
    for example, texts in zip(examples, passages, strict=True):
        count = len(example.positives)
        # Six digits are more precise than a teacher, and half the bytes.
        scores = tuple(float(f"{next(values) + label_weight * (place < count):.6g}") for place in range(len(texts)))
        yield example._replace(positive_scores=scores[:count], negative_scores=scores[count:])


def ranks_positive_first(example: RetrievalExample, label_weight: float = 0.0) -> bool:
    """Return whether a positive scores above every negative without the label's weight."""
    best, other = (max(scores or (), default=-inf) for scores in (example.positive_scores, example.negative_scores))
    return best - label_weight > other


class TeacherCrossEncoder(CrossEncoder):
    """A cross-encoder as a teacher."""

    kind = "teacher"
    alternative = LEXICAL

    def read(self, source: RetrievalSource) -> None:
        """Do nothing: a cross-encoder needs only the pairs."""


@dataclass(eq=False)
class LexicalScorer:
    """score = bm25_weight x BM25 + encoder_weight x the encoder's score; idf and lengths are of the collection."""

    encoder: MilcoEncoder
    bm25_weight: float = 1.0
    encoder_weight: float = 1.0
    batch_size: int = 64

    @property
    def identity(self) -> str:
        """Hash of the encoder's weights."""
        return self.encoder.hashes["weight_hash"]

    def read(self, source: RetrievalSource) -> None:
        """Count the tokens of the source's passages, and encode them."""
        self._passages = distinct_passages(source)
        texts = list(self._passages)
        self._bm25 = bm25_matrix(self._token_counts(texts))
        self._vectors = self.encoder.encode_document(texts, batch_size=self.batch_size).to_scipy()

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return scores of (query, passage) pairs: float64 [n], >= 0. Raises KeyError for a passage not read."""
        queries = list(dict.fromkeys(query for query, _ in pairs))
        numbers = {query: number for number, query in enumerate(queries)}
        left = np.array([numbers[query] for query, _ in pairs], np.int64)
        right = np.array([self._passages[passage] for _, passage in pairs], np.int64)
        vectors = self.encoder.encode_query(queries, batch_size=self.batch_size).to_scipy()
        bm25 = pair_products(self._token_counts(queries), self._bm25, left, right)
        return self.bm25_weight * bm25 + self.encoder_weight * pair_products(vectors, self._vectors, left, right)

    def _token_counts(self, texts: Sequence[str]) -> csr_array:
        """Count tokens without special ones: float [texts, vocabulary]."""
        tokenizer = self.encoder.tokenizer
        special = set(tokenizer.special_ids)
        rows = [[token for token in ids if token not in special] for ids in tokenizer.ids(texts)]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        columns = np.fromiter((token for row in rows for token in row), np.int64, int(indptr[-1]))
        counts = csr_array((np.ones(len(columns)), columns, indptr), shape=(len(rows), len(tokenizer.pieces)))
        counts.sum_duplicates()
        return counts


def bm25_matrix(counts: csr_array) -> csr_array:
    """Return BM25 weights as Lucene defines them, float [documents, terms], from counts of the same shape."""
    documents = counts.shape[0]
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))
    saturated = counts.data / (counts.data + np.repeat(norms, np.diff(counts.indptr)))
    return csr_array((idf[counts.indices] * saturated, counts.indices, counts.indptr), shape=counts.shape)


def pair_products(
    queries: csr_array, documents: csr_array, left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return dot products of row left[i] of queries and row right[i] of documents: float64 [n]."""
    products = np.zeros(len(left))
    for start in range(0, len(left), _PAIRS_AT_A_TIME):
        span = slice(start, start + _PAIRS_AT_A_TIME)
        products[span] = queries[left[span]].multiply(documents[right[span]]).sum(axis=1)
    return products
