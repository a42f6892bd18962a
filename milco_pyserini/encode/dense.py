"""Texts to dense vectors: a bi-encoder in this project's road, one vector of length 1 a text."""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from milco_pyserini.console import Report
from milco_pyserini.encode.batches import TOKEN_BUDGET, halved_budget
from milco_pyserini.encode.contract import validate_encoder
from milco_pyserini.encode.dense_checkpoint import CLS, LAST, POOLINGS, load_checkpoint, network_weights
from milco_pyserini.encode.devices import choose_device, choose_dtype
from milco_pyserini.encode.encoder import BATCH_SIZE
from milco_pyserini.encode.prompts import DOCUMENTS, QUERIES
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.model.checkpoint import find_checkpoint
from milco_pyserini.model.forward import pad_rows
from milco_pyserini.model.loading import weight_hash
from milco_pyserini.model.packed import NotPacked, PackedEncoder
from milco_pyserini.sparse.batch import validate_finite


class DenseEncoder:
    """A Hugging Face encoder as an encoder of whole texts: one state, or the mean of all, brought to length 1.

    Of a MILCO checkpoint, "mini" among them, it is the multilingual encoder alone. pooling: "cls", "mean", "last"; None
    is what the checkpoint's sentence-transformers files say, else "mean". prompts: what stands before texts of a kind,
    where it is not what these files say. device, dtype: as for MilcoEncoder. A blank text has the zero vector. Raises
    MilcoError if the checkpoint cannot be had, or is no encoder of this kind.
    """

    def __init__(
        self,
        name: str,
        pooling: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        prompts: Mapping[str, str | None] | None = None,
    ) -> None:
        if pooling not in (None, *POOLINGS):
            raise unknown_name("pooling", str(pooling), POOLINGS)
        self.name = name
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        checkpoint = load_checkpoint(find_checkpoint(name), pooling)
        self.model = checkpoint.model.eval()
        self.tokenizer = checkpoint.tokenizer
        self.dimensions = checkpoint.dimensions
        self.pooling = checkpoint.pooling
        given = {kind: prompt for kind, prompt in (prompts or {}).items() if prompt is not None}
        self.prompts = checkpoint.prompts | given
        self.query_max_length = checkpoint.query_max_length
        self.passage_max_length = checkpoint.passage_max_length
        self.token_budget = TOKEN_BUDGET[self.device.type]
        self._limit = checkpoint.limit
        self._padding_id = checkpoint.padding_id

    @cached_property
    def weight_hash(self) -> str:
        """BLAKE2b over the name, shape and float32 values of every tensor that has a part in the vectors."""
        return weight_hash(network_weights(self.model))

    @cached_property
    def tokenizer_hash(self) -> str:
        """BLAKE2b over the tokenizer's definition."""
        return hashlib.blake2b(self.tokenizer.tokenizer.to_str().encode(), digest_size=16).hexdigest()

    def validate_length(self, max_length: int) -> None:
        """Raise MilcoError for a length that the encoder has no positions for, or that leaves a text no token."""
        least = sum(self.tokenizer.num_special_tokens) + 1
        if not least <= max_length <= self._limit:
            raise MilcoError(f"maximum length {max_length}: encoder {self.name} takes {least} to {self._limit} tokens")

    def encode(
        self, texts: Sequence[str], kind: str, max_length: int | None = None, lowercase: bool = False
    ) -> NDArray[np.float32]:
        """Float32 [B, d] of B texts in their order. kind: DOCUMENTS or QUERIES, each with its prompt and length."""
        default = self.query_max_length if kind == QUERIES else self.passage_max_length
        spelled = [self.spelled(text, kind, lowercase) for text in texts]
        rows = self.tokenizer.tokenize(spelled, default if max_length is None else max_length)
        return self.encode_rows([row.ids for row in rows])

    def spelled(self, text: str, kind: str, lowercase: bool = False) -> str:
        """A text as it is tokenised: behind the prompt of its kind. A blank one stays as it is."""
        text = text.lower() if lowercase else text
        return self.prompts[kind] + text if text.strip() else text

    def encode_rows(
        self,
        rows: Sequence[Sequence[int]],
        batch_size: int = BATCH_SIZE,
        names: Sequence[str] = (),
        report: Report | None = None,
    ) -> NDArray[np.float32]:
        """Float32 [B, d] of tokenised texts in their order, batched by length; zeros for a row without tokens.

        Where the device has no memory for a batch, half the tokens go into one from then on. names: the texts' ids, for
        an error. report: called for each batch. Raises MilcoError if the device has no memory for a single text, and
        for a number that is not finite.
        """
        vectors = np.zeros((len(rows), self.dimensions), np.float32)
        lengths = np.array([len(row) for row in rows], np.int64)
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        done = 0
        if report and len(order) < len(rows):
            report(len(rows) - len(order), 0)
        while done < len(order):
            numbers = order[done : self._batch_end(lengths[order], done, batch_size)]
            try:
                found = self._encode([rows[number] for number in numbers])
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                self.token_budget = halved_budget(self.token_budget, lengths[numbers].tolist(), self.device)
                continue
            vectors[numbers] = found.cpu().numpy()
            done += len(numbers)
            if report:
                report(len(numbers), int(lengths[numbers].sum()))
        indptr = np.arange(len(rows) + 1) * self.dimensions
        validate_finite(vectors.ravel(), indptr, f"encoder {self.name}", self.tokenizer.namer(rows, names))
        return vectors

    def _batch_end(self, lengths: NDArray[np.int64], start: int, batch_size: int) -> int:
        """Where the batch ends that begins at start: batch_size texts and the token budget at most, or one text."""
        padded = lengths[start : start + batch_size] * np.arange(1, len(lengths[start : start + batch_size]) + 1)
        return start + max(1, int(np.searchsorted(padded, self.token_budget, side="right")))

    @torch.inference_mode()
    def _encode(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Float32 [B, d] of rows, none empty."""
        if isinstance(self._network, PackedEncoder):
            pooled = pool_packed(self._network(rows), [len(row) for row in rows], self.pooling)
            return functional.normalize(pooled, dim=-1)
        arrays = pad_rows(rows, self._padding_id, self._limit, self.device)
        ids, mask = (torch.from_numpy(array).to(self.device) for array in arrays)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            states = self._network(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        return functional.normalize(pool(states, mask, self.pooling), dim=-1)

    @cached_property
    def _network(self) -> PackedEncoder | torch.nn.Module:
        # Made when the first text is encoded: an encoder that is only looked at stays where it was loaded.
        if self.device.type == "cpu":
            # A network of a kind that is not packed is padded; nothing is lost but time.
            with contextlib.suppress(NotPacked):
                return PackedEncoder(self.model, self.dtype)
        return self.model.to(self.device)


class DenseQueryEncoder:
    """Queries to dense vectors, as the documents of a store were encoded; goes into Pyserini's FaissSearcher."""

    def __init__(self, encoder: DenseEncoder, lowercase: bool = False) -> None:
        self.encoder = encoder
        self.lowercase = lowercase

    def encode(self, text: str) -> NDArray[np.float32]:
        """Float32 [d] of one query."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Float32 [B, d] of B queries; a blank one is zeros."""
        return self.encoder.encode(texts, QUERIES, lowercase=self.lowercase)


def open_dense_query_encoder(
    manifest: dict, encoder: str | None = None, device: str = "auto", dtype: str = "auto"
) -> DenseQueryEncoder:
    """The query encoder that fits the dense vectors of a manifest: same weights, pooling, prompts and spelling.

    encoder: where the manifest's encoder is now, if it moved. Raises MilcoError if its weights or its tokenizer are not
    those that made the vectors.
    """
    missing = {"encoder", "pooling", "query_prompt", "document_prompt", "lowercase"} - manifest.keys()
    if missing:
        raise MilcoError(
            f"the manifest of the vectors has no {', '.join(sorted(missing))}, which queries need: encode them again, "
            "or search with encoded topics"
        )
    prompts = {QUERIES: manifest["query_prompt"], DOCUMENTS: manifest["document_prompt"]}
    loaded = DenseEncoder(encoder or manifest["encoder"], manifest["pooling"], device, dtype, prompts)
    validate_encoder(loaded, manifest)
    return DenseQueryEncoder(loaded, manifest["lowercase"])


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """One state of each text: the first, the last unmasked, or the mean of all unmasked.

    states: float [B, S, d]. mask: [B, S], 1 for tokens, then 0 for padding. Returns float [B, d].
    """
    if pooling == CLS:
        return states[:, 0]
    if pooling == LAST:
        return states[torch.arange(len(states), device=states.device), mask.sum(dim=1) - 1]
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def pool_packed(states: Tensor, lengths: Sequence[int], pooling: str) -> Tensor:
    """As pool(), of texts that lie end to end. states: float [R, d], R >= T, the lengths' sum. Returns float [B, d]."""
    ends = torch.tensor(lengths).cumsum(0)
    if pooling == CLS:
        return states[ends - torch.tensor(lengths)]
    if pooling == LAST:
        return states[ends - 1]
    return torch.stack([text.mean(dim=0) for text in states[: ends[-1]].split(list(lengths))])
