"""Add a teacher's scores to training sets, for distillation (SCT).

The paper's teacher is a cross-encoder; the paper's training sets have scores already. CrossEncoder reads both texts
together. LexicalScorer needs no download: BM25 over the encoder's own tokens, which serves every language without an
analyzer, plus the encoder's score, which also bridges languages.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from milco_pyserini.console import counted, log
from milco_pyserini.encode.encoder import MilcoEncoder, choose_device, choose_dtype
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.baselines import K1, B
from milco_pyserini.model.finding import find_model
from milco_pyserini.model.loading import loading, validate_weights, weight_hash
from milco_pyserini.options import validate
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

_EXAMPLE = "BAAI/bge-reranker-v2-m3"

_ALTERNATIVE = (
    f"{_EXAMPLE}; the paper's teacher, bge-reranker-v2.5-gemma2-lightweight, needs its own code, and the paper's "
    "training sets have scores already"
)
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
        return CrossEncoder(options.teacher, options.max_length, options.batch_size, options.device, options.dtype)
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


class CrossEncoder:
    """A sequence classifier with one logit.

    Args:
        name: directory or hub name of an AutoModelForSequenceClassification checkpoint.
        max_length: tokens of both texts together; the longer text is truncated first.
        batch_size: pairs per forward pass.
        device, dtype: as in MilcoEncoder.from_pretrained().

    Raises:
        MilcoError: it cannot be loaded, has more than one logit, or needs its own code.
    """

    def __init__(
        self, name: str, max_length: int = 512, batch_size: int = 64, device: str = "auto", dtype: str = "auto"
    ) -> None:
        self.name = name
        self._device = choose_device(device)
        self._dtype = choose_dtype(dtype, self._device)
        self._max_length = max_length
        self._batch_size = batch_size
        directory = find_model(name, "teacher", _EXAMPLE, LEXICAL)
        with loading(directory, "a cross-encoder", example=_ALTERNATIVE):
            self._tokenizer: Any = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
            model, report = AutoModelForSequenceClassification.from_pretrained(
                directory, trust_remote_code=False, output_loading_info=True
            )
        validate_weights(directory, dict(model.named_parameters()))
        if model.config.num_labels != 1:
            raise MilcoError(f"teacher {name} has {model.config.num_labels} logits: a ranking cross-encoder has one")
        if report["missing_keys"]:
            # transformers would continue with random numbers in their place.
            missing = ", ".join(sorted(report["missing_keys"])[:3])
            raise MilcoError(f"teacher {name} is not a cross-encoder: it lacks {missing}; try {_EXAMPLE}")
        limit = getattr(model.config, "max_position_embeddings", None) or 2**31
        if "roberta" in model.config.model_type:
            # RoBERTa counts positions from the padding id + 1.
            limit -= model.config.pad_token_id + 1
        if max_length > limit:
            raise MilcoError(f"`max_length={max_length}`: teacher {name} takes at most {limit} tokens")
        self._model = model.eval().to(self._device)

    @property
    def identity(self) -> str:
        """Hash of the weights."""
        return weight_hash(self._model.state_dict())

    def read(self, source: RetrievalSource) -> None:
        """Do nothing: a cross-encoder needs only the pairs."""

    @torch.inference_mode()
    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return the logits of (query, passage) pairs: float32 [n]."""
        scores = np.zeros(len(pairs), np.float32)
        for start in range(0, len(pairs), _PAIRS_AT_A_TIME):
            queries, passages = zip(*pairs[start : start + _PAIRS_AT_A_TIME], strict=True)
            inputs = self._tokenizer(
                list(queries), list(passages), truncation="longest_first", max_length=self._max_length
            )
            # The longest first: if memory does not suffice, it fails early.
            order = np.argsort([-len(ids) for ids in inputs["input_ids"]], kind="stable")
            for first in range(0, len(order), self._batch_size):
                places = order[first : first + self._batch_size]
                chosen = {name: [values[place] for place in places] for name, values in inputs.items()}
                batch = self._tokenizer.pad(chosen, return_tensors="pt").to(self._device)
                with torch.autocast(self._device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16):
                    logits = self._model(**batch).logits
                scores[start + places] = logits[:, 0].float().cpu().numpy()
        if not np.isfinite(scores).all():
            raise MilcoError(f"teacher {self.name} returns scores that are not finite: try `dtype=float32`")
        return scores


class LexicalScorer:
    """score = bm25_weight x BM25 + encoder_weight x the encoder's score; idf and lengths are of the collection."""

    def __init__(
        self, encoder: MilcoEncoder, bm25_weight: float = 1.0, encoder_weight: float = 1.0, batch_size: int = 64
    ) -> None:
        self._encoder = encoder
        self._weights = bm25_weight, encoder_weight
        self._batch_size = batch_size
        self._passages: dict[str, int] = {}

    @property
    def identity(self) -> str:
        """Hash of the encoder's weights."""
        return self._encoder.weight_hash

    def read(self, source: RetrievalSource) -> None:
        """Count the tokens of the source's passages, and encode them."""
        self._passages = distinct_passages(source)
        texts = list(self._passages)
        self._bm25 = bm25_matrix(self._token_counts(texts))
        self._vectors = self._encoder.encode_document(texts, batch_size=self._batch_size).to_scipy()

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return scores of (query, passage) pairs: float64 [n], >= 0. Raises KeyError for a passage not read."""
        queries = list(dict.fromkeys(query for query, _ in pairs))
        numbers = {query: number for number, query in enumerate(queries)}
        left = np.array([numbers[query] for query, _ in pairs], np.int64)
        right = np.array([self._passages[passage] for _, passage in pairs], np.int64)
        vectors = self._encoder.encode_query(queries, batch_size=self._batch_size).to_scipy()
        bm25 = pair_products(self._token_counts(queries), self._bm25, left, right)
        return self._weights[0] * bm25 + self._weights[1] * pair_products(vectors, self._vectors, left, right)

    def _token_counts(self, texts: Sequence[str]) -> csr_array:
        """Count tokens without special ones: float [texts, vocabulary]."""
        tokenizer = self._encoder.tokenizer
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
