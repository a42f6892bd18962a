"""A cross-encoder as teacher: a sequence classifier with one logit, which reads query and passage together."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from milco_pyserini.encode.encoder import choose_device, choose_dtype
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.loading import find_model, loading, validate_weights, weight_hash
from milco_pyserini.train.data.retrieval import RetrievalSource
from milco_pyserini.train.scoring import LEXICAL

EXAMPLE = "BAAI/bge-reranker-v2-m3"
_INSTEAD = (
    f"{EXAMPLE}; the paper's teacher, bge-reranker-v2.5-gemma2-lightweight, needs code, and its scores come with the "
    "paper's collections"
)

_TOKENIZED_AT_A_TIME = 8192


class CrossEncoder:
    """A checkpoint of AutoModelForSequenceClassification: a directory, or a name on the hub.

    max_length: tokens of both texts together; the longer text is cut first. Raises MilcoError if it cannot be had, is
    no classifier with one logit, or would run code of its own.
    """

    def __init__(
        self, name: str, max_length: int = 512, batch_size: int = 64, device: str = "auto", dtype: str = "auto"
    ) -> None:
        self.name = name
        self._device = choose_device(device)
        self._dtype = choose_dtype(dtype, self._device)
        self._max_length = max_length
        self._batch_size = batch_size
        self._tokenizer, model = _load(name)
        self._model = model.eval().to(self._device)
        limit = _positions(model.config)
        if max_length > limit:
            raise MilcoError(f"--max-length {max_length}: teacher {name} takes at most {limit} tokens")

    @property
    def identity(self) -> str:
        """A hash of its weights."""
        return weight_hash(self._model.state_dict())

    def read(self, source: RetrievalSource) -> None:
        """A cross-encoder needs to know nothing but the pair."""

    @torch.inference_mode()
    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Logits of (query, passage) pairs: float32 [n], in their order."""
        scores = np.zeros(len(pairs), np.float32)
        for start in range(0, len(pairs), _TOKENIZED_AT_A_TIME):
            for places, batch in self._batches(pairs[start : start + _TOKENIZED_AT_A_TIME]):
                with torch.autocast(self._device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16):
                    logits = self._model(**batch.to(self._device)).logits
                scores[start + places] = logits[:, 0].float().cpu().numpy()
        if not np.isfinite(scores).all():
            raise MilcoError(f"teacher {self.name} gives scores that are no numbers: try --dtype float32")
        return scores

    def _batches(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """Places and padded inputs of pairs of nearly equal length, the longest first: memory fails early, or never."""
        inputs = self._tokenizer(
            [query for query, _ in pairs],
            [passage for _, passage in pairs],
            truncation="longest_first",
            max_length=self._max_length,
        )
        order = np.argsort([-len(ids) for ids in inputs["input_ids"]], kind="stable")
        for start in range(0, len(order), self._batch_size):
            places = order[start : start + self._batch_size]
            chosen = {name: [values[place] for place in places] for name, values in inputs.items()}
            yield places, self._tokenizer.pad(chosen, return_tensors="pt")


def _load(name: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    directory = find_model(name, "teacher", EXAMPLE, LEXICAL)
    with loading(directory, "a cross-encoder", example=_INSTEAD):
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        model, report = AutoModelForSequenceClassification.from_pretrained(
            directory, trust_remote_code=False, output_loading_info=True
        )
    validate_weights(directory, dict(model.named_parameters()))
    if model.config.num_labels != 1:
        raise MilcoError(f"teacher {name} has {model.config.num_labels} logits: a cross-encoder for ranking has one")
    if report["missing_keys"]:
        # transformers would go on with random numbers in their place.
        absent = ", ".join(sorted(report["missing_keys"])[:3])
        raise MilcoError(f"teacher {name} is no cross-encoder: it lacks {absent}; give one such as {EXAMPLE}")
    return tokenizer, model


def _positions(config: Any) -> int:
    """Tokens that the model has positions for; RoBERTa counts them from the padding id + 1."""
    limit = getattr(config, "max_position_embeddings", None) or 2**31
    return limit - config.pad_token_id - 1 if "roberta" in config.model_type else limit
