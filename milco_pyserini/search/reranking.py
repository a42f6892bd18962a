"""Rerank runs by a cross-encoder, which reads a query and a document together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from milco_pyserini.encode.encoder import choose_device, choose_dtype
from milco_pyserini.errors import Message, MilcoError, ParameterError, shown
from milco_pyserini.index.hits import Hits
from milco_pyserini.io.runs import Run
from milco_pyserini.model.checkpoint import Checkpoint, loading
from milco_pyserini.model.weights import weight_hash

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document

__all__ = ["CrossEncoder", "rerank"]

_EXAMPLE = "BAAI/bge-reranker-v2-m3"

_ALTERNATIVE = (
    f"{_EXAMPLE}; the paper's teacher, bge-reranker-v2.5-gemma2-lightweight, needs its own code, and the paper's "
    "training sets have scores already"
)
_PAIRS_AT_A_TIME = 8192


def rerank(
    run: Run,
    queries: Mapping[str, str],
    find: "Callable[[Sequence[str]], Mapping[str, Document]]",
    scorer: "CrossEncoder",
    k: int = 100,
) -> Iterator[tuple[str, Hits]]:
    """Yield (topic, hits) of every topic of a run: its k best documents in the order of new scores, ties by docid.

    Args:
        run: topic -> docid -> score. Equal scores are ranked in the order of the run.
        queries: topic -> text.
        find: returns documents by docid, such as Searcher.documents.

    Raises:
        MilcoError: the text of a topic or of a document is not available.
    """
    for topic, scores in run.items():
        if topic not in queries:
            raise MilcoError(f"topic {shown(topic)} of the run has no text: give the topics that were searched")
        docids = sorted(scores, key=lambda docid: -scores[docid])[:k]
        documents = find(docids)
        if missing := [docid for docid in docids if docid not in documents]:
            fix = Message("Give the {corpus} of the run, or an {index} that stores its documents.")
            raise MilcoError(f"the text of document {shown(missing[0])} is not available", fix)
        values = scorer.score([(queries[topic], documents[docid].contents) for docid in docids])
        order = np.lexsort((np.array(docids), -values))
        yield topic, Hits([docids[place] for place in order], values[order])


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

    kind = "cross-encoder"
    """The noun for messages."""

    alternative: str | None = None
    """A name that needs no hub, for messages."""

    def __init__(
        self, name: str, max_length: int = 512, batch_size: int = 64, device: str = "auto", dtype: str = "auto"
    ) -> None:
        self.name = name
        self._device = choose_device(device)
        self._dtype = choose_dtype(dtype, self._device)
        self._max_length = max_length
        self._batch_size = batch_size
        checkpoint = Checkpoint.open(name, noun=self.kind, example=_EXAMPLE, embedded=self.alternative)
        what, directory = "a cross-encoder", checkpoint.fetch().directory
        with loading(directory, what, example=_ALTERNATIVE):
            self._tokenizer: Any = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        model, missing = checkpoint.load_model(AutoModelForSequenceClassification, what, _ALTERNATIVE)
        if model.config.num_labels != 1:
            raise MilcoError(
                f"{self.kind} {name} has {model.config.num_labels} logits: a ranking cross-encoder has one"
            )
        if missing:
            # transformers would continue with random numbers in their place.
            lacking = ", ".join(missing[:3])
            raise MilcoError(f"{self.kind} {name} is not a cross-encoder: it lacks {lacking}; try {_EXAMPLE}")
        limit = getattr(model.config, "max_position_embeddings", None) or 2**31
        if "roberta" in model.config.model_type:
            # RoBERTa counts positions from the padding id + 1.
            limit -= model.config.pad_token_id + 1
        if max_length > limit:
            raise ParameterError("max_length", max_length, f"{self.kind} {name} takes at most {limit} tokens")
        self._model = model.to(self._device)

    @property
    def identity(self) -> str:
        """Hash of the weights."""
        return weight_hash(self._model.state_dict())

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
            fix = Message("Try {dtype}.", dtype="float32")
            raise MilcoError(f"{self.kind} {self.name} returns scores that are not finite", fix)
        return scores
