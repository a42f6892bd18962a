"""Texts to sparse term vectors: the model, its tokenizer and its vocabulary together."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.card import model_card
from milco_pyserini.encode.devices import choose_device, choose_dtype
from milco_pyserini.encode.tokenization import TextTokenizer, load_english_tokenizer, load_tokenizer
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.files import write_json
from milco_pyserini.model import MilcoModel, find_checkpoint
from milco_pyserini.model.checkpoint import ENGLISH, weight_hash
from milco_pyserini.sparse import PIVOT, SOURCE, VIEWS, SparseBatch, Vocabulary

BATCH_SIZE = 128
# Tokens, padding included, that one forward pass takes (model-notes 2 and 3).
_TOKEN_BUDGET = {"cpu": 4096, "cuda": 32768}


@dataclass(frozen=True)
class Encoded:
    """The vectors of some texts, in their order, and what is worth counting."""

    batch: SparseBatch
    tokens: int
    truncated: int


class MilcoEncoder:
    """Texts in any language to SparseBatch vectors over one Vocabulary.

    A vector depends on its text alone: not on the other texts of the call, their number or their order (float32:
    within 1e-5; bfloat16: within 1e-2). views: which views a vector holds.
    """

    def __init__(
        self,
        model: MilcoModel,
        tokenizer: TextTokenizer,
        english_tokenizer: Tokenizer,
        name: str,
        device: str = "auto",
        dtype: str = "auto",
        english_prefix: str = "",
    ) -> None:
        self.name = name
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.model = model.eval().to(self.device)
        self.tokenizer = tokenizer
        self.english_tokenizer = english_tokenizer
        _check_sizes(model, tokenizer, english_tokenizer, name)
        english = [english_tokenizer.id_to_token(number) for number in range(model.config.english_vocab_size)]
        self.vocabulary = Vocabulary(english, tokenizer.pieces, english_prefix)
        self._dropped = np.array(tokenizer.special_ids if model.config.source_drop_special else [], np.int64)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike = DEFAULT_ENCODER,
        device: str = "auto",
        dtype: str = "auto",
        english_prefix: str = "",
        **variants: Any,
    ) -> "MilcoEncoder":
        """Load a checkpoint: a directory, a hub name, or "mini". variants: MilcoConfig fields to change.

        device: "auto", "cpu", "cuda", "cuda:1". dtype: of the matrix products; the residual stream, LayerNorm and
        pooling are float32. Raises MilcoError if the checkpoint cannot be had or is not whole.
        """
        name = os.fspath(name_or_path)
        choose_device(device)
        directory = find_checkpoint(name)
        model = MilcoModel.from_pretrained(directory, **variants)
        tokenizers = load_tokenizer(directory), load_english_tokenizer(directory)
        return cls(model, *tokenizers, name=name, device=device, dtype=dtype, english_prefix=english_prefix)

    @property
    def views(self) -> tuple[str, ...]:
        """The views that this checkpoint has."""
        return VIEWS if self.model.echo is not None else (PIVOT,)

    @cached_property
    def weight_hash(self) -> str:
        """BLAKE2b over every tensor's name, shape and float32 values: equal weights, equal hash."""
        return weight_hash(self.model.state_dict())

    @cached_property
    def tokenizer_hash(self) -> str:
        """BLAKE2b over both tokenizers' definitions."""
        text = self.tokenizer.tokenizer.to_str() + self.english_tokenizer.to_str()
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def encode_query(self, texts: str | Sequence[str], alpha: float | None = None, **options: Any) -> SparseBatch:
        """Vectors of queries, cut at the checkpoint's query length.

        alpha: weight of the pivot view in [0, 1], with 1 - alpha for the source view (paper: ablation of the
        views); on the query side alone it is an interpolation of the two scores. options: as for encode().
        """
        options.setdefault("max_length", self.model.config.query_max_length)
        batch = self.encode(texts, **options).batch
        if alpha is None:
            return batch
        if not 0 <= alpha <= 1:
            raise MilcoError(f"alpha {alpha} is not between 0 and 1")
        weights = batch.weights * np.where(batch.columns < batch.english_size, alpha, 1 - alpha).astype(np.float32)
        weighted = SparseBatch(batch.indptr, batch.columns, weights, batch.english_size)
        return weighted.where(weights > 0)

    def encode_document(self, texts: str | Sequence[str], **options: Any) -> SparseBatch:
        """Vectors of documents, cut at the checkpoint's passage length. options: as for encode()."""
        options.setdefault("max_length", self.model.config.passage_max_length)
        return self.encode(texts, **options).batch

    def encode(
        self,
        texts: str | Sequence[str],
        max_length: int,
        views: Sequence[str] | None = None,
        lowercase: bool = False,
        batch_size: int = BATCH_SIZE,
    ) -> Encoded:
        """Vectors of texts in their order, and counts. max_length: in tokens, <s> and </s> included.

        An empty text has an empty vector. Raises MilcoError for a view that the checkpoint lacks, or a length that
        it has no positions for.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        views = self.check(max_length, views)
        rows = self.tokenizer.tokenize([text.lower() for text in texts] if lowercase else texts, max_length)
        batch = self.encode_rows([row.ids for row in rows], views, batch_size)
        return Encoded(batch, sum(len(row.ids) for row in rows), sum(row.truncated for row in rows))

    def encode_rows(
        self, rows: Sequence[Sequence[int]], views: Sequence[str], batch_size: int = BATCH_SIZE
    ) -> SparseBatch:
        """Vectors of tokenised texts in their order, batched by length. A row without tokens has an empty vector."""
        order = np.argsort([len(row) for row in rows], kind="stable")
        blank = sum(not row for row in rows)
        lengths = [len(rows[number]) for number in order[blank:]]
        parts = [_empty(blank, self.vocabulary.english_size)]
        for start, stop in self._batches(lengths, batch_size):
            parts.append(self.encode_ids([rows[number] for number in order[blank:][start:stop]], views))
        batch = SparseBatch.concatenate(parts, self.vocabulary.english_size)
        return batch.take(np.argsort(order))

    def decode(self, batch: SparseBatch, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """Terms and weights of every vector, strongest first, top_k of them if given."""
        ranked = []
        for columns, weights in batch.rows():
            order = np.lexsort((columns, -weights))[:top_k]
            ranked.append(
                list(zip(self.vocabulary.terms[columns[order]].tolist(), weights[order].tolist(), strict=True))
            )
        return ranked

    def similarity(self, queries: SparseBatch, documents: SparseBatch) -> NDArray[np.float32]:
        """Dot product of every query with every document: float32 [Q, D]."""
        return queries.dot(documents)

    def save_pretrained(self, directory: str | os.PathLike) -> None:
        """Write a checkpoint with everything inside: weights, both tokenizers, configuration, model card.

        A model card that is there already stays.
        """
        path = Path(directory)
        self.model.save_pretrained(path)
        if not (path / "README.md").exists():
            (path / "README.md").write_text(model_card(self.model.config), encoding="utf-8")
        for place, tokenizer, kind in (
            (path, self.tokenizer.tokenizer, "XLMRobertaTokenizerFast"),
            (path / ENGLISH, self.english_tokenizer, "BertTokenizerFast"),
        ):
            place.mkdir(exist_ok=True)
            tokenizer.save(str(place / "tokenizer.json"))
            write_json(place / "tokenizer_config.json", {"tokenizer_class": kind})

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Upload what save_pretrained() writes to a model repository of the hub; returns its address."""
        import tempfile

        from huggingface_hub import HfApi

        api = HfApi()
        url = api.create_repo(repository, exist_ok=True, **options)
        with tempfile.TemporaryDirectory() as directory:
            self.save_pretrained(directory)
            api.upload_folder(repo_id=repository, folder_path=directory)
        return str(url)

    def check(self, max_length: int, views: Sequence[str] | None) -> tuple[str, ...]:
        """The views to encode. Raises MilcoError for a view or a length that this checkpoint cannot give."""
        for view in views or ():
            if view not in VIEWS:
                raise unknown_name("view", view, VIEWS)
            if view not in self.views:
                raise MilcoError(f"encoder {self.name} has no LexEcho head, so no {view} view: use --views pivot")
        # XLM-R counts positions from the padding id + 1.
        config = self.model.config.encoder
        limit = config.max_position_embeddings - config.pad_token_id - 1
        if not 3 <= max_length <= limit:
            raise MilcoError(f"maximum length {max_length}: encoder {self.name} takes 3 to {limit} tokens")
        return tuple(views or self.views)

    def _batches(self, lengths: list[int], batch_size: int) -> Iterator[tuple[int, int]]:
        """Spans of texts sorted by length: at most batch_size texts and, padding included, the token budget."""
        budget = _TOKEN_BUDGET[self.device.type]
        start = 0
        for stop in range(1, len(lengths) + 1):
            full = stop - start == batch_size or stop == len(lengths)
            if full or (stop - start + 1) * lengths[stop] > budget:
                yield start, stop
                start = stop

    @torch.inference_mode()
    def encode_ids(self, rows: Sequence[Sequence[int]], views: Sequence[str]) -> SparseBatch:
        """Vectors of tokenised texts (<s> and </s> included) in one forward pass."""
        ids = np.full((len(rows), max(map(len, rows))), self.model.config.encoder.pad_token_id, np.int64)
        mask = np.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        inputs = torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            output = self.model(*inputs)
        entries: list[tuple[NDArray, NDArray, NDArray]] = []
        if PIVOT in views:
            pivot = output.pivot.cpu().numpy()
            number, column = np.nonzero(pivot)
            entries.append((number, column, pivot[number, column]))
        if SOURCE in views and output.echo is not None:
            entries.append(self._source(ids, output.echo.cpu().numpy()))
        return _from_entries(entries, len(rows), self.vocabulary.english_size)

    def _source(self, ids: NDArray[np.int64], echo: NDArray[np.float32]) -> tuple[NDArray, NDArray, NDArray]:
        """Rows, columns and weights of the source view: the weights of a repeated token summed, or their maximum."""
        keep = (echo > 0) & ~np.isin(ids, self._dropped)
        rows, _ = np.nonzero(keep)
        width = len(self.tokenizer.pieces)
        keys, place = np.unique(rows * width + ids[keep], return_inverse=True)
        if self.model.config.source_pool == "max":
            weights = np.zeros(len(keys), np.float32)
            np.maximum.at(weights, place, echo[keep])
        else:
            weights = np.bincount(place, echo[keep].astype(np.float64), len(keys)).astype(np.float32)
        return keys // width, self.vocabulary.english_size + keys % width, weights


def _check_sizes(model: MilcoModel, tokenizer: TextTokenizer, english_tokenizer: Tokenizer, name: str) -> None:
    pieces, rows = len(tokenizer.pieces), model.config.encoder.vocab_size
    if pieces > rows:
        raise MilcoError(f"encoder {name}: its tokenizer has {pieces:,} pieces, its embedding {rows:,} rows")
    pieces, rows = english_tokenizer.get_vocab_size(), model.config.english_vocab_size
    if pieces != rows:
        raise MilcoError(f"encoder {name}: its English tokenizer has {pieces:,} pieces, its decoder {rows:,} rows")


def _empty(count: int, english_size: int) -> SparseBatch:
    return SparseBatch(np.zeros(count + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), english_size)


def _from_entries(entries: list[tuple[NDArray, NDArray, NDArray]], rows: int, english_size: int) -> SparseBatch:
    """The batch of (row, column, weight) entries in any order; no two share row and column."""
    number, column, weight = (np.concatenate([entry[part] for entry in entries]) for part in range(3))
    order = np.lexsort((column, number))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=rows))]).astype(np.int64)
    return SparseBatch(indptr, column[order].astype(np.int32), weight[order].astype(np.float32), english_size)
