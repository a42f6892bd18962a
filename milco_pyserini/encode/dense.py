"""Encode texts into dense vectors: a bi-encoder, one L2-normalized vector per text."""

import contextlib
import os
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from milco_pyserini.console import Report
from milco_pyserini.encode.batches import halved_budget, token_budget
from milco_pyserini.encode.contract import validate_encoder
from milco_pyserini.encode.dense_checkpoint import CLS, LAST, POOLINGS, load_network, read_pooling
from milco_pyserini.encode.devices import choose_device, choose_dtype
from milco_pyserini.encode.encoder import BATCH_SIZE, as_texts
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.io.files import checksum_bytes
from milco_pyserini.model.checkpoint import Checkpoint, token_limit
from milco_pyserini.model.forward import pad_rows, to_device
from milco_pyserini.model.packed import NotPacked, PackedEncoder
from milco_pyserini.model.weights import weight_hash
from milco_pyserini.sparse.batch import validate_finite


class DenseEncoder:
    """A Hugging Face encoder whose pooled, L2-normalized hidden states are dense vectors; a blank text's is zero.

    >>> from milco_pyserini.encode.dense import DenseEncoder
    >>> encoder = DenseEncoder("intfloat/multilingual-e5-small")  # doctest: +SKIP
    >>> vectors = encoder.encode_query(["Wer erfand das Telefon?"])  # doctest: +SKIP

    Args:
        name: a directory, a hub name, or "mini"; of a MILCO checkpoint only the multilingual encoder is used.
        pooling: "cls", "mean" or "last" (default: as the checkpoint's sentence-transformers files state, else "mean").
        device, dtype: as for MilcoEncoder.
        query_prompt, document_prompt: prefixes of texts (default: as the files state, else none).

    Raises:
        MilcoError: the checkpoint cannot be found, or is not an encoder of this kind.
    """

    def __init__(
        self,
        name: str | os.PathLike | Checkpoint,
        pooling: str | None = None,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        if pooling not in (None, *POOLINGS):
            raise unknown_name("pooling", str(pooling), POOLINGS)
        checkpoint = Checkpoint.open(name).fetch()
        self.name = checkpoint.name
        self.pooling = pooling or read_pooling(checkpoint)
        query, document = checkpoint.prompts
        self.query_prompt = query if query_prompt is None else query_prompt
        self.document_prompt = document if document_prompt is None else document_prompt
        self.model, self.tokenizer, self._padding_id, lengths = load_network(checkpoint)
        self.query_max_length, self.passage_max_length = lengths
        self.dimensions: int = self.model.config.hidden_size
        self.token_budget = token_budget(self.device)
        self._limit = token_limit(self.model, self.model.config)

    @cached_property
    def hashes(self) -> dict[str, str]:
        """weight_hash and tokenizer_hash, as of MilcoEncoder."""
        # A missing pooler is initialized at random, and the hidden states do not depend on it.
        tensors = self.model.state_dict().items()
        weights = weight_hash({name: tensor for name, tensor in tensors if not name.startswith("pooler.")})
        tokenizer = self.tokenizer.tokenizer.to_str()
        return {"weight_hash": weights, "tokenizer_hash": checksum_bytes(tokenizer.encode())}

    def validate_length(self, max_length: int) -> None:
        """Raise MilcoError for a maximum length without positions in the encoder, or too short for a token."""
        least = sum(self.tokenizer.num_special_tokens) + 1
        if not least <= max_length <= self._limit:
            raise MilcoError(f"maximum length {max_length}: encoder {self.name} takes {least} to {self._limit} tokens")

    def encode_query(
        self, texts: str | Sequence[str], *, max_length: int | None = None, lowercase: bool = False
    ) -> NDArray[np.float32]:
        """Return float32 [B, d] for B queries, or one. max_length: in tokens, default the checkpoint's for queries."""
        return self._encode_texts(texts, self.query_prompt, lowercase, max_length or self.query_max_length)

    def encode_document(
        self, texts: str | Sequence[str], *, max_length: int | None = None, lowercase: bool = False
    ) -> NDArray[np.float32]:
        """Return float32 [B, d] for B documents; arguments as for encode_query()."""
        return self._encode_texts(texts, self.document_prompt, lowercase, max_length or self.passage_max_length)

    @staticmethod
    def prompted(texts: Sequence[str], prompt: str, lowercase: bool = False) -> list[str]:
        """Return texts as they are tokenized: after the prompt, which is not lowercased. A blank one stays blank."""
        texts = [text.lower() for text in texts] if lowercase else texts
        return [prompt + text if text.strip() else text for text in texts]

    def _encode_texts(
        self, texts: str | Sequence[str], prompt: str, lowercase: bool, max_length: int
    ) -> NDArray[np.float32]:
        self.validate_length(max_length)
        inputs = self.prompted(as_texts(texts), prompt, lowercase)
        return self.encode_rows([row.ids for row in self.tokenizer.tokenize(inputs, max_length)])

    def encode_rows(
        self,
        rows: Sequence[Sequence[int]],
        batch_size: int = BATCH_SIZE,
        names: Sequence[str] = (),
        report: Report | None = None,
    ) -> NDArray[np.float32]:
        """Return float32 [B, d] for tokenized texts, batched by length; zeros for a row without tokens.

        If the device runs out of memory, batches have half as many tokens from then on.

        Args:
            rows: token ids, special ones included.
            batch_size: the most texts in one forward pass.
            names: the texts' ids, for errors.
            report: called for each batch with its numbers of texts and tokens.

        Raises:
            MilcoError: the device has no memory for a single text, or a vector is not finite.
        """
        vectors = np.zeros((len(rows), self.dimensions), np.float32)
        lengths = np.array([len(row) for row in rows], np.int64)
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        done = 0
        if report and len(order) < len(rows):
            report(len(rows) - len(order), 0)
        while done < len(order):
            # As many texts as the token budget holds when padded, or one text.
            padded = lengths[order[done : done + batch_size]]
            padded = padded * np.arange(1, len(padded) + 1)
            count = max(1, int(np.searchsorted(padded, self.token_budget, side="right")))
            numbers = order[done : done + count]
            try:
                encoded = self._encode([rows[number] for number in numbers])
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                self.token_budget = halved_budget(self.token_budget, lengths[numbers].tolist(), self.device)
                continue
            vectors[numbers] = encoded.cpu().numpy()
            done += len(numbers)
            if report:
                report(len(numbers), int(lengths[numbers].sum()))
        indptr = np.arange(len(rows) + 1) * self.dimensions
        validate_finite(
            vectors.ravel(),
            indptr,
            f"encoder {self.name}",
            lambda row: names[row] if names else self.tokenizer.beginning(rows[row]),
        )
        return vectors

    @torch.inference_mode()
    def _encode(self, rows: Sequence[Sequence[int]]) -> Tensor:
        if isinstance(self.network, PackedEncoder):
            pooled = pool_packed(self.network(rows), [len(row) for row in rows], self.pooling)
            return functional.normalize(pooled, dim=-1)
        arrays = pad_rows(rows, self._padding_id, self._limit, self.device)
        ids, mask = (to_device(array, self.device) for array in arrays)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            states = self.network(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        return functional.normalize(pool(states, mask, self.pooling), dim=-1)

    @cached_property
    def network(self) -> PackedEncoder | torch.nn.Module:
        """The network that computes the hidden states, created for the first text."""
        if self.device.type == "cpu":
            # Padding gives the same vectors for networks that cannot be packed, only slower.
            with contextlib.suppress(NotPacked):
                return PackedEncoder(self.model.config, self.model.state_dict(), self.dtype)
        return self.model.to(self.device)


class DenseQueryEncoder:
    """Encode queries as the documents of a dense vector store; pass it to Pyserini's FaissSearcher."""

    def __init__(self, encoder: DenseEncoder, lowercase: bool = False) -> None:
        self.encoder = encoder
        self.lowercase = lowercase

    def encode(self, text: str) -> NDArray[np.float32]:
        """Return float32 [d] for one query."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [B, d] for B queries; zeros for a blank one."""
        return self.encoder.encode_query(texts, lowercase=self.lowercase)


def open_dense_query_encoder(
    manifest: dict, encoder: str | None = None, device: str = "auto", dtype: str = "auto"
) -> DenseQueryEncoder:
    """Load the encoder of the dense vectors of a manifest for queries: same weights, pooling, prompts and lowercasing.

    encoder: the current path of the manifest's encoder, if it moved. Raises MilcoError if its weights or its tokenizer
    are not those that encoded the vectors.
    """
    missing = {"encoder", "pooling", "query_prompt", "document_prompt", "lowercase"} - manifest.keys()
    if missing:
        raise MilcoError(
            f"the manifest of the vectors lacks {', '.join(sorted(missing))}, which queries need: encode the vectors "
            "again, or search with encoded topics"
        )
    prompts = manifest["query_prompt"], manifest["document_prompt"]
    loaded = DenseEncoder(encoder or manifest["encoder"], manifest["pooling"], device, dtype, *prompts)
    validate_encoder(loaded, manifest)
    return DenseQueryEncoder(loaded, manifest["lowercase"])


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Return float [B, d], one state per text: the first, the last unmasked, or the mean of all unmasked.

    states: float [B, S, d]. mask: [B, S], 1 for tokens, then 0 for padding.
    """
    if pooling == CLS:
        return states[:, 0]
    if pooling == LAST:
        return states[torch.arange(len(states), device=states.device), mask.sum(dim=1) - 1]
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def pool_packed(states: Tensor, lengths: Sequence[int], pooling: str) -> Tensor:
    """Pool texts without padding, as pool() does. states: float [R, d], R >= T, the sum of lengths. Returns [B, d]."""
    ends = torch.tensor(lengths).cumsum(0)
    if pooling == CLS:
        return states[ends - torch.tensor(lengths)]
    if pooling == LAST:
        return states[ends - 1]
    return torch.stack([text.mean(dim=0) for text in states[: ends[-1]].split(list(lengths))])
